"""What speculation is measured against: transformers' own generate, timed by phase."""

from __future__ import annotations

import time
from typing import Any

import attrs
import torch
from transformers.generation.streamers import BaseStreamer

from specdec.engine import Engine
from specdec.hf.target import HFTarget
from specdec.interfaces import Needs
from specdec.report import parting
from specdec.request import Phases, Request, Result
from specdec.tree import EMPTY, DraftTree

CHAIN = 16
"""Tokens of the tree passes that `first_difference` compares with one-token passes."""


class _Stopwatch(BaseStreamer):
    """Notes when the first token arrives; everything before it is the prompt's pass."""

    def __init__(self) -> None:
        self.puts = 0
        self.first = 0.0

    def put(self, value: torch.Tensor) -> None:  # noqa: ARG002
        # The first put is the prompt itself.
        self.puts += 1
        if self.puts == 2:
            self.first = time.perf_counter()

    def end(self) -> None:
        pass


@torch.inference_mode()
def generate(target: HFTarget, request: Request) -> Result:
    """Decode `request` with ``model.generate``, greedy or sampled, and time it by phase.

    Stop strings and logits processors of the request are passed on.
    """
    model: Any = target.model
    ids = torch.tensor([request.prompt], device=target.device)
    sampling = request.sampling
    options: dict[str, Any] = (
        {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if sampling is None
        else {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
        }
    )
    if request.stop_strings:
        options |= {"stop_strings": list(request.stop_strings), "tokenizer": target.tokenizer}
    watch = _Stopwatch()
    stop_ids = sorted(request.stop_ids) or None
    with target.lock:
        start = time.perf_counter()
        output = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.max_new_tokens,
            eos_token_id=stop_ids,
            pad_token_id=stop_ids[0] if stop_ids else 0,
            streamer=watch,
            logits_processor=list(request.processors),
            **options,
        )
        end = time.perf_counter()
    tokens = tuple(output[0, ids.shape[1] :].tolist())
    first = watch.first if tokens else end
    return Result(
        request=request.id,
        tokens=tokens,
        finish="stop_id" if tokens and tokens[-1] in request.stop_ids else "length",
        passes=len(tokens),
        prompt_tokens=min(len(tokens), 1),
        accepted=(0,) * len(tokens),
        nodes=(0,) * len(tokens),
        prompt_phases=Phases(forward=first - start),
        decode_phases=Phases(forward=end - first),
    )


@attrs.frozen
class Difference:
    """The first token at which two outputs of one request differ.

    Attributes:
        position: Index into the output.
        plain: What plain decoding wrote there.
        other: What the other output holds there; None where it had ended.
        margin: Difference of the two largest logits there, in one-token passes.
        noise: Largest difference of any logit before there, between passes of one token and
            passes of up to `CHAIN` drafted tokens.
    """

    position: int
    plain: int | None
    other: int | None
    margin: float
    noise: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding alone explains the difference: the margin is at most twice the noise."""
        return self.margin <= 2 * self.noise


def first_difference(
    target: HFTarget, request: Request, plain: tuple[int, ...], other: tuple[int, ...]
) -> Difference | None:
    """Where `other` first departs from `plain`, and whether a near-tie explains it."""
    if plain == other:
        return None
    position = parting(plain, other)
    common = plain[:position]
    one = _rows(target, request, common, 0)
    many = _rows(target, request, common, CHAIN)
    best = one[-1].topk(2).values
    return Difference(
        position,
        plain[position] if position < len(plain) else None,
        other[position] if position < len(other) else None,
        float(best[0] - best[1]),
        float((one - many).abs().max()),
    )


def _rows(target: HFTarget, request: Request, common: tuple[int, ...], nodes: int) -> torch.Tensor:
    """(1 + len(common), V) float32 logits behind the prompt and each token of `common`.

    Computed in passes that carry up to `nodes` of the tokens as a draft.
    """
    session = target.start(request, Needs())
    rows: list[torch.Tensor] = []
    pending: tuple[int, ...] = request.prompt
    done = 0
    try:
        while len(rows) <= len(common):
            ahead = common[done : done + nodes]
            tree = DraftTree.chain(ahead, source="replay") if ahead else EMPTY
            logits = session.forward(pending, tree)
            rows += list(logits.float())
            session.commit(range(len(ahead)))
            done += len(ahead)
            pending, done = common[done : done + 1], done + 1
        return torch.stack(rows[: len(common) + 1])
    finally:
        session.close()


def plain(target: HFTarget) -> Engine:
    """Our own plain loop: the engine without a drafter."""
    return Engine(target, on_error="raise")
