"""Table: the rows of a report as cells of text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import attrs

from specdec.compare.interval import Interval
from specdec.compare.palette import arm_looks
from specdec.compare.report import Report
from specdec.compare.row import Row


@attrs.frozen
class Cell:
    """One cell.

    Attributes:
        text: What it says.
        under: What stands below it in small letters.
        best: Whether it is the best of its column.
        bad: Whether a reader should stop at it.
    """

    text: str
    under: str = ""
    best: bool = False
    bad: bool = False


@attrs.frozen
class Column:
    """One column.

    Attributes:
        head: Its name.
        help: What it means.
        cell: Makes the cell of a row.
        rank: What the best of the column is best at; None where nothing is.
        timed: Whether it needs times that mean something.
    """

    head: str
    help: str
    cell: Callable[[Row], Cell]
    rank: Callable[[Row], float | None] | None = None
    timed: bool = False


@attrs.frozen
class Line:
    """One line of the table: an arm.

    Attributes:
        name: The arm's name.
        budget: Its budget, or a dash.
        colour: Its colour in the figures.
        cells: One per column.
    """

    name: str
    budget: str
    colour: str
    cells: tuple[Cell, ...]


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A number for a cell; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.{digits}f}{unit}"


def table(report: Report) -> tuple[tuple[Column, ...], tuple[Line, ...]]:
    """The columns and lines of a report's table."""
    shown = (column for column in _COLUMNS if report.timed or not column.timed)
    columns = (*shown, _identical(report))
    looks = arm_looks(report.rows)
    drafted = [row for row in report.rows if row.budget]
    bests = [_best(column, drafted) for column in columns]
    lines = []
    for row in report.rows:
        cells = []
        for column, best in zip(columns, bests, strict=True):
            cell = column.cell(row)
            if best is not None and column.rank is not None and row.budget:
                cell = attrs.evolve(cell, best=column.rank(row) == best)
            cells.append(cell)
        colour = looks[row.key].colour
        lines.append(Line(row.name, row.budget or "-", colour, tuple(cells)))
    return columns, tuple(lines)


def _best(column: Column, rows: Sequence[Row]) -> float | None:
    """The greatest value of a column; None where there is nothing to be better than."""
    if column.rank is None or len(rows) < 2:
        return None
    values = [value for row in rows if (value := column.rank(row)) is not None]
    return max(filter(math.isfinite, values), default=None)


def _interval(interval: Interval | None, unit: str = "") -> Cell:
    if interval is None:
        return Cell("-")
    if interval.low == interval.high:
        return Cell(number(interval.value, 2, unit))
    ends = f"{number(interval.low)}\N{EN DASH}{number(interval.high)}"
    return Cell(number(interval.value, 2, unit), ends)


def _value(interval: Interval | None) -> float | None:
    return None if interval is None else interval.value


def _acceptance(row: Row) -> Cell:
    return Cell(number(100 * row.accepted / row.proposed if row.proposed else None, 1, " %"))


def _failed(row: Row) -> Cell:
    return Cell(str(row.failed), bad=row.failed > 0)


def _identical(report: Report) -> Column:
    """The column of identical outputs; only differences that rounding does not explain are bad."""
    ties = Counter(arm for d in report.departures if d.near_tie for arm in d.arms)

    def cell(row: Row) -> Cell:
        count, same = len(row.run.results), row.run.identical
        if same is None or not count:
            return Cell("-")
        near = ties[row.key]
        under = f"{near:,} near-tie{'' if near == 1 else 's'}" if near else ""
        return Cell(f"{same:,}/{count:,}", under, bad=same + near < count)

    return Column("identical", "outputs that equal the model's own", cell)


_COLUMNS = (
    Column(
        "requests",
        "answered by this arm and by the plain ones",
        lambda row: Cell(f"{len(row.run.results):,}"),
    ),
    Column("failed", "requests that this arm did not answer", _failed),
    Column("tokens", "emitted, prompts not included", lambda row: Cell(f"{row.run.tokens:,}")),
    Column("steps", "passes after the prompts' own", lambda row: Cell(f"{row.run.steps:,}")),
    Column(
        "MAT",
        "tokens committed per step, with its 95 % interval",
        lambda row: _interval(row.mat),
        lambda row: _value(row.mat),
    ),
    Column(
        "nodes / step",
        "drafted tokens verified in a step",
        lambda row: Cell(number(row.nodes_per_step, 1) if row.budget else "-"),
    ),
    Column("accepted", "share of the verified nodes that were accepted", _acceptance),
    Column(
        "tokens / s",
        "emitted tokens per second, prompts included",
        lambda row: Cell(number(row.fields.get("tokens_per_second"), 1)),
        lambda row: row.fields.get("tokens_per_second"),
        timed=True,
    ),
    Column(
        "speed-up",
        "end to end, prompts included, with its 95 % interval",
        lambda row: _interval(row.speedup, "x"),
        lambda row: _value(row.speedup),
        timed=True,
    ),
    Column(
        "median",
        "the median request's speed-up, prompts included",
        lambda row: _interval(row.median_speedup, "x"),
        lambda row: _value(row.median_speedup),
        timed=True,
    ),
    Column(
        "decode-only",
        "speed-up without the prompts' passes, with its 95 % interval",
        lambda row: _interval(row.decode_speedup, "x"),
        lambda row: _value(row.decode_speedup),
        timed=True,
    ),
    Column(
        "decode-only median",
        "the median request's speed-up without its prompt's pass",
        lambda row: _interval(row.median_decode_speedup, "x"),
        lambda row: _value(row.median_decode_speedup),
        timed=True,
    ),
)
