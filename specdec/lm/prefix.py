"""JsonPrefix: one JSON value while it is being written, as far as it is certain."""

from __future__ import annotations

import re
from typing import Final, Literal

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_BEGUN: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_KEY: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_WORD: Final = re.compile(r'[^\s,\]}{\[":]+')
_SCALAR: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_CLOSERS: Final = {"{": "}", "[": "]"}

Expect = Literal["value", "string", "key", "colon", "more", "end"]


class JsonPrefix:
    """Follows the text of one value and hands out what can no longer turn out to be no JSON.

    It hands out up to where the value could be closed: inside strings, behind values and opening
    brackets. A number is certain once something stands behind it.

    Attributes:
        closer: What makes a whole value of what was handed out.
        broken: Whether the text is no JSON; nothing more is then handed out.
    """

    def __init__(self) -> None:
        self.closer = ""
        self.broken = False
        self._expect: Expect = "value"
        self._brackets = ""  # the closing ones, outermost first
        self._empty = False  # the innermost one may close at once
        self._rest = ""  # not followed yet
        self._followed = ""  # followed, but not to be handed out yet

    @property
    def complete(self) -> bool:
        """Whether the value is whole."""
        return self._expect == "end" and not self.broken

    def push(self, text: str) -> str:
        """What `text` makes certain."""
        self._rest += text
        certain: list[str] = []
        while not self.broken and (piece := self._piece()):
            self._followed += piece
            if self._expect in ("string", "more", "end") or self._empty:
                certain.append(self._followed)
                self._followed = ""
                quote = '"' if self._expect == "string" else ""
                self.closer = quote + self._brackets[::-1]
        return "".join(certain)

    def finish(self) -> str:
        """What is certain now that the value has ended."""
        return "" if self._expect == "string" else self.push(" ")

    def _piece(self) -> str:
        """Follow one more piece of the text; empty when it takes more text to tell."""
        if self._expect == "string":
            return self._in_string()
        space = _SPACE.match(self._rest)
        assert space is not None  # it matches nothing, too
        if space.end() == len(self._rest):
            return ""
        return self._behind_space(space.end())

    def _cut(self, end: int) -> str:
        piece, self._rest = self._rest[:end], self._rest[end:]
        return piece

    def _in_string(self) -> str:
        if self._rest.startswith('"'):
            self._value_ended()
            return self._cut(1)
        found = _PLAIN.match(self._rest) or _ESCAPE.match(self._rest)
        if found is not None:
            return self._cut(found.end())
        self.broken = bool(self._rest) and not _ESCAPE_BEGUN.fullmatch(self._rest)
        return ""

    def _behind_space(self, at: int) -> str:
        character, empty = self._rest[at], self._empty
        if self._expect == "more" and character == ",":
            self._expect = "key" if self._brackets[-1] == "}" else "value"
        elif character == self._brackets[-1:] and (self._expect == "more" or empty):
            self._brackets, self._empty = self._brackets[:-1], False
            self._value_ended()
        elif self._expect == "key":
            return self._key(at)
        elif self._expect == "colon" and character == ":":
            self._expect = "value"
        elif self._expect == "value":
            return self._value(at, character)
        else:
            self.broken = True
            return ""
        return self._cut(at + 1)

    def _key(self, at: int) -> str:
        found = _KEY.match(self._rest, at)
        if found is None:
            # Whether a key is none shows with what follows it; till then nothing is handed out.
            self.broken = self._rest[at] != '"'
            return ""
        self._expect, self._empty = "colon", False
        return self._cut(found.end())

    def _value(self, at: int, character: str) -> str:
        if character == '"':
            self._expect, self._empty = "string", False
        elif character in _CLOSERS:
            self._brackets += _CLOSERS[character]
            self._expect, self._empty = "key" if character == "{" else "value", True
        else:
            return self._scalar(at)
        return self._cut(at + 1)

    def _scalar(self, at: int) -> str:
        word = _WORD.match(self._rest, at)
        if word is not None and word.end() == len(self._rest):
            return ""
        if word is None or not _SCALAR.fullmatch(word[0]):
            self.broken = True
            return ""
        self._empty = False
        self._value_ended()
        return self._cut(word.end())

    def _value_ended(self) -> None:
        self._expect = "more" if self._brackets else "end"
