"""Everything a step does besides the target's pass."""

import numpy as np
import pytest
import torch

from specdec import DraftTree, ExactVerifier, Limit
from specdec.hf.attention import packed_sdpa
from specdec.hf.compat import TreeLayer
from specdec.hf.masks import additive_mask
from specdec.hf.tops import top_ids
from specdec.interfaces import Decision
from specdec.tree import layout

WIDE = Limit(64, 64)
SEQUENCES = [[100 * i + j for j in range(8)] for i in range(8)]
VOCABULARY = 49_152


def tree(source="a"):
    scores = [[0.9 - 0.01 * i] * 8 for i in range(8)]
    return DraftTree.from_sequences(SEQUENCES, source=source, limit=WIDE, scores=scores)


@pytest.mark.benchmark(group="tree")
def test_build_64_nodes(benchmark):
    assert len(benchmark(tree)) == 64


@pytest.mark.benchmark(group="tree")
def test_merge_two_of_64_nodes(benchmark):
    both = [tree("a"), tree("b")]
    assert len(benchmark(DraftTree.merge, both)) == 64


@pytest.mark.benchmark(group="tree")
def test_cut_64_nodes_to_32(benchmark):
    assert len(benchmark(tree().top, 32)) == 32


@pytest.mark.benchmark(group="tree")
@pytest.mark.parametrize("shape", ["known", "new"])
def test_layout_of_64_nodes(benchmark, shape):
    parents = tree().parents

    def look():
        if shape == "new":
            layout.cache_clear()
        return layout(parents)

    assert len(benchmark(look).depths) == 64


@pytest.mark.benchmark(group="mask")
@pytest.mark.parametrize("cached", [640, 4096])
def test_mask_of_a_step(benchmark, cached):
    made = benchmark(additive_mask, cached, 1, tree(), None, torch.bfloat16, torch.device("cpu"))
    assert made.shape == (1, 1, 65, cached + 65)


@pytest.mark.benchmark(group="verify")
@pytest.mark.parametrize("path", [0, 8])
def test_walk(benchmark, path):
    logits = torch.randn(65, VOCABULARY)
    for node in range(path):
        logits[node, SEQUENCES[0][node]] = 100.0

    def decide(tokens, row):
        return Decision(int(row.float().argmax()), stop=False)

    verdict = benchmark(ExactVerifier().verify, tree(), logits, decide)
    assert len(verdict.path) == path


@pytest.mark.benchmark(group="verify")
def test_argmax_of_all_rows_for_comparison(benchmark):
    logits = torch.randn(65, VOCABULARY)
    assert len(benchmark(lambda: logits.float().argmax(-1).tolist())) == 65


@pytest.mark.benchmark(group="top ids")
@pytest.mark.parametrize("how", ["by chunk maxima", "torch.topk"])
@pytest.mark.parametrize("rows", [17, 65])
def test_top_8(benchmark, how, rows):
    logits = torch.randn(rows, VOCABULARY)
    if how == "torch.topk":
        found = benchmark(lambda: logits.topk(8, dim=-1).indices.numpy())
    else:
        found = benchmark(top_ids, logits, 8)
    assert np.array_equal(found, logits.topk(8, dim=-1).indices.numpy())


def states(rows, heads=3):
    return torch.randn(1, heads, rows, 64, dtype=torch.bfloat16)


@pytest.mark.benchmark(group="cache")
@pytest.mark.parametrize("how", ["in place", "torch.cat"])
def test_a_step_of_17_rows_behind_4096(benchmark, how):
    new = states(17)
    if how == "torch.cat":
        old = states(4096)
        kept = benchmark(lambda: torch.cat([old, new], dim=-2))
        assert kept.shape[-2] == 4113
        return
    layer = TreeLayer(8192)
    layer.update(states(4096), states(4096))

    def step():
        layer.update(new, new)
        layer.keep(4096, (), {})

    benchmark(step)
    assert layer.length == 4096


@pytest.mark.benchmark(group="cache")
def test_compact_8_accepted_rows_of_64(benchmark):
    layer = TreeLayer(8192)
    layer.update(states(4096), states(4096))

    def step():
        layer.length = 4096 + 64
        layer.keep(4096, range(4096 + 1, 4096 + 64, 8), {})

    benchmark(step)
    assert layer.length == 4096 + 8


class Grouped(torch.nn.Module):
    num_key_value_groups = 3


@pytest.mark.benchmark(group="attention")
@pytest.mark.parametrize("how", ["packed", "repeated"])
@pytest.mark.parametrize("cached", [640, 4096])
def test_17_rows_with_a_mask(benchmark, how, cached):
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    query, key, value = states(17, 9), states(cached + 17), states(cached + 17)
    chain = DraftTree.chain(range(16), source="a")
    mask = additive_mask(cached, 1, chain, None, torch.bfloat16, torch.device("cpu"))
    attend = packed_sdpa if how == "packed" else sdpa_attention_forward
    out, _ = benchmark(attend, Grouped(), query, key, value, mask, scaling=0.125)
    assert out.shape == (1, 17, 9, 64)
