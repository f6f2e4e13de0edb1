"""Language: what may follow at each place of a call in one format."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from specdec import CallFormat
from specdec_toolspec.schema.align import WILD, wild
from specdec_toolspec.schema.arguments import ArgumentsLanguage
from specdec_toolspec.schema.context import Context
from specdec_toolspec.schema.habits import HABIT, NO_CALL
from specdec_toolspec.schema.places import Frame, Kind, Option, Place, Way

NUMBERED: Final = 0.5
"""P(a call's id is its number in nine digits, as Mistral's templates want ids)."""

STARTS: Final = 0.9
"""P(an output begins with a call), before there is a habit."""

LATER: Final = 0.3
"""P(a call begins on a new line of text)."""

MORE: Final = 0.1
"""P(another call follows), before there is a habit."""

SEEN: Final = 2_048
"""Places whose options are kept, until there is a new habit."""

TOOLS: Final = 6
"""Tools considered at once where the arguments come before the name."""


class Language(ArgumentsLanguage):
    """The calls of one format, as options from place to place.

    Args:
        form: How calls are written, white space included.
        context: Whose calls; without guesses, no end of a free value is offered either.
    """

    def __init__(self, form: CallFormat, context: Context) -> None:
        super().__init__(form, context)
        self._seen: dict[Hashable, tuple[Option, ...]] = {}
        self._age = context.habits.age
        self._ways: dict[Kind, Way] = {
            Kind.START: self._starts,
            Kind.OPENING: self._openings,
            Kind.NAME: self._names,
            Kind.LINK: self._links,
            Kind.LEAD: self._leads,
            Kind.ITEM: self._items,
            Kind.VALUE: self._values,
            Kind.CONTENT: self._contents,
            Kind.ENDED: self._ended,
            Kind.CLOSE: self._closes,
            Kind.AFTER: self._ends,
        }

    def options(self, place: Place, written: str) -> Sequence[Option]:
        """The ways to go on from `place`, where `written` already stands."""
        if written:
            return tuple(self._options(place, written))
        if self._age != self.context.habits.age or len(self._seen) >= SEEN:
            self._seen.clear()
            self._age = self.context.habits.age
        # Places ahead of one proposal are places ahead of the next.
        key = place.key
        known = self._seen.get(key)
        if known is None:
            known = self._seen[key] = tuple(self._options(place, ""))
        return known

    def _options(self, place: Place, written: str) -> Iterator[Option]:
        for option in self._ways[place.kind](place, written):
            if WILD in option.text:
                # Nobody can know an id; where a model makes one up, a number is the likeliest.
                number = option.text.replace(WILD, f"{place.number + 1:09d}")
                yield option._replace(text=number, odds=option.odds * NUMBERED)
                yield option._replace(odds=option.odds * (1.0 - NUMBERED))
            else:
                yield option

    # Around calls.

    def _fill(self, literal: str, place: Place) -> str:
        """A format's literal, with what is known of its placeholders."""
        if "{" not in literal:
            return literal
        literal = literal.replace("{index}", str(place.number)).replace(
            "{number}", str(place.number + 1)
        )
        if place.tool is not None:
            literal = literal.replace("{name}", place.tool)
        return wild(literal)

    def _begun(self, place: Place) -> Place:
        """The place behind what announces a call."""
        if self.form.name_first:
            return place._replace(kind=Kind.NAME)
        return place._replace(kind=Kind.LINK)

    def _starts(self, place: Place, _: str) -> Iterator[Option]:
        """The first call of an output, behind whatever stood before such calls so far."""
        habit = self.context.habits.begun.of("")
        total = HABIT + sum(habit.values())
        starts = {"": STARTS * HABIT}
        for before, weight in habit.items():
            if before != NO_CALL:
                starts[before] = starts.get(before, 0.0) + weight
        text = self._fill(self.form.block_open + self.form.open, place)
        for before, weight in starts.items():
            yield Option(before + text, weight / total, self._begun(place))

    def _leads(self, place: Place, _: str) -> Iterator[Option]:
        """White space between a mark and what it announces."""
        frame = place.frames[-1]
        if frame.key:
            mark, kind = self.arguments.key_close, Kind.VALUE
        elif frame.keys:
            mark, kind = self.arguments.value_close, Kind.ITEM
        else:
            mark, kind = self.form.between + self.arguments.open, Kind.ITEM
        yield Option(mark[len(mark.rstrip()) :], 1.0, place._replace(kind=kind))

    def _openings(self, place: Place, _: str) -> Iterator[Option]:
        opened = self._fill(self.form.open, place)
        block = self._fill(self.form.block_open, place)
        begun = self._begun(place)
        if place.number:
            separator = self._fill(self.form.separator, place)
            yield Option(separator + opened, 0.7, begun)
            yield Option(block + opened, 0.3, begun)
        else:
            yield Option(block + opened, LATER, begun)

    def _ends(self, place: Place, _: str) -> Iterator[Option]:
        """What follows a call: the end of the block, or the next call."""
        habit = self.context.habits.following.of("")
        more = (MORE * HABIT + habit.get(True, 0.0)) / (HABIT + sum(habit.values()))
        if not self.form.several:
            more = 0.0
        if self.form.block_close:
            yield Option(self._fill(self.form.block_close, place), 1.0 - more, None)
        if more:
            text = self._fill(self.form.separator + self.form.open, place)
            yield Option(text, more, self._begun(place))

    def _names(self, place: Place, written: str) -> Iterator[Option]:
        if not self.form.name_first and place.tool is not None:
            # The arguments have told which tool it is.
            yield Option(self.spelling.names[place.tool], 0.9, self._named(place, place.tool))
            return
        for name, odds in self.context.names(written, place.previous).items():
            yield Option(self.spelling.names[name], odds * 0.98, self._named(place, name))

    def _named(self, place: Place, name: str) -> Place:
        kind = Kind.LINK if self.form.name_first else Kind.CLOSE
        return place._replace(kind=kind, tool=name)

    def _links(self, place: Place, _: str) -> Iterator[Option]:
        """From the name to the arguments; or, where they come first, into them or to the name."""
        if self.form.name_first:
            text = self._fill(self.form.between, place) + self._opened
            yield Option(text, 1.0, self.inside(place, place.tool))
        elif place.frames:
            text = self._fill(self.form.between, place)
            yield Option(text, 1.0, place._replace(kind=Kind.NAME, frames=()))
        else:
            for tool, odds in self.candidates((), place.previous):
                yield Option(self._opened, odds, self.inside(place, tool))

    def inside(self, place: Place, tool: str | None) -> Place:
        """The place before a tool's first argument."""
        frame = Frame(self.context.toolset.slot(tool))
        return place._replace(kind=Kind.ITEM, tool=tool, frames=(frame,))

    def candidates(self, keys: Iterable[str], previous: str) -> list[tuple[str, float]]:
        """The likeliest tools that have these arguments, with P(tool)."""
        wanted = set(keys)
        toolset = self.context.toolset
        fitting = {
            name: odds
            for name, odds in self.context.names("", previous).items()
            if wanted <= {item.name for item in toolset.slot(name).properties}
        }
        whole = sum(fitting.values()) or 1.0
        return [(name, odds / whole) for name, odds in list(fitting.items())[:TOOLS]]

    def _closes(self, place: Place, _: str) -> Iterator[Option]:
        """From the end of the arguments, or of the name behind them, to that of the call."""
        behind = place._replace(kind=Kind.AFTER, number=place.number + 1)
        yield Option(wild(self.form.close), 1.0, behind)
