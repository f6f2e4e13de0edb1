"""specdec.compare: arms, journal, rows, findings; that an interrupted comparison loses nothing."""

import json
import math
import time
from types import SimpleNamespace

import attrs
import models
import numpy as np
import pytest

from specdec import (
    Drafter,
    DraftSession,
    DraftTree,
    Engine,
    ExpressionError,
    FixedBudget,
    MeasuredBudget,
    Request,
    RequestError,
    Tool,
)
from specdec.budget import CostCurve
from specdec.calls import FORMATS, Call
from specdec.compare.arm import GENERATE, PLAIN, Arm, check_stacks, key_of, plain_arms, stack_arms
from specdec.compare.cases import Case, offered
from specdec.compare.departure import Gap
from specdec.compare.interval import Interval, median, ratio
from specdec.compare.journal import LINES, STATE, Journal, drop
from specdec.compare.outcome import Outcome, outcome_from, outcome_to
from specdec.compare.report import report_of
from specdec.compare.run import compare
from specdec.compare.study import Study, budgets_of
from specdec.compare.subject import ModelSubject
from specdec.hf import baseline
from specdec.replay import ReplayTarget
from specdec.request import Phases, Result, SourceCount
from specdec.testing import CharCodec

CODEC = CharCodec()
HERMES = FORMATS["hermes"]
TOOL = Tool("get_weather", "The weather.", {"properties": {"city": {"type": "string"}}})
CITIES = ("lisbon", "oslo", "lisbon", "porto", "oslo", "lisbon")
CURVE = CostCurve((0, 1, 7, 63), (64, 512), [[1, 1.1, 1.4, 3], [1.2, 1.3, 1.6, 3.5]], "imagined")
STACKS = ("pld", "token-recycling", "merge(pld, token-recycling)", "toolspec")


def case_of(number, city):
    text = HERMES.render([Call("get_weather", {"city": city})])
    question = f"case {number}: how is the weather in {city}?"
    return Case(f"case-{number}", ({"role": "user", "content": question},), (TOOL,), output=text)


CASES = tuple(case_of(number, city) for number, city in enumerate(CITIES))


class Fake:
    """A subject that replays the cases' outputs, character by character."""

    generate = None
    label = "a replay of characters"

    def __init__(self, cases=CASES, *, replay=False):
        outputs = {case.id: (*CODEC.encode(case.output), CODEC.encode("\n")[0]) for case in cases}
        self.target = ReplayTarget(outputs, CODEC.vocabulary)
        self.replay = replay
        self.asked = []

    def request(self, case):
        self.asked.append(case.id)
        return Request(
            prompt=CODEC.encode(case.messages[-1]["content"]),
            max_new_tokens=200,
            codec=CODEC,
            tools=case.tools,
            messages=case.messages,
            call_format=HERMES,
            id=case.id,
        )

    def explain(self, case, own, other):
        return None


def study(cases=CASES, stacks=STACKS, **fields):
    return Study(Fake(cases), cases, stacks, budgets_of(16, CURVE), {"model": "fake"}, **fields)


def timeless(outcome):
    """The outcome without what differs from run to run."""
    if outcome.result is None:
        return outcome
    return attrs.evolve(
        outcome,
        result=attrs.evolve(outcome.result, prompt_phases=Phases(), decode_phases=Phases()),
    )


def timeless_rows(report):
    """What a report says of everything but time."""
    fields = ("drafter", "budget", "requests", "tokens", "passes", "steps", "mat", "mat_interval")
    return [{key: row.to_json()[key] for key in (*fields, "by_source")} for row in report.rows]


# Arms


def test_each_stack_has_an_arm_for_each_budget_and_knows_nothing_of_the_others():
    arms = stack_arms(Fake().target, ["pld", "none", "toolspec"], budgets_of(16, CURVE))
    assert [arm.key for arm in arms] == [
        "pld @ 16",
        "pld @ measured",
        "toolspec @ 16",
        "toolspec @ measured",
    ]
    assert len({id(arm.drafter) for arm in arms}) == 4


def test_the_plain_loops_are_always_there():
    plain = plain_arms(Fake().target, lambda request: None)
    assert [arm.key for arm in plain] == [GENERATE, PLAIN]
    assert [arm.key for arm in plain_arms(Fake().target, None)] == [PLAIN]


def test_a_stack_given_twice_is_refused():
    with pytest.raises(ExpressionError, match="'pld' is given twice"):
        check_stacks(["pld", "toolspec", "pld"])


# The order of things


def test_the_arms_take_turns_request_by_request():
    seen = []

    def answer(name):
        return lambda request: seen.append((request.id, name))

    arms = [Arm(name, "", answer(name)) for name in "abc"]
    compare(CASES[:2], arms, Fake().request)
    assert seen == [(f"case-{n}", name) for n in (0, 1) for name in "abc"]


