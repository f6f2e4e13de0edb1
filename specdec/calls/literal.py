"""LiteralWalk: follows JSON, Python literals and bare keys, in arguments or around them."""

from __future__ import annotations

import json
import re

from specdec.calls.grammar import CLOSERS
from specdec.calls.working import MAX_MARKS, Passed, Working

MAX_NAME = 256
"""Characters of a tool's name; something longer is none."""

MAX_DEPTH = 64
"""Brackets open at once; something deeper is no call."""

NAME_KEYS = frozenset({"name"})
ARGUMENT_KEYS = frozenset({"arguments", "parameters"})

_DELIMITERS = re.compile(r"[,:=\]\[{}()]")
_IN_STRING = {quote: re.compile(rf"[\\{quote}]") for quote in "\"'"}
_IN_NAME = {quote: re.compile(rf"[\\\n{quote}]") for quote in "\"'"}


class LiteralWalk(Working):
    """Follows literals."""

    def _literal(self, text: str, at: int) -> int:
        """Follow a literal as far as one thing goes: a character, or a run inside a string."""
        if self.mode == "string":
            return self._string(text, at)
        character = text[at]
        if self.mode == "word":
            return self._word(text, at)
        if self.mode == "quote":
            return self._long_quote(character, at)
        if character.isspace():
            self.raw += character
        elif self.expect == "colon":
            self.raw += character
            if character in ":=":
                self.expect = "value"
            else:
                self._lose()
        elif self.expect == "comma":
            self._comma(character)
        elif character in "}])":
            self._close(character)
        elif self.expect == "key":
            self._key_start(character)
        else:
            self._value_start(character)
        if self.phase in ("value", "text", "name") or self._restart(len(self.raw) - 1):
            return at + 1
        if len(self.raw) - self.anchor > MAX_MARKS:
            self._abandon(self.anchor)
        return at + 1

    def _comma(self, character: str) -> None:
        if character == ",":
            self.raw += character
            if self.closers[-1] == "]":
                step = self.path[-1]
                self.path = (*self.path[:-1], step + 1 if isinstance(step, int) else 0)
                self.expect = "value"
            else:
                self.expect = "key"
        elif character in "}])":
            self._close(character)
        else:
            self.raw += character
            self._lose()

    def _key_start(self, character: str) -> None:
        self.raw += character
        if character == ",":
            return
        self.token = ""
        if self.grammar.object and not self.grammar.format.name_key and len(self.closers) == 1:
            # The name is the key.
            if character in "\"'" and self.name is None:
                self.mode, self.quote, self.escaped = "string", character, False
                self.phase, self.anchor = "name", len(self.raw)
            else:
                self._lose()
        elif character in "\"'":
            self.mode, self.quote, self.escaped = "string", character, False
        elif (
            character.isalnum()
            or character in "_$"
            or (self.phase == "value" and character not in "[{(:=<")
        ):
            self.mode, self.token = "word", character
        else:
            self._lose()

    def _value_start(self, character: str) -> None:
        depth, marks = len(self.closers), self.grammar
        if character in ",:=":
            self.raw += character
            self._lose()
            return
        if marks.object and depth == 1:
            step = self.path[0]
            form = marks.format
            if form.name_key and (step == form.name_key or step in NAME_KEYS):
                self.raw += character
                if character in "\"'" and self.name is None:
                    self.mode, self.quote, self.escaped, self.token = "string", character, False, ""
                    self.phase, self.anchor = "name", len(self.raw)
                else:
                    self._lose()
                return
            if not form.name_key or step == form.arguments_key or step in ARGUMENT_KEYS:
                if character == "{" and not self.closed:
                    self.raw += character
                    self._bracket("{")
                    self.phase, self.anchor, self.depth = "argument", len(self.raw), 2
                    return
                if character not in "\"'nN":
                    self.raw += character
                    self._lose()
                    return
                self._start_value()  # the text of an object, or null
        elif depth == self.depth and self.phase == "argument":
            self._start_value()
        self.raw += character
        quote = marks.format.arguments.values.quote
        if character in CLOSERS:
            self._bracket(character)
        elif len(quote) > 1 and character == quote[0]:
            self.mode, self.quote = "quote", character
        elif character in "\"'":
            self.mode, self.quote, self.escaped, self.token = "string", character, False, ""
        else:
            self.mode = "word"

    def _start_value(self) -> None:
        self.phase, self.anchor = "value", len(self.raw)

    def _bracket(self, character: str) -> None:
        """Open a bracket that is already part of `raw`."""
        if len(self.closers) >= MAX_DEPTH:
            self._abandon(len(self.raw))
            return
        self.closers += CLOSERS[character]
        array = character == "["
        self.path = (*self.path, 0 if array else "")
        self.expect = "value" if array else "key"
        if character == "(" and self.phase == "value":
            self.expect = "value"

    def _long_quote(self, character: str, at: int) -> int:
        """Follow a quote of several characters, such as Gemma's."""
        whole = self.grammar.format.arguments.values.quote
        self.quote += character
        if not whole.startswith(self.quote):
            self.mode, self.quote = "word", ""  # some other word that begins alike
            return at
        self.raw += character
        if self.quote == whole:
            self.mode, self.escaped, self.token = "string", False, ""
        return at + 1

    def _string(self, text: str, at: int) -> int:
        if len(self.quote) > 1:
            return self._long_string(text, at)
        before = len(self.raw)
        if self.escaped:
            self._write(text[at])
            self.escaped = False
            return at + 1
        found = (_IN_NAME if self.phase == "name" else _IN_STRING)[self.quote].search(text, at)
        end = found.start() if found else len(text)
        if end > at:
            self._write(text[at:end])
            if self._restart(before):
                pass
            elif self.phase == "name" and len(self.raw) - self.anchor > MAX_NAME:
                self._abandon(self._after_first())
            elif self.phase not in ("value", "name") and len(self.raw) - self.anchor > MAX_MARKS:
                self._abandon(self.anchor)
            return end
        if text[at] == "\\":
            self._write("\\")
            self.escaped = True
        elif text[at] == "\n":
            self.raw += "\n"
            self._abandon(self._after_first())  # the name broke off
        elif self.phase == "name":
            self._named_in_object(text[at])
        else:
            self.raw += text[at]
            self._string_end()
        return at + 1

    def _write(self, text: str) -> None:
        self.raw += text
        if self.expect == "key":
            self.token += text

    def _long_string(self, text: str, at: int) -> int:
        before = len(self.raw)
        # `token` counts what the string holds, so that its opening quote cannot be its end.
        held = len(self.token)
        self.token += text[at:]
        self.raw += text[at:]
        found = self.token.find(self.quote, max(held - len(self.quote) + 1, 0))
        if found < 0:
            return len(text)
        used = found + len(self.quote) - held
        self.raw = self.raw[: before + used]
        self.token = ""
        self._string_end()
        return at + used

    def _word(self, text: str, at: int) -> int:
        """Follow a word without quotes: a number, a constant, a bare key, raw text."""
        found = _DELIMITERS.search(text, at)
        end = found.start() if found else len(text)
        if end > at:
            before = len(self.raw)
            self._write(text[at:end])
            if (
                not self._restart(before)
                and self.phase != "value"
                and len(self.raw) - self.anchor > MAX_MARKS
            ):
                self._abandon(self.anchor)
            return end
        character = text[at]
        if self.expect == "key":
            if character not in ":=":
                self.raw += character
                self._lose()
                return at + 1
            self.token = self.token.strip()
            self.mode = ""
            self._key_end()
            return at  # the delimiter is read again
        if character in ":=([{":
            self._write(character)
            return at + 1
        self.mode = ""
        self._value_end()
        return at

    def _string_end(self) -> None:
        self.mode, self.quote = "", ""
        if self.expect == "key":
            self.token = _unescape(self.token)
            self._key_end()
        else:
            self._value_end()

    def _key_end(self) -> None:
        key, self.token = self.token, ""
        self.path = (*self.path[:-1], key)
        self.expect = "colon"
        depth = len(self.closers)
        if depth == self.depth and self.phase == "argument":
            self.key = key
        elif depth == 1 and self.grammar.bare and self.phase == "open":
            form = self.grammar.format
            known = {form.name_key, form.arguments_key, *NAME_KEYS, *ARGUMENT_KEYS}
            if self.path[0] not in known and self.path[0] not in self.grammar.keys:
                self._abandon(self._after_first())

    def _value_end(self) -> None:
        """A scalar or a container is complete."""
        self.expect = "comma"
        depth = len(self.closers)
        if self.phase == "value" and (depth == self.depth or (depth == 1 and self.grammar.object)):
            whole = self.key is None and self.depth != depth
            self._take(self.tail)
            if whole:
                self._arguments_end()

    def _close(self, character: str) -> None:
        """Close a bracket."""
        self.raw += character
        if character != self.closers[-1]:
            self._lose()
            return
        depth = len(self.closers)
        if self.expect == "value" and character != "]" and self.path[-1] != "":
            self._lose()  # a key without a value
            return
        self.closers, self.path = self.closers[:-1], self.path[:-1]
        self.expect = "comma"
        if self.phase == "argument" and depth == self.depth:
            self._arguments_end()
        elif not self.closers:
            self._envelope_end()
        else:
            self._value_end()

    def _arguments_end(self) -> None:
        """The arguments are complete."""
        self.closed, self.depth = True, 0
        self.anchor = len(self.raw)
        if not self.grammar.object:
            self._end()
        else:
            self.phase = "link" if self.name is None else "close"

    def _envelope_end(self) -> None:
        """The object of a call is complete."""
        if self.name is None:
            self._abandon(self._after_first())
            return
        if self.phase == "link":  # no arguments at all
            self.anchor = len(self.raw) - 1
        self._end()

    def _named_in_object(self, quote: str) -> None:
        """Take in a complete name; the quote behind it is the link's."""
        name = _unescape(self.tail)
        self.name, self.anchor = name, len(self.raw)
        self.raw += quote
        self.mode, self.quote, self.token = "", "", ""
        self.phase = "close" if self.closed else "link"
        self.expect = "comma"
        if not self.grammar.format.name_key:
            self.path, self.expect = (name,), "colon"
        self.passed.append(Passed("name", name))


def _unescape(text: str) -> str:
    """A JSON string's content; itself where it is none."""
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text
