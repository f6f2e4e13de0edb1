"""``specdec memory``: look at a saved memory, thin it out, and carry episodes in and out."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table
from rich.text import Text

from specdec.cli import show as screen
from specdec.errors import SpecdecError
from specdec.expression import parse
from specdec.files import replace
from specdec.interfaces import Episode, Memory

app = typer.Typer(
    help="Look at a saved memory, thin it out, carry episodes in and out.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

WIDE: Final = "episodes(entries=100000000, tokens=100000000000)"
"""A memory that no file is too large for: these commands must lose nothing by loading."""

MANY: Final = 20
"""Tenants shown in a table."""

LINE: Final = {"tenant", "text", "output", "prompt", "embedding", "model", "tokenizer"}
"""The keys of an exported line."""

File = Annotated[Path, typer.Argument(help="A saved memory.")]
Kind = Annotated[
    str, typer.Option("--memory", help="The memory that reads the file, as an expression.")
]


@runtime_checkable
class Listed(Protocol):
    """What these commands need of a memory besides `Memory`'s own methods."""

    def __iter__(self) -> Iterator[Episode]:
        """Every episode, the next one to be dropped first."""

    def describe(self) -> Mapping[str, Any]:
        """Plain values: entries, tokens, bytes, tenants, fingerprints, most_useful."""

    def prune(self, entries: int) -> int:
        """Drop the least useful until `entries` are left; returns how many."""

    def identify(self, *, model: str = "", tokenizer: str = "") -> None:
        """Say whose episodes these are; raises if they are another's."""


