"""ToolAlpaca: the evaluation files ``data/eval_simulated.json`` and ``data/eval_real.json``.

Published in the repository tangqiaoyu/ToolAlpaca: a list of APIs, each with its functions in words
(``Function_Description``, ``NLDocumentation``), an OpenAPI description as text (``Documentation``,
with ``Function_Projection`` from functions to its paths), ``Instructions`` and, for each of them,
``Golden_Answers``: calls ``{"Action", "Action_Input"}``.

Golden answers stand for values that only an earlier result tells by placeholders such as
``${id from search}``; they are kept, as text. A call marked ``[Optional]`` counts as a reference
call and is named in the case's ``extra``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from specdec.calls import Call, Tool
from specdec.compare.layouts.case import Case
from specdec.compare.layouts.chat import tools_of
from specdec.compare.layouts.layout import Layout, each
from specdec.compare.layouts.record import Record, short, take
from specdec.errors import RequestError

_OPTIONAL: Final = "[Optional]"
_NOT_A_FUNCTION: Final = "components"
_TWICE = re.compile(r'("\w+":\s*)\1')
_PLACEHOLDER = re.compile(r'("(?:\\.|[^"\\])*")|\$?\{([A-Za-z][^{}",:]*)\}?')
_IN_A_PARAMETER = ("type", "enum", "items", "format", "default", "minimum", "maximum")
_DEEP: Final = 32


def _recognises(sample: object) -> bool:
    return (
        isinstance(sample, Mapping)
        and "Instructions" in sample
        and not {"Function_Description", "NLDocumentation"}.isdisjoint(sample)
    )


def _read(record: Record) -> Iterator[Case]:
    api = record.data
    tools = _tools(api)
    instructions = take(api, "Instructions", list)
    golden = take(api, "Golden_Answers", list) if "Golden_Answers" in api else None
    if golden is not None and len(golden) != len(instructions):
        raise RequestError(f"{len(instructions)} instructions but {len(golden)} golden answers")
    split = record.path.stem.removeprefix("eval_")
    for number, instruction in enumerate(instructions):
        if not isinstance(instruction, str):
            raise RequestError(f"instruction {number}: expected text, got {short(instruction)}")
        extra: dict[str, Any] = {"api": api.get("Name"), "category": api.get("Category")}
        calls: list[Call] = []
        for answer in _answers(golden, number):
            name, arguments = _action(answer, f"instruction {number}")
            if name.startswith(_OPTIONAL):
                extra.setdefault("optional_calls", []).append(len(calls))
            calls.append(Call(name.removeprefix(_OPTIONAL).strip(), arguments))
        yield Case(
            id=f"toolalpaca-{split}-{record.number - 1:02}-{number:02}",
            messages=({"role": "user", "content": instruction},),
            tools=tools,
            calls=tuple(calls),
            benchmark="toolalpaca",
            split=split,
            extra=extra,
        )


def _answers(golden: list[Any] | None, number: int) -> list[Any]:
    """The golden answers to an instruction; none if there are none to any."""
    if golden is None:
        return []
    answers = golden[number]
    if not isinstance(answers, list):
        raise RequestError(
            f"instruction {number}: expected a list of golden answers, got {short(answers)}"
        )
    return answers


def _action(answer: object, place: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(answer, Mapping):
        raise RequestError(f'{place}: expected {{"Action", "Action_Input"}}, got {short(answer)}')
    name, text = take(answer, "Action", str), answer.get("Action_Input")
    arguments = text if isinstance(text, Mapping) else _arguments(str(text or "{}"))
    if arguments is None:
        raise RequestError(f"{place}: expected a JSON object as Action_Input, got {short(text)}")
    return name, arguments


def _arguments(text: str) -> Mapping[str, Any] | None:
    """The object that a golden answer's input writes; None if it cannot be made out."""
    quoted = _PLACEHOLDER.sub(_quoted, text)
    # Some of the published inputs write an argument's name twice, some a placeholder bare.
    for attempt in (text, quoted, _TWICE.sub(r"\1", quoted)):
        try:
            value = json.loads(attempt)
        except ValueError:
            continue
        return value if isinstance(value, Mapping) else None
    return None


