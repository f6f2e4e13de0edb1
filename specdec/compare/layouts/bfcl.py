"""BFCL: the Berkeley Function-Calling Leaderboard's question files and their possible answers.

Published in the PyPI package ``bfcl-eval`` (folder ``bfcl_eval/data``) and in the repository
ShishirPatil/gorilla. A line of a question file holds ``id``, ``question`` (turns of messages, in
older files one list of messages or a text) and ``function``; the file of the same name in the
folder ``possible_answer`` beside it holds, for the same ``id``, the acceptable values of every
argument. A set without such a file, where no call is right for example, has no reference calls.

Multi-turn and agentic sets (``multi_turn_*``, ``memory``, ``web_search``) run tools that are not in
the files; they are refused. In a folder they are left out, with a warning that names them.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from specdec.calls import Call, Tool
from specdec.compare.layouts.case import Case
from specdec.compare.layouts.chat import messages_of, tools_of
from specdec.compare.layouts.layout import Layout
from specdec.compare.layouts.record import Record, records, short, take
from specdec.compare.layouts.schema import fits, plain
from specdec.errors import RequestError

PACKAGE: Final = "bfcl_eval"
INSTALL: Final = "pip install --no-deps bfcl-eval==2026.3.23"

_ANSWERS: Final = "possible_answer"
_ID = re.compile(r"(.+?)_\d+(?:-.*)?\Z")
_LEFT_OUT: Final = ""
"""Among the acceptable values, it says that the argument may be left out."""


def bfcl_files() -> Mapping[str, Path]:
    """The question files of the installed package bfcl-eval, by the name of the set.

    Only the single-turn sets: those that can be read. The package is not imported.

    Raises:
        RequestError: If the package is not installed, or holds no such file.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        data = Path(folder) / "data"
        found = {
            path.stem.split("_", 2)[-1]: path
            for path in sorted(data.glob("BFCL_v*.json"))
            if _is_single_turn(path)
        }
        if found:
            return found
    raise RequestError(f"BFCL's files (package bfcl-eval) are not installed; run: {INSTALL}")


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return (path,)
    found = sorted(path.glob("*.json"))
    kept = [file for file in found if _is_single_turn(file)]
    if len(kept) < len(found):
        others = ", ".join(file.name for file in found if file not in kept)
        warnings.warn(f"left out of {path}, no single-turn questions: {others}", stacklevel=2)
    if not kept:
        raise RequestError(f"requests folder {path} holds no file of single-turn questions")
    return kept


def _is_single_turn(path: Path) -> bool:
    sample = records(path)[0].data
    return _recognises(sample) and "function" in sample and "involved_classes" not in sample


def _recognises(sample: object) -> bool:
    return isinstance(sample, Mapping) and (
        ("question" in sample and not {"function", "involved_classes"}.isdisjoint(sample))
        or {"id", "ground_truth"} <= set(sample)
    )


def _read(given: Iterable[Record]) -> Iterator[Case]:
    read: Path | None = None
    answers: Mapping[str, Any] | None = None
    for record in given:
        if record.path != read:
            read = record.path
            answers = _answers(read.parent / _ANSWERS / read.name)
        with record.located():
            case = _case(record, answers)
        yield case


def _answers(path: Path) -> Mapping[str, Any] | None:
    """The possible answers by the id of the question; None if there is no such file."""
    if not path.is_file():
        return None
    found = {}
    for record in records(path):
        with record.located():
            found[take(record.data, "id", str)] = take(record.data, "ground_truth", list)
    return found


def _case(record: Record, answers: Mapping[str, Any] | None) -> Case:
    data = record.data
    if "question" not in data:
        raise RequestError(
            f"answers without questions; name the file of the same name beside {_ANSWERS}/"
        )
    turns = _turns(data["question"])
    if "involved_classes" in data or len(turns) > 1:
        raise RequestError(
            f"{data.get('id', 'the question')!r} is of a multi-turn or agentic set, whose tools "
            "must be run; expected a single-turn set such as simple_python or live_multiple"
        )
    id = str(data.get("id", f"{record.path.stem}_{record.number - 1}"))
    split = match[1] if (match := _ID.match(id)) else ""
    functions = data["function"] if isinstance(data["function"], list) else [data["function"]]
    tools = tools_of(plain(Tool.from_mapping(function)) for function in functions)
    if answers is None:
        return Case(id, messages_of(turns[0]), tools, benchmark="bfcl", split=split)
    if id not in answers:
        raise RequestError(f"{id!r} is not in {_ANSWERS}/{record.path.name} beside the file")
    return Case(
        id,
        messages_of(turns[0]),
        tools,
        tuple(_calls(answers[id], tools)),
        benchmark="bfcl",
        split=split,
        extra={"possible_answer": answers[id]},
    )


def _turns(question: object) -> list[Any]:
    """The turns of a question, each a list of messages."""
    if isinstance(question, str):
        return [[{"role": "user", "content": question}]]
    if not isinstance(question, list) or not question:
        raise RequestError(f'expected messages or a text under "question", got {short(question)}')
    return [question] if isinstance(question[0], Mapping) else question


def _calls(truth: Sequence[Any], tools: Sequence[Tool]) -> Iterator[Call]:
    """A call for each entry, with the first acceptable value of every argument."""
    schemas = {tool.name: tool.parameters for tool in tools}
    for entry in truth:
        if not isinstance(entry, Mapping):
            raise RequestError(f"expected a call and its acceptable values, got {short(entry)}")
        for name, accepted in entry.items():
            if not isinstance(accepted, Mapping):
                raise RequestError(
                    f"{name!r}: expected the acceptable values of each argument, got "
                    f"{short(accepted)}"
                )
            if name not in schemas:
                raise RequestError(f"the answer calls {name!r}, which is not on offer")
            yield Call(name, dict(_arguments(accepted, schemas[name])))


def _arguments(accepted: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, values in accepted.items():
        values = values if isinstance(values, list) else [values]
        given = [_first(value) for value in values if value != _LEFT_OUT]
        if len(given) < len(values):
            # May be left out, so a value that the schema forbids is not worth writing.
            slot = (schema.get("properties") or {}).get(name)
            given = [value for value in given if fits(value, slot)]
            required = schema.get("required")
            if not given and isinstance(required, list) and name in required:
                given = [_LEFT_OUT]
        if given:
            yield name, given[0]


def _first(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value, with the first choice taken wherever an object's members offer several."""
    if isinstance(value, list):
        return [_first(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    chosen = {}
    for name, options in value.items():
        options = options if isinstance(options, list) and options else [options]
        given = [option for option in options if option != _LEFT_OUT]
        if given:
            chosen[name] = _first(given[0])
    return chosen


LAYOUT: Final = Layout(
    name="bfcl",
    expected='{"id", "question": [[{"role", "content"}]], "function": [...]}',
    recognises=_recognises,
    read=_read,
    files=_files,
)
