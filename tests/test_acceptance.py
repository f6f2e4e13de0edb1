"""Acceptance: vLLM's figures, counted on emitted tokens."""

import json
import math

import pytest
from models import Scripted, tree_of

from specdec import Acceptance, DraftTree, Engine, ReplayTarget, Request, Result, SourceCount


def result(tokens, accepted, nodes, **fields):
    return Result("r", tuple(range(tokens)), "length", len(nodes), 1, accepted, nodes, **fields)


def test_the_figures_of_a_request_by_hand():
    # The prompt's pass without a draft, then 2 of 3, 0 of 4, no draft, 3 of 3, and a bonus each.
    found = Acceptance.of(
        result(
            10,
            (0, 2, 0, 0, 3),
            (0, 3, 4, 0, 3),
            by_source={"a": SourceCount(7, 2), "b": SourceCount(3, 3)},
        )
    )
    assert found.acceptance_histogram == {0: 1, 2: 1, 3: 1}
    assert found.num_spec_steps == 3
    assert found.num_draft_tokens == 10
    assert found.num_accepted_draft_tokens == 5
    assert found.draft_acceptance_rate == 0.5
    assert found.mean_acceptance_length == 8 / 3
    assert found.num_accepted_tokens_per_pos == (2, 2, 1)
    assert found.acceptance_rate_per_pos == (2 / 3, 2 / 3, 1 / 3)
    assert found.by_source == {"a": SourceCount(7, 2), "b": SourceCount(3, 3)}


def test_what_a_stop_cuts_is_not_counted():
    """The end of the output inside an accepted path: no bonus, nothing behind it."""
    output = (5, 6, 7, 9)
    chain = DraftTree.chain((6, 7, 9, 8, 8), source="x")
    drafter = Scripted(lambda written, limit: chain if written == (5,) else DraftTree())
    target = ReplayTarget({"a": (*output, 8, 8)}, vocabulary=10)
    request = Request((1,), 20, stop_ids=9, id="a")
    found = Acceptance.of(Engine(target, drafter, on_error="raise").generate(request))
    assert found.acceptance_histogram == {3: 1}
    assert (found.num_draft_tokens, found.num_accepted_draft_tokens) == (5, 3)
    # Not 4: the pass emitted 6, 7 and 9.
    assert found.mean_acceptance_length == 3.0


def test_a_step_that_ends_without_a_draft_leaves_the_others_alone():
    ends_plainly = Acceptance.of(result(5, (0, 2, 0), (0, 2, 0)))
    assert ends_plainly.mean_acceptance_length == 3.0


def test_the_prompts_own_pass_counts_where_a_draft_rode_along():
    tree = tree_of([(-1, 5), (0, 6), (-1, 4)])
    drafter = Scripted(lambda written, limit: DraftTree() if written else tree)
    target = ReplayTarget({"a": (5, 6, 7, 8)}, vocabulary=10)
    found = Acceptance.of(Engine(target, drafter).generate(Request((1,), 20, id="a")))
    assert (found.num_spec_steps, found.mean_acceptance_length) == (1, 3.0)
    assert found.draft_acceptance_rate == pytest.approx(2 / 3)


def test_figures_add_up():
    one = Acceptance.of(result(4, (0, 2), (0, 4), by_source={"a": SourceCount(4, 2)}))
    two = Acceptance.of(result(3, (0, 1), (0, 1), by_source={"b": SourceCount(1, 1)}))
    both = one + two
    assert both.acceptance_histogram == {1: 1, 2: 1}
    assert (both.num_draft_tokens, both.num_accepted_draft_tokens) == (5, 3)
    assert both.mean_acceptance_length == 2.5
    assert both.by_source == {"a": SourceCount(4, 2), "b": SourceCount(1, 1)}
    assert sum([one, two], Acceptance()) == both


def test_without_a_draft_there_are_no_means():
    none = Acceptance.of(result(3, (0, 0, 0), (0, 0, 0)))
    assert math.isnan(none.mean_acceptance_length)
    assert math.isnan(none.draft_acceptance_rate)
    assert none.num_accepted_tokens_per_pos == ()
    assert Acceptance.of(Result("r", (), "length", 0, 0)) == Acceptance()
    found = json.loads(json.dumps(none.to_json()))
    assert found["mean_acceptance_length"] is None
    assert set(found) > {
        "mean_acceptance_length",
        "draft_acceptance_rate",
        "acceptance_histogram",
        "num_spec_steps",
        "num_accepted_draft_tokens",
        "num_draft_tokens",
    }
