"""ExactVerifier: the walk down the tree, and the distribution of what it commits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from models import tree_of
from transformers import LogitsProcessorList, TemperatureLogitsWarper

from specdec.hf.decide import Decider
from specdec.hf.seat import Seat
from specdec.interfaces import Decide, Decision, Verdict, Verifier
from specdec.request import Request, Sampling
from specdec.tree import EMPTY, ROOT, DraftTree
from specdec.verify import ExactVerifier


def rows_for(tokens: Sequence[int], vocabulary: int = 10) -> torch.Tensor:
    """Logits whose row i prefers tokens[i]."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), vocabulary).float()


class Greedy:
    """Picks the largest logit, stops after a token of `stops`, and remembers what it was asked."""

    def __init__(self, *stops: int) -> None:
        self.stops = stops
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        self.asked.append(tuple(path_tokens))
        token = int(row.argmax())
        return Decision(token, token in self.stops)


# Root -> 1 (node 0) -> 3 (node 2) -> 5 (node 4); root -> 2 (node 1) -> 3 (node 3).
TREE = tree_of([(ROOT, 1), (ROOT, 2), (0, 3), (1, 3), (2, 5)])


def test_an_empty_tree_gives_the_targets_own_token() -> None:
    verdict = ExactVerifier().verify(EMPTY, rows_for([7]), Greedy())
    assert verdict == Verdict((), 7, stopped=False)


def test_the_walk_follows_the_child_that_carries_the_choice() -> None:
    verdict = ExactVerifier().verify(TREE, rows_for([1, 3, 0, 5, 0, 9]), Greedy())
    assert verdict == Verdict((0, 2, 4), 9, stopped=False)


def test_the_second_branch_is_followed_by_its_own_nodes() -> None:
    """Token 3 stands below both branches; the one below node 1 counts."""
    verdict = ExactVerifier().verify(TREE, rows_for([2, 0, 3, 0, 8, 0]), Greedy())
    assert verdict == Verdict((1, 3), 8, stopped=False)


def test_a_choice_that_no_child_carries_becomes_the_bonus() -> None:
    """5 stands in the tree, but not below the root."""
    verdict = ExactVerifier().verify(TREE, rows_for([5, 3, 3, 5, 5, 5]), Greedy())
    assert verdict == Verdict((), 5, stopped=False)


def test_a_stop_on_a_node_ends_without_a_bonus() -> None:
    verdict = ExactVerifier().verify(TREE, rows_for([1, 3, 0, 5, 0, 9]), Greedy(3))
    assert verdict == Verdict((0, 2), None, stopped=True)


def test_a_stop_on_the_bonus_keeps_it() -> None:
    verdict = ExactVerifier().verify(TREE, rows_for([1, 8, 0, 0, 0, 0]), Greedy(8))
    assert verdict == Verdict((0,), 8, stopped=True)


def test_each_visited_node_is_decided_once_and_in_order() -> None:
    decide = Greedy()
    ExactVerifier().verify(TREE, rows_for([1, 3, 0, 5, 0, 9]), decide)
    assert decide.asked == [(), (1,), (1, 3), (1, 3, 5)]


@pytest.mark.parametrize("shape", [(5, 10), (7, 10), (60,), (1, 6, 10)])
def test_logits_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"a tree of 5 nodes needs logits of shape \(6, V\)"):
        ExactVerifier().verify(TREE, torch.zeros(shape), Greedy())


# A toy model of 4 tokens whose next-token logits depend on the last token only.
TABLE = torch.tensor(
    [[0.0, 1.0, -1.0, 0.5], [1.5, 0.0, 0.2, -0.5], [0.0, 0.0, 2.0, 1.0], [-1.0, 0.3, 0.3, 0.0]]
)
BUSHY = tree_of(
    # Several children at every level, shared prefixes, and scores that the target contradicts.
    [(ROOT, 1), (ROOT, 3), (0, 0), (0, 2), (0, 3), (1, 1), (1, 2), (2, 0), (3, 2), (6, 1)]
)
LENGTH = 3


class AcceptByScore(Verifier):
    """The textbook rule ``min(1, p/q)`` on a tree, which is biased: the test must notice it."""

    def verify(self, tree: DraftTree, logits: torch.Tensor, decide: Decide) -> Verdict:
        path: list[int] = []
        node = ROOT
        while True:
            odds = logits[node + 1].softmax(-1)
            for child in (i for i, parent in enumerate(tree.parents) if parent == node):
                if torch.rand(()) < odds[tree.tokens[child]] / 0.5:
                    path.append(child)
                    node = child
                    break
            else:
                return Verdict(tuple(path), decide((), logits[node + 1]).token, stopped=False)


def surprise(verifier: Verifier, rounds: int) -> float:
    """Chi-square of the LENGTH tokens written with `verifier`, against the toy model's own odds."""
    sampling = Sampling(temperature=0.9)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(0.9)])
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(rounds):
        out: tuple[int, ...] = ()
        decide = Decider(Request((2,), 100, sampling=sampling), Seat(warpers), 100)
        while len(out) < LENGTH:
            last = [*(2, *out)[-1:], *BUSHY.tokens]
            verdict = verifier.verify(BUSHY, TABLE[last], decide)
            assert verdict.bonus is not None
            out += (*(BUSHY.tokens[node] for node in verdict.path), verdict.bonus)
        counts[out[:LENGTH]] += 1
    odds = (TABLE / 0.9).softmax(-1).tolist()
    total = 0.0
    for text in product(range(4), repeat=LENGTH):
        expected = rounds * math.prod(odds[a][b] for a, b in zip((2, *text), text, strict=False))
        total += (counts[text] - expected) ** 2 / expected
    return total


QUANTILE = 119.0
"""Chi-square with 63 degrees of freedom exceeds this once in 30 thousand times."""


def test_sampled_tokens_have_the_targets_distribution() -> None:
    torch.manual_seed(0)
    assert surprise(ExactVerifier(), 3000) < QUANTILE


def test_the_distribution_test_notices_a_biased_rule() -> None:
    torch.manual_seed(0)
    assert surprise(AcceptByScore(), 1000) > 2 * QUANTILE
