"""Recognition: a call format told from the first call that a model itself writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from specdec.calls.catalogue import FORMATS
from specdec.calls.formats import Arguments, CallFormat

MAX_TEXT = 65_536
"""Characters of an output that are looked at."""


def recognise(text: str, formats: Iterable[CallFormat] = ()) -> CallFormat | None:
    """The format of the calls in `text`, its white space included.

    Args:
        text: What a model wrote; its first `MAX_TEXT` characters count.
        formats: Formats to prefer, best first; those of the catalogue come after them.

    Returns:
        The first format that writes the text's first call exactly as it stands there, as it is or
        with other white space; else the first that reads a call in it; None if there is none.
        Among formats that read it, the one announced by the longest mark wins.
    """
    text = text[:MAX_TEXT]
    readers = [
        (form, calls)
        for form in dict.fromkeys((*formats, *FORMATS.values()))
        if (calls := form.parse(text))
    ]
    # All calls tell more than the first one: the separator, and what ends the block.
    for whole in (True, False):
        for form, calls in readers:
            for style in _styles(form):
                written = style.render(calls if whole else calls[:1])
                if (written if whole else written.rstrip()) in text:
                    return style
    return max(
        (form for form, _ in readers),
        key=lambda form: len(form.block_open + form.open),
        default=None,
    )


def _styles(form: CallFormat) -> Iterator[CallFormat]:
    """The format, and with the other ways of spacing its JSON."""
    yield form
    arguments = form.arguments
    if arguments.marked or not arguments.key_open.endswith('"'):
        return
    for indent in (0, 2, 4):
        yield attrs.evolve(form, arguments=Arguments.json(indent=indent))
    yield attrs.evolve(form, arguments=Arguments.json(compact=True))
    if form.envelope == "object":
        literals = (form.open, form.between, form.close, form.separator)
        opened, between, close, separator = (_compact(literal) for literal in literals)
        tight = attrs.evolve(form, open=opened, between=between, close=close, separator=separator)
        yield attrs.evolve(tight, arguments=Arguments.json(compact=True))


def _compact(literal: str) -> str:
    return literal.replace('": ', '":').replace('", "', '","').replace("}, {", "},{")