@app.command("show")
def show(
    file: File,
    memory: Kind = WIDE,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a saved memory holds."""
    listed, _ = _loaded(memory, file)
    found = {**listed.describe(), "file_bytes": file.stat().st_size}
    if as_json:
        typer.echo(json.dumps(found))
        return
    useful = found.pop("most_useful")
    names = {name: value or "unknown" for name, value in found.pop("fingerprints").items()}
    table = Table(show_header=False)
    for name, value in {**found, **names}.items():
        if isinstance(value, Mapping):
            rest = f", {len(value) - MANY:,} more" if len(value) > MANY else ""
            some = islice(value.items(), MANY)
            value = ", ".join(f"{_shown(key)}: {count:,}" for key, count in some) + rest
        shown = f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(name.replace("_", " "), Text(shown))
    screen.console().print(table)
    if useful:
        table = Table(title="Most useful", title_justify="left")
        for name in useful[0]:
            table.add_column(name, overflow="fold")
        for row in useful:
            table.add_row(*(Text(_shown(value)) for value in row.values()))
        screen.console().print(table)


@app.command("prune")
def prune(
    file: File,
    entries: Annotated[
        int | None, typer.Option(min=0, help="Keep this many, the most recently useful.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Drop everything of this tenant.")] = None,
    memory: Kind = WIDE,
) -> None:
    """Drop the least recently useful episodes, or a tenant's."""
    if (entries is None) == (tenant is None):
        raise SpecdecError("give either --entries N or --tenant T")
    listed, kept = _loaded(memory, file)
    before = len(kept)
    if entries is not None:
        listed.prune(entries)
    elif tenant is not None:
        kept.forget(tenant)
        if len(kept) == before:
            tenants = ", ".join(map(_shown, listed.describe()["tenants"])) or "none"
            raise SpecdecError(f"{file} holds nothing of tenant {tenant!r}; tenants: {tenants}")
    kept.save(file)
    typer.echo(f"{before - len(kept)} episodes dropped, {len(kept)} left in {file}")


@app.command("export")
def export(
    file: File,
    lines: Annotated[
        Path | None, typer.Argument(help="Where to write; standard output by default.")
    ] = None,
    memory: Kind = WIDE,
) -> None:
    """Write every episode as one line of JSON, the least recently useful first."""
    listed, kept = _loaded(memory, file)
    prints = {name: text for name, text in listed.describe()["fingerprints"].items() if text}
    written = "".join(_line(episode, prints) + "\n" for episode in listed)
    if lines is None:
        typer.echo(written, nl=False)
        return
    _write(lines, written)
    typer.echo(f"{len(kept)} episodes written to {lines}")


@app.command("import")
def import_lines(
    file: File,
    lines: Annotated[Path, typer.Argument(help="Lines that export wrote; - for standard input.")],
    memory: Kind = WIDE,
) -> None:
    """Store the episodes of such lines in a memory file, all of them or none.

    The file is made if it is not there. Counts of use begin anew.
    """
    listed, kept = _loaded(memory, file, missing_ok=True)
    before, count = len(kept), 0
    for number, line in enumerate(_read(lines).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            episode, prints = _episode(line)
            listed.identify(**prints)
            kept.store(episode)
        except (SpecdecError, ValueError, RecursionError) as error:
            raise SpecdecError(f"{lines}, line {number}: {error}") from None
        count += 1
    kept.save(file)
    typer.echo(f"{count} episodes read, {len(kept) - before} new, {len(kept)} in {file}")


def _loaded(expression: str, file: Path, *, missing_ok: bool = False) -> tuple[Listed, Memory]:
    """The memory of `file`, as both of the things that it is."""
    memory = parse(expression, kind="memory")
    if not isinstance(memory, Listed) or not isinstance(memory, Memory):
        raise SpecdecError(
            f"{memory!r} cannot be listed; it lacks one of __iter__, describe, prune and identify"
        )
    if not (missing_ok and not file.exists()):
        memory.load(file)
    return memory, memory


def _shown(value: object) -> str:
    """A value in a few printable characters; what models wrote may hold any."""
    text = repr(value)
    return text if len(text) <= 72 else text[:69] + "..."


# Lines


def _line(episode: Episode, prints: Mapping[str, str]) -> str:
    embedding = episode.embedding
    data: dict[str, Any] = {
        "tenant": episode.tenant,
        "text": episode.text,
        "output": list(episode.output),
        "prompt": list(episode.prompt),
        "embedding": None
        if embedding is None
        # Little-endian float32: as decimal numbers they would take five times the room.
        else base64.b64encode(embedding.astype("<f4").tobytes()).decode("ascii"),
        **prints,
    }
    line = json.dumps(data, ensure_ascii=False)
    # Half a surrogate pair can only be written as an escape.
    return line if _encodes(line) else json.dumps(data)


def _encodes(line: str) -> bool:
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _episode(line: str) -> tuple[Episode, dict[str, str]]:
    """The episode of a line, and the fingerprints with it.

    Raises:
        ValueError: If it is not a line that `_line` could have written.
    """
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError("expected a JSON object")
    if unknown := sorted(set(data) - LINE):
        raise ValueError(f"unknown key {unknown[0]!r}; known: {', '.join(sorted(LINE))}")
    prints = {name: data[name] for name in ("model", "tokenizer") if name in data}
    tenant, text = data.get("tenant", ""), data.get("text")
    for name, value in {"tenant": tenant, **prints}.items():
        if not isinstance(value, str):
            raise ValueError(f"{name!r} must be a text, got {_shown(value)}")
    if text is not None and not isinstance(text, str):
        raise ValueError(f"'text' must be a text or null, got {_shown(text)}")
    output, prompt = _ids(data, "output"), _ids(data, "prompt")
    if not output:
        raise ValueError("'output' must hold at least one token id")
    return Episode(prompt, output, _embedding(data.get("embedding")), text, tenant), prints


def _ids(data: Mapping[str, Any], name: str) -> tuple[int, ...]:
    ids = data.get(name, [])
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise ValueError(f"{name!r} must be a list of token ids, got {_shown(ids)}")
    return tuple(ids)


def _embedding(value: object) -> npt.NDArray[np.float32] | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            raise ValueError
        numbers = np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
    except ValueError:
        numbers = np.zeros(0)
    if not numbers.size or not np.isfinite(numbers).all():
        raise ValueError(
            f"'embedding' must be finite float32 numbers in base64, or null, got {_shown(value)}"
        )
    return numbers.astype(np.float32)


def _read(path: Path) -> str:
    try:
        if str(path) == "-":
            return sys.stdin.read()
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecdecError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SpecdecError(f"{path} is not UTF-8 text: {error}") from None


def _write(path: Path, text: str) -> None:
    """Put a text in the place of `path`, in one move."""
    try:
        replace(path, text)
    except OSError as error:
        raise SpecdecError(f"{path} cannot be written: {error.strerror}") from None
