"""Spelling: names and keys as a format writes them, kept since they are asked for all the time."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Final, TypeVar

from specdec import CallFormat, calls

KEPT: Final = 1 << 14
"""Names, and keys, of one format that are kept."""

K = TypeVar("K", bound=Hashable)


class Written(dict[K, str]):
    """Texts by what they say, each written when it is first asked for.

    Args:
        write: Writes one.
    """

    def __init__(self, write: Callable[[K], str]) -> None:
        super().__init__()
        self._write = write

    def __missing__(self, what: K) -> str:
        if len(self) >= KEPT:
            self.clear()
        text = self[what] = self._write(what)
        return text


class Spelling:
    """What does not depend on a request in how a format writes things.

    Args:
        form: The format.

    Attributes:
        names: Tools' names as they stand in a call.
        keys: Names of arguments and properties with the marks around them, by whether they stand
            inside a value, the name, and the JSON type of what follows.
        values: Values, given as JSON text, as an argument's or inside another.
        typed: Whether the marks behind an argument's name say that type.
    """

    def __init__(self, form: CallFormat) -> None:
        self.names: Written[str] = Written(form.write_name)
        self.keys: Written[tuple[bool, str, str]] = Written(partial(_key, form.arguments))
        self.values: Written[tuple[bool, str]] = Written(partial(_value, form.arguments.values))
        self.typed = calls.PLACEHOLDER.search(form.arguments.key_close) is not None


@lru_cache(maxsize=64)
def spelling(form: CallFormat) -> Spelling:
    """The spelling of a format; the same for equal formats."""
    return Spelling(form)


def _key(arguments: calls.Arguments, what: tuple[bool, str, str]) -> str:
    nested, key, kind = what
    values = arguments.values
    if not nested:
        close = arguments.key_close.replace("{string}", str(kind == "string").lower())
        close = close.replace("{type}", "number" if kind == "integer" else kind)
        return arguments.key_open + arguments.write_key(key) + close
    if values.containers == "bare":
        return f"{key}:"
    if values.containers == "python":
        return f"{key!r}: "
    return json.dumps(key, ensure_ascii=values.ascii) + values.key_separator


def _value(values: calls.Values, what: tuple[bool, str]) -> str:
    nested, text = what
    value = json.loads(text)
    return values.write([value])[1:-1].strip() if nested else values.write(value)
