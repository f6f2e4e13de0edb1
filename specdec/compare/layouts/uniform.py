"""Uniform: one request per line, the same for every benchmark; and bare requests.

A record holds ``id``, ``benchmark``, ``split``, ``messages``, ``tools`` (OpenAI's form), ``calls``
(``{"name", "arguments"}``, in order) and perhaps ``trajectory``, the conversation that follows, and
``extra``. A bare request is ``{"messages": [...], "tools": [...]}`` as ``specdec demo --requests``
takes it, perhaps with ``id`` and the text of a recorded answer under ``output``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from specdec.compare.layouts.case import Case
from specdec.compare.layouts.chat import calls_of, messages_of, read_calls, tools_of
from specdec.compare.layouts.layout import Layout, each
from specdec.compare.layouts.record import Record, take
from specdec.errors import RequestError

_OWN = ("calls", "trajectory", "benchmark", "output")
_OTHERS = ("model", "functions", "request", "body")


def cases_of(record: Mapping[str, Any], name: str = "request-1") -> Iterator[Case]:
    """The cases of one record: one, or one per turn with calls where a trajectory follows.

    Args:
        record: The record.
        name: Its id, if it has none of its own.

    Raises:
        RequestError: If a field is not as expected.
    """
    output = record.get("output")
    if output is not None and not isinstance(output, str):
        raise RequestError(f'expected text under "output", got {output!r}')
    case = Case(
        id=str(record.get("id", name)),
        messages=messages_of(record.get("messages")),
        tools=tools_of(_optional(record, "tools", list) or ()),
        calls=read_calls(_optional(record, "calls", list) or ()),
        output=output,
        benchmark=str(record.get("benchmark") or ""),
        split=str(record.get("split") or ""),
        extra=_optional(record, "extra", dict) or {},
    )
    turns = tuple(_turns(case, _optional(record, "trajectory", list) or ()))
    yield from turns or (case,)


def _turns(case: Case, trajectory: list[Any] | tuple[()]) -> Iterator[Case]:
    """A case for each turn of the assistant that holds calls."""
    if not trajectory:
        return
    messages, count = case.messages, 0
    for message in messages_of(trajectory):
        if calls := calls_of(message):
            yield attrs.evolve(
                case, id=f"{case.id}/{count}", messages=messages, calls=calls, output=None
            )
            count += 1
        messages = (*messages, message)


def _optional(record: Mapping[str, Any], key: str, kind: type[Any]) -> Any:  # noqa: ANN401
    return None if record.get(key) is None else take(record, key, kind)


def _recognises(sample: object) -> bool:
    if not isinstance(sample, Mapping) or not isinstance(sample.get("messages"), list):
        return False
    if any(key in sample for key in _OWN):
        return True
    # A conversation that ends in the assistant's turn holds its own answer, as OpenAI's
    # fine-tuning lines do.
    last = sample["messages"][-1] if sample["messages"] else None
    answered = isinstance(last, Mapping) and last.get("role") == "assistant"
    return not answered and not any(key in sample for key in _OTHERS)


def _read(record: Record) -> Iterator[Case]:
    return cases_of(record.data, f"request-{record.number}")


LAYOUT: Final = Layout(
    name="uniform",
    expected='{"messages": [...], "tools": [...], "calls": [{"name", "arguments"}, ...]}',
    recognises=_recognises,
    read=each(_read),
)
