"""What the command line shows: tokens coloured by source, tables, sentences."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec.report import Run
from specdec.request import Step
from specdec.text import Decoder

COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")


def console() -> Console:
    """Standard output; wide enough for tables where it is no terminal."""
    made = Console()
    return made if made.is_terminal or "COLUMNS" in os.environ else Console(width=100)


class Palette:
    """One colour per source, in order of appearance; the target's own tokens stay plain."""

    def __init__(self, sources: Sequence[str] = ()) -> None:
        self._styles: dict[str, str] = {"target": ""}
        for source in sources:
            self.style(source)

    def style(self, source: str) -> str:
        """The style of a source."""
        if source not in self._styles:
            self._styles[source] = COLOURS[(len(self._styles) - 1) % len(COLOURS)]
        return self._styles[source]

    def legend(self) -> Text:
        """One line that explains the colours."""
        text = Text("Tokens by source: ")
        for i, (source, style) in enumerate(self._styles.items()):
            text.append(", " if i else "")
            text.append("target (its own pass)" if source == "target" else source, style)
        return text


class Writer:
    """Prints tokens as they are committed."""

    def __init__(self, console: Console, palette: Palette, decoder: Decoder) -> None:
        self._console = console
        self._palette = palette
        self._decoder = decoder

    def write(self, step: Step, hidden: frozenset[int] = frozenset()) -> None:
        """Print one step's tokens; those in `hidden` (end markers) are left out."""
        text = Text()
        for token, source in zip(step.committed, step.sources, strict=True):
            if token not in hidden:
                text.append(self._decoder.push([token]), self._palette.style(source))
        self._console.print(text, end="", soft_wrap=True, highlight=False)


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A number for a table cell; a dash where there is none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}{unit}"


def results(runs: Sequence[Run], plain: Sequence[Run], title: str) -> Table:
    """The table of a comparison; speed-ups are over the fastest of `plain`."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1))
    table.add_column("drafter", overflow="fold")
    for name in ("requests", "tokens", "steps", "MAT", "tokens/s", "speed-up", "decode\nonly"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("identical", justify="right", no_wrap=True)
    for run in runs:
        row = run.row(plain)
        table.add_row(
            run.drafter,
            str(row["requests"]),
            str(row["tokens"]),
            str(row["steps"]),
            number(row["mat"]),
            number(row["tokens_per_second"], 1),
            number(row["speedup"], 2, "x"),
            number(row["decode_speedup"], 2, "x"),
            "-" if run.identical is None else f"{run.identical}/{len(run.results)}",
        )
    return table


def phases(run: Run) -> Text:
    """One line on where the time of a run went."""
    total = run.phases
    if not total.total:
        return Text("no time was spent")
    parts = [
        f"{name} {100 * getattr(total, name) / total.total:.1f} %"
        for name in ("forward", "draft", "verify", "observe")
    ]
    return Text(f"Time of {run.drafter}: " + ", ".join(parts))
