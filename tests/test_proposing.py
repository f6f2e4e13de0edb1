"""`specdec.proposing`: one request's chains, told only what was committed."""

import re
from pathlib import Path

import numpy as np
import pytest

from specdec import (
    Acceptance,
    ContractError,
    Drafter,
    DraftSession,
    DraftTree,
    Needs,
    Request,
    SourceCount,
)
from specdec.proposing import BREADTH, ChainSession


class Offers(Drafter):
    """Offers one tree, and keeps what it is told."""

    def __init__(self, tree, *, top_k=0, fails=""):
        self.tree = tree
        self.top_k = top_k
        self.fails = fails
        self.told = []
        self.steps = []
        self.limits = []

    @property
    def needs(self):
        return Needs(self.top_k)

    def start(self, request, committed=()):
        self.told.append(("start", tuple(committed)))
        return OffersSession(self)


class OffersSession(DraftSession):
    def __init__(self, drafter):
        self.drafter = drafter

    def prefilled(self, embedding):
        self.drafter.told.append(("prefilled", embedding))

    def propose(self, tokens, limit):
        self.drafter.limits.append(limit)
        return self.drafter.tree

    def observe(self, step):
        self.drafter.steps.append(step)
        self.drafter.told.append(("observe", step.tree.tokens, step.path, step.committed))

    def finish(self, result):
        self.drafter.told.append(("finish", result.tokens, result.finish))
        if self.drafter.fails == "finish":
            raise OSError("full")


TREE = DraftTree(
    (5, 6, 7), (-1, -1, 1), (0.3, 0.6, 0.5), DraftTree.chain([1, 2, 3], source="o").votes
)


def test_the_best_chain_is_proposed_and_told_as_what_was_verified():
    drafter = Offers(TREE)
    session = ChainSession(drafter, Request((1, 2), 10))
    session.commit([3])
    assert session.propose(4) == (6, 7)
    session.commit([6, 9], accepted=1)
    assert session.tokens == [1, 2, 3, 6, 9]
    session.finish("stop_id")
    assert drafter.told == [
        ("start", ()),
        ("observe", (), (), (3,)),
        ("prefilled", None),
        ("observe", (6, 7), (0,), (6, 9)),
        ("finish", (3, 6, 9), "stop_id"),
    ]


@pytest.mark.parametrize(("least", "chain"), [(0.0, (6, 7)), (0.4, (6,)), (0.7, ())])
def test_a_chain_ends_where_it_is_too_unlikely(least, chain):
    session = ChainSession(Offers(TREE), Request((1, 2), 10))
    assert session.propose(4, least=least) == chain


def test_a_host_that_takes_no_token_is_offered_none():
    assert ChainSession(Offers(TREE), Request((1, 2), 10)).propose(0) == ()


@pytest.mark.parametrize(("depth", "chain"), [(9, (6, 7)), (2, (6, 7)), (1, (6,)), (0, ())])
def test_a_chain_may_be_shortened_to_what_is_verified(depth, chain):
    drafter = Offers(TREE)
    session = ChainSession(drafter, Request((1, 2), 10))
    session.propose(4)
    assert session.shorten(depth) == chain
    session.commit([*chain, 9], accepted=len(chain))
    assert drafter.steps[0].tree.tokens == chain


def test_what_was_not_verified_counts_for_nothing():
    drafter = Offers(TREE)
    session = ChainSession(drafter, Request((1, 2), 10))
    session.propose(4)
    session.commit([6])
    assert drafter.told[1] == ("observe", (), (), (6,))


def test_taken_up_in_the_middle_the_output_is_whole():
    drafter = Offers(TREE)
    session = ChainSession(drafter, Request((1, 2), 10), (3, 4))
    session.commit([5])
    assert session.finish("length").tokens == (3, 4, 5)
    assert drafter.told[:2] == [("start", (3, 4)), ("prefilled", None)]


@pytest.mark.parametrize(
    ("committed", "accepted"),
    [([], 0), ([7], 1), ([6, 8, 9], 2), ([6, 7], 3), ([6, 7, 9], 3), ([6], 2), ([6], -1)],
)
def test_what_was_never_drafted_cannot_be_accepted(committed, accepted):
    session = ChainSession(Offers(TREE), Request((1, 2), 10, on_error="raise"))
    session.propose(4)
    with pytest.raises(ContractError, match="the draft was"):
        session.commit(committed, accepted)
    assert session.output == ()


def test_several_nodes_are_asked_for_per_token_of_the_chain():
    drafter = Offers(TREE)
    ChainSession(drafter, Request((1, 2), 10)).propose(5)
    (limit,) = drafter.limits
    assert (limit.nodes, limit.depth) == (5 * BREADTH, 5)


