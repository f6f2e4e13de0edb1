"""Habits: how a tenant's model has written its calls so far."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from specdec import CallFormat, calls
from specdec_toolspec.schema.record import format_from, format_to

PLACES: Final = 4_096
"""Places about which something is remembered, such as one argument of one tool."""

CHOICES: Final = 12
"""Choices remembered of one place: the likeliest, with the latest."""

FORMATS: Final = 4
"""Formats remembered."""

LONGEST: Final = 256
"""Characters of a value that is remembered."""

FADE: Final = 0.9
"""What an older choice is worth when another is made in its place, so that habits can change."""

HABIT: Final = 3.0
"""What an assumption weighs against habits, in observations."""

NO_CALL: Final = "\0"
"""Stands for what is before the first call of an output that does not begin with one."""

K = TypeVar("K", bound=Hashable)


class Counts(Generic[K]):
    """How often each choice was made in each place; bounded, the latest used stay."""

    def __init__(self) -> None:
        self._places: OrderedDict[Hashable, dict[K, float]] = OrderedDict()

    def add(self, place: Hashable, choice: K) -> None:
        """Note that `choice` was made in `place`."""
        made = self._places.pop(place, {})
        made = {known: weight * FADE for known, weight in made.items()}
        made[choice] = made.pop(choice, 0.0) + 1.0
        while len(made) > CHOICES:
            # The latest is never the one to go: it may be the beginning of a new habit.
            del made[min(tuple(made)[:-1], key=made.__getitem__)]
        self._places[place] = made
        while len(self._places) > PLACES:
            self._places.popitem(last=False)

    def of(self, place: Hashable) -> Mapping[K, float]:
        """The choices made in `place`, by weight; empty if none was."""
        return self._places.get(place, {})

    def state(self) -> list[Any]:
        """Plain values."""
        return [[place, list(made.items())] for place, made in self._places.items()]

    def restore(self, rows: Iterable[Any]) -> None:
        """The inverse of `state`."""
        self._places = OrderedDict(
            (_hashable(place), {_hashable(choice): float(weight) for choice, weight in made})
            for place, made in rows
        )


class Habits:
    """What calls were like: their formats, names, the order of arguments, values.

    Safe to use from several threads: tables are replaced, never changed while they are read.
    """

    def __init__(self) -> None:
        self.styles: dict[CallFormat, CallFormat] = {}
        self.begun: Counts[str] = Counts()  # what stands before an output's first call
        self.names: Counts[str] = Counts()  # by the call before
        self.keys: Counts[str | None] = Counts()  # by tool and the argument before; None: the end
        self.openings: Counts[str] = Counts()  # first characters of values by tool and argument
        self.values: Counts[str] = Counts()  # as they are written, by tool and argument
        self.early: Counts[bool] = Counts()  # whether calls ended without a required argument
        self.following: Counts[bool] = Counts()  # whether another call followed
        self.age = 0  # grows with everything that is learned
        self._lock = threading.Lock()

    @property
    def formats(self) -> tuple[CallFormat, ...]:
        """The formats that calls were written in, the latest first."""
        return tuple(reversed(self.styles.values()))

    def style(self, form: CallFormat) -> CallFormat:
        """How calls of a format are spaced here."""
        return self.styles.get(form, form)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        with self._lock:
            yield
            self.age += 1

    def learn_style(self, form: CallFormat, style: CallFormat) -> None:
        """Note that a call of `form` was written as `style`."""
        with self._learning():
            styles = {known: kept for known, kept in self.styles.items() if known != form}
            kept = [*styles.items()][-FORMATS + 1 :]
            self.styles = dict([*kept, (form, style)])

    def learn_start(self, before: str | None) -> None:
        """Note what stood before an output's first call; None if it does not begin with one."""
        with self._learning():
            self.begun.add("", NO_CALL if before is None else before)

    def learn_call(self, call: calls.CallState, previous: str, slot: calls.Slot) -> None:
        """Note a call that has ended.

        Args:
            call: Its last state.
            previous: The tool called before it in the same output; empty if none.
            slot: What its arguments should have been.
        """
        name = call.name or ""
        with self._learning():
            self.names.add("", name)
            if previous:
                self.names.add(previous, name)
                self.following.add("", True)
            last = ""
            for key, value in zip(call.keys, call.values, strict=False):
                self.keys.add((name, last), key)
                written = value.strip()
                self.openings.add((name, key), opening_of(written))
                if 0 < len(written) <= LONGEST:
                    self.values.add((name, key), written)
                last = key
            self.keys.add((name, last), None)
            required = {item.name for item in slot.properties if item.required}
            if required:
                self.early.add("", not required <= set(call.keys))

    def learn_end(self) -> None:
        """Note that no call followed the last one."""
        with self._learning():
            self.following.add("", False)

    def state(self) -> Mapping[str, Any]:
        """Plain values."""
        with self._lock:
            tables = {name: getattr(self, name).state() for name in _TABLES}
            styles = [[format_to(form), format_to(style)] for form, style in self.styles.items()]
            return {"styles": styles, **tables}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        with self._learning():
            self.styles = {format_from(form): format_from(style) for form, style in state["styles"]}
            for name in _TABLES:
                getattr(self, name).restore(state[name])


_TABLES: Final = ("begun", "names", "keys", "openings", "values", "early", "following")


def opening_of(written: str) -> str:
    """What a value begins with: a quote, a bracket, or nothing that tells."""
    return written[:1] if written[:1] in tuple("\"'[{(<") else ""


def _hashable(value: Any) -> Any:  # noqa: ANN401 - a place or a choice, as JSON may give it back
    return tuple(value) if isinstance(value, list) else value
