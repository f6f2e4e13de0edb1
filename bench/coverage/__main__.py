"""``python -m bench.coverage``: the figures of one or more stacks, as tables and as JSON."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bench.coverage import cases, references
from bench.coverage.measure import FAMILIES, Tally, misses, total, walk
from specdec import parse
from specdec.calls import FORMATS
from specdec.cli.show import number
from specdec.errors import RequestError, SpecdecError, did_you_mean

DEFAULT_STACK = "retrieval(from_start=true)"

WIDTH = 130
"""Columns of the tables where there is no terminal."""


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@attrs.frozen
class Cell:
    """One drafter on one data set in one format with one tokenizer, from empty memories on.

    Attributes:
        data: Name of the data set.
        tokenizer: Name of the tokenizer.
        form: Name of the format.
        stack: The drafter's expression.
        tally: Its figures.
        missed: Structural tokens not covered, by the text before them and their own.
    """

    data: str
    tokenizer: str
    form: str
    stack: str
    tally: Tally
    missed: Counter[tuple[str, str]]


@attrs.frozen
class Grid:
    """What is measured: every combination of these.

    Attributes:
        data: Names of data sets.
        tokenizers: Names of tokenizers.
        forms: Names of call formats.
        stacks: Expressions of drafters.
        limit: The most cases of a data set; None for all of them.
    """

    data: tuple[str, ...]
    tokenizers: tuple[str, ...]
    forms: tuple[str, ...]
    stacks: tuple[str, ...]
    limit: int | None

    def __len__(self) -> int:
        return len(self.data) * len(self.tokenizers) * len(self.forms) * len(self.stacks)

    def cells(self) -> Iterator[Cell]:
        """The cells, one by one as they are measured."""
        for tokenizer in self.tokenizers:
            encoder = references.load(tokenizer)
            for data in self.data:
                some = cases.spread(cases.load(data), self.limit)
                for form in self.forms:
                    known = [encoder.reference(case, FORMATS[form]) for case in some]
                    for stack in self.stacks:
                        drafter = parse(stack)
                        walks = [walk(drafter, one, encoder.vocabulary) for one in known]
                        yield Cell(data, tokenizer, form, stack, total(walks), misses(walks))


@app.command()
def main(
    stack: Annotated[
        list[str] | None, typer.Option(help="A stack expression; may be given several times.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="A data set; all of them if none is given.")
    ] = None,
    tokenizer: Annotated[
        list[str] | None, typer.Option(help="A tokenizer; all of them if none is given.")
    ] = None,
    form: Annotated[
        list[str] | None,
        typer.Option("--format", help="A call format; one of each family if none is given."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every known call format.")] = False,
    limit: Annotated[
        int | None, typer.Option(help="At most N requests per data set, evenly spread.", min=1)
    ] = None,
    show_misses: Annotated[
        int, typer.Option("--misses", help="Show the N commonest misses of each stack.", min=0)
    ] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
) -> None:
    """Measure how much of real calls was in the draft when its turn came, without a model."""
    grid = Grid(
        data=_chosen("--data", data, cases.DATA_SETS, cases.DATA_SETS),
        tokenizers=_chosen("--tokenizer", tokenizer, references.TOKENIZERS, references.TOKENIZERS),
        forms=_chosen("--format", form, tuple(FORMATS), tuple(FORMATS) if every else FAMILIES),
        stacks=tuple(stack or [DEFAULT_STACK]),
        limit=limit,
    )
    for expression in grid.stacks:
        parse(expression)  # a bad expression is reported before anything is read
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=WIDTH)
    found = _measured(grid, console)
    console.print(by_data(found))
    console.print(by_format(found))
    for expression in grid.stacks if show_misses else ():
        console.print(commonest(found, expression, show_misses))
    if json_file is not None:
        rows = [_plain(cell) for cell in found]
        json_file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        console.print(f"Figures written to {json_file}.")


def _chosen(
    option: str, given: list[str] | None, known: tuple[str, ...], default: tuple[str, ...]
) -> tuple[str, ...]:
    for name in given or ():
        if name not in known:
            raise RequestError(
                f"{option} must be one of {', '.join(known)}, got {name!r}"
                f"{did_you_mean(name, known)}"
            )
    return tuple(given) if given else default


def _measured(grid: Grid, console: Console) -> list[Cell]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    found: list[Cell] = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("reading", total=len(grid))
        for cell in grid.cells():
            found.append(cell)
            described = f"{cell.tokenizer}, {cell.data}, {cell.form}"
            progress.update(task, advance=1, description=described)
    return found


def by_data(found: list[Cell]) -> Table:
    """The figures per data set, tokenizer and stack, over all formats."""
    names = ("data set", "tokenizer", "drafter")
    return _table(
        "Over all formats", names, found, lambda cell: (cell.data, cell.tokenizer, cell.stack)
    )


def by_format(found: list[Cell]) -> Table:
    """The figures per format and stack, over all data sets and tokenizers."""
    return _table(
        "Over all data sets and tokenizers",
        ("format", "drafter"),
        found,
        lambda cell: (cell.form, cell.stack),
    )


def commonest(found: list[Cell], stack: str, most: int) -> Table:
    """The structural tokens that one stack missed most often."""
    table = Table(title=f"Missed by {stack}", title_justify="left", box=box.SIMPLE)
    for name in ("times", "behind", "token"):
        table.add_column(name, justify="right" if name == "times" else "left", overflow="fold")
    missed: Counter[tuple[str, str]] = Counter()
    for cell in found:
        if cell.stack == stack:
            missed.update(cell.missed)
    for (before, token), times in missed.most_common(most):
        table.add_row(str(times), repr(before), repr(token))
    return table


def _table(
    title: str,
    names: tuple[str, ...],
    found: list[Cell],
    key: Callable[[Cell], tuple[str, ...]],
) -> Table:
    """One row of figures for each key, in the order in which the keys were measured."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1))
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name != "drafter")
    figures = ("calls", "structural\ntokens", "coverage", "passes\nper call", "steps\nper call")
    for name in (*figures, "nodes\nper step", "ms per\nrequest"):
        table.add_column(name, justify="right", no_wrap=True)
    sums: dict[tuple[str, ...], Tally] = {}
    for cell in found:
        sums[key(cell)] = sums.get(key(cell), Tally()) + cell.tally
    for row, tally in sorted(sums.items()):
        table.add_row(
            *row,
            str(tally.calls),
            str(tally.structural),
            number(100 * tally.coverage, 1, " %"),
            number(tally.passes_per_call),
            number(tally.steps_per_call),
            number(tally.nodes_per_step, 1),
            number(1000 * tally.seconds / tally.requests, 1),
        )
    return table


def _plain(cell: Cell) -> dict[str, Any]:
    place = {
        "data": cell.data,
        "tokenizer": cell.tokenizer,
        "format": cell.form,
        "stack": cell.stack,
    }
    return {**place, **cell.tally.row()}


if __name__ == "__main__":
    try:
        app(prog_name="python -m bench.coverage")
    except SpecdecError as error:
        raise SystemExit(f"bench.coverage: {error}") from None
