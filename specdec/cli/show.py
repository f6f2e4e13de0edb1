"""What the command line shows: tokens coloured by source, tables, sentences."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec.report import Run
from specdec.request import Step
from specdec.text import Decoder

if TYPE_CHECKING:
    from specdec.compare.departure import Departure
    from specdec.compare.interval import Interval
    from specdec.compare.report import Report
    from specdec.compare.row import Row

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


def report(console: Console, found: Report) -> None:
    """A comparison: its table, what stands out, what failed, what differs, what it ran on."""
    replayed = " (replay: outputs were recorded before)" if found.replay else ""
    console.print(comparison(found.rows, "Speed-ups are over the faster plain loop" + replayed))
    for sentence in found.findings:
        console.print(Text(sentence, style="yellow"))
    for failure in found.failures:
        arms = ", ".join(failure.arms)
        console.print(Text(f"failed: {failure.request}, {arms}: {failure.error}", style="red"))
    for departure in found.departures:
        console.print(_departed(departure))
    if not found.departures and not found.failures:
        console.print("All outputs are the same, token for token.", style="bold")
    for name, value in found.settings.items():
        if value is not None:
            console.print(Text(f"{name}: {_setting(value)}", style="dim"))


def _setting(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def comparison(rows: Sequence[Row], title: str) -> Table:
    """The table of a comparison; below each figure its 95 % bootstrap interval."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1))
    table.add_column("drafter @ budget", overflow="fold", min_width=22)
    figures = [
        "steps",
        "MAT",
        "nodes\n/step",
        "tokens\n/s",
        "speed-up",
        "decode\nonly",
        "identical",
    ]
    failed = any(row.failed for row in rows)
    for name in [*figures, "failed"] if failed else figures:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [
            row.key,
            str(row.run.steps),
            _interval(row.mat),
            number(row.nodes_per_step, 1),
            number(row.fields.get("tokens_per_second") if row.speedup else None, 1),
            _interval(row.speedup, "x"),
            _interval(row.decode_speedup, "x"),
            "-" if row.run.identical is None else f"{row.run.identical}/{len(row.run.results)}",
        ]
        table.add_row(*map(Text, [*cells, str(row.failed)] if failed else cells))
    return table


def _interval(found: Interval | None, unit: str = "") -> str:
    if found is None:
        return "-"
    value = number(found.value, 2, unit)
    return value if found.low == found.high else f"{value}\n{found.low:.2f}-{found.high:.2f}"


def _departed(departure: Departure) -> Text:
    """One line on an output that is not the model's own."""
    start = f"{departure.request}, {', '.join(departure.arms)}: differs from token "
    if departure.gap is None:
        return Text(f"{start}{departure.position} on", style="red")
    verdict = "a near-tie" if departure.near_tie else "NOT a near-tie"
    return Text(
        f"{start}{departure.position} on; the two best logits there are "
        f"{departure.gap.margin:.4f} apart, passes of different size differ by up to "
        f"{departure.gap.noise:.4f}: {verdict}",
        style="dim" if departure.near_tie else "red",
    )
