"""Calibration: every vote on a visited node is evidence."""

import pytest

from specdec import DraftTree, Limit, Step, Vote
from specdec.calibrate import PRIOR, WINDOW, Calibration, share

WIDE = Limit(99, 99)


def tree(sequences, source, scores=()):
    return DraftTree.from_sequences(sequences, source=source, limit=WIDE, scores=scores)


def step(draft, path, committed):
    return Step(1, draft, tuple(path), tuple(committed))


def test_a_source_without_a_record_is_believed():
    assert Calibration().estimate(Vote("a", 0.3)) == 0.3


def test_a_source_that_keeps_failing_loses_its_word():
    record = Calibration()
    for _ in range(100):
        record.observe(step(tree([[1]], "liar", [0.9]), [], [2]))
    assert record.estimate(Vote("liar", 0.9)) < 0.05
    assert record.estimate(Vote("other", 0.9)) == 0.9
    assert record.estimate(Vote("liar", 0.1)) == 0.1  # another kind of claim


def test_a_source_that_keeps_its_word_is_raised():
    record = Calibration()
    for _ in range(100):
        record.observe(step(tree([[1]], "modest", [0.2]), [0], [1, 5]))
    assert record.estimate(Vote("modest", 0.2)) > 0.95
    assert record.estimate(Vote("modest", 0.2)) <= 1.0


def test_every_vote_on_a_visited_node_counts_not_only_the_winners():
    record = Calibration()
    draft = DraftTree.merge([tree([[1]], "a", [0.9]), tree([[1]], "b", [0.5])])
    record.observe(step(draft, [0], [1, 7]))
    assert record.estimate(Vote("b", 0.5)) == (PRIOR * 0.5 + 1) / (PRIOR + 1)


def test_nodes_that_were_not_visited_are_no_evidence():
    record = Calibration()
    # 1 was refused, so nobody asked the target about 2 below it.
    record.observe(step(tree([[1, 2]], "a", [[0.9, 0.5]]), [], [4]))
    assert record.estimate(Vote("a", 0.5)) == 0.5
    assert record.estimate(Vote("a", 0.9)) < 0.9


def test_children_of_the_node_on_which_generation_ended_are_no_evidence():
    record = Calibration()
    draft = tree([[1, 2]], "a", [[0.9, 0.5]])
    record.observe(step(draft, [0], [1]))  # 1 was a stop token: no bonus
    assert record.estimate(Vote("a", 0.5)) == 0.5
    record.observe(step(draft, [0], [1, 3]))
    assert record.estimate(Vote("a", 0.5)) < 0.5


def test_old_evidence_fades():
    record = Calibration()
    for _ in range(int(2 * WINDOW)):
        record.observe(step(tree([[1]], "a", [0.5]), [], [2]))
    for _ in range(int(2 * WINDOW)):
        record.observe(step(tree([[1]], "a", [0.5]), [0], [1, 2]))
    assert record.estimate(Vote("a", 0.5)) > 0.7


def test_the_state_round_trips():
    record = Calibration()
    record.observe(step(tree([[1], [2]], "a\tb", [0.9, 0.1]), [0], [1, 2]))
    copy = Calibration()
    copy.restore(record.state())
    assert copy.estimate(Vote("a\tb", 0.9)) == record.estimate(Vote("a\tb", 0.9)) != 0.9


def test_siblings_share_the_odds_of_their_parent():
    scores = share(tree([[1], [2], [3, 4]], "a", [[0.8], [0.8], [0.4, 0.9]])).scores
    assert scores == pytest.approx((0.4, 0.4, 0.2, 0.9))
    modest = tree([[1], [2]], "a", [[0.5], [0.5]])
    assert share(modest) is modest
