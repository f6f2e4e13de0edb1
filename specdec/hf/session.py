"""One request on an HFTarget: its cache, its passes, its choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import Cache

from specdec.hf.attention import packed
from specdec.hf.compat import TreeLayer, processors_of, reset_frequencies
from specdec.hf.decide import Decider
from specdec.hf.masks import positions, tree_masks
from specdec.hf.seat import Seat
from specdec.hf.tops import top_ids
from specdec.interfaces import Decision, Needs
from specdec.request import Finish, Request
from specdec.tree import EMPTY, DraftTree

if TYPE_CHECKING:
    from specdec.hf.target import HFTarget

RIDE = 32
"""Prompt tokens that share the pass of the first draft, where the whole prompt cannot.

A mask over a long prompt costs more (quadratic) than one more pass, so the prompt's head goes
ahead without one and only its last tokens share the draft's mask."""

SPARE = 512
"""Rows of cache allocated ahead of the prompt; the cache grows by half beyond that."""


class Session:
    """See `specdec.engine.TargetSession`.

    Args:
        target: The model.
        request: The request.
        needs: What the drafter wants from the model.
        seat: Where `generate` has the request, if it comes from there.
    """

    def __init__(
        self, target: HFTarget, request: Request, needs: Needs, seat: Seat | None = None
    ) -> None:
        able = target.ability
        seat = Seat(processors_of(target.model, request)) if seat is None else seat
        self._target = target
        self._able = able
        self._needs = needs
        room = len(request.prompt) + min(request.max_new_tokens, SPARE) + 128
        self._layers = seat.layers or [TreeLayer(room) for _ in range(able.layers)]
        self._cache = Cache(layers=list(self._layers))
        # The tokens whose keys and values are kept.
        self._cached = list(request.prompt[: self._layers[0].length])
        self._fed: Sequence[int] = ()  # what the last pass added to them
        self._logits = torch.empty(0)
        # The last token emitted needs no position of its own: it is never fed.
        self._decider = Decider(request, seat, able.table - len(request.prompt) + 1)
        self.embedding: npt.NDArray[np.float32] | None = None

    @property
    def kv_length(self) -> int:
        return len(self._cached)

    @property
    def finish(self) -> Finish:
        return self._decider.stops.finish

    def depth(self, pending: int) -> int:
        root = len(self._cached) + pending - 1
        if self._recomputes(pending):
            return 0
        split = pending > RIDE and not self._whole()
        return self._able.depth(root, root - RIDE + 1 if split else None)

    def _whole(self) -> bool:
        """Whether a draft can ride on a whole prompt: its rows need no mask of their own."""
        return self._target.short_masks and not self._cached

    def _recomputes(self, pending: int) -> bool:
        """Whether the next pass computes what is cached anew, as `generate` does there."""
        cached = len(self._cached)
        return 0 < cached <= self._able.recompute_at < cached + pending

    @torch.no_grad()  # as in generate: processors may need more than inference mode allows
    def decide(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        return self._decider(path_tokens, row)

    @torch.inference_mode()
    def forward(self, pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
        if self._recomputes(len(pending)):
            pending = [*self._cached, *pending]
            self._keep((), 0, ())
        if tree.tokens and len(pending) > RIDE and not self._whole():
            ahead, pending = pending[:-RIDE], pending[-RIDE:]
            self._pass(ahead, EMPTY)
            self._keep(ahead, len(self._cached) + len(ahead), ())
        self._fed = (*pending, *tree.tokens)
        self._logits = self._pass(pending, tree)
        if self._logits.device.type != "cpu":
            # The verifier waits for the logits anyway; waiting here books the time to the pass.
            torch.accelerator.synchronize(self._logits.device)
        return self._logits

    def _pass(self, ids: Sequence[int], tree: DraftTree) -> torch.Tensor:
        """(1 + N, V) logits of one call of the model."""
        target, able, rows = self._target, self._able, 1 + len(tree)
        device, cached = target.device, len(self._cached)
        arguments: dict[str, Any] = {
            able.cache_name: self._cache,
            "input_ids": torch.tensor([[*ids, *tree.tokens]], device=device),
            "position_ids": positions(cached, len(ids), tree).to(device),
            "use_cache": True,
        }
        if tree.tokens:
            # With a short mask, only the last prompt token (the root) and the nodes have rows.
            before = len(ids) - 1 if self._whole() else 0
            arguments["attention_mask"] = tree_masks(
                able.masks, cached + before, len(ids) - before, tree, target.model.dtype, device
            )
        if able.keeps_logits:
            arguments["logits_to_keep"] = rows
        # The prompt's first pass holds its last token too, unless its head went ahead.
        watch = self._needs.embedding and self._decider.stops.emitted == 0
        hook = self._watch(rows) if watch else None
        reset_frequencies(target.drifting)
        try:
            with packed(target.config):
                output = target.model(**arguments)
        finally:
            if hook is not None:
                hook.remove()
        logits: torch.Tensor = output.logits[0, -rows:]
        return logits

    def _watch(self, rows: int) -> torch.utils.hooks.RemovableHandle:
        """Take the root's hidden state where it enters the output embedding."""
        head: torch.nn.Module = self._target.model.get_output_embeddings()

        def take(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            hidden = inputs[0][0, -rows]
            self.embedding = hidden.to(device="cpu", dtype=torch.float32).numpy().copy()

        return head.register_forward_pre_hook(take)

    @torch.inference_mode()
    def commit(self, path: Sequence[int]) -> None:
        pending = len(self._fed) - (len(self._logits) - 1)
        rows = [pending + node for node in path]
        base = len(self._cached)
        kept = [*self._fed[:pending], *(self._fed[row] for row in rows)]
        self._keep(kept, base + pending, [base + row for row in rows])

    def _keep(self, tokens: Sequence[int], length: int, rows: Sequence[int]) -> None:
        """Keep `length` cache rows and, behind them, `rows`; `tokens` are the newly kept ones."""
        index: dict[torch.device, torch.Tensor] = {}
        for layer in self._layers:
            layer.keep(length, rows, index)
        if length:
            self._cached += tokens
        else:
            self._cached.clear()

    def pretend(self, kv_length: int) -> None:
        """Act as if the cache held `kv_length` tokens."""
        for layer in self._layers:
            layer.reserve(kv_length + 128)
            layer.length = kv_length
        self._cached = [0] * kv_length

    def top_ids(self, k: int) -> npt.NDArray[np.int64]:
        return top_ids(self._logits, k)

    def close(self) -> None:
        self._layers = []
        self._cache = Cache(layers=[])
        self._logits = torch.empty(0)
