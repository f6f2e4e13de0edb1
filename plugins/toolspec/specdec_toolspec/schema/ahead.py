"""Looking ahead: whole texts that may follow, best first."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from specdec_toolspec.schema.align import WILD, align
from specdec_toolspec.schema.language import Language
from specdec_toolspec.schema.places import Option, Place

STRAY: Final = 0.5
"""What each character written for an option leaves of the odds that something else is meant."""

REACH: Final = 320
"""Characters looked ahead."""

EXPANDED: Final = 3
"""Places looked behind for each text wanted."""

FAINT: Final = 0.002
"""Odds below which looking further ahead is not worth a token."""


NONE: Final = -1
"""No branch yet."""


class Beginning(NamedTuple):
    """Where looking ahead begins.

    Attributes:
        odds: P(the output is at this place).
        language: The language it is in.
        place: The place.
        written: What is written since the place began.
    """

    odds: float
    language: Language
    place: Place
    written: str


class Reached(NamedTuple):
    """A text that is looked behind, best first.

    Attributes:
        rank: What orders the search: less is better; the odds, negative.
        order: When it was found, for ties.
        text: The text so far.
        at: Where it leads.
        branch: Which of the first ways to go on it began with; negative before there were any.
    """

    rank: float
    order: int
    text: str
    at: Beginning
    branch: int


def look_ahead(beginnings: Iterable[Beginning], most: int) -> dict[str, float]:
    """Texts that may follow, each with P(exactly it, and none of the longer ones).

    A best-first search through the options: the likeliest text so far is made longer until
    enough places were looked behind or nothing is known behind any of them. Every first way to
    go on has its best text among them, so that none is lost to variants of a likelier one.

    Args:
        beginnings: Where the output may be.
        most: The most texts.

    Returns:
        Texts that are not empty, the likeliest first.
    """
    search = _Search()
    for beginning in beginnings:
        search.push(beginning, "", NONE)
    for _ in range(EXPANDED * most):
        if not search.heap:
            break
        search.expand()
    for left in search.heap:
        search.add(left.text, -left.rank, left.branch)
    return search.best(most)


class _Search:
    def __init__(self) -> None:
        self.heap: list[Reached] = []
        self.found: dict[str, float] = {}
        self._branches: dict[str, int] = {}
        self._order = 0
        self._branch = NONE

    def push(self, at: Beginning, text: str, branch: int) -> None:
        self._order += 1
        heappush(self.heap, Reached(-at.odds, self._order, text, at, branch))

    def add(self, text: str, odds: float, branch: int) -> None:
        if text and odds > 0.0:
            self.found[text] = self.found.get(text, 0.0) + odds
            self._branches.setdefault(text, branch)

    def expand(self) -> None:
        """Look behind the likeliest text."""
        reached = heappop(self.heap)
        odds, text, branch = -reached.rank, reached.text, reached.branch
        if odds < FAINT or len(text) >= REACH:
            self.add(text, odds, branch)
            return
        left = odds
        fitting = _fitting(reached.at)
        first = branch == NONE and len(fitting) > 1
        for option, share, rest, over in fitting:
            if first:
                self._branch += 1
                branch = self._branch
            left -= odds * share
            head, stopped, _ = rest.partition(WILD)
            if not (stopped or option.next is None):
                ahead = reached.at._replace(odds=odds * share, place=option.next, written=over)
                self.push(ahead, text + rest, branch)
            elif not over:
                self.add(text + head, odds * share, branch)
        if left > FAINT * odds:
            self.add(text, left, reached.branch)

    def best(self, most: int) -> dict[str, float]:
        """The best texts, one of each branch among them."""
        ranked = sorted(self.found, key=lambda text: -self.found[text])
        firsts = {self._branches[text]: text for text in reversed(ranked)}
        chosen = dict.fromkeys(sorted(firsts.values(), key=lambda text: -self.found[text]))
        chosen = dict.fromkeys((*list(chosen)[:most], *ranked))
        best = sorted(list(chosen)[:most], key=lambda text: -self.found[text])
        return {text: min(self.found[text], 1.0) for text in best}


def _fitting(beginning: Beginning) -> list[tuple[Option, float, str, str]]:
    """The options that what is written allows: with P(option), its rest, what is written over."""
    written = beginning.written
    fitting: list[tuple[Option, str, str]] = []
    known = 0.0
    for option in beginning.language.options(beginning.place, written):
        known += option.odds
        aligned = align(option.text, written, exact=option.exact)
        if aligned is not None:
            fitting.append((option, *aligned))
    if not written:
        whole = max(known, 1.0)
    else:
        # What is written speaks for the options that it fits, the more the longer it is.
        stray = max(1.0 - known, 0.02) * STRAY ** min(len(written.strip()), 16)
        whole = sum(option.odds for option, _, _ in fitting) + stray
    return [(option, option.odds / whole, rest, over) for option, rest, over in fitting]
