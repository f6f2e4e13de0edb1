"""Every row of a tree pass equals the plain pass of its path, and the check notices faults."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from models import FAMILIES, SWITCH, TABLE, check_rows, junk, prompt_of, tiny, tree_of

from specdec.hf import HFTarget, masks
from specdec.hf import session as session_module
from specdec.hf.limits import UNBOUNDED
from specdec.hf.masks import MaskPlan, additive_mask
from specdec.tree import ROOT, DraftTree, Limit, layout

CLOSE = {"sdpa": 1e-5, "eager": 1e-4}
"""Norms are taken in float32 whatever the model's dtype, and under eager the softmax too.

Most rows agree to 1e-15; where a sum falls on a border of float32, one in thousands is off by
some 1e-6."""

FAULT = 0.05
"""The least difference that any fault of this file causes."""


def room(family: str, length: int) -> int:
    """Tokens to write: to the end of a table or the start of a drift, else a good two dozen."""
    ends = {"gpt2-short": TABLE, "llama-dynamic": SWITCH - 1}
    return min(26, ends.get(family, 10**6) - length)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_row_equals_the_plain_pass_of_its_path(family: str, attention: str) -> None:
    """Several steps in a row, after commits of branches that are not the first."""
    model = HFTarget(tiny(family, attention))
    moved = 0
    for seed, length in enumerate((1, 2, 15, 40)):
        if (tokens := room(family, length)) > 0:
            check = check_rows(model, prompt_of(length, seed=seed), tokens, seed=seed)
            assert check.worst < CLOSE[attention]
            moved += check.moved
    assert moved > 5, "the check proves nothing unless cache rows have to move"


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma3-mixed", "gpt2"])
def test_rows_hold_when_a_long_prompt_is_split(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "RIDE", 8)
    for length in (8, 9, 33):
        assert check_rows(HFTarget(tiny(family)), prompt_of(length), 12).worst < CLOSE["sdpa"]


def test_rows_hold_for_a_long_prompt_split_beyond_the_switch_of_a_longrope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first part of the split prompt lies below the switch, the whole beyond it."""
    monkeypatch.setattr(session_module, "RIDE", 16)
    model = HFTarget(tiny("phi3-longrope"))
    assert check_rows(model, prompt_of(SWITCH + 10), 12).worst < CLOSE["sdpa"]


def causal_mask(*args: object) -> torch.Tensor:
    """The mask of a chain of as many nodes as the tree has."""
    _plan, cached, pending, tree, dtype, device = args
    chain = DraftTree.chain(range(len(tree)), source="causal")  # type: ignore[arg-type]
    return additive_mask(cached, pending, chain, None, dtype, device)  # type: ignore[arg-type]


def flat_positions(cached: int, pending: int, tree: DraftTree) -> torch.Tensor:
    """Positions by index instead of by depth."""
    return torch.arange(cached, cached + pending + len(tree))[None]


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "phi3-longrope"])
def test_the_row_check_notices_a_causal_mask(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "tree_masks", causal_mask)
    assert check_rows(HFTarget(tiny(family), probe=False), prompt_of(9), 12).worst > FAULT


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gemma3-mixed"])
def test_the_row_check_notices_flat_positions(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "positions", flat_positions)
    assert check_rows(HFTarget(tiny(family), probe=False), prompt_of(9), 12).worst > FAULT


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gpt2"])
def test_the_row_check_notices_wrong_cache_rows(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rows are kept instead of the accepted ones."""

    def keep_first(session: session_module.Session, path: tuple[int, ...]) -> None:
        pending = len(session._fed) - (len(session._logits) - 1)
        base, n = len(session._cached) + pending, len(path)
        session._keep(session._fed[: pending + n], base, range(base, base + n))

    monkeypatch.setattr(session_module.Session, "commit", keep_first)
    assert check_rows(HFTarget(tiny(family), probe=False), prompt_of(9), 12).worst > FAULT


def block_by_index(parents: tuple[int, ...], window: int | None) -> torch.Tensor:
    """Which node sees which, with the window counted in rows instead of positions."""
    seen = torch.from_numpy(layout(parents).ancestors.copy())
    rows = np.arange(len(parents))
    if window is not None:
        seen &= torch.from_numpy(rows[:, None] - rows[None, :] < window)
    return seen


@pytest.mark.parametrize("family", ["mistral-window", "gemma3-mixed"])
def test_the_row_check_notices_a_window_by_index(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "_block", block_by_index)
    assert check_rows(HFTarget(tiny(family), probe=False), prompt_of(9), 20, nodes=20).worst > FAULT


@pytest.mark.parametrize("family", ["mistral-window", "gemma3-mixed"])
def test_the_row_check_notices_a_missing_window(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = masks.tree_masks

    def without(plan: MaskPlan, *args: object) -> object:
        return honest(MaskPlan(None, mapped=plan.mapped), *args)  # type: ignore[arg-type]

    monkeypatch.setattr(session_module, "tree_masks", without)
    assert check_rows(HFTarget(tiny(family), probe=False), prompt_of(9), 12).worst > FAULT


def test_the_row_check_notices_a_cache_that_was_not_computed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Phi-3 with a stale cache beyond its switch; generate() computes it anew."""
    model = HFTarget(tiny("phi3-longrope"))
    stale = HFTarget(tiny("phi3-longrope"))
    monkeypatch.setattr(stale, "ability", attrs.evolve(stale.ability, recompute_at=UNBOUNDED))
    prompt = prompt_of(SWITCH - 6)
    assert check_rows(model, prompt, 16).worst < CLOSE["sdpa"]
    assert check_rows(stale, prompt, 16).worst > FAULT


def test_a_mask_shows_ancestors_only_and_the_window_by_position() -> None:
    """Hand-made: 2 cached, 1 pending, nodes a -> c and b; window of 3 positions."""
    tree = tree_of([(ROOT, 5), (ROOT, 6), (0, 7)])
    mask = additive_mask(2, 1, tree, 3, torch.float64, torch.device("cpu"))
    seen = (mask[0, 0] == 0).int().tolist()
    assert seen == [
        [1, 1, 1, 0, 0, 0],  # root at position 2
        [0, 1, 1, 1, 0, 0],  # a at 3
        [0, 1, 1, 0, 1, 0],  # b at 3
        [0, 0, 1, 1, 0, 1],  # c at 4: below a, two rows behind it
    ]
    assert mask.dtype == torch.float64
    assert mask.min() == torch.finfo(torch.float64).min


def test_junk_trees_are_trees() -> None:
    """The helper behind this file: several branches, several levels."""
    tree = junk(nodes=20).offer((1, 2), Limit(20, 6))
    assert len(tree) > 10
    assert tree.depths.max() > 2
    assert tree.parents.count(ROOT) > 1
