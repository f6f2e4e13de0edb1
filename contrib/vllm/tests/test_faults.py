"""Whatever a drafter does, the engine gets a list of lists of ids it knows."""

import numpy as np
import pytest

from specdec import EMPTY, Drafter, DraftSession, DraftTree

STOP, VOCABULARY = 1, 1000


class Broken(Drafter):
    """Does something else than expected, in one of its methods."""

    def __init__(self, where, what):
        self.where, self.what = where, what

    def act(self, where, otherwise=None):
        return self.what() if where == self.where else otherwise

    def start(self, request, committed=()):
        return self.act("start", BrokenSession(self))


class BrokenSession(DraftSession):
    def __init__(self, drafter):
        self.drafter = drafter

    def prefilled(self, embedding):
        self.drafter.act("prefilled")

    def propose(self, tokens, limit):
        return self.drafter.act("propose", DraftTree.chain([5], source="broken"))

    def observe(self, step):
        self.drafter.act("observe")

    def finish(self, result):
        self.drafter.act("finish")


def fail():
    raise RuntimeError("not today")


@pytest.mark.parametrize("where", ["start", "prefilled", "propose", "observe", "finish"])
def test_a_drafter_that_raises_costs_its_drafts_only(served, batch, engine, where):
    requests = [served((10 + i, 3, 4), (5, 6, 7, 8, STOP)) for i in range(3)]
    host = engine(batch(Broken(where, fail)))
    host.add(*requests)
    host.run()
    assert all(request.done for request in requests)
    assert host.longest == (1 if where == "finish" else 0)


@pytest.mark.parametrize(
    "junk",
    [
        lambda: DraftTree.chain([VOCABULARY], source="junk"),
        lambda: DraftTree.chain([2] * 5, source="junk"),
        lambda: DraftTree.from_sequences([[i] for i in range(90)], source="junk"),
        lambda: [5, 6, 7],
        lambda: None,
        lambda: EMPTY,
    ],
    ids=["unknown id", "too long", "too many", "a list", "nothing", "empty"],
)
def test_junk_is_no_draft(served, batch, engine, junk):
    request = served((10, 3, 4), (5, 6, 7, 8, STOP))
    host = engine(batch(Broken("propose", junk)))
    host.add(request)
    host.run()
    assert host.longest == 0


def test_wrong_drafts_are_not_taken_for_accepted_ones(served, batch, engine):
    request = served((10, 3, 4), (5, 6, 7, 8, STOP))
    steps = []
    wrong = Broken("propose", lambda: DraftTree.chain([9, 6, 7], source="wrong"))
    host = engine(batch(wrong, book=steps.append))
    host.add(request)
    host.run()
    assert [len(step.path) for step in steps] == [0, 0, 0, 0]
    assert [len(step.tree) for step in steps] == [3, 3, 3, 3]


def test_a_drafted_token_that_the_engine_cut_away_is_not_taken_for_accepted(batch):
    """A grammar, or a full pass, may leave out what was drafted."""
    steps = []
    one = batch(
        Broken("propose", lambda: DraftTree.chain([6, 7], source="right")), book=steps.append
    )
    tokens = np.zeros((1, 512), dtype=np.int32)
    tokens[0, :5] = (10, 3, 4, 5, 6)
    one.propose([[5]], np.array([4]), tokens)
    one.propose([[6]], np.array([5]), tokens)  # the target's own choice
    assert [(len(s.tree), s.path) for s in steps] == [(2, ())]


def test_one_bad_row_leaves_the_others_their_drafts(batch):
    one = batch(Broken("", fail))
    tokens = np.zeros((3, 512), dtype=np.int32)
    tokens[0, :4] = (10, 3, 4, 5)
    tokens[1, :4] = (10, -3, 4, 5)  # no token id
    tokens[2, :1] = (5,)  # no prompt
    drafts = one.propose([[5], [5], [5]], np.array([4, 4, 1]), tokens)
    assert drafts == [[5], [], []]


def test_tokens_that_do_not_pay_are_not_drafted(served, batch, engine):
    """One request has the pass to itself; in four, each token must be likelier to be right."""
    doubtful = Broken("propose", lambda: DraftTree.chain([6, 7, 8, 9], source="d", score=0.5))
    drafted = []
    for rows in (1, 4):
        requests = [served((10 + i, 3, 4), (5, 6, 7, 8, STOP)) for i in range(rows)]
        host = engine(batch(doubtful, overhead=5.0))
        host.add(*requests)
        host.step()
        drafted.append([request.draft for request in requests])
    assert drafted == [[(6, 7)], [(6,)] * 4]


def test_what_was_not_drafted_is_not_booked(served, batch, engine):
    steps = []
    doubtful = Broken("propose", lambda: DraftTree.chain([6, 7, 8, 9], source="d", score=0.5))
    host = engine(batch(doubtful, overhead=5.0, book=steps.append))
    host.add(served((10, 3, 4), (5, 6, 7, 8, STOP)))
    host.step()
    host.step()
    assert [(step.tree.tokens, step.path) for step in steps] == [((6, 7), (0, 1))]


def test_a_row_whose_drafter_failed_still_has_its_share_of_the_pass(batch):
    """It decodes on, so the pass is as full as it would be with its draft."""
    doubtful = Broken("propose", lambda: DraftTree.chain([5, 6], source="d", score=0.5))
    tokens = np.zeros((2, 512), dtype=np.int32)
    tokens[0, :4] = (10, 3, 4, 5)
    tokens[1, :4] = (10, -3, 4, 5)  # no token id
    lengths = np.array([4, 4])
    one = batch(doubtful, overhead=1.5)
    assert one.propose([[5]], lengths[:1], tokens[:1]) == [[5]]
    assert one.propose([[5], [5]], lengths, tokens) == [[], []]


def test_a_row_that_ended_has_no_share_of_the_next_pass(batch):
    doubtful = Broken("propose", lambda: DraftTree.chain([5, 6], source="d", score=0.5))
    tokens = np.zeros((2, 512), dtype=np.int32)
    tokens[:, :4] = ((10, 3, 4, 5), (11, 3, 4, STOP))
    one = batch(doubtful, overhead=1.5)
    assert one.propose([[5], [STOP]], np.array([4, 4]), tokens) == [[5], []]
