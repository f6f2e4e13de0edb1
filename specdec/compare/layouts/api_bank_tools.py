"""API-Bank's tools: where its dialogues and prompts say what an API takes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import attrs

from specdec.calls import Call, Tool
from specdec.compare.layouts.schema import flat_schema

_FOLDER: Final = "apis"
_ABOVE: Final = 4  # folders in which it is looked for
_NAMES: Final = ("name", "apiCode")
_ARGUMENTS: Final = ("input_parameters", "parameters")
_OPTIONAL: Final = "[optional]"
_UNREADABLE: Final = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)
_CALL = re.compile(r"\s*API-Request:\s*\[(\w+)\((.*)\)\]\s*\Z", re.DOTALL)
_ARGUMENT = re.compile(r"(\w+)\s*=\s*(['\"])(.*?)\2\s*(?:,\s*(?=\w+\s*=)|\Z)", re.DOTALL)
_KINDS: Final = {bool: "bool", int: "int", float: "float", str: "str", list: "list", dict: "dict"}


def described(path: Path, steps: Sequence[tuple[Call, object]]) -> Mapping[str, Tool]:
    """The tools that the repository or a search for tools describes, by name.

    Args:
        path: The file of the dialogue.
        steps: (S,) its calls with their results; those of searches hold descriptions.
    """
    found = dict(_repository(path.resolve()))
    for _, result in steps:
        for tool in _results(result):
            found.setdefault(tool.name, tool)
    return found


def inferred(calls: Iterable[Call]) -> dict[str, Tool]:
    """Tools that take what they are called with, by name."""
    arguments: dict[str, dict[str, Any]] = {}
    for call in calls:
        known = arguments.setdefault(call.name, {})
        for name, value in call.arguments.items():
            kind = _KINDS.get(type(value))
            known.setdefault(name, {"type": kind} if kind else {})
    return {name: Tool(name, "", flat_schema(known)) for name, known in arguments.items()}


def described_in(text: str) -> Iterator[Tool]:
    """The tools that a prompt describes: an object to a line, or behind a search's arrow."""
    for line in text.splitlines():
        head, arrow, result = line.partition(")]->")
        value = _literal(result if arrow and head.startswith("API-Request:") else line)
        yield from _results(value)


def with_optional(tool: Tool) -> Tool:
    """The tool, requiring no argument whose description says that it is optional."""
    about = tool.parameters.get("properties") or {}
    required = [
        name
        for name in tool.parameters.get("required") or ()
        if _OPTIONAL not in str((about.get(name) or {}).get("description")).lower()
    ]
    return attrs.evolve(tool, parameters={**tool.parameters, "required": required})


def written_calls(text: str) -> tuple[Call, ...]:
    """The call in ``API-Request: [Name(key='value', ...)]``; none if there is none.

    Where the arguments are not Python, which quotes inside quotes break, they are text between one
    name and the next.
    """
    match = _CALL.match(text)
    if match is None:
        return ()
    name, inside = match[1], match[2].strip()
    try:
        node = ast.parse(f"f({inside})", mode="eval").body
        assert isinstance(node, ast.Call)
        if node.args:
            return ()
        arguments = {word.arg or "": ast.literal_eval(word.value) for word in node.keywords}
    except _UNREADABLE:
        found = list(_ARGUMENT.finditer(inside))
        if sum(len(argument[0]) for argument in found) != len(inside):
            return ()
        arguments = {argument[1]: argument[3] for argument in found}
    return (Call(name, arguments),)


def _results(value: object) -> Iterator[Tool]:
    """The tools in what a search for tools gave: a description, several, or one further inside."""
    if isinstance(value, list):
        for entry in value:
            yield from _results(entry)
    elif isinstance(value, Mapping):
        name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
        arguments = next(
            (value[key] for key in _ARGUMENTS if isinstance(value.get(key), Mapping)), None
        )
        if name is not None and arguments is not None:
            description = str(value.get("description") or "")
            yield with_optional(Tool(name, description, flat_schema(arguments)))
        elif "output" in value:
            yield from _results(value["output"])


def _literal(text: str) -> object:
    """The value that a line writes in JSON or Python; None if it is neither."""
    if not text.strip().startswith(("{", "[")):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text.strip())
        except _UNREADABLE:
            continue
    return None


def _repository(path: Path) -> Mapping[str, Tool]:
    for folder in path.parents[:_ABOVE]:
        if (folder / _FOLDER / "api.py").is_file() or (
            folder / _FOLDER / "tool_search.py"
        ).is_file():
            return _apis(folder / _FOLDER)
    return {}


@lru_cache(maxsize=4)
def _apis(folder: Path) -> Mapping[str, Tool]:
    """The APIs of the repository, from the texts of their classes; nothing is run."""
    found: dict[str, Tool] = {}
    for file in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (OSError, *_UNREADABLE):
            continue  # a part of the program, not of the data
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and (tool := _api(node)) is not None:
                found[tool.name] = tool
    return found


def _api(node: ast.ClassDef) -> Tool | None:
    """The API that a class describes in its attributes; None for any other class."""
    said: dict[str, Any] = {}
    for line in node.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            try:
                said[line.targets[0].id] = ast.literal_eval(line.value)
            except _UNREADABLE:
                continue
    arguments = said.get("input_parameters")
    if not isinstance(arguments, Mapping):
        return None
    description = str(said.get("description") or "")
    return with_optional(Tool(node.name, description, flat_schema(arguments)))
