"""Decider: the one place where processors, sampling, random numbers and stops meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from transformers import LogitsProcessorList

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
        processors: What changes the logits before a token is chosen, warpers of sampling included.
        last: The most tokens that the model's positions allow.

    Attributes:
        stops: Follows what is chosen; says why generation ended.
    """

    def __init__(self, request: Request, processors: LogitsProcessorList, last: int) -> None:
        self._request = request
        self._sampling = request.sampling
        self._processors: Any = processors
        self.stops = Stops(request, last)
        self._ids: torch.Tensor | None = None
        self._length = len(request.prompt)
        self._generator: torch.Generator | None = None

    def __call__(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:  # noqa: ARG002
        """Choose one token from the (V,) logits `row` that follow everything committed so far."""
        # `generate` picks from logits cast to float32, in every dtype; so do we.
        # Processors may write in place, and drafters are shown the target's own logits.
        scores = row.to(torch.float32, copy=bool(self._processors))
        if self._processors:
            scores = self._processors(self._seen(row.device), scores[None])[0]
        if self._sampling is None:
            token = int(scores.argmax())
        else:
            odds = torch.softmax(scores[None], dim=-1)
            token = int(torch.multinomial(odds, 1, generator=self._source(row.device)))
        if self._ids is not None:
            if self._length == self._ids.shape[1]:
                self._ids = torch.cat([self._ids, torch.zeros_like(self._ids)], dim=1)
            self._ids[0, self._length] = token
        self._length += 1
        return Decision(token, self.stops.ends(token))

    def _seen(self, device: torch.device) -> torch.Tensor:
        """(1, L) prompt and output so far, for processors that look at them."""
        if self._ids is None:
            room = len(self._request.prompt) + SPARE
            self._ids = torch.zeros((1, room), dtype=torch.long, device=device)
            prompt = torch.tensor(self._request.prompt, device=device)
            self._ids[0, : len(prompt)] = prompt
        return self._ids[:, : self._length]

    def _source(self, device: torch.device) -> torch.Generator | None:
        if self._sampling is None or self._sampling.seed is None:
            return None
        if self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self._sampling.seed)
        return self._generator
