"""Shapes: what the call formats of several models have in common."""

from __future__ import annotations

from typing import Any, Final

from specdec.calls.formats import Arguments, CallFormat
from specdec.calls.values import Values

_PYTHONIC: Final = Arguments(
    open="(",
    key_open="",
    key_close="=",
    close=")",
    values=Values(strings="python", scalars="python", containers="python"),
)
_RAW: Final = Values(strings="raw")


def tagged(name: str, open: str, close: str, *, behind: str = "") -> CallFormat:
    """JSON objects in a list between two marks."""
    return CallFormat(
        name,
        open='{"name": "',
        close=behind + "}",
        separator=", ",
        block_open=open,
        block_close=close,
    )


def text(name: str, open: str, between: str, close: str, **rest: Any) -> CallFormat:  # noqa: ANN401 - fields of the record
    """A name, then its arguments, between marks."""
    return CallFormat(name, open, between, close, envelope="text", **rest)


def pythonic(name: str, open: str, close: str, separator: str = ", ") -> CallFormat:
    """Python calls."""
    return text(
        name,
        "",
        "",
        "",
        separator=separator,
        block_open=open,
        block_close=close,
        arguments=_PYTHONIC,
    )


def parameters(
    key_open: str,
    key_close: str,
    value_close: str,
    *,
    close: str = "",
    empty: str | None = None,
    values: Values = _RAW,
) -> Arguments:
    """Arguments one after another, each between marks, strings as they are."""
    return Arguments(
        open="",
        key_open=key_open,
        key_close=key_close,
        value_close=value_close,
        separator="",
        close=close,
        empty=empty,
        values=values,
    )
