"""Failure: a request that was not answered."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from specdec.compare.outcome import Outcome


@attrs.frozen
class Failure:
    """A request that some arms did not answer.

    Attributes:
        request: Its id.
        arms: The keys of these arms.
        error: Why.
    """

    request: str
    arms: tuple[str, ...]
    error: str


def failures_of(outcomes: Iterable[Outcome]) -> tuple[Failure, ...]:
    """The failures among outcomes; arms that failed on a request alike share one."""
    arms: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes:
        if outcome.error is not None:
            arms.setdefault((outcome.request, outcome.error), []).append(outcome.arm)
    return tuple(Failure(request, tuple(keys), error) for (request, error), keys in arms.items())