def test_an_output_may_end_inside_the_chain():
    drafter = Offers(TREE)
    session = ChainSession(drafter, Request((1, 2), 10, stop_ids=7))
    session.commit([3])
    session.propose(4)
    step = session.commit([6, 7], accepted=2)
    assert (step.path, step.committed, session.output) == ((0, 1), (6, 7), (3, 6, 7))
    assert session.report.mean_acceptance_length == 2, "none of them is the target's own"


def test_steps_say_what_was_cached():
    fresh = ChainSession(Offers(TREE), Request((1, 2), 10))
    assert [fresh.commit([3]).kv_length, fresh.commit([4]).kv_length] == [0, 2]
    resumed = ChainSession(Offers(TREE), Request((1, 2), 10), (3, 4))
    assert resumed.commit([5]).kv_length == 3


def test_likely_tokens_are_asked_for_at_the_root_and_the_verified_chain():
    asked = []

    def top_ids(first, rows, k):
        asked.append((first, rows, k))
        return np.full((rows, k), 9)

    drafter = Offers(TREE, top_k=3)
    session = ChainSession(drafter, Request((1, 2), 10), top_ids=top_ids)
    session.commit([3])
    session.propose(4)
    session.commit([6, 9], accepted=1)
    session.propose(4)
    session.commit([5])
    assert asked == [(1, 1, 3), (2, 3, 3), (4, 1, 3)]
    assert [step.top_ids.shape for step in drafter.steps] == [(1, 3), (3, 3), (1, 3)]


def test_likely_tokens_are_not_asked_for_without_need_and_none_without_a_source():
    def top_ids(first, rows, k):
        raise AssertionError

    for drafter, source in ((Offers(TREE), top_ids), (Offers(TREE, top_k=3), None)):
        ChainSession(drafter, Request((1, 2), 10), top_ids=source).commit([3])
        assert drafter.steps[0].top_ids is None


def test_likely_tokens_that_cannot_be_had_leave_the_session_as_it_was():
    def top_ids(first, rows, k):
        raise OSError

    session = ChainSession(Offers(TREE, top_k=3), Request((1, 2), 10), top_ids=top_ids)
    session.propose(4)
    with pytest.raises(OSError):  # noqa: PT011 - the host's own, whatever it is
        session.commit([6, 9], accepted=1)
    assert (session.tokens, session.chain.tokens) == ([1, 2], (6, 7))


def test_the_report_counts_from_where_the_request_was_taken_up():
    session = ChainSession(Offers(TREE), Request((1, 2), 10), (3, 4))
    assert session.report == Acceptance()
    session.commit([5])
    session.propose(4)
    session.commit([6, 9], accepted=1)
    session.propose(4)
    session.commit([7, 7, 7])  # of more passes than one, none of which verified the chain
    session.propose(4)
    session.commit([6, 7, 9], accepted=2)
    middle = session.report
    assert middle.acceptance_histogram == {1: 1, 2: 1}
    assert (middle.num_draft_tokens, middle.num_emitted_tokens) == (4, 5)
    assert middle.by_source == {"o": SourceCount(4, 3)}
    session.finish("length")
    assert session.report == middle


def test_errors_are_known_at_once_and_those_of_the_end_are_in_the_result():
    session = ChainSession(Offers("no tree"), Request((1, 2), 10))
    session.propose(4)
    assert ["proposed a str" in line for line in session.errors] == [True]
    assert session.finish("length").errors == session.errors

    session = ChainSession(Offers(TREE, fails="finish"), Request((1, 2), 10))
    session.commit([3])
    assert session.errors == ()
    result = session.finish("length")
    assert ["OSError: full" in line for line in result.errors] == [True]
    assert session.errors == result.errors


def test_the_loop_in_the_documentation_runs():
    page = (Path(__file__).parents[1] / "docs/engines.md").read_text()
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "ChainSession" in b)

    class Host:
        script = (3, 6, 7, 4, 6, 1)

        def begin(self, prompt):
            self.at = 1
            return self.script[:1]

        def verify(self, chain):
            left = self.script[self.at :]
            taken = 0
            while taken < min(len(chain), len(left) - 1) and chain[taken] == left[taken]:
                taken += 1
            self.at += taken + 1
            return left[: taken + 1]

    known = {"host": Host(), "drafter": Offers(TREE), "prompt": (1, 2), "eos": 1, "codec": None}
    exec(block, known)
    assert known["result"].tokens == Host.script
    assert known["result"].accepted == (0, 2, 1)
