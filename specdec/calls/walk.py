"""Walk: follows text through the calls of a format."""

from __future__ import annotations

import re
from collections.abc import Callable

from specdec.calls.grammar import NO, PARTIAL, Grammar, follow, match
from specdec.calls.literal import MAX_NAME, LiteralWalk
from specdec.calls.state import CallState, Phase
from specdec.calls.working import MAX_MARKS, Passed

MAX_SPACE = 8
"""White space kept before what announces a call."""

_NAME = re.compile(r"[\w.\-]*\Z")
_BEFORE_OBJECT = frozenset(" \t\r\n[`json")
_BETWEEN_OBJECTS = frozenset(" \t\r\n,;")


class Walk(LiteralWalk):
    """Follows text from `state` on: outside of calls, between their parts, and in names."""

    def __init__(self, grammar: Grammar, state: CallState) -> None:
        super().__init__(grammar, state)
        self._steps: dict[Phase, Callable[[str, int], int]] = {
            "text": self._text,
            "name": self._name,
            "value": self._value,
        }

    def feed(self, text: str) -> None:
        """Follow `text`."""
        texts = [(text, 0)]
        while texts:
            text, at = texts.pop()
            while at < len(text):
                at = self._steps.get(self.phase, self._mark)(text, at)
                if self._again:
                    texts.append((text, at))
                    text, at = self._again.pop(), 0

    # Outside of calls.

    def _text(self, text: str, at: int) -> int:
        """Look for what announces a call."""
        buffer = self.raw + text[at:] if at else self.raw + text
        for found in self.grammar.starts.finditer(buffer):
            start = found.start()
            ends = [match(opener, buffer, start) for opener in self.grammar.openers]
            end = max(ends)
            if end == NO:
                continue
            space = start - min(start - len(buffer[:start].rstrip()), MAX_SPACE)
            if end == PARTIAL:
                self._release(buffer[:space])
                self.raw = buffer[space:]
                return len(text)
            self._release(buffer[:space])
            # The opener ends inside the new text: had it ended before, it were no longer text.
            used = end - len(self.raw)
            self.raw = buffer[space:end]
            self.phase, self.anchor = "open", 0
            if self.grammar.bare:
                self._bracket("{")
            elif not self.grammar.object:
                self._opened()
            return at + used
        space = len(buffer) - min(len(buffer) - len(buffer.rstrip()), MAX_SPACE)
        self._release(buffer[:space])
        self.raw = buffer[space:]
        return len(text)

    def _release(self, text: str) -> None:
        if text:
            self.passed.append(Passed("text", text))

    def _opened(self) -> None:
        """Go on to the name, if everything before it is there; for calls in text."""
        ends = [
            follow(literal, self.raw)[0] for literal in (self.grammar.block_open, self.grammar.open)
        ]
        if max(ends) >= 0:
            self.phase, self.anchor = "name", len(self.raw)
        elif max(ends) == NO or len(self.raw) > MAX_MARKS:
            self._abandon(self._after_first())

    # Marks: between the parts of a call.

    def _mark(self, text: str, at: int) -> int:
        """Follow one character of what stands between a call's parts."""
        if self.phase == "after":
            self.raw += text[at]
            self._after()
            return at + 1
        if self.closers:
            return self._literal(text, at)
        self.raw += text[at]
        if self.phase != "open" and self._restart(len(self.raw) - 1):
            return at + 1
        if len(self.raw) - self.anchor > MAX_MARKS:
            self._abandon(self.anchor)
        elif self.phase == "open" and self.grammar.object:
            if text[at] == "{":
                self._bracket("{")
            elif text[at] not in _BEFORE_OBJECT:
                self._abandon(self._after_first())
        elif self.phase == "open":
            self._opened()
        elif self.phase == "link":
            self._link()
        else:
            self._marked_argument()
        return at + 1

    def _link(self) -> None:
        """Follow what stands between name and arguments, for calls in text."""
        end, _ = follow(self.grammar.link, self.tail)
        if end == NO:
            self._abandon(self.anchor)
        elif end >= 0:
            self.phase = "argument"
            self.anchor += end
            self.depth = 1
            if self.grammar.bracket:
                self.closers, self.path, self.expect = self.grammar.bracket, ("",), "key"
            elif self.tail or not self.grammar.key_open:
                self._marked_argument()

    def _marked_argument(self) -> None:
        """Follow what stands before a marked value: a separator, a name, or the end."""
        tail, marks = self.tail, self.grammar
        done, _ = follow(marks.end, tail)
        if done >= 0:
            self._end()
            return
        separator = match(marks.separator, tail) if self.keys and marks.separator else 0
        start = match(marks.key_open, tail, separator) if separator >= 0 else separator
        if start >= 0:
            found = tail.find(marks.key_close[0][:1], start)
            while found >= 0:
                end, flags = follow(marks.key_close, tail, found)
                if end >= 0:
                    self.key, self.flag = tail[start:found].strip(), "".join(flags[:1])
                    self.phase = "value"
                    self.anchor += end
                    return
                if end == PARTIAL:
                    return
                found = tail.find(marks.key_close[0][:1], found + 1)
        elif start == NO and done == NO:
            self._abandon(self.anchor)

    def _after(self) -> None:
        """Follow what stands behind a call."""
        tail, marks = self.raw, self.grammar
        if len(tail) > MAX_MARKS:
            self._abandon(len(tail))
            return
        following, _ = follow(marks.next, tail)
        if following > 0:
            begin = follow(marks.close, tail)[0]
            self._begin(tail, begin)
            return
        if marks.next == ("",) and tail[:-1].isspace() and _NAME.match(tail[-1]):
            # Calls with nothing but white space between them.
            self._load(CallState("name", tail, len(tail) - 1, calls=self.calls))
            return
        if marks.object and tail[-1] == "{" and _BETWEEN_OBJECTS.issuperset(tail[1:-1]):
            self._begin(tail, 1)
            return
        last, _ = follow(marks.last, tail)
        close, _ = follow(marks.close, tail)
        if last >= 0 and marks.last != marks.close:
            self._abandon(last)
        elif PARTIAL in (following, last, close) or (
            marks.object and _BETWEEN_OBJECTS.issuperset(tail[1:])
        ):
            return
        else:
            # What belongs to the call is no text.
            ends = (follow(mark, tail)[0] for mark in (marks.last, marks.close, marks.end))
            self._abandon(max(0 if marks.object is False else 1, *ends))

    def _begin(self, tail: str, begin: int) -> None:
        """Begin the next call, announced by what stands in `tail` from `begin` on."""
        self._load(CallState("open", tail[begin:], calls=self.calls))
        if self.grammar.object:
            self._bracket("{")
        else:
            self.phase, self.anchor = "name", len(self.raw)

    # Names in text.

    def _name(self, text: str, at: int) -> int:
        """Follow a tool's name."""
        if self.grammar.object:
            return self._literal(text, at)
        self.raw += text[at]
        tail = self.tail
        for word in self.grammar.restarts:
            if tail.endswith(word):
                self._abandon(len(self.raw) - len(word))  # the name broke off
                return at + 1
        for mark in self.grammar.name_ends:
            if (start := _ending(mark, tail)) >= 0:
                self._named(tail[:start])
                return at + 1
        broken = self.grammar.strict and not _NAME.match(tail.lstrip())
        if broken or len(tail) > MAX_NAME:
            self._abandon(self._after_first())
        return at + 1

    def _named(self, written: str) -> None:
        """Take in a complete name; what stands behind it is the link's."""
        name = written.strip()
        if not name:
            self._abandon(self._after_first())
            return
        self.name, self.phase = name, "link"
        self.anchor += len(written.rstrip())
        self.passed.append(Passed("name", name))
        self._link()

    # Values.

    def _value(self, text: str, at: int) -> int:
        """Follow an argument's value."""
        if not self.grammar.value_end:
            return self._literal(text, at)
        mark = self.grammar.value_end
        before = len(self.raw)
        self.raw += text[at:]
        found = self.raw.find(mark, max(self.anchor, before - len(mark) + 1))
        end = found + len(mark) if found >= 0 else len(self.raw)
        self.raw = self.raw[:end]
        if not self._restart(before) and found >= 0:
            self._take(self.raw[self.anchor : found])
        return at + end - before


def _ending(mark: str, text: str) -> int:
    """Where `mark` begins in a text that ends with it; negative if it does not."""
    if text[-1] == mark[-1]:
        start = text.find(mark[0])
        while start >= 0:
            if match(mark, text, start) == len(text):
                return start
            start = text.find(mark[0], start + 1)
    return -1
