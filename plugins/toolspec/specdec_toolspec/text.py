"""Text: tokens in which the last few of an output are found again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REACH: Final = 64
"""The most recent places of an n-gram that are looked at."""

Tier = tuple[int, ...]
"""Lengths of a match, longest first; only the shortest is indexed."""


class Text:
    """One text that is searched on its own: no match crosses into another.

    Every n-gram is indexed once, as it is added, with a link to its earlier place; a search costs
    one look-up and a comparison per place, at any length of the text.

    Args:
        tiers: The lengths of match that will be asked for.
        tokens: The text so far.
    """

    def __init__(self, tiers: Sequence[Tier], tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        # Per tier: the place behind the last occurrence of each n-gram, and for every place the
        # one before it with the same n-gram; 0 for none.
        self._latest: dict[int, dict[tuple[int, ...], int]] = {tier[-1]: {} for tier in tiers}
        self._earlier: dict[int, list[int]] = {size: [] for size in self._latest}
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Add tokens at the end."""
        first = len(self.tokens)
        self.tokens += tokens
        for size, latest in self._latest.items():
            earlier = self._earlier[size]
            # The n-gram at the very end stays out until something follows it.
            earlier += [0] * (len(self.tokens) - len(earlier))
            for at in range(max(first, size), len(self.tokens)):
                gram = tuple(self.tokens[at - size : at])
                earlier[at] = latest.get(gram, 0)
                latest[gram] = at

    def find(self, output: Sequence[int], tier: Tier) -> tuple[int, list[int]]:
        """Where the end of `output` stands, by its longest match.

        Args:
            output: Tokens; only the last ones are looked at.
            tier: One of the tiers given.

        Returns:
            The length of the match and the places right behind it, the last one first; 0 and
            none without a match.
        """
        size = tier[-1]
        if len(output) < size:
            return 0, []
        at = self._latest[size].get(tuple(output[-size:]), 0)
        places: list[int] = []
        earlier = self._earlier[size]
        while at and len(places) < REACH:
            places.append(at)
            at = earlier[at]
        if not places:
            return 0, []
        for length in tier[:-1]:
            if length <= len(output):
                end = list(output[-length:])
                longer = [p for p in places if p >= length and self.tokens[p - length : p] == end]
                if longer:
                    return length, longer
        return size, places

    def __len__(self) -> int:
        return len(self.tokens)
