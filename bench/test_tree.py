"""Everything a step does besides the target's pass, and how it grows with the draft.

The groups "growth: ..." hold sizes of a draft side by side; the table shows the time per node. What
is counted there does not depend on the machine, so it is also asserted.
"""

import sys

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
SIZES = [pytest.param(n, marks=() if n < 256 else pytest.mark.timed) for n in (8, 32, 64, 256)]


def tree(source="a"):
    scores = [[0.9 - 0.01 * i] * 8 for i in range(8)]
    return DraftTree.from_sequences(SEQUENCES, source=source, limit=WIDE, scores=scores)


def grown(nodes, source="a"):
    """Paths of 8 nodes below the root, as many as are asked for."""
    paths = [[100 * i + j for j in range(8)] for i in range(nodes // 8)]
    scores = [0.9 - 0.01 * i for i in range(len(paths))]
    limit = Limit(nodes, 8)
    return DraftTree.from_sequences(paths, source=source, limit=limit, scores=scores)


def half_shared(nodes):
    """Two drafts of `nodes` nodes each that have half of their paths in common."""
    one = grown(nodes)
    other = [[100 * i + 50 * (i % 2) + j for j in range(8)] for i in range(nodes // 8)]
    return [one, DraftTree.from_sequences(other, source="b", limit=Limit(nodes, 8))]


def per_node(benchmark, nodes):
    benchmark.extra_info |= {"row": f"{nodes} nodes", "size": nodes, "unit": "node"}


def lines(function, *args):
    """Lines of Python that a call executes: the same on any machine and under any load."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(before)
    return count


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


@pytest.mark.benchmark(group="growth: build")
@pytest.mark.parametrize("nodes", SIZES)
def test_build(benchmark, nodes):
    assert len(benchmark(grown, nodes)) == nodes
    per_node(benchmark, nodes)


@pytest.mark.benchmark(group="growth: merge two")
@pytest.mark.parametrize("nodes", SIZES)
def test_merge(benchmark, nodes):
    merged = benchmark(DraftTree.merge, half_shared(nodes))
    assert nodes < len(merged) < 2 * nodes or nodes == 8
    per_node(benchmark, nodes)


@pytest.mark.benchmark(group="growth: cut to half")
@pytest.mark.parametrize("nodes", SIZES)
def test_cut(benchmark, nodes):
    assert len(benchmark(grown(nodes).top, nodes // 2)) == nodes // 2
    per_node(benchmark, nodes)


@pytest.mark.benchmark(group="growth: layout of a new shape")
@pytest.mark.parametrize("nodes", SIZES)
def test_layout(benchmark, nodes):
    """The ancestor mask has the square of the nodes as bits, so more than linear is no surprise."""
    parents = grown(nodes).parents

    def look():
        layout.cache_clear()
        return layout(parents)

    assert len(benchmark(look).depths) == nodes
    per_node(benchmark, nodes)


WORK = {
    "build": grown,
    "merge": lambda nodes: DraftTree.merge(half_shared(nodes)),
    "cut": lambda nodes: grown(nodes).top(nodes // 2),
    "layout": lambda nodes: layout.__wrapped__(grown(nodes).parents),
}


@pytest.mark.parametrize("work", WORK)
def test_work_grows_in_proportion_to_the_nodes(work):
    few, many = (lines(WORK[work], nodes) for nodes in (64, 256))
    assert 3 * few < many < 5 * few


@pytest.mark.benchmark(group="mask")
@pytest.mark.parametrize("cached", [640, 4096])
def test_mask_of_a_step(benchmark, cached):
    made = benchmark(additive_mask, cached, 1, tree(), None, torch.bfloat16, torch.device("cpu"))
    assert made.shape == (1, 1, 65, cached + 65)


@pytest.mark.benchmark(group="growth: mask behind 640")
@pytest.mark.parametrize("nodes", SIZES)
def test_mask(benchmark, nodes):
    args = (640, 1, grown(nodes), None, torch.bfloat16, torch.device("cpu"))
    assert benchmark(additive_mask, *args).shape == (1, 1, nodes + 1, 641 + nodes)
    per_node(benchmark, nodes)


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


def first_path(nodes, vocabulary):
    """A draft and logits that accept its first path."""
    logits = torch.zeros(nodes + 1, vocabulary)
    for node, token in enumerate(SEQUENCES[0]):
        logits[node, token] = 1.0
    return grown(nodes), logits


@pytest.mark.benchmark(group="growth: verify a path of 8")
@pytest.mark.parametrize("nodes", SIZES)
def test_walk_in(benchmark, nodes):
    draft, logits = first_path(nodes, VOCABULARY)

    def decide(tokens, row):
        return Decision(int(row.float().argmax()), stop=False)

    assert len(benchmark(ExactVerifier().verify, draft, logits, decide).path) == 8
    per_node(benchmark, nodes)


@pytest.mark.parametrize("nodes", [8, 64, 256])
def test_the_target_is_asked_once_per_visited_node_whatever_the_draft_holds(nodes):
    draft, logits = first_path(nodes, 16)
    asked = []

    def decide(tokens, row):
        asked.append(len(tokens))
        return Decision(int(row.argmax()), stop=False)

    ExactVerifier().verify(draft, logits, decide)
    assert asked == list(range(9))


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


@pytest.mark.benchmark(group="growth: keep 1 in 8 rows behind 4096")
@pytest.mark.parametrize("nodes", SIZES)
def test_compact(benchmark, nodes):
    layer = TreeLayer(8192)
    layer.update(states(4096), states(4096))
    accepted = range(4096 + 1, 4096 + nodes, 8)

    def step():
        layer.length = 4096 + nodes
        layer.keep(4096, accepted, {})

    benchmark(step)
    per_node(benchmark, nodes)
    assert layer.length == 4096 + nodes // 8


@pytest.mark.parametrize("nodes", [8, 64, 256])
def test_only_accepted_rows_are_moved(nodes):
    """What stands behind them stays as it was, so that it costs nothing."""
    layer = TreeLayer(1024)
    layer.update(states(640), states(640))
    layer.update(states(nodes), states(nodes))
    before = layer._keys.clone()
    accepted = range(640 + 1, 640 + nodes, 2)
    layer.keep(640, accepted, {})
    end = 640 + len(accepted)
    assert torch.equal(layer._keys[:, :, 640:end], before[:, :, list(accepted)])
    assert torch.equal(layer._keys[:, :, :640], before[:, :, :640])
    assert torch.equal(layer._keys[:, :, end:], before[:, :, end:])


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
