"""Budgets: as many nodes as pay, measured once and repeatable."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec import (
    EMPTY,
    CostCurve,
    DraftTree,
    FixedBudget,
    Limit,
    MeasuredBudget,
    RequestError,
    paying,
)
from specdec.budget import measure_costs

FLAT = CostCurve((0, 64), (256,), [[1.0, 1.0]])
STEEP = CostCurve((0, 1), (256,), [[1.0, 2.0]])


def chain(scores):
    return DraftTree.from_sequences(
        [range(len(scores))], source="a", limit=Limit(99, 99), scores=[scores]
    )


def test_a_fixed_budget_keeps_its_number_of_nodes():
    assert len(FixedBudget(3).trim(chain([0.9] * 8), 100)) == 3
    assert FixedBudget(3).limit(10**6) == 3
    with pytest.raises(ValueError, match="at least 0 nodes, got -1"):
        FixedBudget(-1)


def test_free_nodes_are_all_kept():
    assert len(MeasuredBudget(FLAT).trim(chain([0.1] * 8), 100)) == 8


def test_where_a_node_doubles_the_cost_only_certain_ones_pay():
    # (1 + 0.9) / 2 is worse than plain decoding, so nothing is drafted.
    assert not MeasuredBudget(STEEP).trim(chain([0.9]), 100)
    # A step in cost that long drafts outweigh: four sure tokens at the price of two.
    stair = CostCurve((0, 1, 8), (256,), [[1.0, 2.0, 2.0]])
    assert len(MeasuredBudget(stair).trim(chain([1.0] * 4), 100)) == 4


@given(
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8),
    st.lists(st.floats(0.1, 10.0), min_size=9, max_size=9),
)
def test_the_kept_nodes_maximise_tokens_per_second(scores, costs):
    curve = CostCurve(range(9), (256,), [costs])
    kept = len(MeasuredBudget(curve).trim(chain(scores), 256))
    reach = np.cumprod(scores)
    rates = [(1 + reach[:k].sum()) / curve.costs(256, 8)[k] for k in range(len(scores) + 1)]
    assert rates[kept] == pytest.approx(max(rates))


def test_costs_never_fall_with_more_nodes_whatever_noise_says():
    curve = CostCurve((0, 1, 3), (256,), [[5.0, 3.0, 4.0]])
    assert curve.costs(256, 3).tolist() == [3.0, 3.0, 3.5, 4.0]


def test_costs_are_interpolated_between_lengths_and_go_on_beyond_the_last():
    curve = CostCurve((0, 1), (100, 200), [[1.0, 2.0], [2.0, 4.0]])
    assert curve.costs(150, 1).tolist() == [1.5, 3.0]
    assert curve.costs(50, 1).tolist() == [1.0, 2.0]
    assert curve.costs(300, 1).tolist() == [3.0, 6.0]
    assert curve.costs(100, 3).tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("nodes", "lengths", "seconds"),
    [
        ((1, 2), (256,), [[1, 1]]),
        ((0, 0), (256,), [[1, 1]]),
        ((0, 1), (256, 128), [[1, 1], [1, 1]]),
        ((0, 1), (256,), [[1]]),
        ((0, 1), (256,), []),
        ((0, 1), (256,), [[1, 0]]),
    ],
)
def test_a_malformed_curve_is_refused(nodes, lengths, seconds):
    with pytest.raises(ValueError, match="a cost curve needs"):
        CostCurve(nodes, lengths, seconds)


def test_a_saved_curve_is_the_same_curve(tmp_path):
    curve = CostCurve((0, 1), (100, 200), [[1.0, 2.0], [2.0, 4.0]], "a model")
    curve.save(tmp_path / "curve.json")
    assert CostCurve.load(tmp_path / "curve.json") == curve
    assert [p.name for p in tmp_path.iterdir()] == ["curve.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "nodes": [0]}'])
def test_a_file_that_is_no_curve_is_refused_by_name(tmp_path, text):
    path = tmp_path / "curve.json"
    path.write_text(text)
    with pytest.raises(RequestError, match=r"curve\.json is not a cost curve"):
        CostCurve.load(path)
    with pytest.raises(RequestError, match="cannot be read"):
        CostCurve.load(tmp_path / "missing.json")


def test_measuring_takes_turns_and_keeps_the_median():
    asked = []
    noise = itertools.cycle([0.0, 50.0, 0.0])

    class Clockwork:
        label = "clockwork"
        longest = 10_000

        def pass_seconds(self, nodes, kv_length):
            asked.append((kv_length, nodes))
            return 1.0 + nodes + kv_length / 100 + (next(noise) if len(asked) > 4 else 1000.0)

    curve = measure_costs(Clockwork(), nodes=(0, 1), kv_lengths=(100, 200), repeats=5)
    assert asked[:4] == [(100, 0), (100, 1), (200, 0), (200, 1)] == asked[4:8]
    assert len(asked) == 4 * 6
    assert curve == CostCurve((0, 1), (100, 200), [[2.0, 3.0], [3.0, 4.0]], "clockwork")


def test_on_a_prompts_own_pass_a_node_costs_one_more_row():
    # 1 s for a plain step, 0.1 s for one more row of a long pass: reach above 0.1 pays, although
    # the first node of an ordinary pass would double its cost.
    curve = CostCurve((0, 1, 11), (256,), [[1.0, 2.0, 3.0]])
    draft = chain([0.5, 0.5, 0.5, 0.5])
    assert len(MeasuredBudget(curve).trim(draft, 0, pending=600)) == 3
    assert not MeasuredBudget(curve).trim(draft, 600)


def test_measuring_keeps_to_what_a_small_model_can_hold():
    class Small:
        label = "small"
        longest = 128

        def pass_seconds(self, nodes, kv_length):
            assert kv_length + nodes + 1 <= self.longest
            return 1.0

    assert measure_costs(Small()).kv_lengths == (64,)


def test_nodes_that_cost_hardly_anything_are_all_drafted():
    drafts = [chain([0.9, 0.5, 0.2]), EMPTY]
    assert paying(drafts, overhead=1000.0) == drafts


def test_the_more_requests_share_a_pass_the_surer_a_node_must_be():
    draft = chain([0.9, 0.6, 0.6])  # reach 0.9, 0.54, 0.324
    lengths = [len(paying([draft] * n, overhead=8.0)[0]) for n in (1, 4, 64)]
    assert lengths == [3, 2, 1]


def test_a_pass_that_costs_only_by_the_row_has_nothing_to_gain():
    assert paying([chain([1.0, 1.0])], overhead=0.0) == [EMPTY]
    assert paying([], overhead=0.0) == []
    with pytest.raises(ValueError, match="overhead must be at least 0 rows, got -1"):
        paying([], overhead=-1)


@given(
    st.lists(st.lists(st.floats(0.05, 1.0), max_size=4), min_size=1, max_size=3),
    st.floats(0.0, 40.0),
)
def test_no_other_cut_of_the_drafts_writes_more_for_its_cost(scores, overhead):
    drafts = [chain(row) if row else EMPTY for row in scores]

    def rate(cuts):
        cuts = tuple(cuts)
        reach = sum(sum(draft.reach[:cut]) for draft, cut in zip(drafts, cuts, strict=True))
        return (len(drafts) + reach) / (overhead + len(drafts) + sum(cuts))

    every = itertools.product(*(range(len(draft) + 1) for draft in drafts))
    assert rate(map(len, paying(drafts, overhead))) == pytest.approx(max(map(rate, every)))
