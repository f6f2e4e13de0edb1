"""Seat: where `generate` has a request: its row, its processors, what it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
from transformers import LogitsProcessorList

from specdec.hf.compat import TreeLayer


@attrs.define
class Kept:
    """The scores of every token, where they were asked for.

    Attributes:
        scores: (1, V) per token, as the token was chosen from; None keeps none.
        logits: (1, V) per token, as they were given to the processors; None keeps none.
    """

    scores: list[torch.Tensor] | None = None
    logits: list[torch.Tensor] | None = None


def _nowhere(token: int) -> None:
    """Where tokens go that nobody waits for."""


@attrs.frozen
class Seat:
    """One row of a batch, decoded on its own.

    Processors and criteria that `generate` prepared for a batch see the row in its place, as they
    would there: with its padding in front, among rows like itself.

    Attributes:
        processors: What changes the logits before a token is chosen, warpers of sampling included.
        padding: Padding ids in front of the prompt.
        rows: Rows of the batch.
        row: Index of this one.
        layers: A cache that holds the beginning of the prompt, or empty ones; none for fresh ones.
        kept: What is kept of the scores.
        put: Is given every token once it is chosen and judged, before the next is.
    """

    processors: LogitsProcessorList
    padding: tuple[int, ...] = ()
    rows: int = 1
    row: int = 0
    layers: list[TreeLayer] = attrs.field(factory=list, repr=False)
    kept: Kept = attrs.field(factory=Kept, repr=False)
    put: Callable[[int], None] = _nowhere

    def process(self, ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """(1, V) scores to choose from, given (1, L) ids and the (1, V) logits behind them."""
        processors: Any = self.processors
        if self.rows == 1:
            alone: torch.Tensor = processors(ids, logits)
            return alone
        # Not `expand`: processors may write in place, and then the logits show it.
        many = logits.repeat(self.rows, 1)
        scores: torch.Tensor = processors(ids.repeat(self.rows, 1), many)
        logits.copy_(many[self.row : self.row + 1])
        return scores[self.row : self.row + 1]

    def ends(self, criterion: Callable[..., Any], ids: torch.Tensor) -> bool:
        """Whether `criterion` ends generation behind (1, L) ids."""
        scores = self.kept.scores
        given = None if scores is None else tuple(s.expand(self.rows, -1) for s in scores)
        none = torch.zeros(self.rows, dtype=torch.bool, device=ids.device)
        # One for all rows or one for each, as in generate; anything else is an error there too.
        done: torch.Tensor = none | criterion(ids.expand(self.rows, -1), given)
        return bool(done[self.row])
