"""Working: the changing copy of a CallState that a walk moves along."""

from __future__ import annotations

from typing import Literal

import attrs

from specdec.calls.grammar import Grammar
from specdec.calls.state import CallState, Phase, Scan

MAX_MARKS = 1_024
"""Characters between two parts of a call; something longer is no call."""


@attrs.frozen
class Passed:
    """Something complete that a walk came past.

    Attributes:
        kind: Text outside of calls; a call's name; an argument; the end of a call; or what was
            begun as a call and came to nothing.
        text: The text, the name, or the value as it is written.
        key: The argument's name; None where the arguments are no object.
        state: The state when a call ended; its arguments are in it.
    """

    kind: Literal["text", "name", "value", "end", "broken"]
    text: str = ""
    key: str | None = None
    state: CallState | None = None


class Working:
    """A state that changes; `passed` collects what it came past."""

    def __init__(self, grammar: Grammar, state: CallState) -> None:
        self.grammar = grammar
        self.passed: list[Passed] = []
        self._again: list[str] = []  # text to be followed once more, before what comes next
        self._load(state)

    def _load(self, state: CallState) -> None:
        self.phase: Phase = state.phase
        self.raw, self.anchor, self.depth = state.raw, state.anchor, state.depth
        self.name, self.key, self.flag = state.name, state.key, state.flag
        self.keys, self.values, self.flags = state.keys, state.values, state.flags
        self.calls, self.closed = state.calls, state.closed
        scan = state.scan
        self.closers, self.path, self.expect = scan.closers, scan.path, scan.expect
        self.mode, self.quote, self.escaped = scan.mode, scan.quote, scan.escaped
        self.token = scan.token

    def state(self) -> CallState:
        """The state after everything fed."""
        return CallState(
            phase=self.phase,
            raw=self.raw,
            anchor=self.anchor,
            name=self.name,
            keys=self.keys,
            values=self.values,
            flags=self.flags,
            key=self.key,
            flag=self.flag,
            calls=self.calls,
            closed=self.closed,
            depth=self.depth,
            scan=Scan(
                self.closers,
                self.path,
                self.expect,
                self.mode,
                self.quote,
                self.escaped,
                self.token,
            ),
        )

    @property
    def tail(self) -> str:
        """See `CallState.tail`."""
        return self.raw[self.anchor :]

    def _after(self) -> None:
        """Follow what stands behind a call."""
        raise NotImplementedError

    def finish(self) -> None:
        """Take the output as ended: a call without its end mark stands, the rest is text."""
        if not self._settle() and self.raw and self.phase != "after":
            self.passed.append(Passed("text" if self.phase == "text" else "broken", self.raw))
        self._load(CallState(calls=self.calls))

    def _after_first(self) -> int:
        """Behind the first character of the opener in `raw`."""
        return len(self.raw) - len(self.raw.lstrip()) + 1

    def _restart(self, before: int) -> bool:
        """Give the call up if another begins inside it, in what was read since `before`.

        A value that swallows the next call has lost its end; there, only a call on a line of its
        own counts.
        """
        line = "\n" if self.phase == "value" else ""
        found: list[tuple[int, int]] = []
        for word in self.grammar.restarts:
            mark = line + word
            if line and len(word) < 6:
                continue
            at = self.raw.find(mark, max(self.anchor, before - len(mark) + 1))
            if at >= 0:
                found.append((at + len(mark), at))
        if not found:
            return False
        # The one that is complete first, as it would be if every character came alone.
        _, at = min(found)
        rest, self.raw = self.raw[at:], self.raw[:at]
        self._abandon(at)
        self._again.append(rest)
        return True

    def _take(self, value: str) -> None:
        """Take in a complete value."""
        self.passed.append(Passed("value", value, self.key))
        if self.key is not None:
            self.keys = (*self.keys, self.key)
        self.values = (*self.values, value)
        self.flags = (*self.flags, self.flag)
        self.key, self.flag = None, ""
        self.phase, self.anchor = "argument", len(self.raw)

    def _end(self) -> None:
        """A call is complete."""
        self.passed.append(Passed("end", state=self.state()))
        self._load(CallState("after", self.tail, calls=self.calls + 1))
        if self.raw:
            self._after()

    def _settle(self) -> bool:
        """Whether a call whose end mark is missing is complete; it then counts."""
        if self.name is None or self.key is not None:
            return False
        complete = self.phase == "close"
        if self.phase == "argument" and self.grammar.value_end:
            complete = bool(self.keys) or bool(self.tail.strip())
        if complete:
            self.passed.append(Passed("end", state=self.state()))
            self.calls += 1
        return complete

    def _lose(self) -> None:
        """Give up a literal that breaks its own rules."""
        self._abandon(max(self._after_first(), self.anchor) if self.phase != "value" else -1)

    def _abandon(self, at: int) -> None:
        """Give the call up and look for another from `at` on in its text."""
        if at < 0:
            at = len(self.raw)
        at = min(at, len(self.raw))
        before, rest = self.raw[:at], self.raw[at:]
        if self.phase != "after" and not self._settle():
            # Arguments may stand before the name.
            begun = self.name is not None or bool(self.keys or self.values)
            begun = begun or self.phase not in ("text", "open", "name")
            if before:
                self.passed.append(Passed("broken" if begun else "text", before))
        self._load(CallState(calls=self.calls))
        if rest:
            self._again.append(rest)
