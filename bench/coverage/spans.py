"""Spans: where in rendered calls the values of arguments lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from specdec.calls import Call, CallFormat, Values

Span = tuple[int, int]
"""First character, and the one behind the last."""

_BEGIN: Final = "\ue000"
_END: Final = "\ue001"


def render(form: CallFormat, calls: Sequence[Call]) -> tuple[str, tuple[Span, ...]]:
    """The text of `calls` and the span of each argument's value in it, in order.

    A string's quotes do not belong to it; an object or a list is one value. The format itself
    writes the calls, with a mark around each value; nothing is parsed. So the spans owe nothing to
    the cursor that a drafter may follow.

    Raises:
        ValueError: If the calls hold the marks.
    """
    values = _Marking(**attrs.asdict(form.arguments.values, recurse=False))
    arguments = attrs.evolve(form.arguments, values=values)
    first, *pieces = attrs.evolve(form, arguments=arguments).render(calls).split(_BEGIN)
    text, spans = first, []
    for piece in pieces:
        value, _, behind = piece.partition(_END)
        spans.append((len(text), len(text) + len(value)))
        text += value + behind
    if text != form.render(calls):
        raise ValueError(f"calls hold {_BEGIN!r} or {_END!r}, which mark the values here")
    return text, tuple(spans)


def outside(tokens: Sequence[Span], values: Sequence[Span]) -> tuple[bool, ...]:
    """For each token, whether none of its characters lies inside a value.

    Args:
        tokens: (T,) the characters of each token.
        values: The characters of each value.
    """
    inside = bytearray(max((end for _, end in tokens), default=0))
    for start, end in values:
        inside[start:end] = b"\1" * (end - start)
    return tuple(not any(inside[start:end]) for start, end in tokens)


@attrs.frozen
class _Marking(Values):
    """Writes as `Values` does, with a mark before and behind each value."""

    def write(self, value: object) -> str:
        text = Values.write(self, value)
        quote = 0
        if isinstance(value, str) and self.strings != "raw":
            quote = len(self.quote) if self.strings == "bare" else 1
        end = len(text) - quote
        return text[:quote] + _BEGIN + text[quote:end] + _END + text[end:]
