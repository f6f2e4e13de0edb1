r"""Reading stack expressions: components written as text, such as ``fallback(pld(ngram=3), samd)``.

The grammar::

    component := name [ "(" [argument ("," argument)* [","]] ")" ]
    argument  := [option "="] value
    value     := number | 'text' | "text" | true | false | none | list | component
    list      := "[" [value ("," value)* [","]] "]"
    name      := name of a component, or plugin/name where several plugins claim it

``True``, ``False``, ``None`` and ``null`` are understood too. In quoted text a backslash escapes
a backslash or a quote, and ``\n`` and ``\t`` stand for a line break and a tab.

``none`` as the whole expression is plain decoding, an empty ``fallback()``; as a value it is
None. A bare name as a value is the component of that name with its default options. A value may
be a component of any kind: its name is looked up in all of them. A positional argument prefers a
drafter when the name has several kinds; an option's value must then be told apart as
``plugin/name``.

Nothing is looked up or evaluated here; see `specdec.expression` for that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import attrs

from specdec.errors import ExpressionError

MAX_LENGTH: Final = 10_000
"""The most characters of an expression."""

MAX_DEPTH: Final = 32
"""The most components and lists inside one another."""

_SHOWN: Final = 88  # columns of a long line that an error shows
_WORDS: Final[dict[str, bool | None]] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "none": None,
    "None": None,
    "null": None,
}
_ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t"}
_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w./+-]))
      | (?P<name>[A-Za-z_][\w.-]*(?:/[A-Za-z_][\w.-]*)?)
      | (?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
      | (?P<mark>[(),=\[\]])
      | (?P<end>\Z)
      | (?P<stray>[^\s(),=\[\]]+)
    )""",
    re.VERBOSE | re.ASCII,
)