def test_a_warm_comparison_counts_the_second_lap_alone():
    found = study(stacks=("token-recycling",), warm=True).run()
    cold = study(stacks=("token-recycling",)).run()
    assert [row.run.tokens for row in found.rows] == [row.run.tokens for row in cold.rows]
    assert found.rows[1].run.mat > cold.rows[1].run.mat
    assert all(not outcome.warming for outcome in found.outcomes)


# Interruptions


class Killed(BaseException):
    """Not an Exception, as a signal is not."""


@pytest.mark.parametrize("saving", [0.0, 1e9])
@pytest.mark.parametrize("when", [0, 8, 9, 30])
def test_an_interrupted_comparison_goes_on_as_if_nothing_had_happened(
    tmp_path, monkeypatch, when, saving
):
    """Whether the drafters' states were saved after each round or never."""
    monkeypatch.setattr("specdec.compare.journal.SAVE_EVERY", saving)
    whole = study().run()
    left = when

    def die(outcome):
        nonlocal left
        if not left:
            raise Killed
        left -= 1

    with pytest.raises(Killed):
        study().run(tmp_path, die)
    second = study()
    told = []
    report = second.run(tmp_path, told.append)
    assert list(map(timeless, report.outcomes)) == list(map(timeless, whole.outcomes))
    assert timeless_rows(report) == timeless_rows(whole)
    assert len(told) == len(whole.outcomes)
    assert not list(tmp_path.iterdir())  # nothing is left over
    if not saving and when > 9:
        assert len(second.subject.asked) < len(CASES)  # what was done is not done again


def test_a_report_that_cannot_be_written_costs_no_measurement(tmp_path):
    def full(report):
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        study(stacks=("pld",)).run(tmp_path, write=full)
    again, written = study(stacks=("pld",)), []
    report = again.run(tmp_path, write=written.append)
    assert written == [report]
    assert again.subject.asked == []
    assert not list(tmp_path.iterdir())


def test_a_line_that_was_cut_is_measured_again(tmp_path):
    settings = {"arms": 1}
    journal = Journal(tmp_path, settings)
    journal.add([Outcome("a", 0, "x", 1, None, "boom")], {}, last=False)
    with (tmp_path / LINES).open("a") as file:
        file.write('{"arm": "a", "ca')
    again = Journal(tmp_path, settings)
    assert again.rounds == 1
    assert [outcome.request for outcome in again.outcomes] == ["x"]
    assert len((tmp_path / LINES).read_text().splitlines()) == 2


@pytest.mark.parametrize("damage", ["lines", "state"])
def test_a_damaged_journal_is_refused_with_the_way_out(tmp_path, damage):
    journal = Journal(tmp_path, {"arms": 1})
    journal.add([Outcome("a", 0, "x", 1, None, "boom")], {}, last=True)
    if damage == "lines":
        first, *_ = (tmp_path / LINES).read_text().splitlines()
        (tmp_path / LINES).write_text(first + "\n")
    else:
        (tmp_path / STATE).write_bytes(b"no pickle")
    with pytest.raises(RequestError, match=r"is damaged .*--restart"):
        Journal(tmp_path, {"arms": 1})
    drop(tmp_path)
    assert Journal(tmp_path, {"arms": 1}).rounds == 0


def test_a_comparison_of_other_settings_is_not_taken_up(tmp_path):
    Journal(tmp_path, {"arms": 2, "model": "a"})
    with pytest.raises(RequestError, match=r"model: a, now b.*--restart"):
        Journal(tmp_path, {"arms": 2, "model": "b"})


def test_other_requests_or_costs_are_other_settings():
    one = study().identity(3)
    assert study(cases=CASES[:2]).identity(3) != one
    dearer = attrs.evolve(CURVE, seconds=[[2, 2, 2, 2], [2, 2, 2, 2]])
    assert attrs.evolve(study(), budgets=budgets_of(16, dearer)).identity(3) != one
    assert study().identity(3) == one


def test_outcomes_travel_through_json_unchanged():
    result = Result(
        "x", (1, 2, 3), "stop_id", 2, 1, (0, 1), (4, 5), {"pld": SourceCount(9, 1)}, Phases(0.5)
    )
    for outcome in (Outcome("a @ 64", 3, "x", 7, result), Outcome("a", 3, "x", 0, error="no")):
        assert outcome_from(json.loads(json.dumps(outcome_to(outcome)))) == outcome


def test_what_is_no_outcome_is_refused():
    with pytest.raises(ValueError, match="required field missing"):
        outcome_from({"arm": "a"})


# Drafters that misbehave


class Raising(Drafter):
    def start(self, request, committed=()):
        raise RuntimeError("out of ideas")


def junk(output, limit):
    return DraftTree.chain([63] * min(8, limit.nodes, limit.depth), source="junk")


