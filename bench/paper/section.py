"""Section: what one experiment adds to the document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs


def _cells(rows: Sequence[Sequence[Any]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(_cell(value) for value in row) for row in rows)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


@attrs.frozen
class Grid:
    """A table.

    Attributes:
        columns: (C,) heads.
        rows: (R, C) cells; numbers get two digits, None a dash.
        caption: What it shows, above it.
    """

    columns: tuple[str, ...] = attrs.field(converter=tuple)
    rows: tuple[tuple[str, ...], ...] = attrs.field(converter=_cells)
    caption: str = ""

    def __attrs_post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"a row of {len(row)} cells under {len(self.columns)} heads: {row}"
                )

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        table = "\n".join("| " + " | ".join(map(_escaped, line)) + " |" for line in lines)
        return f"{self.caption}\n\n{table}" if self.caption else table


@attrs.frozen
class Picture:
    """A figure.

    Attributes:
        name: Of its file, without an ending.
        caption: What it shows and how to read it.
        figure: A matplotlib figure, or the text of an SVG file.
    """

    name: str
    caption: str
    figure: Any = attrs.field(repr=False)


@attrs.frozen
class Section:
    """What one experiment adds to the document.

    Attributes:
        found: What was measured, in a sentence or two.
        paper: What the paper reports, with its set-up.
        differs: What differs from the paper's set-up and why.
        grids: Tables.
        pictures: Figures.
        replay: Whether any figure comes from a replay.
    """

    found: str
    paper: str = ""
    differs: str = ""
    grids: tuple[Grid, ...] = attrs.field(default=(), converter=tuple)
    pictures: tuple[Picture, ...] = attrs.field(default=(), converter=tuple)
    replay: bool = False


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
