"""What may follow inside a call's arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from specdec_toolspec.schema.align import align
from specdec_toolspec.schema.habits import HABIT
from specdec_toolspec.schema.places import Frame, Kind, Option, Place
from specdec_toolspec.schema.values import ValuesLanguage

REQUIRED: Final = 0.95
"""P(a required argument is the next one | it is the next in the schema's order)."""

OPTIONAL: Final = 0.35
"""The same for an optional one."""

EARLY: Final = 0.05
"""P(the arguments end though a required one is missing), before there is a habit."""

STRANGE: Final = 0.01
"""P(an argument follows that the schema does not know)."""

UNKNOWN: Final = 0.7
"""P(an argument follows | the schema names none but allows any)."""

LEAST: Final = 0.03
"""What an argument, or the end, is worth at least; the model may break the schema."""

_KEY: Final = "@key@"
_BRACKETS: Final = {"{": "}", "[": "]", "(": ")"}


class ArgumentsLanguage(ValuesLanguage):
    """The arguments of one format's calls, as options from place to place.

    Args:
        form: How calls are written, white space included.
        context: Whose calls; without guesses, no end of a free value is offered either.
    """

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
