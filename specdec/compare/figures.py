"""Figures: the pictures of a comparison, each with the sentence that says how to read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from specdec.compare.bars import accepted_lengths, sources, times
from specdec.compare.row import Row
from specdec.compare.speedups import speedups
from specdec.compare.warming import warming

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "PICTURES",
    "Picture",
    "accepted_lengths",
    "sources",
    "speedups",
    "times",
    "warming",
]


@attrs.frozen
class Picture:
    """A figure of a page.

    Attributes:
        name: Its name in addresses and files.
        title: What it shows, in a few words.
        caption: How to read it.
        draw: Draws it from all rows of a report; None where they hold nothing to show.
        timed: Whether it needs times that mean something.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Sequence[Row]], Figure | None]
    timed: bool = False


PICTURES: Final = (
    Picture(
        "speedups",
        "Speed-up over plain decoding",
        "Points are speed-ups over all requests, lines their 95 % bootstrap intervals; right of "
        "the dashed line is faster than plain decoding, and arms whose lines overlap are not told "
        "apart by these requests.",
        speedups,
        timed=True,
    ),
    Picture(
        "lengths",
        "Accepted tokens per step",
        "Each bar is the share of an arm's steps that accepted so many drafted tokens: the further "
        "right the bars, the more passes of the model are saved; 0 is a step that plain decoding "
        "would have taken too.",
        accepted_lengths,
    ),
    Picture(
        "sources",
        "Where the tokens came from",
        "Each bar is all that an arm emitted, split by the drafter that proposed it; grey tokens "
        "are the model's own, one per pass, and everything else was saved.",
        sources,
    ),
    Picture(
        "times",
        "Where the time went",
        "Mean seconds of a request, the prompt's pass above and decoding below: grey is "
        "the model's own work, and what the other parts take beyond plain decoding is the price of "
        "drafting.",
        times,
        timed=True,
    ),
    Picture(
        "warming",
        "Gain from memory",
        "Each line is an arm's tokens per step over all requests up to that one, so it ends at the "
        "MAT of the table; one that rises where others do not learns from earlier requests.",
        warming,
    ),
)
