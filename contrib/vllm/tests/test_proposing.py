"""`specdec.proposing`: one request's chains, told only what was committed."""

import pytest

from specdec import ContractError, Drafter, DraftSession, DraftTree, Request
from specdec.proposing import ChainSession


class Offers(Drafter):
    """Offers one tree, and keeps what it is told."""

    def __init__(self, tree):
        self.tree = tree
        self.told = []

    def start(self, request, committed=()):
        self.told.append(("start", tuple(committed)))
        return OffersSession(self)


class OffersSession(DraftSession):
    def __init__(self, drafter):
        self.drafter = drafter

    def prefilled(self, embedding):
        self.drafter.told.append(("prefilled", embedding))

    def propose(self, tokens, limit):
        return self.drafter.tree

    def observe(self, step):
        self.drafter.told.append(("observe", step.tree.tokens, step.path, step.committed))

    def finish(self, result):
        self.drafter.told.append(("finish", result.tokens, result.finish))


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


@pytest.mark.parametrize(("committed", "accepted"), [([], 0), ([7], 1), ([6, 8, 9], 2)])
def test_what_was_never_drafted_cannot_be_accepted(committed, accepted):
    session = ChainSession(Offers(TREE), Request((1, 2), 10, on_error="raise"))
    session.propose(4)
    with pytest.raises(ContractError, match="the draft was"):
        session.commit(committed, accepted)
