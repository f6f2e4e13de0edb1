"""What `generate` returns."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers.generation.utils import GenerateDecoderOnlyOutput

from specdec.hf.generation.caller import CACHE_NAMES
from specdec.hf.generation.given import Given
from specdec.hf.seat import Kept
from specdec.request import Result


def gather(given: Given, results: Sequence[Result], kept: Sequence[Kept]) -> Any:  # noqa: ANN401
    """The rows put together: (B, P + T) ids, or transformers' output record.

    Rows that end before the longest are filled with the padding id, and their scores with zeros.

    Args:
        given: What was asked for.
        results: One per row.
        kept: The scores of each row.
    """
    longest = max(len(result.tokens) for result in results)
    written = [[*r.tokens, *[given.pad] * (longest - len(r.tokens))] for r in results]
    ids = given.input_ids
    sequences = torch.cat([ids, torch.tensor(written, device=ids.device)], dim=1)
    if not given.record:
        return sequences
    fields: dict[str, Any] = {
        "sequences": sequences,
        "scores": _by_token([k.scores for k in kept], longest),
        "logits": _by_token([k.logits for k in kept], longest),
    }
    known = inspect.signature(GenerateDecoderOnlyOutput).parameters
    fields[next(name for name in CACHE_NAMES if name in known)] = given.cache
    return GenerateDecoderOnlyOutput(**fields)


def _by_token(
    rows: Sequence[list[torch.Tensor] | None], longest: int
) -> tuple[torch.Tensor, ...] | None:
    """(B, V) for each of `longest` tokens."""
    if any(row is None for row in rows):
        return None
    filled = [row or [] for row in rows]
    blank = torch.zeros_like(next(row[0] for row in filled if row))
    # `cat` copies: tensors of inference mode could not take part in what callers do with scores.
    return tuple(
        torch.cat([row[at] if at < len(row) else blank for row in filled]) for at in range(longest)
    )
