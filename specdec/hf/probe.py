"""A small tree pass against plain passes: does the model follow masks and positions?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from specdec.errors import UnsupportedModel
from specdec.hf.compat import WAY_OUT
from specdec.hf.masks import MaskPlan
from specdec.interfaces import Needs
from specdec.request import Request
from specdec.tree import EMPTY, ROOT, DraftTree, Vote

if TYPE_CHECKING:
    from specdec.hf.target import HFTarget

PROMPT: Final = (1, 2, 3) * 6
A, B, C, D = 4, 5, 6, 7

PATHS: Final = ((), (A,), (B,), (B, C), (B, C, D), (B, C, D, A))
"""What stands behind the prompt at each row: four of a tree pass, two of the pass after it."""

TREE: Final = DraftTree((A, B, C), (ROOT, ROOT, 1), (1.0,) * 3, ((Vote("probe", 1.0),),) * 3)

TOLERANCE: Final = 0.25
"""Allowed difference of logits, in standard deviations of a row.

Rounding in bfloat16 gives about 0.02; a mask or position that is ignored gives 0.3 and more."""


def check_rows(target: HFTarget) -> None:
    """Compare every row of a tree pass, and of one behind it, with the plain pass of its path.

    Raises:
        UnsupportedModel: If they differ by more than rounding, or the model cannot run them.
    """
    deepest = max(map(len, PATHS))
    if target.vocabulary <= D or target.ability.depth(len(PROMPT) - 1) < deepest:
        return
    # Whether a draft can ride on a whole prompt depends on how the model calls its attention;
    # where it cannot, full masks do.
    for short in (True, False) if shortens(target) else (False,):
        target.short_masks = short
        fault = _fault(target)
        if fault is None:
            return
    raise UnsupportedModel(f"{target.ability.name} {fault}; {WAY_OUT}")


def shortens(target: HFTarget) -> bool:
    """Whether masks for the root and the nodes alone are worth trying."""
    return target.ability.masks == MaskPlan() and target.ability.attention == "sdpa"


def _fault(target: HFTarget) -> str | None:
    """What is wrong with tree passes, or None."""
    try:
        with target.lock:
            rows = _rows(target)
            expected = torch.stack([_plain_row(target, (*PROMPT, *path)) for path in PATHS])
    except Exception as error:
        return f"cannot run a pass with a draft tree ({type(error).__name__}: {error})"
    spread = expected.std(dim=-1).clamp_min(1e-6)
    off = (rows - expected).abs().amax(dim=-1) / spread
    row = int(off.argmax())
    if off[row] <= TOLERANCE:
        return None
    ignored = "tree masks or positions" if row < len(TREE) + 1 else "what its cache holds"
    return (
        f"does not follow {ignored}: in a small tree pass logits are off by {off[row]:.2f} "
        f"standard deviations (rounding gives less than {TOLERANCE})"
    )


def _rows(target: HFTarget) -> torch.Tensor:
    """(6, V) float32 logits of `PATHS`, by a tree pass and one behind its accepted path."""
    session = target.start(Request(PROMPT, 1), Needs())
    try:
        first = session.forward(PROMPT, TREE)
        session.commit((1, 2))
        second = session.forward((D,), DraftTree.chain((A,), source="probe"))
        return torch.cat([first, second]).float()
    finally:
        session.close()


def _plain_row(target: HFTarget, ids: tuple[int, ...]) -> torch.Tensor:
    """(V,) float32 logits behind `ids`, by one plain pass."""
    session = target.start(Request(ids, 1), Needs())
    try:
        return session.forward(ids, EMPTY)[0].float()
    finally:
        session.close()
