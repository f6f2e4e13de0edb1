"""What may follow inside a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from specdec import CallFormat, calls
from specdec_toolspec.schema.align import STRAY
from specdec_toolspec.schema.context import Context
from specdec_toolspec.schema.habits import HABIT
from specdec_toolspec.schema.places import Frame, Kind, Option, Place
from specdec_toolspec.schema.spelling import spelling

WHOLE: Final = 0.9
"""P(a value ends behind a guess that is right so far)."""

BEGUN: Final = 0.5
"""The same where another guess begins with this one."""

QUOTED: Final = 0.15
"""P(a number or boolean is written as a string), before there is a habit."""


class ValuesLanguage:
    """The values of one format's arguments, as options from place to place.

    Args:
        form: How calls are written, white space included.
        context: Whose calls; without guesses, no end of a free value is offered either.
    """

    def __init__(self, form: CallFormat, context: Context) -> None:
        self.form = form
        self.context = context
        self.guesses = context.guesses
        self.arguments = form.arguments
        self.values = form.arguments.values
        self.spelling = spelling(form)

    def completed(self, place: Place) -> Place:
        """The place behind the value that the innermost frame was waiting for."""
        frames = (*place.frames[:-1], place.frames[-1].done())
        return place._replace(kind=Kind.ITEM, frames=frames, quote="")

    def _end(self, place: Place) -> str:
        """What stands behind a value, apart from its quote."""
        return "" if place.nested else self.arguments.value_close

    def _ended(self, place: Place, _: str) -> Iterator[Option]:
        """Behind a value that is complete, before the mark that ends it."""
        yield Option(self._end(place), 1.0, self.completed(place))

    def _values(self, place: Place, written: str) -> Iterator[Option]:
        """How the value that comes next may begin, or all of it where it is one of a few."""
        frame = place.frames[-1]
        slot = frame.inner
        if slot.choices:
            yield from self._choices(place, slot, written)
            return
        habit: Mapping[str, float] = {}
        if not place.nested:
            habit = self.context.habits.openings.of((place.tool or "", frame.key))
        odds = self._kinds(slot)
        for kind, chance in blended_openings(odds, habit, self.values).items():
            yield from self._opening(place, slot, kind, chance)

    def _kinds(self, slot: calls.Slot) -> dict[str, float]:
        """P(JSON type of a value)."""
        kinds = slot.kinds
        if not kinds:
            return {"string": 0.6, "integer": 0.2, "object": 0.1, "array": 0.1}
        odds = {kind: (0.9 if kind == kinds[0] else 0.1) for kind in kinds}
        whole = sum(odds.values()) / 0.97
        shares = {str(kind): chance / whole for kind, chance in odds.items()}
        if "string" not in shares:
            shares = {kind: chance * (1.0 - QUOTED) for kind, chance in shares.items()}
            shares["string"] = QUOTED
        return shares

    def _choices(self, place: Place, slot: calls.Slot, written: str) -> Iterator[Option]:
        behind, end = self.completed(place), self._end(place)
        texts = {choice: self.spelling.values[place.nested, choice] for choice in slot.choices}
        odds: Mapping[str, float] = dict.fromkeys(slot.choices, 0.9 / len(slot.choices))
        if self.guesses is not None:
            odds = self.guesses.among(slot, place.tool or "", place.frames[-1].key, texts)
        for choice, chance in odds.items():
            yield Option(texts[choice] + end, chance, behind)
        # A text that begins like a choice is hardly another.
        begun = written.lstrip()
        like = any(text.startswith(begun) for text in texts.values())
        other = 0.05 * (STRAY ** min(max(len(begun) - 1, 0), 16) if like else 1.0)
        yield from self._opening(place, slot, "string", other)

    def _opening(self, place: Place, slot: calls.Slot, kind: str, odds: float) -> Iterator[Option]:
        """How a value of one type begins."""
        frames = place.frames
        if kind == "string":
            for quote, share in self._quotes(nested=place.nested).items():
                content = place._replace(kind=Kind.CONTENT, quote=quote)
                yield Option(quote, odds * share, content)
        elif kind == "boolean":
            for value in ("true", "false"):
                text = self.spelling.values[place.nested, value] + self._end(place)
                yield Option(text, odds / 2, self.completed(place))
        elif kind == "null":
            text = self.spelling.values[place.nested, "null"] + self._end(place)
            yield Option(text, odds, self.completed(place))
        elif kind in ("object", "array"):
            opener = "{" if kind == "object" else "["
            inside = Frame(slot, list=kind == "array")
            yield Option(opener, odds, place._replace(kind=Kind.ITEM, frames=(*frames, inside)))
        else:
            yield Option("", odds, place._replace(kind=Kind.CONTENT, quote=""))

    def _quotes(self, *, nested: bool) -> dict[str, float]:
        """What may open a string, with its share."""
        if nested:
            if self.values.containers == "python":
                return {"'": 0.9, '"': 0.1}
            return {self.values.quote if self.values.containers == "bare" else '"': 1.0}
        how = self.values.strings
        if how == "python":
            return {"'": 0.85, '"': 0.15}
        return {"raw": {"": 1.0}, "bare": {self.values.quote: 1.0}}.get(how, {'"': 1.0})

    def _contents(self, place: Place, written: str) -> Iterator[Option]:
        """How a value that has begun may go on and end."""
        if self.guesses is None:
            return
        frame = place.frames[-1]
        behind = self.completed(place)
        close = place.quote + self._end(place)
        slot, default = frame.inner, frame.inner.default
        if default is not None:
            default = self.spelling.values[place.nested, default]
        found = self.guesses.of(slot, place.tool or "", frame.key, place.quote, written, default)
        for text, odds in found.items():
            # All of a guess may be right, and more of it follow.
            longer = any(other != text and other.startswith(text) for other in found)
            whole = BEGUN if longer else WHOLE
            yield Option(text + close, odds * whole, behind, exact=True)
            yield Option(text, odds * (1.0 - whole), None, exact=True)
        begun = overlap(written, close)
        if begun:
            # Its end may have begun; white space alone says little.
            odds = 0.9 if close[:begun].strip() else 0.4
            yield Option(written[:-begun] + close, odds, behind, exact=True)
        elif (end := self.guesses.end(place.quote, written, found)) > 0.0:
            yield Option(written + close, end, behind, exact=True)


def overlap(written: str, mark: str) -> int:
    """How much of the beginning of `mark`, but not all of it, a text ends with, in characters."""
    return next((n for n in range(len(mark) - 1, 0, -1) if written.endswith(mark[:n])), 0)


def blended_openings(
    odds: Mapping[str, float], habit: Mapping[str, float], values: calls.Values
) -> dict[str, float]:
    """P(JSON type), with how this argument's values began before."""
    if not habit:
        return dict(odds)
    mixed = {kind: HABIT * chance for kind, chance in odds.items()}
    total = HABIT
    for opening, count in habit.items():
        total += count
        kinds = {"{": ["object"], "[": ["array"], '"': ["string"], "'": ["string"]}.get(opening)
        if kinds is None:
            plain = [kind for kind in mixed if kind not in ("object", "array", "string")]
            kinds = ["string"] if values.strings == "raw" else plain or ["integer"]
        for kind in kinds:
            mixed[kind] = mixed.get(kind, 0.0) + count / len(kinds)
    return {kind: chance / total for kind, chance in mixed.items()}
