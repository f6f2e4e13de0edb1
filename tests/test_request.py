"""Requests are checked once, at the border; results count by one rule."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from specdec import (
    DraftTree,
    Limit,
    PerTenant,
    Phases,
    Request,
    RequestError,
    Result,
    Run,
    Sampling,
    SourceCount,
    Step,
)
from specdec.calibrate import Calibration
from specdec.calls import HERMES
from specdec.report import Ledger
from specdec.testing import CharCodec


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": ()}, "empty prompt"),
        ({"max_new_tokens": -1}, "at least 0, got -1"),
        ({"stop_strings": ("x",)}, "need a codec"),
        ({"stop_strings": ("",)}, "stop string is empty"),
        ({"prompt": [[1, 2]]}, "flat sequence of integers"),
        ({"prompt": (1.5,)}, "flat sequence of integers"),
        ({"max_new_tokens": 2.5}, "must be an integer, got 2.5"),
        ({"max_new_tokens": None}, "must be an integer, got None"),
        ({"on_error": "ignore"}, "'plain' or 'raise', got 'ignore'"),
    ],
)
def test_a_bad_request_is_refused(fields, message):
    with pytest.raises(RequestError, match=message):
        Request(**{"prompt": (1,), "max_new_tokens": 1, **fields})


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": -1},
        {"temperature": 1e-9},
        {"seed": -1},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 2},
    ],
)
def test_bad_sampling_is_refused(options):
    with pytest.raises(RequestError, match="must be"):
        Sampling(**options)


def test_a_prompt_may_be_any_sequence_of_ids():
    assert Request(np.array([1, 2]), 1).prompt == (1, 2) == Request([1, 2], 1).prompt


def test_requests_get_different_ids():
    assert Request((1,), 1).id != Request((1,), 1).id


def test_a_request_says_how_calls_are_written_if_that_is_known():
    assert Request((1,), 1).call_format is None
    assert Request((1,), 1, call_format=HERMES).call_format is HERMES
    assert Request((1,), 1, call_format=HERMES) != Request((1,), 1)


def tree(*sequences, source="a"):
    return DraftTree.from_sequences(sequences, source=source, limit=Limit(9, 9))


def test_a_step_names_the_source_of_every_token():
    step = Step(1, tree([5, 6]), (0, 1), (5, 6, 7))
    assert step.sources == ("a", "a", "target")
    assert Step(1, tree([5, 6]), (0,), (5,)).sources == ("a",)


def test_counting_follows_one_rule():
    ledger = Ledger(Request((1,), 99, id="r"))
    ledger.book(Step(0, tree([5]), (0,), (5, 6), phases=Phases(forward=1.0)), 0.5)
    ledger.book(Step(1, tree([7], [8]), (), (9,), phases=Phases(forward=2.0)), 0.0)
    ledger.book(Step(2, tree([7, 8, 9]), (0, 1), (7, 8), phases=Phases(draft=1.0)), 0.25)
    result = ledger.close("stop_id", ["oops"])
    assert result.tokens == (5, 6, 9, 7, 8)
    assert (result.passes, result.steps, result.prompt_tokens) == (3, 2, 2)
    assert result.mat == (5 - 2) / 2
    assert result.accepted == (1, 0, 2)
    assert result.nodes == (1, 2, 3)
    assert result.by_source == {"a": SourceCount(6, 3)}
    assert result.prompt_phases == Phases(forward=1.0, observe=0.5)
    assert result.decode_phases == Phases(draft=1.0, forward=2.0, observe=0.25)
    assert result.seconds == 4.75
    assert result.errors == ("oops",)


def test_a_result_without_steps_has_no_mat():
    assert math.isnan(Result("r", (1,), "length", 1, 1).mat)


def test_a_run_adds_up_and_compares():
    fast = Result("1", (1, 2, 3), "length", 2, 1, decode_phases=Phases(forward=1.0))
    slow = Result(
        "1", (1, 2, 3), "length", 3, 1, (0,), (0,), {"a": SourceCount(2, 1)},
        Phases(forward=1.0), Phases(forward=2.0),
    )  # fmt: skip
    plain = Run.of("none", [slow, slow])
    run = Run.of("x", [fast, slow], [(1, 2, 3), (1, 2, 4)])
    assert run.identical == 1
    assert (run.tokens, run.passes, run.steps) == (6, 5, 3)
    row = run.row([plain])
    assert row["speedup"] == 6.0 / 4.0
    assert row["decode_speedup"] == 4.0 / 3.0
    assert row["tokens_per_second"] == 6 / 4.0
    assert row["mat"] == 4 / 3
    assert row["by_source"] == {"a": {"proposed": 2, "accepted": 1}}


def test_tables_never_cross_tenants_and_the_least_recently_used_goes_first():
    tables = PerTenant(list, capacity=2)
    tables["a"].append(1)
    tables["b"].append(2)
    assert tables["a"] == [1]
    tables["c"].append(3)
    assert list(tables) == ["a", "c"]
    assert tables["b"] == []
    with pytest.raises(ValueError, match="at least 1 tenant"):
        PerTenant(list, capacity=0)


def test_tables_are_saved_by_tenant_and_take_the_place_of_those_that_were_there():
    tables, others = PerTenant(Calibration), PerTenant(Calibration)
    tables["a"].restore({"pld\t3": [4.0, 3.0]})
    others["b"].restore({"pld\t3": [1.0, 1.0]})
    others.restore(tables.state())
    assert list(others) == ["a"]
    assert others.state() == {"a": {"pld\t3": [4.0, 3.0]}}


def test_one_stop_may_be_given_bare():
    codec = CharCodec()
    assert Request((1,), 1, stop_ids=2).stop_ids == {2}
    assert Request((1,), 1, stop_strings="abc", codec=codec).stop_strings == ("abc",)


def test_tables_are_safe_to_ask_for_from_many_threads():
    tables = PerTenant(list, capacity=2)

    def work(seed):
        for i in range(3000):
            tables[str((seed + i) % 4)].append(i)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(tables) == 2
