"""Decider: the one place where processors, sampling, random numbers and stops meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from specdec.hf.seat import Seat
from specdec.interfaces import Decision
from specdec.request import Request
from specdec.stops import Stops

SPARE: Final = 256
"""Token ids allocated ahead for processors that look at them; doubled when used up."""


class Decider:
    """The target's choice of each next token of one request.

    Every token it returns is committed, so its state (text seen, tokens left, generator) moves
    exactly as in plain decoding and rejected branches never touch it.

    Args:
        request: The request.
        seat: Its processors, and where they see it.
        last: The most tokens that the model's positions allow.

    Attributes:
        stops: Follows what is chosen; says why generation ended.
    """

    def __init__(self, request: Request, seat: Seat, last: int) -> None:
        self._request = request
        self._sampling = request.sampling
        self._seat = seat
        self.stops = Stops(request, last)
        self._watched = bool(seat.processors or request.criteria)
        self._ids: torch.Tensor | None = None
        self._length = len(seat.padding) + len(request.prompt)
        self._generator: torch.Generator | None = None

    def __call__(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:  # noqa: ARG002
        """Choose one token from the (V,) logits `row` that follow everything committed so far."""
        if self._watched and self._ids is None:
            self._ids = self._room(row.device)
        scores = self._scores(row)
        if self._sampling is None:
            token = int(scores.argmax())
        else:
            odds = torch.softmax(scores, dim=-1)
            token = int(torch.multinomial(odds, 1, generator=self._source(row.device)))
        self._take(token)
        stop = self.stops.ends(token)
        for criterion in self._request.criteria:  # all are asked, as in generate: they may count
            if self._seat.ends(criterion, self._seen()) and not stop:
                self.stops.finish, stop = "criterion", True
        self._seat.put(token)
        return Decision(token, stop)

    def _scores(self, row: torch.Tensor) -> torch.Tensor:
        """(1, V) what the token is chosen from; kept where that was asked for."""
        kept = self._seat.kept
        keeps = kept.scores is not None or kept.logits is not None
        # `generate` picks from logits cast to float32, in every dtype; so do we.
        # Processors may write in place, and drafters are shown the target's own logits.
        logits = row.to(torch.float32, copy=bool(self._seat.processors) or keeps)[None]
        scores = logits
        if self._seat.processors:
            scores = self._seat.process(self._seen(), logits)
        if kept.logits is not None:
            kept.logits.append(logits)
        if kept.scores is not None:
            kept.scores.append(scores)
        return scores

    def _take(self, token: int) -> None:
        if self._ids is not None:
            if self._length == self._ids.shape[1]:
                self._ids = torch.cat([self._ids, torch.zeros_like(self._ids)], dim=1)
            self._ids[0, self._length] = token
        self._length += 1

    def _room(self, device: torch.device) -> torch.Tensor:
        """(1, at least L) ids: what stands before the output, and room for it."""
        before = (*self._seat.padding, *self._request.prompt)
        ids = torch.zeros((1, len(before) + SPARE), dtype=torch.long, device=device)
        ids[0, : len(before)] = torch.tensor(before, device=device)
        return ids

    def _seen(self) -> torch.Tensor:
        """(1, L) prompt and output so far, for processors and criteria that look at them."""
        assert self._ids is not None
        return self._ids[:, : self._length]

    def _source(self, device: torch.device) -> torch.Generator | None:
        if self._sampling is None or self._sampling.seed is None:
            return None
        if self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self._sampling.seed)
        return self._generator
