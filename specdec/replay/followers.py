"""Followers: which token followed which, as far as a trace shows it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

KEPT: Final = 16
"""Followers remembered for each token of earlier outputs; drafters ask for some eight."""


class Followers:
    """Which tokens followed a token in the outputs before a given one; never changes.

    Args:
        outputs: (T,) tokens each.
    """

    def __init__(self, outputs: Iterable[Sequence[int]]) -> None:
        # By token: the places of the outputs that changed its followers, rising, and behind each
        # what the followers were then, the latest first.
        self._places: dict[int, list[int]] = {}
        self._rows: dict[int, list[tuple[int, ...]]] = {}
        for place, output in enumerate(outputs):
            for token, follower in pairwise(output):
                places = self._places.setdefault(token, [])
                rows = self._rows.setdefault(token, [])
                row = first(follower, rows[-1] if rows else ())[:KEPT]
                if not places or places[-1] != place:
                    places.append(place)
                    rows.append(row)
                else:
                    rows[-1] = row

    def before(self, place: int, token: int) -> tuple[int, ...]:
        """(at most KEPT,) what followed `token` before the output at `place`, the latest first."""
        known = bisect_left(self._places.get(token, ()), place)
        return self._rows[token][known - 1] if known else ()


def first(token: int, row: tuple[int, ...]) -> tuple[int, ...]:
    """`row` with `token` moved or put in front."""
    return row if row[:1] == (token,) else (token, *(old for old in row if old != token))