@attrs.frozen
class Place:
    """A position in an expression, for pointing at it.

    Attributes:
        text: The whole expression.
        start: Index of a character, or the length of the text for its end.
    """

    text: str
    start: int

    def error(self, message: str) -> ExpressionError:
        """An error that says `message` and points at the position."""
        return ExpressionError(self.show(message))

    def show(self, message: str) -> str:
        """The message, the line, and a caret under the position."""
        begin = self.text.rfind("\n", 0, self.start) + 1
        # One column per character, or the caret would point elsewhere.
        line = "".join(c if c.isprintable() else " " for c in self.text[begin:].split("\n")[0])
        column = self.start - begin
        left = max(0, min(column - _SHOWN // 2, len(line) - _SHOWN))
        shown = line[left : left + _SHOWN]
        before = "..." if left else ""
        after = "..." if left + _SHOWN < len(line) else ""
        caret = " " * (len(before) + column - left) + "^"
        return f"{message}\n  {before}{shown}{after}\n  {caret}"


@attrs.frozen
class Constant:
    """A number, text, boolean or None."""

    value: bool | int | float | str | None
    place: Place = attrs.field(eq=False, repr=False)


@attrs.frozen
class Items:
    """A list of values."""

    values: tuple[Node | Constant | Items, ...]
    place: Place = attrs.field(eq=False, repr=False)


@attrs.frozen
class Argument:
    """A value handed to a component; `option` is None for a positional one."""

    option: str | None
    value: Node | Constant | Items
    place: Place = attrs.field(eq=False, repr=False)


@attrs.frozen
class Node:
    """A component: its name and its arguments, as written.

    Nodes compare by what they say, not by where they stand.

    Attributes:
        name: ``name`` or ``plugin/name``; ``none`` for plain decoding.
        arguments: In the order written.
        place: Where it begins.
    """

    name: str
    arguments: tuple[Argument, ...]
    place: Place = attrs.field(eq=False, repr=False)


class _Token(NamedTuple):
    kind: str
    text: str
    place: Place

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the expression"
        shown = self.text if len(self.text) <= 40 else self.text[:37] + "..."
        return shown if self.kind == "text" else repr(shown)

    def expected(self, what: str) -> ExpressionError:
        return self.place.error(f"found {self}, expected {what}")


def read(text: str) -> Node:
    """Read an expression without looking anything up.

    Args:
        text: A stack expression.

    Returns:
        The component it describes.

    Raises:
        ExpressionError: If it does not follow the grammar, or is too long or too deep.
    """
    if not isinstance(text, str):
        raise ExpressionError(
            "a stack expression is text such as 'fallback(pld, token-recycling)', got "
            f"{type(text).__name__}"
        )
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"the expression has {len(text)} characters, {MAX_LENGTH} are allowed; build the "
            "stack in Python instead"
        )
    return _Reader(text).whole()


class _Reader:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self._tokens: list[_Token] = []
        position, length = 0, len(text.rstrip())
        while not self._tokens or self._tokens[-1].kind != "end":
            # Some alternative always matches: a mark, a stray run, or the end.
            match = _TOKEN.match(text, position, length)
            assert match is not None
            assert match.lastgroup is not None
            place = Place(text, match.start(match.lastgroup))
            self._tokens.append(_Token(match.lastgroup, match[match.lastgroup], place))
            position = match.end()
        self._next = 0

    def whole(self) -> Node:
        """The expression from end to end."""
        first = self._peek()
        if first.kind != "name" or _WORDS.get(first.text) is not None:
            raise first.expected("the name of a component")
        node = Node("none", (), self._take().place) if first.text in _WORDS else self._component(1)
        if self._peek().kind != "end":
            raise self._peek().expected("the end of the expression")
        return node

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _component(self, depth: int) -> Node:
        name = self._take()
        _check_depth(name, depth)
        if self._peek().text != "(":
            return Node(name.text, (), name.place)
        seen: set[str] = set()

        def argument() -> Argument:
            place = self._peek().place
            option = self._option()
            if option in seen:
                raise place.error(f"option {option!r} is given twice")
            if option is not None:
                seen.add(option)
            return Argument(option, self._value(depth + 1), place)

        return Node(name.text, self._list(")", argument), name.place)

    def _option(self) -> str | None:
        """The name before "=", or None for a positional argument."""
        token = self._peek()
        if token.kind == "end" or self._tokens[self._next + 1].text != "=":
            return None
        if token.kind != "name" or not token.text.isidentifier():
            plain = token.text.replace("-", "_")
            hint = f"; did you mean {plain!r}?" if plain.isidentifier() else ""
            raise token.expected(f"an option name of letters, digits and '_'{hint}")
        self._next += 2
        return token.text

    def _list(self, closing: str, item: Callable[[], Any]) -> tuple[Any, ...]:
        """Items between brackets, with commas between them and perhaps one at the end."""
        self._take()
        items = []
        while self._peek().text != closing:
            items.append(item())
            if self._peek().text == ",":
                self._take()
            elif self._peek().text != closing:
                raise self._peek().expected(f"',' or {closing!r}")
        self._take()
        return tuple(items)

    def _value(self, depth: int) -> Node | Constant | Items:
        token = self._peek()
        if token.kind == "name" and token.text not in _WORDS:
            return self._component(depth)
        if token.text == "[":
            _check_depth(token, depth)
            return Items(self._list("]", lambda: self._value(depth + 1)), token.place)
        if token.kind == "stray" and token.text[0] in "'\"":
            raise token.place.error(
                f"found {token}, expected a closing {token.text[0]} on the same line"
            )
        if token.kind not in ("name", "number", "text"):
            raise token.expected(
                "a value: a number, quoted text, true, false, none, a [list] or a component"
            )
        return Constant(_constant(self._take()), token.place)


def _check_depth(token: _Token, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise token.place.error(f"more than {MAX_DEPTH} components and lists inside one another")


def _constant(token: _Token) -> bool | int | float | str | None:
    if token.kind == "name":
        return _WORDS[token.text]
    if token.kind == "text":
        return _unescape(token)
    try:
        value = float(token.text) if set(token.text) & set(".eE") else int(token.text)
    except ValueError:  # Python refuses to convert thousands of digits
        value = math.inf
    if math.isinf(value):
        raise token.expected("a number within range")
    return value


def _unescape(token: _Token) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            place = Place(token.place.text, token.place.start + 1 + match.start())
            known = " ".join("\\" + escape for escape in _ESCAPES)
            raise place.error(f"found the escape {match[0]}, expected one of {known}")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", character, token.text[1:-1])
