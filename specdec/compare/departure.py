"""Departure: an output that is not the model's own, and whether rounding alone explains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from specdec.compare.outcome import Outcome
from specdec.report import parting
from specdec.request import Result


@attrs.frozen
class Gap:
    """What a model's logits say about the place where two outputs part.

    Attributes:
        margin: Difference of the two largest logits there, in one-token passes.
        noise: Largest difference of any logit up to there between passes of different size.
    """

    margin: float
    noise: float


Explain = Callable[[int, tuple[int, ...], tuple[int, ...]], Gap | None]
"""The gap where two outputs of the request at a place part; None where no model can tell."""


def unexplained(case: int, own: tuple[int, ...], other: tuple[int, ...]) -> Gap | None:  # noqa: ARG001
    """There is no model to ask."""
    return None


@attrs.frozen
class Departure:
    """An output that is not the model's own.

    Attributes:
        request: The request's id.
        arms: The keys of the arms that wrote it.
        position: The first token that differs.
        gap: What the logits say about it, if anything can.
    """

    request: str
    arms: tuple[str, ...]
    position: int
    gap: Gap | None = None

    @property
    def near_tie(self) -> bool:
        """Whether rounding alone explains it: the margin is at most twice the noise."""
        return self.gap is not None and self.gap.margin <= 2 * self.gap.noise


def departures_of(
    outcomes: Iterable[Outcome], own: Mapping[int, Result], explain: Explain
) -> tuple[Departure, ...]:
    """Every output that is not the model's own; arms that wrote the same share one.

    Args:
        outcomes: Every request by every arm.
        own: The model's own output by the place of the request.
        explain: Asked once for each output that differs.
    """
    arms: dict[tuple[int, str, tuple[int, ...]], list[str]] = {}
    for outcome in outcomes:
        if outcome.result is None or outcome.case not in own:
            continue
        tokens = outcome.result.tokens
        if tokens != own[outcome.case].tokens:
            arms.setdefault((outcome.case, outcome.request, tokens), []).append(outcome.arm)
    return tuple(
        Departure(
            request,
            tuple(keys),
            parting(own[case].tokens, tokens),
            explain(case, own[case].tokens, tokens),
        )
        for (case, request, tokens), keys in arms.items()
    )
