"""API-Bank: dialogues, plans, and the prompts made of them.

Published in the repository AlibabaResearch/DAMO-ConvAI, folder ``api-bank``:

- dialogues (``lv1-lv2-samples/level-*/*.jsonl``): a file per dialogue, a line per turn, ``{"role":
  "User" | "AI", "text"}`` or ``{"role": "API", "api_name", "param_dict", "result"}``. One case for
  every call of an API, after all that was said before it;
- plans (``test-data/level-3.json``): ``{"requirement", "response", "apis": [{"api_name", "input",
  "output"}]}``. One case for every call;
- prompts (``test-data/level-*-api.json``, ``training-data``): ``{"instruction", "input"}`` with the
  answer's text under ``expected_output`` or ``output``;

and in the repository hemingkx/ToolSpec, folder ``data/API-Bank``, prompts with the answer apart:
``{"system", "user", "answer": [{"name", "parameters"}]}``.

The dialogues name their APIs only. Where the repository's folder ``apis`` lies above the file, the
schemas come from there. Otherwise a tool is made from the arguments it is called with, and the
case's ``extra`` says so under ``inferred_tools``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from specdec.calls import Call, tools_in_prompt
from specdec.compare.layouts.api_bank_tools import (
    described,
    described_in,
    inferred,
    with_optional,
    written_calls,
)
from specdec.compare.layouts.case import Case
from specdec.compare.layouts.chat import messages_of, tools_of
from specdec.compare.layouts.layout import Layout
from specdec.compare.layouts.record import Record, take
from specdec.compare.layouts.schema import plain
from specdec.errors import RequestError

_ROLES: Final = {"User": "user", "AI": "assistant"}
_LEVEL = re.compile(r"(?:level-|lv)(\d)")


def _recognises(sample: object) -> bool:
    if not isinstance(sample, Mapping):
        return False
    kinds = ({"system", "user", "answer"}, {"requirement", "apis"})
    prompt = {"instruction", "input"} <= set(sample)
    return (
        any(kind <= set(sample) for kind in kinds)
        or (prompt and not {"expected_output", "output"}.isdisjoint(sample))
        or sample.get("role") == "API"
        or (sample.get("role") in [*_ROLES] and "text" in sample)
    )


def _read(given: Iterable[Record]) -> Iterator[Case]:
    for _, group in groupby(given, key=lambda record: record.path):
        file = list(group)
        if "role" in file[0].data:
            yield from _dialogue(file)
            continue
        for record in file:
            with record.located():
                cases = tuple(_one(record))
            yield from cases


def _one(record: Record) -> Iterator[Case]:
    if "answer" in record.data:
        yield _answered(record)
    elif "instruction" in record.data:
        yield _prompt(record)
    elif "apis" in record.data:
        yield from _plan(record)
    else:
        raise RequestError("a turn of a dialogue among other records; each dialogue is a file")


def _case(record: Record, id: str, messages: Any, tools: Any, **more: Any) -> Case:  # noqa: ANN401
    # The level stands nowhere but in the names of file and folder.
    level = _LEVEL.search(record.path.name) or _LEVEL.search(record.path.parent.name)
    split = f"level-{level[1]}" if level else ""
    offered = tools_of(plain(tool) for tool in tools)
    return Case(id, messages_of(messages), offered, benchmark="api-bank", split=split, **more)


def _id(record: Record, origin: Mapping[str, Any]) -> str:
    """The published name: the dialogue's file and the turn in it, or the plan and its step."""
    if "file" in origin and "id" in origin:
        return f"{str(origin['file']).removesuffix('.jsonl')}/{origin['id']}"
    if "sample_id" in origin:
        return f"{record.path.stem}-{origin['sample_id']}/{origin.get('api_id', 0)}"
    return f"{record.path.stem}-{record.number - 1}"


