"""Record: one JSON object of a requests file, and where it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs

from specdec.errors import RequestError

T = TypeVar("T")

SUFFIXES = (".json", ".jsonl")
"""What files in a folder are read."""

_WAY_OUT = "save it as UTF-8 text"
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_KINDS: Mapping[type, str] = {str: "text", list: "a list", dict: "an object", Mapping: "an object"}


@attrs.frozen
class Record:
    """One JSON object of a file.

    Attributes:
        path: The file.
        where: The file and the place in it, as messages name them.
        number: Which record of its file it is, from 1.
        data: The object.
    """

    path: Path
    where: str
    number: int
    data: Mapping[str, Any]

    @contextmanager
    def located(self) -> Iterator[None]:
        """Whatever is wrong inside is said together with the place.

        Raises:
            RequestError: The one that was raised inside, behind the name of the place.
        """
        try:
            yield
        except RequestError as error:
            raise RequestError(f"{self.where}: {error}") from None


def files_of(path: Path) -> tuple[Path, ...]:
    """The files to read: `path` itself, or all JSON files in that folder, in order of name.

    Raises:
        RequestError: If there is none.
    """
    if not path.is_dir():
        return (path,)
    found = sorted(file for suffix in SUFFIXES for file in path.rglob(f"*{suffix}"))
    # Hidden files are an editor's or an operating system's, never a benchmark's.
    found = [file for file in found if not _hidden(file.relative_to(path))]
    if not found:
        raise RequestError(
            f"requests folder {path} holds no {' or '.join(SUFFIXES)} file; name a file, or the "
            "folder that a benchmark publishes"
        )
    return tuple(found)


def records(path: Path) -> list[Record]:
    """The objects of a file: those of a JSON list, one per line, or a single one.

    A byte-order mark and blank lines mean nothing.

    Raises:
        RequestError: If the file cannot be read, is empty or is neither, or an entry is no object.
    """
    text = _text(path)
    if not text.strip():
        raise RequestError(
            f"requests file {path} is empty; expected JSON objects, one per line, or a JSON list"
        )
    return [
        _record(path, number, name, value)
        for number, (name, value) in enumerate(_values(path, text), start=1)
    ]


def _record(path: Path, number: int, name: str, value: object) -> Record:
    where = f"requests file {path}, {name}"
    if not isinstance(value, Mapping):
        raise RequestError(f"{where}: expected a JSON object, got {short(value)}")
    return Record(path, where, number, value)


def _values(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """The values of a file, each with the name of its place."""
    lines = [
        # Not `splitlines`, which also splits at characters that may stand in a JSON string.
        (number, line)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if len(lines) == 1 or _parses(lines[0][1]):
        whole = None
    else:
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError) as error:
            # Lines, of which the first is broken, or one broken document?
            if not any(_parses(line) for _, line in lines[1:]):
                raise RequestError(f"requests file {path} is not JSON: {_reason(error)}") from None
            whole = None
    if whole is None:
        values = [(f"line {number}", _value(path, number, line)) for number, line in lines]
        if len(values) > 1 or not isinstance(values[0][1], list):
            yield from values
            return
        whole = values[0][1]
    if isinstance(whole, list):
        if not whole:
            raise RequestError(f"requests file {path} is an empty list; expected JSON objects")
        yield from ((f"entry {number}", value) for number, value in enumerate(whole, start=1))
    else:
        yield "its one value", whole


def _value(path: Path, number: int, line: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"requests file {path}, line {number} is not JSON: {_reason(error)}; mend or remove "
            "the line"
        ) from None


def _parses(line: str) -> bool:
    """Whether a line is an object by itself."""
    if not line.lstrip().startswith("{"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        place = f"line {error.lineno}, column {error.colno}"
        return f"{error.msg} at {place if error.lineno > 1 else f'column {error.colno}'}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RequestError(f"requests file {path} cannot be read: {error.strerror}") from None
    if data.startswith(_WIDE):
        raise RequestError(f"requests file {path} is UTF-16 text; {_WAY_OUT}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"requests file {path} is not UTF-8 text: {error}; {_WAY_OUT}") from None


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def take(data: object, key: str, kind: type[T]) -> T:
    """A field that must be there.

    Raises:
        RequestError: If it is not, or is of another type, or `data` is no object.
    """
    if not isinstance(data, Mapping):
        raise RequestError(f'expected an object with "{key}", got {short(data)}')
    value = data.get(key)
    if isinstance(value, kind):
        return value
    found = f"got {short(value)}" if key in data else f"the object has {keys(data)}"
    raise RequestError(f'expected {_KINDS.get(kind, kind.__name__)} under "{key}", {found}')


def keys(data: Mapping[str, Any]) -> str:
    """The keys of an object, for messages."""
    shown = ", ".join(f'"{key}"' for key in list(data)[:8])
    more = f" and {len(data) - 8} more" if len(data) > 8 else ""
    return f"the keys {shown}{more}" if shown else "no keys"


def short(value: object) -> str:
    """A value, for messages."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
