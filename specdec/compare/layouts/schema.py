"""Schema: JSON Schema from the dialects in which benchmarks describe arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specdec.calls import Tool
from specdec.calls.schema import KINDS, named_type

_PYTHON: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def plain(tool: Tool) -> Tool:
    """The tool with its arguments described in JSON Schema."""
    return Tool(tool.name, tool.description, json_schema(tool.parameters))


def json_schema(node: Any) -> Any:  # noqa: ANN401 - any JSON value
    """JSON Schema from a dialect that names types as a programming language does.

    A type that JSON Schema lacks, such as ``any``, is left out, and so are lists of required or
    optional arguments that say nothing.
    """
    if isinstance(node, list):
        return [json_schema(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    schema: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties" and isinstance(value, Mapping):
            # Names of arguments, not keywords: an argument may well be called "type".
            schema[key] = {name: json_schema(inner) for name, inner in value.items()}
        elif key == "type" and isinstance(value, str):
            schema |= _type(value)
        elif key == "optional" or (key == "required" and not (value and node.get("properties"))):
            continue
        elif key in ("items", "additionalProperties", "anyOf", "oneOf", "allOf"):
            schema[key] = json_schema(value)
        else:
            schema[key] = value
    return schema


def flat_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema from the names of arguments, all required, and what is said about each."""
    properties = {}
    for name, about in parameters.items():
        slot = dict(about) if isinstance(about, Mapping) else {"description": str(about)}
        kind = slot.pop("type", None)
        properties[name] = {**(named_type(kind) if isinstance(kind, str) else {}), **slot}
    return {"type": "object", "properties": properties, "required": list(properties)}


def fits(value: object, schema: object) -> bool:
    """Whether a value is of a schema's type and among its choices; nothing deeper is looked at."""
    if not isinstance(schema, Mapping):
        return True
    kinds = schema.get("type")
    if isinstance(kinds, str) and kinds in _PYTHON:
        if isinstance(value, bool) and kinds != "boolean":
            return False
        if not isinstance(value, _PYTHON[kinds]):
            return False
    choices = schema.get("enum")
    return not isinstance(choices, list) or value in choices


def _type(name: str) -> dict[str, Any]:
    known = named_type(name)
    return known if known["type"] in KINDS else {}
