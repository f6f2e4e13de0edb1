"""Palette: one look for each arm and each source, the same in every figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from specdec.compare.arm import GENERATE, MEASURED, PLAIN
from specdec.compare.row import Row

# Okabe and Ito's colours, told apart with any colour vision. Their yellow is left out, as it
# vanishes on white, and so is black, which vanishes in a dark theme; greys stand for what is not
# drafted.
HUES: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
GREY: Final = "#8c959f"
DARK_GREY: Final = "#6e7781"

INK: Final = "#24292f"
GRID: Final = "#d8dee4"
SURFACE: Final = "#ffffff"

TARGET: Final = "target"
OTHERS: Final = "other sources"
MOST_SOURCES: Final = 2 * len(HUES)

PHASES: Final = {
    "forward": GREY,
    "draft": "#e69f00",
    "verify": "#56b4e9",
    "observe": "#cc79a7",
}
"""Colour of each phase; the target's own work is grey, as its tokens are."""

_DASHES: Final = ((0.0, ()), (0.0, (5.0, 1.5)), (0.0, (1.2, 1.2)), (0.0, (6.0, 1.5, 1.2, 1.5)))
_MARKERS: Final = "osD^"
_HATCHES: Final = ("", "////")

Dash = tuple[float, tuple[float, ...]]
"""A line style of matplotlib: where it begins, then lengths on and off."""


@attrs.frozen
class Look:
    """How one thing is drawn.

    Attributes:
        colour: As ``#rrggbb``.
        dash: Of its line.
        marker: Of its points.
        hatch: Of its bars.
    """

    colour: str
    dash: Dash = (0.0, ())
    marker: str = "o"
    hatch: str = ""

    @property
    def ink(self) -> str:
        """What is read best on its colour, in any theme."""
        return "#fdfdfd" if self.colour == HUES[0] else "#000000"


def arm_looks(rows: Sequence[Row]) -> dict[str, Look]:
    """The look of each arm by its key.

    A stack has one colour, whatever its budget; budgets are told apart by dashes and markers, and
    so are stacks whose colours have begun again.
    """
    stacks = list(dict.fromkeys(row.name for row in rows if row.budget))
    budgets = sorted({row.budget for row in rows if row.budget}, key=lambda b: (b != MEASURED, b))
    looks: dict[str, Look] = {}
    for row in rows:
        if row.budget:
            turn, hue = divmod(stacks.index(row.name), len(HUES))
            looks[row.key] = _look(hue, turn * len(budgets) + budgets.index(row.budget))
        else:
            plain = {GENERATE: Look(DARK_GREY), PLAIN: Look(GREY, _DASHES[1])}
            looks[row.name] = plain.get(row.name, Look(GREY, _DASHES[2]))
    return looks


def source_looks(rows: Sequence[Row]) -> dict[str, Look]:
    """The look of each source, the target first, then in order of appearance.

    Sources beyond the `MOST_SOURCES` first have no look of their own; they share that of `OTHERS`,
    which is the last.
    """
    names = dict.fromkeys(
        name for row in rows for name in row.tokens_by_source if name not in (TARGET, OTHERS)
    )
    looks = {TARGET: Look("#afb8c1")}
    for place, name in enumerate([*names][:MOST_SOURCES]):
        turn, hue = divmod(place, len(HUES))
        looks[name] = _look(hue, turn)
    if len(names) > MOST_SOURCES:
        looks[OTHERS] = Look(DARK_GREY, hatch="....")
    return looks


def _look(hue: int, turn: int) -> Look:
    return Look(
        HUES[hue],
        _DASHES[turn % len(_DASHES)],
        _MARKERS[turn % len(_MARKERS)],
        _HATCHES[turn % len(_HATCHES)],
    )