def _answered(record: Record) -> Case:
    data = record.data
    system = take(data, "system", str)
    calls = [
        Call(take(call, "name", str), take(call, "parameters", dict))
        for call in take(data, "answer", list)
    ]
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": take(data, "user", str)},
    ]
    origin = data["other"] if isinstance(data.get("other"), Mapping) else {}
    return _case(
        record,
        _id(record, origin),
        messages,
        map(with_optional, tools_in_prompt(system)),
        calls=tuple(calls),
        extra={"other": origin},
    )


def _prompt(record: Record) -> Case:
    data = record.data
    system, user = take(data, "instruction", str), take(data, "input", str)
    output = take(data, "expected_output" if "expected_output" in data else "output", str)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    tools = {tool.name: tool for tool in described_in(f"{system}\n{user}")}
    return _case(
        record,
        _id(record, data),
        messages,
        tools.values(),
        calls=written_calls(output),
        output=output,
    )


def _plan(record: Record) -> Iterator[Case]:
    data = record.data
    messages = [{"role": "user", "content": take(data, "requirement", str).strip()}]
    steps = []
    for api in take(data, "apis", list):
        call = Call(take(api, "api_name", str), take(api, "input", dict))
        steps.append((call, api.get("output")))
    name = _id(record, {"sample_id": record.number - 1}).rpartition("/")[0]
    yield from _walk(record, name, [*messages, *steps])


def _dialogue(file: list[Record]) -> Iterator[Case]:
    """The cases of a dialogue, which is a whole file."""
    turns: list[Any] = []
    for record in file:
        with record.located():
            data = record.data
            if data.get("role") == "API":
                call = Call(take(data, "api_name", str), take(data, "param_dict", dict))
                turns.append((call, data.get("result")))
            elif data.get("role") in _ROLES:
                turns.append({"role": _ROLES[data["role"]], "content": take(data, "text", str)})
            else:
                raise RequestError(f"expected the role User, AI or API, got {data.get('role')!r}")
    calls = [turn for turn in turns if isinstance(turn, tuple)]
    if not calls:
        raise RequestError(
            f"requests file {file[0].path}: a dialogue without a call of an API; it is no request "
            "for one, take it out of the folder"
        )
    if not isinstance(turns[0], Mapping):
        raise RequestError(f"{file[0].where}: nothing is said before the first call")
    yield from _walk(file[0], file[0].path.stem, turns)


def _walk(record: Record, name: str, turns: list[Any]) -> Iterator[Case]:
    """A case for each call, after the turns before it.

    On offer is every API that the dialogue calls, as in the benchmark's own evaluation.

    Args:
        record: Where it was read.
        name: What the cases are numbered behind.
        turns: Messages, and pairs of a call and its result.
    """
    steps = [turn for turn in turns if isinstance(turn, tuple)]
    known = described(record.path, steps)
    guessed = inferred([call for call, _ in steps if call.name not in known])
    tools = {call.name: known.get(call.name) or guessed[call.name] for call, _ in steps}
    extra = {"inferred_tools": sorted(guessed)} if guessed else {}
    messages: list[Mapping[str, Any]] = []
    count = 0
    for turn in turns:
        if isinstance(turn, Mapping):
            messages.append(turn)
            continue
        call, result = turn
        yield _case(
            record,
            f"{name}/{count}",
            tuple(messages),
            tools.values(),
            calls=(call,),
            extra=extra,
        )
        messages += _answer(call, result, f"call_{count}")
        count += 1


def _answer(call: Call, result: object, id: str) -> list[Mapping[str, Any]]:
    """A call that was made, and what came of it."""
    function = {"name": call.name, "arguments": dict(call.arguments)}
    asked = [{"id": id, "type": "function", "function": function}]
    output = result.get("output") if isinstance(result, Mapping) else result
    content = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return [
        {"role": "assistant", "content": "", "tool_calls": asked},
        {"role": "tool", "tool_call_id": id, "name": call.name, "content": content},
    ]


LAYOUT: Final = Layout(
    name="api_bank",
    expected='{"role": "User" | "AI" | "API", ...}, {"instruction", "input", "expected_output"}, '
    '{"requirement", "apis"} or {"system", "user", "answer"}',
    recognises=_recognises,
    read=_read,
)
