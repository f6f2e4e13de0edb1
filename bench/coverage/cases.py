"""Cases: the requests of the data sets, each with the calls that answer it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from specdec.calls import Call, Tool, read_tools
from specdec.errors import SpecdecError

T = TypeVar("T")

SHARED: Final = Path(
    os.environ.get("SPECDEC_SHARED", Path(__file__).resolve().parents[3] / "shared")
)
"""Where the data sets and tokenizers lie: beside the project, never in it."""

DATA_SETS: Final = ("api_bank", "bfcl", "toolalpaca", "bfcl_multi_turn")


class Missing(SpecdecError):
    """Data or a tokenizer is not there; the message says where it was looked for."""


@attrs.frozen
class Case:
    """One request and its answer.

    Attributes:
        id: The data set's own name for it; turns of one record are numbered behind a slash.
        messages: The conversation before the answer.
        tools: The tools on offer.
        calls: The calls that answer it; at least one.
    """

    id: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Tool, ...]
    calls: tuple[Call, ...]


@lru_cache(maxsize=len(DATA_SETS))
def load(name: str, folder: Path = SHARED / "data") -> tuple[Case, ...]:
    """The cases of a data set, in its own order.

    Raises:
        Missing: If the data set's file is not in `folder`.
    """
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        raise Missing(f"no data set {name!r}: there is no file {path}")
    with path.open(encoding="utf-8") as lines:
        return tuple(case for line in lines for case in cases_of(json.loads(line)))


def cases_of(record: Mapping[str, Any]) -> Iterator[Case]:
    """The cases of one record: one, or one per turn with calls where a trajectory follows."""
    tools = read_tools(record["tools"])
    messages = tuple(record["messages"])
    if "trajectory" not in record:
        yield Case(record["id"], messages, tools, _calls(record["calls"]))
        return
    turns = 0
    for message in record["trajectory"]:
        if calls := calls_of(message):
            yield Case(f"{record['id']}/{turns}", messages, tools, calls)
            turns += 1
        messages = (*messages, message)


def calls_of(message: Mapping[str, Any]) -> tuple[Call, ...]:
    """The calls that an assistant's message holds."""
    return _calls(message.get("tool_calls") or ())


def _calls(data: Sequence[Mapping[str, Any]]) -> tuple[Call, ...]:
    """Calls from the records' own form or from OpenAI's."""
    inner = (entry.get("function", entry) for entry in data)
    return tuple(Call(call["name"], call["arguments"]) for call in inner)


def spread(items: Sequence[T], count: int | None) -> Sequence[T]:
    """`count` of `items` at even distances, in their order; all of them for None."""
    if count is None or count >= len(items):
        return items
    return [items[i * len(items) // count] for i in range(count)]
