"""Places: where in a call an output stands, as the machine looks ahead from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from specdec import calls


class Kind(Enum):
    """What comes next at a place."""

    START = auto()  # the output's first call, with what may stand before it
    OPENING = auto()  # what announces a call
    NAME = auto()
    LINK = auto()  # between name and arguments, in this order or the other
    LEAD = auto()  # white space that belongs to the mark before it
    ITEM = auto()  # an argument, a property, an item of a list, or the end of them
    VALUE = auto()
    CONTENT = auto()  # the inside of a value that has begun
    ENDED = auto()  # behind a value that is complete, before the mark that ends it
    CLOSE = auto()  # behind the arguments, inside the call
    AFTER = auto()  # behind a call


class Frame(NamedTuple):
    """One open container: the arguments, or an object or list inside a value.

    Attributes:
        slot: What it may hold.
        list: Whether it is a list.
        keys: What is complete in it: names of properties, or one empty text per item.
        key: The property whose value comes next or is being written.
    """

    slot: calls.Slot
    list: bool = False
    keys: tuple[str, ...] = ()
    key: str = ""

    @property
    def inner(self) -> calls.Slot:
        """The slot of the value that comes next or is being written."""
        return self.slot.at(len(self.keys) if self.list else self.key)

    def done(self) -> Frame:
        """The same when that value is complete."""
        return Frame(self.slot, self.list, (*self.keys, self.key))


class Place(NamedTuple):
    """Where in a call an output stands.

    Attributes:
        kind: What comes next.
        number: How many calls stand before this one in the output.
        tool: The tool, once it is known; where arguments come first, the one they point to.
        frames: The open containers, the arguments first.
        quote: What ends the value that has begun; empty for a word without quotes.
        previous: The tool called before; empty if none.
    """

    kind: Kind
    number: int = 0
    tool: str | None = None
    frames: tuple[Frame, ...] = ()
    quote: str = ""
    previous: str = ""

    def to(self, kind: Kind, frames: tuple[Frame, ...]) -> Place:
        """The same call with something else next, in these containers."""
        return Place(kind, self.number, self.tool, frames, "", self.previous)

    @property
    def key(self) -> Hashable:
        """What tells it from the other places of a request: the tool stands for the slots."""
        frames = [frame[1:] for frame in self.frames]  # all but their slots
        return self.kind, self.number, self.tool, self.quote, self.previous, *frames

    @property
    def nested(self) -> bool:
        """Whether it is inside a value."""
        return len(self.frames) > 1


class Option(NamedTuple):
    """One way to go on from a place.

    Attributes:
        text: The literal; `WILD` in it is what nobody can know.
        odds: P(it | the place), before anything is written.
        next: The place behind it; None where the machine knows nothing more.
        exact: Whether white space in it counts.
    """

    text: str
    odds: float
    next: Place | None
    exact: bool = False


Way = Callable[[Place, str], Iterator[Option]]
"""The options of one kind of place, where some text already stands."""
