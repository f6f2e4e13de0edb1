"""Canvas: what figures are drawn on, with the same margins and type for all."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from specdec.compare.palette import GRID, INK, SURFACE
from specdec.errors import SpecdecError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH: Final = 8.2
"""Inches of every figure."""

NAME: Final = 0.2
LANE: Final = 0.19
GAP: Final = 0.15
"""Inches of an arm's name, of one line of marks below it, and of the space to the next arm."""

FITS: Final = 92
"""Characters of a name that fit across a figure."""

ENTRY: Final = 0.185
"""Inches of a line of a legend."""

BLANK: Final = {"facecolor": SURFACE, "edgecolor": "none", "pad": 1.0}
"""What lies behind text, so that no line of the grid runs through it."""

MISSING: Final = "pages and figures need more packages: pip install 'specdec-core[compare]'"

_STYLE: Final[dict[Any, Any]] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    # Names of arms and sources are no formulas.
    "text.parse_math": False,
    "text.usetex": False,
    "xtick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.color": GRID,
    "ytick.labelcolor": INK,
    "hatch.linewidth": 1.2,
    "figure.facecolor": SURFACE,
    "axes.facecolor": "none",
    "svg.fonttype": "none",
}

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def style() -> Iterator[None]:
    """The style of all figures, whatever the user's own settings of matplotlib are.

    Raises:
        SpecdecError: If matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise SpecdecError(MISSING) from None
    with mpl.rc_context(_STYLE):
        yield


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """The function, run in the style of all figures."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with style():
            return draw(*args, **kwargs)

    return drawn


def canvas(height: float) -> Figure:
    """An empty figure of that many inches, with no global state behind it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height))


def axes(
    figure: Figure,
    *,
    left: float,
    top: float,
    width: float,
    height: float,
) -> Axes:
    """Axes at that place, in inches from the left and the top of the figure."""
    whole = figure.get_figheight()
    box = (left / WIDTH, (whole - top - height) / whole, width / WIDTH, height / whole)
    return figure.add_axes(box)


def lanes(
    names: Sequence[str], each: int, *, top: float, left: float = 0.12
) -> tuple[Figure, Axes, list[list[float]]]:
    """Axes with a block for each arm: its name on a line of its own, its marks below.

    A name above its marks has the whole width, so that long expressions need no wrapping.

    Args:
        names: Of the arms.
        each: Lines of marks per arm.
        top: Inches above the axes, for a legend.
        left: Inches to the left of the axes; the names begin at the figure's edge.

    Returns:
        The figure, its axes and the heights of each arm's lines of marks in their coordinates.
    """
    from matplotlib.transforms import blended_transform_factory

    block = NAME + each * LANE + GAP
    height = len(names) * block
    figure = canvas(top + height + 0.5)
    ax = axes(figure, left=left, top=top, width=WIDTH - left - 0.2, height=height)
    ax.set_ylim(height, 0)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    across = blended_transform_factory(figure.transFigure, ax.transData)
    centres = []
    for place, name in enumerate(names):
        start = place * block + GAP / 2
        ax.text(
            0.12 / WIDTH,
            start + NAME / 2,
            name,
            va="center",
            transform=across,
            bbox=BLANK,
        )
        centres.append([start + NAME + (lane + 0.5) * LANE for lane in range(each)])
    return figure, ax, centres


def legend(
    figure: Figure,
    entries: Sequence[tuple[Artist, str]],
    *,
    top: float = 0.05,
    columns: int | None = None,
) -> None:
    """A legend across the figure, that many inches from its top."""
    figure.legend(
        [artist for artist, _ in entries],
        # A label that begins with an underscore is none to matplotlib.
        [f" {label}" if label.startswith("_") else label for _, label in entries],
        loc="upper left",
        bbox_to_anchor=(0.1 / WIDTH, 1 - top / figure.get_figheight()),
        ncols=columns or legend_columns([label for _, label in entries]),
        frameon=False,
        borderaxespad=0,
        borderpad=0.1,
        labelspacing=0.45,
        handlelength=1.9,
        columnspacing=1.6,
    )


def legend_columns(labels: Sequence[str]) -> int:
    """How many of these labels fit beside each other."""
    widest = max(map(len, labels), default=1) * 0.082 + 0.6
    return max(1, min(len(labels), int((WIDTH - 0.2) / widest)))


def legend_height(labels: Sequence[str]) -> float:
    """Inches of a legend of these labels, with the space below it."""
    return -(-len(labels) // legend_columns(labels)) * ENTRY + 0.15


def shortened(text: str, width: int) -> str:
    """The text in at most that many characters, its middle left out where it is longer."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    if len(clean) <= width:
        return clean
    tail = width // 3
    return f"{clean[: width - tail - 1]}…{clean[len(clean) - tail :]}"


def labels(names: Sequence[str], width: int) -> list[str]:
    """The names in at most about that many characters, still different from each other."""
    made: list[str] = []
    for name in names:
        label = base = shortened(name, width)
        count = 1
        while label in made:
            count += 1
            label = f"{base} ({count})"
        made.append(label)
    return made


def wrapped(label: str, width: int, lines: int) -> str:
    """The label on at most that many lines."""
    for room in range(width * lines, 0, -4):
        parts = textwrap.wrap(shortened(label, room), width, break_on_hyphens=False)
        if len(parts) <= lines:
            return "\n".join(parts)
    return ""
