"""Formats shown: the call formats that a prompt shows, for hosts that know no chat template."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import attrs

from specdec.calls.catalogue import FORMATS
from specdec.calls.formats import PLACEHOLDER, CallFormat
from specdec.calls.grammar import grammar, solid
from specdec.calls.recognise import recognise_among

MAX_TEXT: Final = 1_000_000
"""Characters of a prompt that are looked at."""

PLACES: Final = 8
"""Places of one mark that are looked at, at either end of a prompt."""

WINDOW: Final = 600
"""Characters behind a mark that are read as a call."""

READS: Final = 2
"""Places of the same formats that are read as a call, until one is."""

# Runs of white space are never given back: they stand next to each other here.
_SPACE: Final = r"\s*+"
_FILLED: Final = r"[^\s\"<>]{0,64}"
_JSON_NAME: Final = r'"?+[^"\n]{1,200}?"?+'
_MARKED_NAME: Final = r"[^\n]{1,2000}?"  # ReAct's placeholder lists all tools
_BARE_NAME: Final = r"[^\s\"'()\[\]<,=]{1,100}?"
_ARGUMENTS: Final = r"[\s\S]{1,2000}?"
# What is the value of a key is a tool, or a message in the form of an API; no model writes that.
_VALUE: Final = re.compile(r'":\s*\Z')
# A tool's own schema, or API-Bank's and Llama's way of describing arguments, is no call.
_NO_SCHEMA: Final = (
    r'(?!\{[^{}]{0,200}"(?:properties"\s*+:\s*+\{|type"\s*+:\s*+"object")'
    r'|\{\s*+"[^"\n]{0,100}"\s*+:\s*+\{\s*+"(?:type|description|param_type)")'
)


def shown_formats(text: str, formats: Iterable[CallFormat] = ()) -> tuple[CallFormat, ...]:
    """The call formats that a prompt shows, most certain first.

    A prompt shows a format with an earlier call, with an example, or with a call whose name and
    arguments are described in words. Calls that can be read come first, with their own white
    space; then what a mark announces; then bare JSON and Python calls. Among equals, later ones
    come first.

    Args:
        text: The prompt; its first `MAX_TEXT` characters count. May be anything; never raises.
        formats: Formats to prefer, best first; those of the catalogue come after them.

    Returns:
        The formats, each once; empty where no call is shown.
    """
    text = text[:MAX_TEXT]
    places = _places(text, [*(look for form in formats for look in _looks(form)), *_catalogue()])
    places.sort(key=lambda place: (place.weight, place.start), reverse=True)
    reads: Counter[tuple[CallFormat, ...]] = Counter()
    certain = 0
    read: list[CallFormat] = []
    for place in places:
        # Reading is the cost, and what is read of a lesser mark comes later anyway.
        if place.weight < certain or reads[place.formats] == READS:
            continue
        reads[place.formats] += 1
        window = text[place.start : place.start + WINDOW]
        if found := recognise_among(window, place.formats):
            reads[place.formats], certain = READS, place.weight
            read += (found, *place.formats)
    return tuple(dict.fromkeys((*read, *(form for place in places for form in place.formats))))


@attrs.frozen
class _Look:
    """How a format looks from what announces a call to what stands before its arguments.

    Attributes:
        form: The format.
        mark: What announces it, up to the first white space; empty for brackets only.
        weight: How much that says: 2 with what stands before the first call, 1 without it, 0 for
            brackets only.
        exact: The literals, white space as it is.
        free: The literals with any white space, or none.
    """

    form: CallFormat
    mark: str
    weight: int
    exact: re.Pattern[str]
    free: re.Pattern[str]


@attrs.frozen
class _Place:
    """One place where a text shows a call, and the formats that look like it."""

    start: int
    weight: int
    formats: tuple[CallFormat, ...]


def _places(text: str, looks: Iterable[_Look]) -> list[_Place]:
    """Where `text` shows a call, or several in a row; one place never begins inside another."""
    starts: dict[str, list[int]] = {}
    seen: dict[int, list[tuple[bool, int, _Look]]] = {}
    for look in looks:
        key = look.mark or look.free.pattern
        if key not in starts:
            starts[key] = _starts(text, look)
        for start in starts[key]:
            if found := look.free.match(text, start):
                exact = look.exact.match(text, start) is not None
                seen.setdefault(start, []).append((exact, found.end(), look))
    places: list[_Place] = []
    covered = 0
    for start, shown in sorted(seen.items()):
        if start < covered:
            continue
        covered = max(end for _, end, _ in shown)
        best = max((exact, look.weight) for exact, _, look in shown)
        formats = tuple(look.form for exact, _, look in shown if (exact, look.weight) == best)
        # Calls in a row are read together: the first may have arguments, the last none.
        last = places[-1] if places else None
        if last is None or formats != last.formats or start - last.start > WINDOW // 2:
            places.append(_Place(start, best[1], formats))
    return places


def _starts(text: str, look: _Look) -> list[int]:
    """The first and the last places where a look may begin."""
    if not look.mark:
        found = (match.start() for match in look.free.finditer(text))
        every = [at for at in found if not _VALUE.search(text, max(at - 8, 0), at)]
        return every if len(every) <= 2 * PLACES else every[:PLACES] + every[-PLACES:]
    starts: list[int] = []
    at = text.find(look.mark)
    while at >= 0 and len(starts) < PLACES:
        starts.append(at)
        at = text.find(look.mark, at + 1)
    if at < 0:
        return starts
    late: list[int] = []
    last, at = at, text.rfind(look.mark)
    while at >= last and len(late) < PLACES:
        late.append(at)
        at = text.rfind(look.mark, 0, at)
    return starts + late


@lru_cache(maxsize=1)
def _catalogue() -> tuple[_Look, ...]:
    return tuple(look for form in FORMATS.values() for look in _looks(form))


@lru_cache(maxsize=256)
def _looks(form: CallFormat) -> tuple[_Look, ...]:
    """With and without what stands before the first call, where both announce it."""
    looks: list[_Look] = []
    for head in dict.fromkeys(((form.block_open + form.open).lstrip(), form.open.lstrip())):
        mark = _mark(form, head)
        if mark or (not looks and grammar(form).openers):
            weight = 0 if not mark else 1 if looks else 2
            exact = re.compile(_pattern(form, head, mark, exact=True))
            free = re.compile(_pattern(form, head, mark, exact=False))
            looks.append(_Look(form, mark, weight, exact, free))
    return tuple(looks)


def _mark(form: CallFormat, head: str) -> str:
    """What announces a call up to the first white space; empty if that is next to nothing."""
    before = head.partition("{")[0] if form.envelope == "object" else PLACEHOLDER.split(head)[0]
    mark = solid(before).partition(" ")[0]
    return mark if len(mark) > 2 else ""


def _pattern(form: CallFormat, head: str, mark: str, *, exact: bool) -> str:
    """The regular expression of one look of a format."""

    def source(literal: str) -> str:
        written = "".join(_source(form, literal, exact=exact))
        return written if exact else f"{_SPACE}{written}{_SPACE}"

    # Searching is fast where an expression begins with a letter of its own.
    opened = head.removesuffix('"') if form.envelope == "object" and form.name_first else head
    first = source(opened).removeprefix(_SPACE)
    between, arguments = form.between, form.arguments
    if form.envelope == "object":
        # A name described in words often stands without quotes.
        behind = source(between.removeprefix('"') if form.name_first else between.removesuffix('"'))
        if not form.name_first:
            return f"{first}{_ARGUMENTS}{behind}{_JSON_NAME}"
        return f"{first}{_JSON_NAME}{behind}{'' if mark else _NO_SCHEMA}"
    if between.strip():
        return f"{first}{_MARKED_NAME}{source(between)}"
    # Nothing ends the name but what opens the arguments.
    ahead = arguments.open
    if not (mark and ahead.strip()):
        ahead += arguments.key_open
    key = "" if mark else rf"\w++{source(arguments.key_close)}"
    return f"{first}{_BARE_NAME}{source(between + ahead)}{key}"


def _source(form: CallFormat, literal: str, *, exact: bool) -> Iterator[str]:
    """A literal as a regular expression, piece by piece."""
    for i, part in enumerate(PLACEHOLDER.split(literal)):
        if i:
            yield _FILLED
        if exact:
            yield re.escape(part)
            continue
        if form.envelope == "object":
            part = re.sub(r"([{}\[\]:,])", r" \1 ", part)
        words = [re.escape(word) for word in solid(part).split()]
        # Nemotron's prompt doubles the braces.
        yield _SPACE.join(r"\{\{?+" if word == r"\{" else word for word in words)
