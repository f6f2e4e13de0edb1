"""ToolBench: its queries, its answers, and the conversations ToolLLaMA was trained on.

Published in the repository OpenBMB/ToolBench and its data release:

- queries (``instruction/G1_query.json``): a list of ``{"api_list", "query", "query_id",
  "relevant APIs"}``. One case each, without reference calls. Tools are named as ToolBench names
  them, ``<api>_for_<tool>``;
- answers (``answer/G1_answer/10_ChatGPT_DFS_woFilter_w2.json``): one object with
  ``answer_generation``, in it ``query``, ``function`` and ``train_messages``, conversations that
  each end in the assistant's turn to learn. One case each;
- converted answers (``tooleval``): ``{"query", "available_tools", "answer"}`` by the query's id.
  Their steps may be cut short, so they give no reference calls;
- conversations (``toolllama_G123_dfs_train.json``): a list of ``{"id", "conversations"}``, turns
  ``{"from", "value"}``, the tools in the system's turn, calls as ``Action:`` and ``Action Input:``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from specdec.calls import Call, Tool
from specdec.compare.layouts.case import Case
from specdec.compare.layouts.chat import messages_of, read_calls, split_answer, tools_of
from specdec.compare.layouts.layout import Layout, each
from specdec.compare.layouts.record import Record, short, take
from specdec.compare.layouts.schema import json_schema, plain
from specdec.errors import RequestError

_TYPES: Final = {"NUMBER": "integer", "BOOLEAN": "boolean"}  # anything else is text
_RESERVED: Final = {"from", "class", "return", "false", "true", "id", "and"}
_NAME: Final = 64
_ROLES: Final = {"function": "tool", "human": "user", "gpt": "assistant"}
_LIST = re.compile(r"following APIs:\s*(\[.*\])", re.DOTALL)
_ACTION = re.compile(r"\nAction:\s*(\S+)\s*\nAction Input:\s*(.*)\Z", re.DOTALL)


def _recognises(sample: object) -> bool:
    if not isinstance(sample, Mapping):
        return False
    return (
        {"api_list", "query"} <= set(sample)
        or "answer_generation" in sample
        or isinstance(sample.get("conversations"), list)
        or _is_converted(sample)
    )


def _is_converted(sample: Mapping[str, Any]) -> bool:
    first = next(iter(sample.values()), None)
    return isinstance(first, Mapping) and {"query", "available_tools"} <= set(first)


def _read(record: Record) -> Iterator[Case]:
    data = record.data
    if "answer_generation" in data:
        return _answer(record, take(data, "answer_generation", dict))
    if "conversations" in data:
        return iter((_conversation(record),))
    if "api_list" in data:
        return iter((_query(record),))
    return _converted(data)


def _case(id: object, messages: object, tools: tuple[Tool, ...], **more: Any) -> Case:  # noqa: ANN401
    return Case(str(id), messages_of(messages), tools, benchmark="toolbench", **more)


def _asked(query: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": query}]


def _query(record: Record) -> Case:
    data = record.data
    tools = tools_of(_api(entry) for entry in take(data, "api_list", list))
    extra = {"relevant_apis": data["relevant APIs"]} if "relevant APIs" in data else {}
    id = data.get("query_id", f"{record.path.stem}-{record.number}")
    return _case(id, _asked(take(data, "query", str)), tools, extra=extra)


def _api(data: Mapping[str, Any]) -> Tool:
    """One entry of an ``api_list``."""
    api, tool = _standard(take(data, "api_name", str)), _standard(take(data, "tool_name", str))
    api = f"is_{api}" if api in _RESERVED else api
    name = f"{api}_for_{tool}"[-_NAME:]
    description = str(data.get("api_description") or "").strip()
    if "required_parameters" not in data and "optional_parameters" not in data:
        return Tool(name, description)  # the query names its APIs only; any arguments will do
    slots = {key: _slots(data, f"{key}_parameters") for key in ("required", "optional")}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {**slots["required"], **slots["optional"]},
        "required": list(slots["required"]),
    }
    return Tool(name, description, json_schema(schema))


def _slots(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    slots: dict[str, Any] = {}
    for parameter in take(data, key, list) if data.get(key) else ():
        name = _standard(take(parameter, "name", str))
        slot: dict[str, Any] = {
            "type": _TYPES.get(str(parameter.get("type")), "string"),
            "description": str(parameter.get("description") or ""),
        }
        if parameter.get("default") not in (None, ""):
            slot["example_value"] = parameter["default"]
        slots[f"is_{name}" if name in _RESERVED else name] = slot
    return slots


def _standard(name: str) -> str:
    """A name as ToolBench makes it fit for a function."""
    plain = re.sub(r"_+", "_", re.sub(r"[^0-9A-Za-z_\u4e00-\u9fa5]", "_", name)).lower().strip("_")
    return f"get_{plain}" if plain[:1].isdigit() else plain


def _answer(record: Record, data: Mapping[str, Any]) -> Iterator[Case]:
    tools = _functions(take(data, "function", list))
    stem = record.path.stem
    conversations = take(data, "train_messages", list) if data.get("train_messages") else []
    if not conversations:
        # An attempt that was given up taught nothing; its query is still a request.
        yield _case(stem, _asked(take(data, "query", str)), tools)
    for number, conversation in enumerate(conversations):
        messages, calls, output = split_answer(messages_of(conversation))
        yield _case(f"{stem}/{number}", messages, tools, calls=calls, output=output)


def _functions(data: list[Any]) -> tuple[Tool, ...]:
    return tuple(plain(tool) for tool in tools_of(data))


def _converted(data: Mapping[str, Any]) -> Iterator[Case]:
    for id, entry in data.items():
        tools = _functions(take(entry, "available_tools", list))
        yield _case(id, _asked(take(entry, "query", str)), tools)


def _conversation(record: Record) -> Case:
    turns = []
    for turn in take(record.data, "conversations", list):
        role = take(turn, "from", str)
        turns.append({"role": _ROLES.get(role, role), "content": take(turn, "value", str)})
    if not turns:
        raise RequestError('"conversations" is an empty list; expected at least one turn')
    id = record.data.get("id", f"{record.path.stem}-{record.number}")
    messages, _, output = split_answer(messages_of(turns))
    calls = _written(output) if output is not None else ()
    return _case(id, messages, _listed(messages), calls=calls, output=output)


def _listed(messages: tuple[Mapping[str, Any], ...]) -> tuple[Tool, ...]:
    """The tools that the system's turn lists, as Python prints them."""
    match = _LIST.search(messages[0]["content"]) if messages[0]["role"] == "system" else None
    if match is None:
        return ()
    try:
        return _functions(ast.literal_eval(match[1]))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise RequestError(
            f"the list of tools in the system's turn cannot be read: {short(match[1])}"
        ) from None


def _written(text: str) -> tuple[Call, ...]:
    """The call that a turn writes; none if it writes none, or not as JSON."""
    match = _ACTION.search(text)
    if match is None:
        return ()
    try:
        return read_calls(({"name": match[1], "arguments": match[2]},))
    except RequestError:
        return ()  # a model wrote these; the text stays


LAYOUT: Final = Layout(
    name="toolbench",
    expected='{"api_list", "query"}, {"answer_generation"} or {"id", "conversations"}',
    recognises=_recognises,
    read=each(_read),
)