def _quoted(match: re.Match[str]) -> str:
    if match[1] is not None:
        return match[1]  # inside a string already
    mark = "$" if match[0].startswith("$") else ""
    return json.dumps(f"{mark}{{{match[2].strip()}}}", ensure_ascii=False)


def _tools(api: Mapping[str, Any]) -> tuple[Tool, ...]:
    """The API's functions with the schemas that its OpenAPI description gives them."""
    try:
        return tools_of(_functions(api))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        # A whole other standard, which is not checked part by part.
        raise RequestError(
            'the OpenAPI description under "Documentation" is not as expected '
            f"({type(error).__name__}: {error})"
        ) from error


def _functions(api: Mapping[str, Any]) -> Iterator[Tool]:
    described = api.get("Function_Description") or {}
    document = _document(api)
    where = api.get("Function_Projection") or _projection(document)
    for name in described or where:
        if name == _NOT_A_FUNCTION:
            continue
        path, method = where.get(name, ("", ""))
        operation = (document.get("paths") or {}).get(path, {}).get(method)
        said = str(described.get(name, "")).partition("\nParameters:")[0]
        # Without a description of its arguments any arguments will do.
        schema = _schema(operation, document) if operation else {}
        yield Tool(name, said, schema)


def _document(api: Mapping[str, Any]) -> Mapping[str, Any]:
    document = api.get("Documentation") or {}
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except ValueError as error:
            raise RequestError(f'the OpenAPI text under "Documentation": {error}') from None
    if not isinstance(document, Mapping):
        raise RequestError(f'expected an object under "Documentation", got {short(document)}')
    return document


def _projection(document: Mapping[str, Any]) -> Mapping[str, tuple[str, str]]:
    """Path and method of every function, where the file does not say."""
    return {
        operation["operationId"]: (path, method)
        for path, methods in (document.get("paths") or {}).items()
        for method, operation in methods.items()
        if isinstance(operation, Mapping) and "operationId" in operation
    }


def _schema(operation: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for entry in operation.get("parameters") or ():
        parameter = _resolved(entry, document)
        schema = parameter.get("schema") or {
            k: parameter[k] for k in _IN_A_PARAMETER if k in parameter
        }
        slot = dict(_resolved(schema, document))
        if parameter.get("description"):
            slot["description"] = parameter["description"]
        properties[parameter["name"]] = slot
        if parameter.get("required") is True:
            required.append(parameter["name"])
    body = _resolved(operation.get("requestBody") or {}, document)
    for content in (body.get("content") or {}).values():
        schema = _resolved(content.get("schema") or {}, document)
        properties |= schema.get("properties") or {}
        required += [name for name in schema.get("required") or () if name not in required]
        break  # the same arguments in another encoding
    found = {"type": "object", "properties": properties}
    return {**found, "required": required} if required else found


def _resolved(node: Any, document: Mapping[str, Any], depth: int = 0) -> Any:  # noqa: ANN401
    """A part of the description, with what it refers to put in its place."""
    if isinstance(node, list):
        return [_resolved(item, document, depth + 1) for item in node]
    if not isinstance(node, Mapping):
        return node
    if isinstance(node.get("$ref"), str):
        if depth > _DEEP:
            return {}  # a type that holds itself
        target: Any = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target.get(part, {}) if isinstance(target, Mapping) else {}
        return _resolved(target, document, depth + 1)
    return {key: _resolved(value, document, depth + 1) for key, value in node.items()}


LAYOUT: Final = Layout(
    name="toolalpaca",
    expected='{"Name", "Function_Description", "Instructions", "Golden_Answers", ...}',
    recognises=_recognises,
    read=each(_read),
)
