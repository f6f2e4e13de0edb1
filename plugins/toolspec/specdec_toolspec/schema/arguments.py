"""What may follow inside a call's arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from specdec import CallFormat, calls
from specdec_toolspec.schema.align import STRAY, align
from specdec_toolspec.schema.context import Context
from specdec_toolspec.schema.places import Frame, Kind, Option, Place
from specdec_toolspec.schema.spelling import spelling

REQUIRED: Final = 0.95
"""P(a required argument is the next one | it is the next in the schema's order)."""

OPTIONAL: Final = 0.35
"""The same for an optional one."""

EARLY: Final = 0.05
"""P(the arguments end though a required one is missing), before there is a habit."""

WHOLE: Final = 0.9
"""P(a value ends behind a guess that is right so far)."""

BEGUN: Final = 0.5
"""The same where another guess begins with this one."""

STRANGE: Final = 0.01
"""P(an argument follows that the schema does not know)."""

UNKNOWN: Final = 0.7
"""P(an argument follows | the schema names none but allows any)."""

LEAST: Final = 0.03
"""What an argument, or the end, is worth at least; the model may break the schema."""

QUOTED: Final = 0.15
"""P(a number or boolean is written as a string), before there is a habit."""

HABIT: Final = 3.0
"""What an assumption weighs against habits, in observations."""

_KEY: Final = "@key@"
_BRACKETS: Final = {"{": "}", "[": "]", "(": ")"}


class ArgumentsLanguage:
    """The arguments of one format's calls, as options from place to place.

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

    @cached_property
    def _opened(self) -> str:
        """What opens the arguments: as far as a cursor needs it to tell that they begin."""
        opened = self.arguments.open
        if self.arguments.marked or opened.strip()[:1] not in _BRACKETS:
            return opened
        return opened[: len(opened) - len(opened.lstrip()) + 1]

    def _items(self, place: Place, written: str) -> Iterator[Option]:
        """What comes next in the arguments, an object or a list, or their end."""
        if place.frames[-1].list:
            return self._entries(place)
        return self._properties(place, written)

    def _properties(self, place: Place, written: str) -> Iterator[Option]:
        """The properties that may come next in an object, and its end."""
        frame, outer = place.frames[-1], place.frames[:-1]
        before = self._before(place)
        odds = self._orders(place)
        yield from self._strange(place, written, odds)
        for key, chance in odds.items():
            if key is None:
                yield self._closing(place, chance)
            else:
                begun = Frame(frame.slot, frame.list, frame.keys, key)
                below = place.to(Kind.VALUE, (*outer, begun))
                yield Option(before + self._key(place, begun), chance, below)

    def _strange(
        self, place: Place, written: str, known: Mapping[str | None, float]
    ) -> Iterator[Option]:
        """A property that the schema does not know, once its name is being written."""
        frame = place.frames[-1]
        lead, _, close = self.spelling.keys[place.nested, _KEY, "string"].partition(_KEY)
        lead = self._before(place) + lead
        begun = align(lead, written)
        if begun is None:
            return
        _, name = begun
        if not name:
            unknown = frame.slot.extra and not frame.slot.properties
            yield Option(lead, UNKNOWN if unknown else STRANGE, None)
            return
        mark = close.strip()[:1]
        key = name.partition(mark)[0] if mark else name
        if key and not any(item is not None and item.startswith(key) for item in known):
            below = frame._replace(key=key)
            behind = place._replace(kind=Kind.VALUE, frames=(*place.frames[:-1], below))
            yield Option(lead + key + close, STRANGE, behind)

    def _closing(self, place: Place, odds: float) -> Option:
        frame = place.frames[-1]
        if place.nested:
            bracket = "]" if frame.list else "}"
            outer = self.completed(place._replace(frames=place.frames[:-1]))
            lead = self._line(len(place.frames) - 2) if frame.keys else ""
            return Option(lead + bracket + self._end(outer), odds, outer)
        arguments = self.arguments
        text = arguments.close
        if not frame.keys:
            empty = arguments.open + arguments.close if arguments.empty is None else arguments.empty
            text = empty.removeprefix(self._opened)
        kind = Kind.CLOSE if self.form.name_first else Kind.LINK
        return Option(text, odds, place._replace(kind=kind))

    def _before(self, place: Place) -> str:
        """What stands before the next property or item."""
        frame = place.frames[-1]
        if not place.nested:
            opened = self.arguments.open[len(self._opened) :]
            return self.arguments.separator if frame.keys else opened
        if self.values.containers == "json" and self.values.indent:
            return ("," if frame.keys else "") + self._line(len(place.frames) - 1)
        if not frame.keys:
            return ""
        return {"json": self.values.item_separator, "python": ", "}.get(self.values.containers, ",")

    def _line(self, depth: int) -> str:
        """A line break and what stands before an item `depth` containers deep in a value."""
        if self.values.containers != "json" or not self.values.indent:
            return ""
        return "\n" + self.values.margin + " " * self.values.indent * depth

    def _key(self, place: Place, frame: Frame) -> str:
        """A property's name with the marks around it."""
        kinds = frame.inner.kinds if self.spelling.typed else ()
        return self.spelling.keys[place.nested, frame.key, kinds[0] if kinds else "string"]

    def _orders(self, place: Place) -> dict[str | None, float]:
        """P(next property), None being the end, in falling order.

        In the schema's order, or in alphabetical order where the format sorts; whatever the
        tenant's model did behind the same argument before counts as much.
        """
        frame = place.frames[-1]
        last = frame.keys[-1] if frame.keys else ""
        odds = self._in_order(frame, sort=self._sorts(place))
        if not place.nested:
            odds = blended(odds, self.context.habits.keys.of((place.tool or "", last)), frame.keys)
        return dict(sorted(odds.items(), key=lambda item: -item[1]))

    def _sorts(self, place: Place) -> bool:
        return self.values.containers == "bare" if place.nested else self.arguments.sort

    def _in_order(self, frame: Frame, *, sort: bool) -> dict[str | None, float]:
        items = frame.slot.properties
        if sort:
            items = tuple(sorted(items, key=lambda item: item.name.lower()))
        names = [item.name for item in items]
        last = frame.keys[-1] if frame.keys else ""
        start = names.index(last) + 1 if last in names else 0
        # Those passed over come last: models seldom go back.
        odds: dict[str | None, float] = {}
        left = 1.0
        habit = self.context.habits.early.of("")
        early = (EARLY * HABIT + habit.get(True, 0.0)) / (HABIT + sum(habit.values()))
        early = early if frame.keys else LEAST / 2
        least = min(LEAST, 0.5 / (len(items) + 1))
        if not items and frame.slot.extra:
            return {None: 1.0 - UNKNOWN if not frame.keys else 0.5}
        done = set(frame.keys)
        for item in (*items[start:], None, *items[:start]):
            if item is None:
                missing = any(i.required and i.name not in done for i in items)
                take = min(early / max(left, least), 1.0) if missing else 0.98
            elif item.name in done:
                continue
            else:
                take = REQUIRED if item.required else OPTIONAL
            odds[item.name if item else None] = max(left * take, least)
            left *= 1.0 - take
        return odds

    def _entries(self, place: Place) -> Iterator[Option]:
        """The next item of a list, or its end."""
        frame = place.frames[-1]
        end = 0.1 if not frame.keys else 0.5
        yield self._closing(place, end)
        lead = self._before(place)
        for option in self._values(place, ""):
            yield option._replace(text=lead + option.text, odds=option.odds * (1.0 - end))

    # Values.

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


def blended(
    odds: Mapping[str | None, float], habit: Mapping[str | None, float], used: Iterable[str]
) -> dict[str | None, float]:
    """What a schema says and what was done before, together."""
    mixed = {key: HABIT * chance for key, chance in odds.items()}
    done = set(used)
    weight = HABIT
    for key, count in habit.items():
        if key not in done:
            mixed[key] = mixed.get(key, 0.0) + count
            weight += count
    whole = max(weight, sum(mixed.values()))
    return {key: chance / whole for key, chance in mixed.items()}


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
