"""A small tree pass against plain passes: does the model follow masks and positions?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from specdec.errors import UnsupportedModel
from specdec.hf.masks import MaskPlan
from specdec.interfaces import Needs
from specdec.request import Request
from specdec.tree import EMPTY, ROOT, DraftTree, Vote

if TYPE_CHECKING:
    from specdec.hf.target import HFTarget

PROMPT: Final = (1, 2, 3)

TOLERANCE: Final = 0.25
"""Allowed difference of logits, in standard deviations of a row.

Rounding in bfloat16 gives about 0.02; a mask or position that is ignored gives 0.3 and more."""


def check_rows(target: HFTarget) -> None:
    """Compare every row of a tree pass with the plain pass of its path.

    Raises:
        UnsupportedModel: If they differ by more than rounding, or the model cannot run them.
    """
    vocabulary = target.vocabulary
    prompt = tuple(token % vocabulary for token in PROMPT)
    a, b, c = (token % vocabulary for token in (4, 5, 6))
    vote = ((Vote("probe", 1.0),),)
    tree = DraftTree((a, b, c), (ROOT, ROOT, 1), (1.0,) * 3, vote * 3)
    if len({a, b}) < 2 or target.ability.depth(len(prompt) - 1) < 2:
        return
    # Whether a draft can ride on a whole prompt depends on how the model calls its attention;
    # where it cannot, full masks do.
    for short in (True, False) if shortens(target) else (False,):
        target.short_masks = short
        fault = _fault(target, prompt, tree, ((), (a,), (b,), (b, c)))
        if fault is None:
            return
    raise UnsupportedModel(
        f"{target.ability.name} {fault}; decode this model with model.generate()"
    )


def shortens(target: HFTarget) -> bool:
    """Whether masks for the root and the nodes alone are worth trying."""
    return target.ability.masks == MaskPlan() and target.config._attn_implementation == "sdpa"


def _fault(
    target: HFTarget,
    prompt: tuple[int, ...],
    tree: DraftTree,
    paths: tuple[tuple[int, ...], ...],
) -> str | None:
    """What is wrong with a tree pass, or None."""
    try:
        with target.lock:
            rows = _rows(target, prompt, tree)
            expected = torch.stack([_rows(target, (*prompt, *path), EMPTY)[0] for path in paths])
    except Exception as error:
        return f"cannot run a pass with a draft tree ({type(error).__name__}: {error})"
    spread = expected.std(dim=-1).clamp_min(1e-6)
    worst = float(((rows - expected).abs().amax(dim=-1) / spread).max())
    if worst <= TOLERANCE:
        return None
    return (
        f"does not follow tree masks or positions: in a small tree pass logits are off by "
        f"{worst:.2f} standard deviations (rounding gives less than {TOLERANCE})"
    )


def _rows(target: HFTarget, prompt: tuple[int, ...], tree: DraftTree) -> torch.Tensor:
    """(1 + N, V) float32 logits of one pass over `prompt` and `tree`."""
    session = target.start(Request(prompt, 1), Needs())
    try:
        return session.forward(prompt, tree).float()
    finally:
        session.close()
