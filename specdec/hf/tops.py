"""The most likely ids of every row of logits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


@torch.inference_mode()
def top_ids(logits: torch.Tensor, k: int, *, chunk: int = 64) -> npt.NDArray[np.int64]:
    """(rows, k) ids of the largest logits of each row, largest first.

    The k largest of a row lie in the k chunks with the largest maxima, so only those are sorted.
    """
    rows, size = logits.shape
    k = min(k, size)
    whole = size // chunk
    if whole <= k:
        return logits.topk(k, dim=-1).indices.cpu().numpy()
    body = logits[:, : whole * chunk].reshape(rows, whole, chunk)
    best = body.amax(-1).topk(k, dim=-1).indices  # (rows, k) chunks
    picked = body.gather(1, best[:, :, None].expand(-1, -1, chunk)).reshape(rows, k * chunk)
    ids = (best[:, :, None] * chunk + torch.arange(chunk, device=logits.device)).reshape(rows, -1)
    rest = logits[:, whole * chunk :]
    if rest.shape[1]:
        picked = torch.cat([picked, rest], dim=-1)
        tail = torch.arange(whole * chunk, size, device=logits.device).expand(rows, -1)
        ids = torch.cat([ids, tail], dim=-1)
    return ids.gather(1, picked.topk(k, dim=-1).indices).cpu().numpy()
