"""Report: one table of all suites, from the figures that pytest-benchmark saves.

    python -m bench.report bench-results.json

prints it again from the file.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec.cli.show import number

WIDTH: Final = 130
"""Columns of the table where there is no terminal."""


@attrs.frozen
class Row:
    """One benchmark.

    Attributes:
        group: What it is compared within.
        name: What it is.
        median: Seconds of the median round.
        iqr: Seconds between the first and the third quartile.
        rounds: How often it was timed.
        speedup: Median seconds of the fastest row without drafts over its own; None without one.
        decode_speedup: The same without the prompts' passes; None where those wrote everything.
        info: What the suite noted besides.
    """

    group: str
    name: str
    median: float
    iqr: float
    rounds: int
    speedup: float | None
    decode_speedup: float | None
    info: Mapping[str, Any]

    @property
    def more(self) -> str:
        """What only this kind of benchmark has to say."""
        info, said = self.info, []
        if "identical" in info:
            said.append(f"{info['identical']} identical")
        if "p99_seconds" in info:
            said.append(f"p99 {seconds(info['p99_seconds'])}")
        if "start_seconds" in info:
            said.append(f"start {seconds(info['start_seconds'])}")
        if info.get("coverage") is not None:
            said.append(f"coverage {100 * info['coverage']:.0f} %")
        if "size" in info:
            said.append(f"{seconds(self.median / info['size'])}/{info['unit']}")
        if "microseconds per token" in info:
            said.append(f"{info['microseconds per token']:.2f} us/token")
        return ", ".join(said)

    @property
    def sources(self) -> str:
        """Accepted of proposed nodes by source."""
        found: Mapping[str, Mapping[str, int]] = self.info.get("by_source") or {}
        return ", ".join(
            f"{name} {count['accepted']}/{count['proposed']}" for name, count in found.items()
        )


def _info(name: str, digits: int = 2, scale: float = 1, unit: str = "") -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row.info.get(name)
        return "" if value is None else number(scale * value, digits, unit)

    return cell


def _ratio(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = getattr(row, name)
        return "" if value is None else number(value, 2, "x")

    return cell


COLUMNS: Final[Mapping[str, Callable[[Row], str]]] = {
    "benchmark": lambda row: row.name,
    "median": lambda row: seconds(row.median),
    "iqr": lambda row: seconds(row.iqr),
    "rounds": lambda row: str(row.rounds),
    "speed-up": _ratio("speedup"),
    "decode only": _ratio("decode_speedup"),
    "MAT": _info("mat"),
    "steps": _info("steps", 0),
    "nodes /step": _info("nodes_per_step", 1),
    "accep- tance": _info("acceptance", 0, 100, " %"),
    "more": lambda row: row.more,
}
"""The columns of the table and their cells; an empty cell where a benchmark has no such figure."""


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}" if value < 1000 * size else f"{value:.0f} s"
    return f"{value / 1e-9:.3g} ns"


def rows(results: Mapping[str, Any]) -> list[Row]:
    """The rows of saved figures, in the order in which they were measured."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for entry in results["benchmarks"]:
        groups.setdefault(entry["group"] or "", []).append(entry)
    return [row for group, entries in groups.items() for row in _group(group, entries)]


def _group(group: str, entries: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    plain = [entry for entry in entries if entry["extra_info"].get("plain")]
    whole = min((entry["stats"]["median"] for entry in plain), default=None)
    decode = min((entry["extra_info"]["decode_seconds"] for entry in plain), default=None)
    for entry in entries:
        stats, info = entry["stats"], entry["extra_info"]
        own = info.get("decode_seconds") if info.get("steps") else None
        yield Row(
            group,
            info.get("row") or _name(entry["name"]),
            stats["median"],
            stats["iqr"],
            stats["rounds"],
            whole / stats["median"] if whole is not None else None,
            decode / own if decode is not None and own else None,
            info,
        )


def _name(test: str) -> str:
    """A test's name in words."""
    name, bracket, parameters = test.removeprefix("test_").partition("[")
    return name.replace("_", " ") + (f": {parameters[:-1]}" if bracket else "")


def heading(results: Mapping[str, Any]) -> str:
    """One line on where and with what the figures were measured."""
    machine = results.get("machine_info") or {}
    said = [(machine.get("cpu") or {}).get("brand_raw")]
    known = {"python_version": "Python", "dtype": "model in"}
    for key in ("python_version", "torch", "transformers", "threads", "dtype"):
        if key in machine:
            said.append(f"{known.get(key, key)} {machine[key]}")
    return ", ".join(part for part in said if part)


def table(results: Mapping[str, Any]) -> Table:
    """The table; groups are sections of it."""
    made = Table(box=box.SIMPLE, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for name in COLUMNS:
        right = name not in ("benchmark", "more")
        made.add_column(
            name.replace(" ", "\n"),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    group = None
    for row in rows(results):
        if row.group != group:
            group = row.group
            made.add_section()
            made.add_row(Text(group, style="bold"))
        made.add_row(*(Text(cell(row)) for cell in COLUMNS.values()))
    return made


def text(results: Mapping[str, Any]) -> str:
    """Heading and table as text, as wide as the terminal."""
    width = shutil.get_terminal_size().columns if os.isatty(1) or "COLUMNS" in os.environ else WIDTH
    console = Console(file=StringIO(), width=width)
    console.print(heading(results), highlight=False)
    console.print(table(results))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def markdown(results: Mapping[str, Any]) -> str:
    """The same as Markdown: a table for each group, of the columns that it fills."""
    found = rows(results)
    columns = {**COLUMNS, "accepted of proposed by source": lambda row: row.sources}
    parts = ["# Benchmarks", heading(results)]
    for group in dict.fromkeys(row.group for row in found):
        own = [row for row in found if row.group == group]
        used = {name: cell for name, cell in columns.items() if any(cell(row) for row in own)}
        titles = [name.replace("- ", "").replace(" /", "/") for name in used]
        lines = [titles, ["---", *["---:"] * (len(used) - 1)]]
        lines += [[cell(row).replace("|", "\\|") for cell in used.values()] for row in own]
        parts += [f"## {group}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    return "\n\n".join(parts) + "\n"


def main(
    file: Annotated[Path, typer.Argument(help="What --benchmark-json wrote.", exists=True)],
) -> None:
    """Print the table of saved figures."""
    print(text(json.loads(file.read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    typer.run(main)