class Sleeping(DraftSession):
    def propose(self, tokens, limit):
        time.sleep(0.002)
        return DraftTree()


class Sleeper(Drafter):
    def start(self, request, committed=()):
        return Sleeping()


def misbehaved(drafter):
    """A report on one drafter beside plain decoding."""
    subject = Fake()
    engine = Engine(subject.target, drafter, budget=FixedBudget(16), on_error="raise")
    arms = [*plain_arms(subject.target, None), Arm("it", "16", engine.generate, drafter)]
    outcomes = compare(CASES, arms, subject.request)
    return report_of(arms, outcomes, {})


def test_a_drafter_that_raises_shows_up_as_that():
    report = misbehaved(Raising())
    assert report.findings == ("it @ 16 failed on 6 of 6 requests: RuntimeError: out of ideas",)
    assert [failure.request for failure in report.failures] == [case.id for case in CASES]
    assert not report.complete
    assert (report.rows[1].failed, report.rows[1].run.results) == (6, ())
    json.dumps(report.to_json(), allow_nan=False)


def test_a_drafter_that_proposes_junk_shows_up_as_that():
    report = misbehaved(models.Scripted(junk))
    assert any("proposes junk: 0 of its" in sentence for sentence in report.findings)
    assert report.rows[1].run.mat == 1
    assert report.complete  # the output is the model's own all the same


def test_a_drafter_that_sleeps_shows_up_as_that():
    report = misbehaved(Sleeper())
    assert any("is slow" in sentence and "ms per pass" in sentence for sentence in report.findings)
    assert any("slower than plain decoding" in sentence for sentence in report.findings)
    assert any("drafted nothing" in sentence for sentence in report.findings)


def test_a_good_drafter_raises_no_finding():
    found = misbehaved(models.Scripted(lambda output, limit: DraftTree()))
    assert not [sentence for sentence in found.findings if "junk" in sentence or "fail" in sentence]


def test_a_request_that_cannot_be_made_fails_for_every_arm_and_ends_nothing():
    subject = Fake()

    def request_of(case):
        if case.id == "case-1":
            raise RequestError("no such template")
        return subject.request(case)

    arms = plain_arms(subject.target, None) + stack_arms(subject.target, ["pld"], [FixedBudget(8)])
    report = report_of(arms, compare(CASES, arms, request_of), {})
    (failure,) = report.failures
    assert (failure.request, failure.arms) == ("case-1", ("none", "pld @ 8"))
    assert failure.error == "no such template"
    assert [len(row.run.results) for row in report.rows] == [5, 5]


def test_an_arm_that_fails_once_is_judged_on_what_it_answered():
    """Against plain decoding of the same requests, not of all of them."""
    results = [Result("r", (1, 2), "length", 2, 1, decode_phases=Phases(forward=t)) for t in (9, 1)]
    own = Result("r", (1, 2), "length", 2, 1, decode_phases=Phases(forward=1))
    outcomes = [
        Outcome("none", 0, "a", 1, results[0]),
        Outcome("it", 0, "a", 1, None, "broken"),
        Outcome("none", 1, "b", 1, results[1]),
        Outcome("it", 1, "b", 1, own),
    ]
    arms = [Arm("none", "", None), Arm("it", "", None)]
    row = report_of(arms, outcomes, {}).rows[1]
    assert row.decode_speedup.value == 1
    assert (row.failed, row.cases) == (1, (1,))


# Figures


def result(seconds, tokens=(1, 2, 3), steps=2, accepted=(0, 0, 0)):
    return Result(
        "r", tokens, "length", steps + 1, 1, accepted, (0,) * (steps + 1), {}, Phases(), seconds
    )


def test_the_faster_plain_loop_is_the_baseline():
    outcomes = [
        Outcome(GENERATE, 0, "a", 1, result(Phases(forward=3.0))),
        Outcome(PLAIN, 0, "a", 1, result(Phases(forward=2.0))),
        Outcome("it", 0, "a", 1, result(Phases(forward=0.5))),
    ]
    arms = [Arm(GENERATE, "", None), Arm(PLAIN, "", None), Arm("it", "", None)]
    rows = report_of(arms, outcomes, {}).rows
    assert [row.decode_speedup.value for row in rows] == [2 / 3, 1, 4]
    assert rows[2].median_speedup.value == 4


def test_an_output_that_differs_is_explained_or_not():
    outcomes = [
        Outcome(PLAIN, 0, "a", 1, result(Phases(forward=1.0))),
        Outcome("it", 0, "a", 1, result(Phases(forward=1.0), (1, 9, 3))),
        Outcome("that", 0, "a", 1, result(Phases(forward=1.0), (1, 9, 3))),
    ]
    arms = [Arm(PLAIN, "", None), Arm("it", "", None), Arm("that", "", None)]
    report = report_of(arms, outcomes, {})
    (departure,) = report.departures
    assert (departure.arms, departure.position) == (("it", "that"), 1)
    assert not departure.near_tie
    assert not report.complete
    explained = report_of(arms, outcomes, {}, explain=lambda *_: Gap(margin=0.1, noise=0.05))
    assert explained.departures[0].near_tie
    assert explained.complete


