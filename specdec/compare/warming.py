"""The figure of what drafters gain while their memories fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from specdec.compare.canvas import ENTRY, FITS, WIDTH, axes, canvas, labels, legend, styled
from specdec.compare.palette import arm_looks
from specdec.compare.row import Row

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

POINTS: Final = 200
"""Most points of a line; more would be seen by nobody."""


@styled
def warming(rows: Sequence[Row]) -> Figure | None:
    """MAT of each drafted arm over all requests so far, as its memory warms.

    Args:
        rows: All rows of the report.

    Returns:
        None where there is nothing to show.
    """
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    looks = arm_looks(rows)
    lines = []
    for row in rows:
        numbers, mats = _so_far(row)
        if row.budget and len(mats):
            lines.append((mats[-1], row.key, numbers, mats))
    if not lines:
        return None
    lines.sort(key=lambda line: -line[0])
    plot = 3.0
    figure = canvas(plot + 0.8 + len(lines) * ENTRY)
    ax = axes(figure, left=0.55, top=0.15, width=WIDTH - 0.75, height=plot)
    entries: list[tuple[Artist, str]] = []
    names = labels([key for _, key, _, _ in lines], FITS - 14)
    for (mat, key, numbers, mats), name in zip(lines, names, strict=True):
        look = looks[key]
        marker = look.marker if len(mats) == 1 else ""
        ax.plot(numbers, mats, color=look.colour, ls=look.dash, lw=1.8, marker=marker)
        handle = Line2D([], [], color=look.colour, ls=look.dash, lw=1.8, marker=marker)
        entries.append((handle, f"{mat:.2f} · {name}"))
    ax.grid(axis="both")
    ax.tick_params(length=0)
    ax.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.set_xlabel("requests so far")
    ax.set_ylabel("MAT so far")
    legend(figure, entries, top=plot + 0.72, columns=1)
    return figure


def _so_far(row: Row) -> tuple[list[int], list[float]]:
    """Requests so far and the MAT over them, from the first that took a step, thinned."""
    results = row.run.results
    emitted = np.cumsum([len(result.tokens) - result.prompt_tokens for result in results])
    steps = np.cumsum([result.steps for result in results])
    known = [place for place in range(len(results)) if steps[place]]
    if len(known) > POINTS:
        known = [known[place] for place in np.linspace(0, len(known) - 1, POINTS).astype(int)]
    # Requests that failed leave a gap in the numbers, so that all lines share one axis.
    return [row.cases[p] + 1 for p in known], [float(emitted[p] / steps[p]) for p in known]
