"""The figures made of bars: accepted lengths, tokens by source, time by phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from specdec.compare.canvas import (
    BLANK,
    FITS,
    LANE,
    WIDTH,
    axes,
    canvas,
    labels,
    lanes,
    legend,
    legend_height,
    shortened,
    styled,
    wrapped,
)
from specdec.compare.palette import OTHERS, PHASES, SURFACE, TARGET, arm_looks, source_looks
from specdec.compare.row import Row
from specdec.request import Phases

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST: Final = 17
"""Steps that accept as many drafted tokens or more are shown together."""


@styled
def accepted_lengths(rows: Sequence[Row]) -> Figure | None:
    """Share of each drafted arm's steps by how many drafted tokens they accepted.

    Args:
        rows: All rows of the report.

    Returns:
        None where there is nothing to show.
    """
    shown = [row for row in rows if row.budget and row.accepted_lengths]
    if not shown:
        return None
    looks = arm_looks(rows)
    keys = [row.key for row in shown]
    columns = min(len(shown), 2)
    width = (WIDTH - 0.7) / columns - 0.2
    titles = [wrapped(name, 52 if columns > 1 else FITS, 2) for name in labels(keys, FITS)]
    plot, tops, height = 0.95, [], 0.0
    for first in range(0, len(shown), columns):
        wraps = any("\n" in title for title in titles[first : first + columns])
        tops.append(height + (0.44 if wraps else 0.29))
        height = tops[-1] + plot + 0.2
    figure = canvas(height + 0.3)
    shares = [_shares(row) for row in shown]
    most = max(map(max, shares))
    for place, (row, key) in enumerate(zip(shown, keys, strict=True)):
        line, column = divmod(place, columns)
        left = 0.55 + column * (width + 0.2)
        ax = axes(figure, left=left, top=tops[line], width=width, height=plot)
        ax.bar(range(LONGEST + 1), shares[place], 0.82, color=looks[key].colour)
        ax.set_xlim(-0.6, LONGEST + 0.6)
        ax.set_ylim(0, most * 1.08)
        ax.grid(axis="y")
        ax.tick_params(length=0, labelsize=8)
        ticks = [*range(0, LONGEST - 1, 2), LONGEST]
        last = place + columns >= len(shown)
        ax.set_xticks(ticks, [*map(str, ticks[:-1]), f"{LONGEST}+"] if last else [])
        ax.yaxis.set_major_formatter(_per_cent)
        ax.tick_params(axis="y", labelleft=column == 0)
        ax.set_title(titles[place], loc="left", fontsize=8.5)
        counts = row.accepted_lengths
        mean = sum(n * count for n, count in counts.items()) / sum(counts.values())
        ax.annotate(
            f"mean {mean:.2f}",
            (0.995, 0.97),
            xycoords="axes fraction",
            ha="right",
            va="top",
            fontsize=8.5,
            bbox=BLANK,
        )
    figure.text(
        0.5, 0.05 / figure.get_figheight(), "drafted tokens accepted in a step", ha="center"
    )
    return figure


@styled
def sources(rows: Sequence[Row]) -> Figure | None:
    """Share of each drafted arm's emitted tokens by the drafter they came from.

    Args:
        rows: All rows of the report.

    Returns:
        None where there is nothing to show.
    """
    from matplotlib.patches import Patch

    shown = [row for row in rows if row.budget and row.run.tokens]
    if not shown:
        return None
    looks = source_looks(rows)
    texts = ["target (its own passes)" if name == TARGET else shortened(name, 40) for name in looks]
    keys = [row.key for row in shown]
    figure, ax, heights = lanes(labels(keys, FITS), 1, top=legend_height(texts) + 0.05)
    for row, (height,) in zip(shown, heights, strict=True):
        start = 0.0
        shares = dict.fromkeys(looks, 0.0)
        for name, count in row.tokens_by_source.items():
            shares[name if name in looks else OTHERS] += max(count, 0) / row.run.tokens
        for name, share in shares.items():
            _segment(ax, height, start, share, looks[name].colour, looks[name].hatch)
            if share >= 0.06:
                ax.text(
                    start + share / 2,
                    height + 0.005,
                    f"{100 * share:.0f} %",
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=looks[name].ink,
                    bbox={"facecolor": looks[name].colour, "edgecolor": "none", "pad": 0.8},
                )
            start += share
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(_per_cent)
    ax.set_xlabel("share of emitted tokens")
    patches: list[tuple[Artist, str]] = [
        (Patch(facecolor=look.colour, hatch=look.hatch, edgecolor=SURFACE), text)
        for look, text in zip(looks.values(), texts, strict=True)
    ]
    legend(figure, patches)
    return figure


@styled
def times(rows: Sequence[Row]) -> Figure | None:
    """Seconds per request of each arm by phase, the prompt's pass and decoding apart.

    Args:
        rows: All rows of the report.

    Returns:
        None where there is nothing to show.
    """
    from matplotlib.patches import Patch

    shown = [row for row in rows if row.run.results and row.run.phases.total > 0]
    if not shown:
        return None
    keys = [row.key for row in shown]
    figure, ax, heights = lanes(labels(keys, FITS), 2, top=0.42, left=0.72)
    ticks: dict[float, str] = {}
    longest = 0.0
    for row, pair in zip(shown, heights, strict=True):
        prompt = sum((result.prompt_phases for result in row.run.results), Phases())
        decode = sum((result.decode_phases for result in row.run.results), Phases())
        for phases, height, text in zip(
            (prompt, decode), pair, ("prompt", "decoding"), strict=True
        ):
            ticks[height] = text
            start = 0.0
            for name, colour in PHASES.items():
                seconds = getattr(phases, name) / len(row.run.results)
                _segment(ax, height, start, seconds, colour)
                start += seconds
            ax.annotate(
                f"{start:.3g} s",
                (start, height),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                bbox=BLANK,
            )
            longest = max(longest, start)
    ax.set_xlim(0, longest * 1.09)
    ax.set_yticks([*ticks], [*ticks.values()], fontsize=8)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("seconds per request")
    patches: list[tuple[Artist, str]] = [
        (Patch(facecolor=colour), name) for name, colour in PHASES.items()
    ]
    legend(figure, patches)
    return figure


def _shares(row: Row) -> list[float]:
    """(LONGEST + 1,) share of the steps by accepted tokens, the last for as many or more."""
    counts = row.accepted_lengths
    steps = sum(counts.values())
    shares = [counts.get(length, 0) / steps for length in range(LONGEST)]
    return [*shares, sum(c for n, c in counts.items() if n >= LONGEST) / steps]


def _per_cent(share: float, _: object) -> str:
    return f"{100 * share:.0f} %"


def _segment(
    ax: Axes, height: float, start: float, length: float, colour: str, hatch: str = ""
) -> None:
    """One part of a stacked bar; what is too short to see is not drawn."""
    if length > 0:
        ax.barh(
            height, length, LANE * 0.86, start, color=colour, hatch=hatch, edgecolor=SURFACE, lw=0.5
        )
