"""Additive masks and positions of a tree pass."""

from __future__ import annotations

from functools import lru_cache

import attrs
import torch

from specdec.tree import DraftTree, layout


@attrs.frozen
class MaskPlan:
    """Which masks a model takes.

    Attributes:
        window: Sliding window in tokens, or None.
        chunk: Length of the chunks that some layers attend within, or None.
        mapped: Whether forward takes a dict by layer type (models with mixed layers) or one mask.
    """

    window: int | None = None
    chunk: int | None = None
    mapped: bool = False


@lru_cache(maxsize=256)
def _block(parents: tuple[int, ...], window: int | None) -> torch.Tensor:
    """(N, N) bool: which node sees which; within the window by depth, not by index."""
    shape = layout(parents)
    seen = torch.from_numpy(shape.ancestors.copy())
    if window is not None:
        depths = torch.from_numpy(shape.depths.copy())
        seen &= depths[:, None] - depths[None, :] < window
    return seen


def positions(cached: int, pending: int, tree: DraftTree) -> torch.Tensor:
    """(1, pending + N) positions; a node stands at the root's position plus its depth."""
    root = cached + pending - 1
    flat = torch.arange(cached, cached + pending)
    return torch.cat([flat, root + torch.from_numpy(tree.depths.copy())])[None]


def additive_mask(
    cached: int,
    pending: int,
    tree: DraftTree,
    window: int | None,
    dtype: torch.dtype,
    device: torch.device,
    chunk: int | None = None,
) -> torch.Tensor:
    """(1, 1, pending + N, cached + pending + N) mask to be added to attention scores.

    A float mask, since a boolean one is silently wrong under eager attention. Pending tokens see
    everything up to themselves, nodes see all cached and pending tokens, their ancestors and
    themselves; with a window, only what stands less than `window` positions back; with chunks, only
    what stands in the same one.
    """
    n, before = len(tree), cached + pending
    seen = torch.zeros((pending + n, before + n), dtype=torch.bool)
    seen[:pending, :before] = torch.ones((pending, before), dtype=torch.bool).tril(cached)
    seen[pending:, :before] = True
    seen[pending:, before:] = _block(tree.parents, window)
    here = positions(cached, pending, tree)[0]
    if window is not None:
        seen[:, :before] &= here[:, None] - torch.arange(before)[None, :] < window
    if chunk is not None:
        there = torch.cat([torch.arange(before), here[pending:]])
        seen &= here[:, None] // chunk == there[None, :] // chunk
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
    return mask[None, None].to(device)


def tree_masks(
    plan: MaskPlan,
    cached: int,
    pending: int,
    tree: DraftTree,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor | dict[str, torch.Tensor]:
    """The mask, or the masks by layer type, of a pass of `pending` tokens and a tree."""
    if not plan.mapped:
        return additive_mask(cached, pending, tree, plan.window, dtype, device)
    full = additive_mask(cached, pending, tree, None, dtype, device)
    masks = {"full_attention": full, "sliding_attention": full}
    if plan.window is not None:
        sliding = additive_mask(cached, pending, tree, plan.window, dtype, device)
        masks["sliding_attention"] = sliding
    if plan.chunk is not None:
        chunked = additive_mask(cached, pending, tree, None, dtype, device, plan.chunk)
        masks["chunked_attention"] = chunked
    return masks
