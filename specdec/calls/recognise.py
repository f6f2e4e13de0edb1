"""Recognition: a call format told from the first call that a model itself writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from specdec.calls.catalogue import FORMATS
from specdec.calls.cursor import Cursor
from specdec.calls.formats import Arguments, Call, CallFormat

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
        Among formats that read it, those that have name and arguments in its order come first,
        then the one announced by the longest mark.
    """
    return recognise_among(text[:MAX_TEXT], dict.fromkeys((*formats, *FORMATS.values())))


def recognise_among(text: str, formats: Iterable[CallFormat]) -> CallFormat | None:
    """What `recognise` tells where only `formats` come into question."""
    readers = [(form, calls) for form in formats if (calls := form.parse(text))]
    # All calls tell more than the first one: the separator, and what ends the block.
    for whole in (True, False):
        for form, calls in readers:
            for style in styles(form):
                written = style.render(calls if whole else calls[:1])
                if (written if whole else written.rstrip()) in text:
                    return style
    # Of a call that is not over yet, what is there may tell.
    for form, _ in readers:
        at, ended = Cursor(form).follow(Cursor(form).start(), text)
        if (begun := style_of(form, ended[0].raw if ended else at.raw)) is not None:
            return begun
    ranked = {
        form: (_in_order(form, calls[0], text), len(form.block_open + form.open))
        for form, calls in readers
    }
    return max(ranked, key=ranked.__getitem__, default=None)


def _in_order(form: CallFormat, call: Call, text: str) -> bool:
    """Whether name and arguments of a call stand in the format's order."""
    key = next(iter(call.arguments), None)
    return key is None or form.name_first == (text.find(call.name) <= text.find(key))


def style_of(form: CallFormat, text: str) -> CallFormat | None:
    """The format with the white space in which a call of it is written.

    Args:
        form: The format.
        text: One call, from what announces it to its end; what ends the block may be missing.

    Returns:
        The first of the format's styles that writes the call as it stands there; None if none
        does.
    """
    call = next(iter(form.parse(text)), None)
    if call is None:
        return None
    written = text.strip()
    for style in styles(form):
        for opening in (style.block_open, ""):
            rendered = (opening + style.render_call(call)).strip()
            if rendered.startswith(written) or written.startswith(rendered):
                return style
    return None


def styles(form: CallFormat) -> Iterator[CallFormat]:
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
