"""Looking ahead: whole texts that may follow, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, nlargest
from typing import Final, NamedTuple

from specdec_toolspec.schema.align import STRAY, WILD, align
from specdec_toolspec.schema.language import Language
from specdec_toolspec.schema.places import Option, Place

REACH: Final = 320
"""Characters looked ahead."""

EXPANDED: Final = 2
"""Places looked behind for each text wanted; 3 cover 0.1 % more and take half as long again."""

FAINT: Final = 0.002
"""Odds below which looking further ahead is not worth a token."""


NONE: Final = -1
"""No branch yet."""

DROPPED: Final = -2
"""A branch too unlikely to be offered."""


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
        branch: Which of the first ways to go on it began with; negative before there were any.
        language: The language it is in.
        place: Where it leads.
        written: What is written since that place began.
    """

    rank: float
    order: int
    text: str
    branch: int
    language: Language
    place: Place
    written: str


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
    search = _Search(most)
    for odds, language, place, written in beginnings:
        search.push(odds, "", NONE, language, place, written)
    for _ in range(EXPANDED * most):
        if not search.heap:
            break
        search.expand()
    for left in search.heap:
        search.add(left.text, -left.rank, left.branch)
    return search.best()


class _Search:
    def __init__(self, most: int) -> None:
        self.most = most
        self.heap: list[Reached] = []
        self.found: dict[str, float] = {}
        self._branches: dict[str, int] = {}
        self._odds: list[float] = []  # of the branches
        self._order = 0

    def push(
        self, odds: float, text: str, branch: int, language: Language, place: Place, written: str
    ) -> None:
        self._order += 1
        heappush(self.heap, Reached(-odds, self._order, text, branch, language, place, written))

    def add(self, text: str, odds: float, branch: int) -> None:
        if text and odds > 0.0 and branch != DROPPED:
            self.found[text] = self.found.get(text, 0.0) + odds
            self._branches.setdefault(text, branch)

    def expand(self) -> None:
        """Look behind the likeliest text."""
        rank, _, text, branch, language, place, written = heappop(self.heap)
        odds = -rank
        if odds < FAINT or len(text) >= REACH or branch == DROPPED:
            self.add(text, odds, branch)
            return
        left = odds
        fitting = _fitting(language.options(place, written), written)
        first = branch == NONE and len(fitting) > 1
        # Of more branches than texts are wanted, the last will not be among the best.
        shares = [share for _, share, _, _ in fitting] if first else []
        kept = set(nlargest(self.most, range(len(shares)), key=shares.__getitem__))
        below = branch
        for way, (option, share, rest, over) in enumerate(fitting):
            if way in kept:
                below = len(self._odds)
                self._odds.append(odds * share)
            elif first:
                below = DROPPED
            left -= odds * share
            if option.next is not None and WILD not in rest:
                self.push(odds * share, text + rest, below, language, option.next, over)
            elif not over:
                self.add(text + rest.partition(WILD)[0], odds * share, below)
        if left > FAINT * odds:
            self.add(text, left, branch)

    def best(self) -> dict[str, float]:
        """The best texts, one of each branch among them."""
        ranked = sorted(self.found, key=self.found.__getitem__, reverse=True)
        firsts = {self._branches[text]: text for text in reversed(ranked)}
        # A branch counts by all its odds: the likeliest are looked behind, and so divided, most.
        odds = {b: self.found[text] if b == NONE else self._odds[b] for b, text in firsts.items()}
        branches = sorted(firsts, key=lambda branch: (-odds[branch], branch))
        chosen = dict.fromkeys((*(firsts[branch] for branch in branches[: self.most]), *ranked))
        best = sorted(list(chosen)[: self.most], key=self.found.__getitem__, reverse=True)
        return {text: min(self.found[text], 1.0) for text in best}


def _fitting(options: Sequence[Option], written: str) -> list[tuple[Option, float, str, str]]:
    """The options that what is written allows: with P(option), its rest, what is written over."""
    known = 0.0
    for option in options:
        known += option.odds
    if not written:
        whole = max(known, 1.0)
        return [(option, option.odds / whole, option.text, "") for option in options]
    fitting: list[tuple[Option, str, str]] = []
    for option in options:
        aligned = align(option.text, written, exact=option.exact)
        if aligned is not None:
            fitting.append((option, *aligned))
    # What is written speaks for the options that it fits, the more the longer it is; but not for
    # those made of it, such as the end of a value of which nothing is known: their odds know it.
    stray = max(1.0 - known, 0.02)
    if not any(option.exact for option in options):
        stray *= STRAY ** min(len(written.strip()), 16)
    whole = sum(option.odds for option, _, _ in fitting) + stray
    return [(option, option.odds / whole, rest, over) for option, rest, over in fitting]
