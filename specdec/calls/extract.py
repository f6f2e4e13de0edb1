"""Tools found in a prompt, for callers who pass none: API-Bank's documents, embedded JSON."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from specdec.calls.schema import TYPE_NAMES, named_type
from specdec.calls.tools import SCHEMA_KEYS, Tool
from specdec.errors import RequestError

MAX_TEXT = 1_000_000
"""Characters of a prompt that are looked at."""

MAX_TOOLS = 4_096
"""Tools taken from one prompt."""

_DECODER = json.JSONDecoder()
_HEAD = re.compile(r"[ \t]*(?:\d+[.)][ \t]*|[-*][ \t]+)?(?:Name:[ \t]*(\S[^\n]*)|([\w.-]+):(.*))\Z")
_OPENER = re.compile(r'\[(?=\s{0,64}\{)|\{(?=\s{0,64}")')
_DEEP = 512  # brackets
_UNREADABLE = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


def tools_in_prompt(text: str) -> tuple[Tool, ...]:
    """The tools that a prompt describes, in the order in which they stand there.

    Understood are the two layouts of API-Bank's documents (``1. Name: f`` with its description
    below, and ``1. f: description``, each with a ``Parameters: {...}`` line), and JSON objects or
    lists of them anywhere, in every form that `Tool.from_mapping` reads: Hermes ``<tools>``
    blocks, Llama's blocks, lines of objects. A function written as Python prints it is read when
    it stands on one line.

    Args:
        text: The prompt, or any text; only its first `MAX_TEXT` characters are looked at. Time
            grows with its length and no faster.

    Returns:
        The first tool of each name; empty if there is none. Never raises.
    """
    text = text[:MAX_TEXT]
    pairs = (*_documents(text), *_embedded(text), *_printed(text))
    found = sorted(pairs, key=lambda pair: pair[0])
    tools: dict[str, Tool] = {}
    for _, tool in found:
        tools.setdefault(tool.name, tool)
    return tuple(tools.values())[:MAX_TOOLS]


def _documents(text: str) -> Iterator[tuple[int, Tool]]:
    """Positions and tools of API-Bank's documents."""
    name, description, start, at = "", "", 0, 0
    for line in text.splitlines(keepends=True):
        word = line.strip()
        if word.startswith("Parameters:"):
            parameters = _literal(word.removeprefix("Parameters:").strip())
            if name and isinstance(parameters, Mapping) and _is_flat(parameters):
                yield start, Tool(name, description, _from_flat(parameters))
            name = ""
        elif name and word.startswith("Description:"):
            description = word.removeprefix("Description:").strip()
        elif head := _HEAD.match(line.rstrip()):
            name, start = (head[1] or head[2]).strip(), at
            description = (head[3] or "").strip()
        at += len(line)


def _embedded(text: str) -> Iterator[tuple[int, Tool]]:
    """Positions and tools of JSON anywhere in `text`."""
    # Every try that fails costs the characters it looked at, and tries may overlap: without a
    # limit on their sum, a prompt of opening brackets would take quadratic time.
    allowance = 8 * len(text) + 4_096
    at = 0
    while allowance > 0 and (opener := _OPENER.search(text, at)):
        start = opener.start()
        at = start + 1
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            # The error counts the lines before it, in time that grows with its position.
            allowance -= error.pos - start + error.pos // 256 + 16
            continue
        except RecursionError:
            at = start + _DEEP  # deeper than anything worth reading
            allowance -= 16 * _DEEP
            continue
        allowance -= end - start
        tools = list(_tools(value))
        if tools:
            at = end
            yield from ((start, tool) for tool in tools)


def _printed(text: str) -> Iterator[tuple[int, Tool]]:
    """Positions and tools of lists and dictionaries as Python prints them, one to a line."""
    at = 0
    for line in text.splitlines(keepends=True):
        inside = line.rpartition("<tools>")[2].partition("</tools>")[0].strip()
        if inside.startswith(("{'", "[{'")):
            yield from ((at, tool) for tool in _tools(_literal(inside)))
        at += len(line)


def _tools(value: object) -> Iterator[Tool]:
    """The tools that a value holds: itself, its entries, or those under "tools"/"functions"."""
    if isinstance(value, list):
        for entry in value:
            if isinstance(entry, Mapping):
                yield from _tools(entry)
    elif isinstance(value, Mapping):
        for key in ("tools", "functions"):
            if isinstance(value.get(key), list):
                yield from _tools([entry for entry in value[key] if isinstance(entry, Mapping)])
        tool = _tool(value)
        if tool is not None:
            yield tool


def _tool(data: Mapping[str, Any]) -> Tool | None:
    """The tool that `data` describes; None for anything else, a call for example."""
    inner = data.get("function", data)
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        return None
    key = next((key for key in SCHEMA_KEYS if isinstance(inner.get(key), Mapping)), None)
    described = isinstance(inner.get("description"), str)
    if key is None:
        # Without a schema only a description tells a tool from any other named thing.
        wrapped = data.get("type") == "function" and inner is not data
        if not wrapped and not (described and set(inner) <= {"name", "description", "type"}):
            return None
    elif _is_schema(inner[key]):
        pass
    elif not inner[key]:
        if not described and inner is data:
            return None  # a call without arguments looks like this too
    elif _is_flat(inner[key]):
        inner = {**inner, key: _from_flat(inner[key])}
    else:
        return None
    try:
        return Tool.from_mapping(inner)
    except RequestError:
        return None


def _is_schema(parameters: Mapping[str, Any]) -> bool:
    if isinstance(parameters.get("properties"), Mapping):
        return True
    kind = parameters.get("type")
    return (isinstance(kind, str) and TYPE_NAMES.get(kind.lower()) == "object") or any(
        isinstance(parameters.get(key), kind)
        for key, kind in (("$ref", str), ("anyOf", list), ("allOf", list), ("oneOf", list))
    )


def _is_flat(parameters: Mapping[str, Any]) -> bool:
    """Whether it maps every argument's name straight to what is said about the argument."""
    return all(
        isinstance(about, Mapping) and not {"type", "description", "param_type"}.isdisjoint(about)
        for about in parameters.values()
    )


def _from_flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON Schema from argument names and what is said about each."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, about in parameters.items():
        slot = {key: value for key, value in about.items() if key not in ("param_type", "required")}
        kind = about.get("type", about.get("param_type"))
        if isinstance(kind, str):
            slot |= named_type(kind)
        properties[str(name)] = slot
        # API-Bank marks nothing as optional, Llama's blocks say so per argument.
        if about.get("required", True) not in (False, "false", "False"):
            required.append(str(name))
    return {"type": "object", "properties": properties, "required": required}


def _literal(text: str) -> Any:  # noqa: ANN401 - whatever was written
    """The value that `text` writes in Python or JSON; None if it is neither."""
    try:
        return ast.literal_eval(text)
    except _UNREADABLE:
        pass
    try:
        return json.loads(text)
    except _UNREADABLE:
        return None
