"""Tool: a function the model may call, described by a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from specdec.errors import RequestError

SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")
"""Where a tool's schema may stand: OpenAI, MCP, Anthropic."""


@attrs.frozen
class Tool:
    """A function with a JSON Schema for its arguments.

    Attributes:
        name: What the model writes to call it.
        description: What it does, in the words the model reads.
        parameters: JSON Schema of the arguments object.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = attrs.field(factory=dict)

    @classmethod
    def from_mapping(cls, data: object) -> Tool:
        """A tool from any of the forms in which people write one.

        Args:
            data: The OpenAI form ``{"type": "function", "function": {...}}`` or its inside; the
                schema may stand under "parameters", "inputSchema" (MCP) or "input_schema"
                (Anthropic).

        Raises:
            RequestError: If `data` is none of them, or a field has the wrong type.
        """
        inner = data.get("function", data) if isinstance(data, Mapping) else data
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise RequestError(
                f"a tool must be an object with a string 'name' (or {{'type': 'function', "
                f"'function': {{...}}}}), got {_short(data)}"
            )
        key = next((key for key in SCHEMA_KEYS if inner.get(key) is not None), SCHEMA_KEYS[0])
        parameters = inner.get(key) or {}
        if not isinstance(parameters, Mapping):
            raise RequestError(
                f"tool {inner['name']!r}: {key!r} must be a JSON Schema object, got "
                f"{_short(parameters)}"
            )
        properties = parameters.get("properties") or {}
        if not isinstance(properties, Mapping):
            raise RequestError(
                f"tool {inner['name']!r}: '{key}.properties' must be an object, got "
                f"{_short(properties)}"
            )
        return cls(inner["name"], str(inner.get("description") or ""), parameters)

    def to_openai(self) -> dict[str, Any]:
        """The tool in OpenAI's ``tools=`` form, as chat templates take it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


def read_tools(data: Iterable[object]) -> tuple[Tool, ...]:
    """Tools from a list of mappings.

    Raises:
        RequestError: If an entry is malformed or two tools share a name.
    """
    tools = tuple(entry if isinstance(entry, Tool) else Tool.from_mapping(entry) for entry in data)
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise RequestError(f"two tools are named {tool.name!r}; names must differ")
        seen.add(tool.name)
    return tools


def load_tools(path: Path) -> tuple[Tool, ...]:
    """Tools from a JSON file: a list of tools, or an object with a list under "tools".

    Raises:
        RequestError: If the file is missing, not JSON, or not a list of tools.
    """
    data = read_json(path, "tools")
    if isinstance(data, Mapping):
        data = data.get("tools")
    if not isinstance(data, list):
        raise RequestError(f"tools file {path} must hold a JSON list of tools, got {_short(data)}")
    try:
        return read_tools(data)
    except RequestError as error:
        raise RequestError(f"tools file {path}: {error}") from None


def read_json(path: Path, what: str) -> Any:  # noqa: ANN401 - whatever the file holds
    """The JSON value in `path`.

    Raises:
        RequestError: If the file cannot be read or is not JSON.
    """
    try:
        return json.loads(_read_text(path, what))
    except json.JSONDecodeError as error:
        raise RequestError(
            f"{what} file {path} is not JSON: {error.msg} at line {error.lineno}, column "
            f"{error.colno}"
        ) from None


def _read_text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{what} file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"{what} file {path} is not UTF-8 text: {error}") from None


def _short(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 80 else text[:77] + "..."
