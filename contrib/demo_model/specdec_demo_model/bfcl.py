"""Training examples from the question and answer files of the PyPI package bfcl-eval.

Its single-turn sets give a question, the functions on offer, and for every call the acceptable
values of each argument. The functions are described in a dialect of JSON Schema that follows the
programming language of the set (``dict``, ``float``, ``ArrayList`` ...).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from specdec.errors import SpecdecError

PACKAGE = "bfcl_eval"
INSTALL = "pip install --no-deps bfcl-eval==2026.3.23"

SETS = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)

_TYPES = {
    "dict": "object",
    "hashmap": "object",
    "float": "number",
    "double": "number",
    "long": "integer",
    "tuple": "array",
    "arraylist": "array",
    "char": "string",
}
_JSON_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


class MissingData(SpecdecError):
    """The package with the training data is not installed; the message says how to get it."""


@attrs.frozen
class Example:
    """A conversation and the calls that answer it.

    Attributes:
        id: The benchmark's own name for it.
        messages: The conversation, as chat templates take it.
        tools: The tools on offer, in OpenAI's form with JSON Schema.
        calls: The calls, each with ``name`` and ``arguments``.
    """

    id: str
    messages: tuple[Mapping[str, str], ...]
    tools: tuple[Mapping[str, Any], ...]
    calls: tuple[Mapping[str, Any], ...]


def find_data() -> Path:
    """The data folder of the installed package bfcl-eval, found without importing it.

    Raises:
        MissingData: If the package is absent or has no such folder.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        data = Path(folder) / "data"
        if data.is_dir():
            return data
    raise MissingData(f"the training data (package bfcl-eval) is not installed; run: {INSTALL}")


def read_examples(data: Path) -> list[Example]:
    """The examples of every single-turn set in `data`, in a fixed order.

    Raises:
        MissingData: If there are none, or a file is not in the expected form.
    """
    examples = []
    for questions in _question_files(data):
        try:
            answers = {row["id"]: row for row in _rows(data / "possible_answer" / questions.name)}
            examples += [
                _example(row, answers[row["id"]]["ground_truth"])
                for row in _rows(questions)
                if row["id"] in answers
            ]
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise MissingData(
                f"{questions} is not in the form this script reads "
                f"({type(error).__name__}: {error}); run: {INSTALL}"
            ) from error
    if not examples:
        raise MissingData(f"no single-turn sets in {data}; run: {INSTALL}")
    return examples


def split(
    examples: Iterable[Example], held_out: float = 0.3
) -> tuple[list[Example], list[Example]]:
    """Examples to train on and to keep for measuring.

    No function is called on both sides: its name alone, hashed, decides where it belongs. An
    example that calls functions of both kinds is on neither side.

    Args:
        examples: What to divide.
        held_out: Share of the function names kept for measuring.
    """
    train, kept = [], []
    for example in examples:
        sides = {_share(call["name"]) < held_out for call in example.calls}
        if sides == {False}:
            train.append(example)
        elif sides == {True}:
            kept.append(example)
    return train, kept


def _share(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32


def _question_files(data: Path) -> list[Path]:
    # BFCL_v4_live_multiple.json is the set live_multiple, in the benchmark's version 4.
    sets = {path.stem.split("_", 2)[-1]: path for path in data.glob("BFCL_v*.json")}
    return [sets[name] for name in SETS if name in sets]


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def _example(row: Mapping[str, Any], truth: Sequence[Mapping[str, Any]]) -> Example:
    functions = {function["name"]: function for function in row["function"]}
    calls = tuple(
        {"name": name, "arguments": _arguments(accepted, functions[name]["parameters"])}
        for call in truth
        for name, accepted in call.items()
    )
    return Example(
        id=row["id"],
        messages=tuple(row["question"][0]),
        tools=tuple(_tool(function) for function in functions.values()),
        calls=calls,
    )


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    described = {**function, "parameters": _schema(function["parameters"])}
    return {"type": "function", "function": described}


def _arguments(accepted: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    required = schema.get("required") or ()
    arguments = {}
    for name, values in accepted.items():
        # An empty string among the acceptable values says that the argument may be left out.
        if not values or (values[0] == "" and name not in required):
            continue
        given = [value for value in values if value != ""] or values
        arguments[name] = _first(given[0])
    return arguments


def _first(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value with the first choice taken wherever an object's members offer several."""
    if isinstance(value, dict):
        chosen = {
            name: options[0] if isinstance(options, list) and options else options
            for name, options in value.items()
        }
        return {name: _first(option) for name, option in chosen.items() if option != ""}
    if isinstance(value, list):
        return [_first(item) for item in value]
    return value


def _schema(node: Any) -> Any:  # noqa: ANN401 - any JSON value
    """JSON Schema from the dialect; a type that JSON Schema lacks is left out."""
    if isinstance(node, list):
        return [_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    schema: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties" and isinstance(value, dict):
            # Names of arguments, not keywords: an argument may well be called "type".
            schema[key] = {name: _schema(inner) for name, inner in value.items()}
        elif key == "type" and isinstance(value, str):
            kind = _TYPES.get(value.lower(), value.lower())
            if kind in _JSON_TYPES:
                schema[key] = kind
        elif key == "optional":
            continue  # no keyword of JSON Schema; "required" says it already
        elif key in {"default", "enum", "const", "example", "examples"}:
            schema[key] = value
        else:
            schema[key] = _schema(value)
    return schema
