"""A small tree pass against plain passes: does the model follow masks and positions?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from specdec.errors import UnsupportedModel
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
    name = target.ability.name
    try:
        with target.lock:
            rows = _rows(target, prompt, tree)
            plain = [_rows(target, (*prompt, *path), EMPTY)[0] for path in ((), (a,), (b,), (b, c))]
    except Exception as error:
        raise UnsupportedModel(
            f"{name} cannot run a pass with a draft tree ({type(error).__name__}: {error}); decode "
            "this model with model.generate()"
        ) from error
    expected = torch.stack(plain)
    spread = expected.std(dim=-1).clamp_min(1e-6)
    worst = float(((rows - expected).abs().amax(dim=-1) / spread).max())
    if not worst <= TOLERANCE:
        raise UnsupportedModel(
            f"{name} does not follow tree masks or positions: in a small tree pass logits are off "
            f"by {worst:.2f} standard deviations (rounding gives less than {TOLERANCE}); decode "
            "this model with model.generate()"
        )


def _rows(target: HFTarget, prompt: tuple[int, ...], tree: DraftTree) -> torch.Tensor:
    """(1 + N, V) float32 logits of one pass over `prompt` and `tree`."""
    session = target.start(Request(prompt, 1), Needs())
    try:
        return session.forward(prompt, tree).float()
    finally:
        session.close()
