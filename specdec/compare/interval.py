"""Interval: a figure over requests, and how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

RESAMPLES: Final = 2000
CONFIDENCE: Final = 0.95


@attrs.frozen
class Interval:
    """A figure with its bootstrap interval.

    Attributes:
        value: The figure over all requests.
        low: Lower end of the interval; the figure itself where one request does not make one.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        """Whether the two intervals have a value in common."""
        return self.low <= other.high and other.low <= self.high


def ratio(above: Sequence[float], below: Sequence[float]) -> Interval | None:
    """Sum of `above` over sum of `below`, with the interval of `CONFIDENCE`.

    The requests are resampled in pairs (percentile bootstrap, Efron 1979; `RESAMPLES` draws with
    a fixed seed, so that the same figures give the same interval).

    Args:
        above: (n,) one value per request.
        below: (n,) one value per request.

    Returns:
        None where the sum below is 0.
    """
    total = math.fsum(below)
    if not total:
        return None
    value = math.fsum(above) / total
    if len(below) < 2:
        return Interval(value, value, value)
    pairs = np.column_stack((above, below)).astype(float)
    sums = np.array([draw.sum(0) for draw in _draws(pairs)])
    # scipy's bootstrap gives no interval at all when one draw has no ratio, as draws of requests
    # that took no step have.
    sums = sums[sums[:, 1] > 0]
    return _between(value, sums[:, 0] / sums[:, 1])


def median(values: Sequence[float]) -> Interval | None:
    """The median of `values`, with its interval; None without a value.

    Args:
        values: (n,) one per request.
    """
    if not values:
        return None
    found = np.asarray(values, dtype=float)
    return _between(float(np.median(found)), np.array([np.median(draw) for draw in _draws(found)]))


def _draws(values: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[np.float64]]:
    """As many values drawn with replacement, `RESAMPLES` times."""
    rng = np.random.default_rng(0)
    return (rng.choice(values, len(values)) for _ in range(RESAMPLES))


def _between(value: float, drawn: npt.NDArray[np.float64]) -> Interval:
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value, float(low), float(high))