def test_tokens_by_source_add_up_to_the_tokens():
    report = study().run()
    for row in report.rows:
        assert sum(row.tokens_by_source.values()) == row.run.tokens
        assert sum(row.accepted_lengths.values()) == row.run.steps
    assert report.rows[-1].tokens_by_source["schema"] > 0


def test_a_report_is_plain_json():
    data = study().run().to_json()
    again = json.loads(json.dumps(data, allow_nan=False))
    assert [row["drafter"] for row in again["rows"]][:3] == ["none", "pld", "pld"]
    assert len(again["requests"]) == len(again["rows"]) * len(CASES)


def test_the_interval_holds_the_figure_and_shrinks_with_the_requests():
    rng = np.random.default_rng(1)
    above, below = rng.uniform(1, 3, 400), rng.uniform(1, 2, 400)
    few, many = ratio(above[:20], below[:20]), ratio(above, below)
    assert few.low < few.value < few.high
    assert many.high - many.low < (few.high - few.low) / 2
    assert few.overlaps(many)
    assert ratio(above, below) == many  # the draws are the same


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(60):
        found = ratio(rng.exponential(2, 60), rng.exponential(1, 60))
        hits += found.low <= 2 <= found.high
    assert hits >= 50  # 57 expected of a 95 % interval


@pytest.mark.parametrize(
    ("above", "below", "value"),
    [([], [], None), ([3], [0], None), ([3], [2], 1.5), ([0, 0], [1, 1], 0)],
)
def test_intervals_of_little(above, below, value):
    found = ratio(above, below)
    assert (found and found.value) == value


def test_the_median_has_an_interval_too():
    found = median([1, 2, 3, 4, 100])
    assert found.value == 3
    assert 1 <= found.low < 3 < found.high <= 100
    assert median([2]) == Interval(2, 2, 2)
    assert median([]) is None


def test_requests_without_steps_spoil_no_interval():
    found = ratio([0, 0, 4], [0, 0, 2])
    assert found.value == 2
    assert not math.isnan(found.low + found.high)


# What the chat template is told


def documented(text):
    return Case("c", ({"role": "system", "content": text}, *CASES[0].messages), (TOOL,))


def test_tools_are_given_to_the_template_unless_the_prompt_documents_them():
    assert offered(CASES[0]) == (TOOL,)
    mentioned = documented("Call get_weather for the weather in a city.")
    assert offered(mentioned) == (TOOL,), "mentioned, not documented"
    told = documented("get_weather: The weather. Arguments: city, a string.")
    assert offered(told) == ()
    assert offered(told, tools=True) == (TOOL,)
    assert offered(CASES[0], tools=False) == ()
    assert offered(Case("c", CASES[0].messages)) == ()


def test_a_tool_of_which_nothing_is_known_but_its_name_is_never_taken_for_documented():
    case = attrs.evolve(documented("Use ping."), tools=(Tool("ping"),))
    assert offered(case) == case.tools


@pytest.mark.parametrize("noise", [math.nan, math.inf])
def test_logits_that_are_no_numbers_explain_nothing(monkeypatch, noise):
    found = baseline.Difference(1, 2, 3, margin=0.1, noise=noise)
    monkeypatch.setattr(baseline, "first_difference", lambda *_: found)
    target = SimpleNamespace(label="a target", request=lambda **_: None)
    assert ModelSubject(target, 8).explain(CASES[0], (1, 2), (1, 3)) is None


# Replays


def test_a_replay_without_passes_has_no_times_unless_a_curve_says_them():
    bare = attrs.evolve(study(), subject=Fake(replay=True), budgets=budgets_of(16, None)).run()
    assert not bare.timed
    assert all(row.speedup is None for row in bare.rows)
    assert bare.to_json()["replay"] is True
    curved = attrs.evolve(study(), subject=Fake(replay=True), curve=CURVE).run()
    assert curved.timed
    by_key = {key_of(row.name, row.budget): row for row in curved.rows}
    assert by_key["toolspec @ measured"].decode_speedup.value > 1.5
    assert by_key["none"].run.decode_seconds > len(CASES) * 30


def test_the_budgets_of_a_comparison():
    fixed, measured = budgets_of(64, CURVE)
    assert isinstance(fixed, FixedBudget)
    assert isinstance(measured, MeasuredBudget)
    assert budgets_of(None, CURVE)[0].most == 64
    assert [budget.nodes for budget in budgets_of(7, None)] == [7]
    assert budgets_of(None, None) == []
