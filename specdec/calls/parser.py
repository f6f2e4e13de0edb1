"""CallParser: a model's output turned into text and calls as it arrives."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import attrs

from specdec.calls.compiler import compile_tool
from specdec.calls.formats import Call, CallFormat
from specdec.calls.grammar import grammar
from specdec.calls.schema import FREE, Slot
from specdec.calls.state import CallState
from specdec.calls.tools import Tool
from specdec.calls.values import UNREADABLE
from specdec.calls.walk import Walk
from specdec.calls.working import Passed


@attrs.frozen
class TextDelta:
    """More text outside of calls."""

    text: str


@attrs.frozen
class CallStart:
    """A call's name is complete.

    Attributes:
        index: Its place among the output's calls, from 0.
        name: The tool's name.
    """

    index: int
    name: str


@attrs.frozen
class ArgumentDelta:
    """More of an argument's value.

    Attributes:
        index: The call's place.
        key: The argument's name.
        text: What is written of its value, as it is written.
    """

    index: int
    key: str
    text: str


@attrs.frozen
class CallEnd:
    """A call is complete.

    Attributes:
        index: Its place.
        call: The call; None where what is written in it cannot be read, or it broke off.
    """

    index: int
    call: Call | None


Event = TextDelta | CallStart | ArgumentDelta | CallEnd


class CallParser:
    """Turns output text into events and calls, however it is cut into pieces.

    Args:
        format: How the model writes calls.
        tools: The tools it may call; where strings stand without quotes, their schemas tell a
            string from a number.
    """

    def __init__(self, format: CallFormat, tools: Sequence[Tool] = ()) -> None:
        self.format = format
        self.calls: list[Call] = []
        self._slots = {tool.name: compile_tool(tool) for tool in tools}
        self._state = CallState()
        self._index = 0
        self._started = False
        self._held: list[ArgumentDelta] = []  # of a call whose name is not known yet
        self._shown = 0  # characters of the current value that were handed out

    @property
    def state(self) -> CallState:
        """Where the text so far ends."""
        return self._state

    def push(self, text: str) -> list[Event]:
        """What `text` adds."""
        walk = Walk(grammar(self.format), self._state)
        walk.feed(text)
        return self._events(walk)

    def finish(self) -> list[Event]:
        """What is left when the output has ended: text held back, a call without its end mark."""
        walk = Walk(grammar(self.format), self._state)
        walk.finish()
        return self._events(walk)

    def _events(self, walk: Walk) -> list[Event]:
        events: list[Event] = []
        for passed in walk.passed:
            self._take(passed, events)
        self._state = state = walk.state()
        if state.phase == "value" and state.key is not None:
            shown = self._certain(state.tail)
            self._delta(state.key, shown[self._shown :], events)
            self._shown = max(self._shown, len(shown))
        return _joined(events)

    def _take(self, passed: Passed, events: list[Event]) -> None:
        if passed.kind == "text":
            events.append(TextDelta(passed.text))
        elif passed.kind == "name":
            events.append(CallStart(self._index, passed.text))
            events.extend(self._held)
            self._held, self._started = [], True
        elif passed.kind == "value":
            if passed.key is not None:
                self._delta(passed.key, self._trim(passed.text)[self._shown :], events)
            self._shown = 0
        elif passed.kind == "end":
            assert passed.state is not None
            call = self._call(passed.state)
            if call is not None:
                self.calls.append(call)
            self._end(call, events)
        elif self._started:
            self._end(None, events)
        else:
            self._held, self._shown = [], 0
            events.append(TextDelta(passed.text))

    def _end(self, call: Call | None, events: list[Event]) -> None:
        events.append(CallEnd(self._index, call))
        self._index += 1
        self._started, self._held, self._shown = False, [], 0

    def _delta(self, key: str, text: str, events: list[Event]) -> None:
        if text:
            delta = ArgumentDelta(self._index, key, text)
            if self._started:
                events.append(delta)
            else:
                self._held.append(delta)

    def _trim(self, written: str) -> str:
        """A value without the white space that belongs to the marks around it."""
        arguments = self.format.arguments
        if not arguments.marked:
            return written.strip()
        before = len(arguments.key_close) - len(arguments.key_close.rstrip())
        after = len(arguments.value_close) - len(arguments.value_close.lstrip())
        if before:
            written = written.removeprefix(arguments.key_close[-before:])
        return written.removesuffix(arguments.value_close[:after]) if after else written

    def _certain(self, written: str) -> str:
        """The part of an unfinished value that no end mark can take back."""
        arguments = self.format.arguments
        if not arguments.marked:
            return written.rstrip()
        before = len(arguments.key_close) - len(arguments.key_close.rstrip())
        lead = arguments.key_close[-before:] if before else ""
        if lead.startswith(written):
            return ""
        close, mark = arguments.value_close, arguments.value_close.strip()
        held = max(_overlap(written, close), _overlap(written, mark))
        certain = written[: len(written) - held] if held else written
        # White space before the end mark is the mark's, once the mark has come.
        if held and close.startswith(space := close[: len(close) - len(close.lstrip())]):
            certain = certain.removesuffix(space)
        return certain.removeprefix(lead)

    def _call(self, state: CallState) -> Call | None:
        """The call that a finished state holds; None if it cannot be read."""
        assert state.name is not None
        slot = self._slots.get(state.name, FREE)
        arguments: Any = {}
        if len(state.values) > len(state.keys):
            arguments = self._whole(state.values[-1])
        else:
            for key, written, flag in zip(state.keys, state.values, state.flags, strict=True):
                value = self._value(written, slot.at(key), flag)
                if value is UNREADABLE:
                    return None
                arguments[key] = value
        if not isinstance(arguments, Mapping):
            return None
        return Call(state.name, arguments, _id(self.format, state.raw))

    def _value(self, written: str, slot: Slot, flag: str) -> Any:  # noqa: ANN401
        string = flag in ("true", "string") if flag else None
        return self.format.arguments.values.read(self._trim(written), slot, string=string)

    def _whole(self, written: str) -> Any:  # noqa: ANN401
        """Arguments that are no object: an object as text, or null for none."""
        value = self.format.arguments.values.read(written)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        return {} if value is None else value


def _overlap(text: str, mark: str) -> int:
    """Characters at the end of `text` that `mark` may begin with."""
    for size in range(min(len(text), len(mark)), 0, -1):
        if text.endswith(mark[:size]):
            return size
    return 0


def _joined(events: list[Event]) -> list[Event]:
    """The events, neighbouring texts put together."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            joined[-1] = TextDelta(last.text + event.text)
        else:
            joined.append(event)
    return joined


@lru_cache(maxsize=256)
def _id_pattern(form: CallFormat) -> re.Pattern[str] | None:
    for literal in (form.open, form.between, form.close):
        before, found, after = literal.partition("{id}")
        if found:
            context = r"\s*".join(map(re.escape, before.split()))
            return re.compile(context + f"([^{re.escape(after[:1])}]*)")
    return None


def _id(form: CallFormat, written: str) -> str:
    """The id that a call's text gives it; empty if none."""
    pattern = _id_pattern(form)
    found = pattern.findall(written) if pattern else []
    return str(found[-1]) if found else ""
