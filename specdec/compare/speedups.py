"""The figure of speed-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdec.compare.canvas import BLANK, FITS, labels, lanes, legend, styled
from specdec.compare.interval import Interval
from specdec.compare.palette import GREY, INK, SURFACE, arm_looks
from specdec.compare.row import Row

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure


@styled
def speedups(rows: Sequence[Row]) -> Figure | None:
    """Speed-up of each arm with its interval, decode-only and end to end, the fastest first.

    The axis is logarithmic: half as fast lies as far from 1x as twice as fast.

    Args:
        rows: All rows of the report.

    Returns:
        None where there is nothing to show.
    """
    from matplotlib.lines import Line2D

    shown = [row for row in rows if _positive(row.decode_speedup) or _positive(row.speedup)]
    if not shown:
        return None
    shown.sort(
        key=lambda row: -(_positive(row.decode_speedup) or _positive(row.speedup) or (0,))[0]
    )
    looks = arm_looks(rows)
    keys = [row.key for row in shown]
    figure, ax, heights = lanes(labels(keys, FITS), 2, top=0.42)
    ends = [1.0]
    for row, key, pair in zip(shown, keys, heights, strict=True):
        for interval, height, full in zip(
            (row.decode_speedup, row.speedup), pair, (True, False), strict=True
        ):
            if (known := _positive(interval)) is None:
                continue
            value, low, high = known
            colour = looks[key].colour
            ax.plot([low, high], [height] * 2, color=colour, lw=1.8, solid_capstyle="butt")
            ax.plot(
                [value],
                [height],
                color=colour,
                marker="o" if full else "D",
                markersize=6.5 if full else 5,
                markeredgewidth=1.5,
                markerfacecolor=colour if full else SURFACE,
            )
            ax.annotate(
                f"{value:.2f}x",
                (max(high, value), height),
                (7, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                bbox=BLANK,
            )
            ends += [low, high]
    bottom, top = min(ends), max(ends)
    span = max(top / bottom, 1.3)
    ax.set_xscale("log")
    ax.set_xlim(bottom / span**0.04, max(top, bottom * span) * span**0.11)
    ticks = _ratio_ticks(*ax.get_xlim())
    ax.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.axvline(1, color=INK, lw=1, ls=(0, (4, 2)), zorder=1)
    ax.set_xlabel("speed-up over plain decoding (logarithmic)")
    marks: list[tuple[Artist, str]] = [
        (Line2D([], [], color=GREY, marker="o", markersize=6.5, lw=1.8), "decode only"),
        (
            Line2D([], [], color=GREY, marker="D", markersize=5, lw=1.8, markerfacecolor=SURFACE),
            "end to end, prompts included",
        ),
        (Line2D([], [], color=INK, lw=1, ls=(0, (4, 2))), "plain decoding"),
    ]
    legend(figure, marks, columns=3)
    return figure


def _positive(interval: Interval | None) -> tuple[float, float, float] | None:
    """Value, low and high as a logarithmic axis takes them; None where there is no value."""
    if interval is None or not _drawable(interval.value):
        return None
    value = interval.value
    low = interval.low if _drawable(interval.low) else value
    return value, low, interval.high if _drawable(interval.high) else value


def _drawable(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios between the two, neither too few nor too many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in (
        (1,),
        (1, 2, 5),
        (1, 1.5, 2, 3, 5, 7),
        (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    ):
        ticks = [step * 10.0**power for power in powers for step in steps]
        ticks = [float(f"{tick:.6g}") for tick in ticks if low <= tick <= high]
        if len(ticks) >= 4:
            return ticks
    from matplotlib.ticker import MaxNLocator

    spaced = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(f"{tick:.6g}") for tick in spaced if low <= tick <= high]
