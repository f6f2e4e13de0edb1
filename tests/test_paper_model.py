"""The paper's experiments on a model: their figures, on small results counted by hand."""

import json

import pytest

from bench.paper.experiments import (
    ablation,
    accuracy,
    adherence,
    first_steps,
    lengths,
    phases,
    repeated,
    tools_time,
)
from bench.paper.results import committed, results_of, row_at
from bench.paper.section import Section
from specdec import Phases, Result
from specdec.calls import Call
from specdec.compare import interval
from specdec.compare.arm import Arm
from specdec.compare.outcome import Outcome
from specdec.compare.report import report_of

STACKS = ("pld", "token-recycling", "samd", "toolspec")


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    monkeypatch.setattr(interval, "RESAMPLES", 20)  # no test looks at the intervals


def result(name, tokens, accepted, seconds, *, prompt=1.0, drafting=0.0):
    """A result of `tokens` tokens; `seconds` of decoding, of which a share is drafting."""
    return Result(
        request=name,
        tokens=tuple(range(tokens)),
        finish="stop_id",
        passes=len(accepted),
        prompt_tokens=accepted[0] + 1,
        accepted=tuple(accepted),
        nodes=(64,) * len(accepted),
        prompt_phases=Phases(forward=prompt),
        decode_phases=Phases(forward=seconds * (1 - drafting), draft=seconds * drafting),
    )


def plain(name, tokens, seconds):
    return result(name, tokens, [0] * tokens, seconds)


def report_on(drafted, stacks=STACKS, lengths=(19, 12)):
    """A report's JSON: two plain arms, and stacks that all do `drafted` at both budgets."""
    answers = {
        ("generate()", ""): [plain(f"r{i}", n, n * 1.0) for i, n in enumerate(lengths)],
        ("none", ""): [plain(f"r{i}", n, n * 1.5) for i, n in enumerate(lengths)],
    }
    for stack in stacks:
        for budget in ("64", "measured"):
            answers[stack, budget] = drafted
    arms = [Arm(name, budget, lambda _: None) for name, budget in answers]
    outcomes = [
        Outcome(arm.key, case, found[case].request, 100, found[case])
        for case in range(len(lengths))
        for arm, found in zip(arms, answers.values(), strict=True)
    ]
    report = report_of(arms, outcomes, {})
    return json.loads(json.dumps(report.to_json()))


DRAFTED = [
    # 10 + 4 + 5 tokens; 10 + 2, the last pass ending inside its draft.
    result("r0", 19, (9, 3, 4), 4.0, drafting=0.25),
    result("r1", 12, (9, 2), 2.0, drafting=0.25),
]


def cells(section, column):
    grid = section.grids[0]
    place = grid.columns.index(column)
    return [row[place] for row in grid.rows]


def test_a_pass_commits_its_path_and_a_token_of_its_own_unless_it_ends_inside_the_draft():
    assert [committed(r) for r in DRAFTED] == [(10, 4, 5), (10, 2)]
    assert committed(plain("r", 3, 1.0)) == (1, 1, 1)
    assert committed(Result("r", (), "length", 0, 0)) == ()


def test_results_are_read_back_from_a_report():
    found = results_of(report_on(DRAFTED))
    assert [*found["toolspec @ 64"].values()] == DRAFTED
    with pytest.raises(KeyError, match="samd"):
        row_at(report_on(DRAFTED, ("pld",)), "samd", measured=True)


def test_first_steps_are_counted_with_and_without_the_prompts_pass():
    section = first_steps.tell({"speed": {"API-Bank": report_on(DRAFTED)}})
    # (10 + 4 + 10 + 2) / 2 and (4 + 5 + 2) / 2; plain decoding writes one token a pass.
    assert cells(section, "first two passes") == ["2.00"] + ["13.00"] * 4
    assert cells(section, "first two steps behind the prompt's pass") == ["2.00"] + ["5.50"] * 4
    assert cells(section, "over after two passes") == ["0/2"] + ["1/2"] * 4
    assert "behind the paper's 19.3. " in section.found
    assert "write 5.5 with `toolspec`, behind 19.3" in section.found


def test_first_steps_ahead_of_the_paper_say_so():
    drafted = [result("r0", 19, (9, 8), 1.0), result("r1", 22, (19, 1), 1.0)]
    section = first_steps.tell({"speed": {"API-Bank": report_on(drafted, lengths=(19, 22))}})
    assert "write 20.5 tokens with `toolspec`" in section.found
    assert "above the paper's 19.3. " in section.found


def test_shares_of_lengths():
    counts = {0: 1, 3: 2, 9: 1, 17: 1}
    assert lengths.share(counts, 0, 0) == 0.2
    assert lengths.share(counts, 2, 4) == 0.4
    assert lengths.share(counts, 9) == 0.4
    assert lengths.share(counts, 17) == 0.2
    assert lengths.share({}, 1) == 0.0


def test_lengths_are_those_of_steps_behind_the_prompts_pass():
    section = lengths.tell({"speed": {"API-Bank": report_on(DRAFTED)}})
    assert cells(section, "steps") == ["3"] * 4
    assert cells(section, "2 to 4") == ["100.0 %"] * 4
    assert cells(section, "longest") == ["4"] * 4
    # No step writes more than 8 tokens; of the five passes, the prompts' two do.
    assert "0.0 % write more than 8 (behind the paper's 22 %)" in section.found
    assert "with the prompts' passes, 40.0 % and 0.0 %" in section.found


def test_phases_are_shares_of_the_time():
    section = phases.tell({"speed": {"API-Bank": report_on(DRAFTED)}})
    # 2 s of prompts and 6 s of decoding, 1.5 s of them drafting; five passes.
    assert cells(section, "draft") == ["0.0 %"] + ["18.8 %"] * 4
    assert cells(section, "draft, decode only") == ["0.0 %"] + ["25.0 %"] * 4
    assert cells(section, "ms of drafting and learning a pass") == ["0.00"] + ["300.00"] * 4
    assert "75.0 % and 25.0 %, more than the paper's 5.7 %" in section.found


def test_ablation_says_when_a_part_brings_nothing():
    section = ablation.tell({"ablation": report_on(DRAFTED, tuple(ablation.VARIANTS))})
    # 11 tokens in 3 steps; 31 s of plain decoding over 6 s.
    assert "reaches MAT 3.67 and decodes 5.17 times" in section.found
    assert "does not lose MAT" in section.found
    assert "not both parts bring something" in section.found
    assert cells(section, "decode only")[0].startswith("5.17x")


def test_repeated_calls_stand_beside_the_first_time():
    slow = [result("r0", 19, [0] * 19, 19.0), result("r1", 12, [0] * 12, 12.0)]
    data = {
        "repeated": report_on(DRAFTED, repeated.STACKS_AGAIN),
        "speed": {"API-Bank": report_on(slow)},
    }
    section = repeated.tell(data)
    assert cells(section, "MAT, first time") == ["1.00", "1.00", "-"]
    assert [cell[:4] for cell in cells(section, "MAT, again")] == ["3.67"] * 3
    assert cells(section, "decode only, first time") == ["1.00x", "1.00x", "-"]
    assert "MAT 3.67 (the first time 1.00)" in section.found
    assert "behind the paper's 9.3, and 6.2 tokens a pass" in section.found
    assert "decodes 5.2 times as fast as plain decoding, behind the paper's 5.5" in section.found
    assert "say little" not in section.found
    assert cells(section, "tokens a pass, first time") == ["1.00", "1.00", "-"]
    assert cells(section, "tokens a pass, again") == ["6.20"] * 3
    assert cells(section, "steps of requests, again") == ["3 of 2"] * 3


def test_repeated_calls_that_leave_no_steps_say_so():
    done = [result("r0", 19, (18,), 0.0), result("r1", 12, (9, 1), 1.0)]
    section = repeated.tell({"repeated": report_on(done, repeated.STACKS_AGAIN), "speed": {}})
    assert "reaches MAT 2.00, behind the paper's 9.3, and 10.3 tokens a pass" in section.found
    assert "(steps left: 1, requests: 2)" in section.found
    all_done = [result("r0", 19, (18,), 0.0), result("r1", 12, (11,), 0.0)]
    section = repeated.tell({"repeated": report_on(all_done, repeated.STACKS_AGAIN), "speed": {}})
    assert "needs no step behind the prompts' passes, so has no MAT, but 15.5" in section.found


CALL = '{"name": "f", "parameters": {"a": "</tool_call>", "b": [1, {}]}}'


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>", True),
        (f"<tool_call>{CALL}</tool_call>\n", True),
        (f"<tool_call>\n{CALL}\n{CALL}\n</tool_call>", True),
        (f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>", True),
        ('<tool_call>\n{"name": "f", "parameters": {}}\n</tool_call>', True),
        (f"Sure. <tool_call>\n{CALL}\n</tool_call>", False),
        (f"<tool_call>\n{CALL}\n</tool_call> Done.", False),
        (f"```<tool_call>\n{CALL}\n</tool_call>```", False),
        (f"<tool_call>\n{CALL}", False),
        (f"<tool_call>\n[{CALL}]\n</tool_call>", False),
        (f"<tool_call>\n{CALL[:-1]}\n</tool_call>", False),
        ("<tool_call>\n</tool_call>", False),
        ('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', False),
        ('<tool_call>\n{"name": "f", "parameters": "x"}\n</tool_call>', False),
        (CALL, False),
        ("", False),
    ],
)
def test_adherence_is_calls_in_the_demanded_form_and_nothing_else(text, strict):
    assert adherence.adheres(text) is strict


def test_pearson():
    assert adherence.pearson([0.0, 0.5, 1.0], [1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert adherence.pearson([0.0, 1.0, 2.0], [0.0, 2.0, 1.0]) == pytest.approx(0.5)
    assert adherence.pearson([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert adherence.pearson([0.0, 1.0], [0.0, 1.0]) is None


def strengths(by_strength):
    good, bad = f"<tool_call>\n{CALL}\n</tool_call>", "I cannot."
    data = {}
    for strength, (share, seconds) in by_strength.items():
        drafted = [result("r0", 19, (9, 3, 4), seconds), result("r1", 12, (9, 2), seconds)]
        texts = [good] * share + [bad] * (2 - share)
        data[strength] = {
            "report": report_on(drafted, ("toolspec",)),
            "texts": dict(enumerate(texts)),
        }
    return json.loads(json.dumps({"adherence": data}))


def test_adherence_stands_against_the_speed_up():
    # 31 s of plain decoding over 31, 15.5 and 10.33 s: 1, 2 and 3 times as fast.
    section = adherence.tell(strengths({"1.0": (2, 31 / 6), "0.0": (0, 15.5), "0.5": (1, 7.75)}))
    assert cells(section, "adherence") == ["0.0 % of 2", "50.0 % of 2", "100.0 % of 2"]
    assert [cell[:4] for cell in cells(section, "decode only")] == ["1.00", "2.00", "3.00"]
    assert "from 0.0 % to 100.0 %" in section.found
    assert "Pearson is 1.00 with speed-up, as high as the paper's 0.90" in section.found


def test_adherence_that_does_not_vary_has_no_correlation():
    section = adherence.tell(strengths({"0.0": (2, 3.0), "0.5": (2, 2.0), "1.0": (2, 1.0)}))
    assert "no correlation" in section.found


REFERENCE = {"calls": [{"name": "f", "arguments": {"a": 1}}], "possible": [], "first": False}


def test_exact_calls_equal_the_references():
    assert accuracy.exact([Call("f", {"a": 1})], REFERENCE)
    assert not accuracy.exact([Call("f", {"a": "1"})], REFERENCE)
    assert not accuracy.exact([Call("g", {"a": 1})], REFERENCE)
    assert not accuracy.exact([Call("f", {"a": 1}), Call("f", {"a": 1})], REFERENCE)
    assert not accuracy.exact([], REFERENCE)


def test_the_first_call_decides_where_a_reference_holds_no_more():
    first = {**REFERENCE, "first": True}
    assert accuracy.exact([Call("f", {"a": 1}), Call("g", {})], first)
    assert not accuracy.exact([Call("g", {}), Call("f", {"a": 1})], first)
    assert not accuracy.exact([], {"calls": [], "first": True})


POSSIBLE = {
    "calls": [],
    "first": False,
    "possible": [
        {
            "f": {
                "day": ["April 1, 2024"],
                "n": [2],
                "on": ["", True],
                "at": ["", {"x": [1, ""], "y": ["b"]}],
                "of": ["", ["a b", "c"]],
            }
        }
    ],
}


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"day": "april 1 2024", "n": 2}, True),
        ({"day": "April 1, 2024", "n": 2.0, "on": True}, True),
        ({"day": "April 1, 2024", "n": 2, "on": 1}, False),
        ({"day": "April 1, 2024", "n": 3}, False),
        ({"day": "April 1, 2024"}, False),
        ({"day": "April 1, 2024", "n": 2, "more": 1}, False),
        ({"day": "April 1, 2024", "n": 2, "at": {"y": "B"}}, True),
        ({"day": "April 1, 2024", "n": 2, "at": {"x": 1}}, False),
        ({"day": "April 1, 2024", "n": 2, "of": ["AB", "c"]}, True),
        ({"day": "April 1, 2024", "n": 2, "of": ["a b"]}, False),
    ],
)
def test_bfcl_accepts_any_of_its_possible_values(arguments, right):
    assert accuracy.accepted([Call("f", arguments)], POSSIBLE) is right


def test_bfcl_takes_calls_in_any_order_and_each_answer_once():
    both = {**POSSIBLE, "possible": [{"f": {"a": [1]}}, {"g": {"b": [2]}}]}
    f, g = Call("f", {"a": 1}), Call("g", {"b": 2})
    assert accuracy.accepted([g, f], both)
    assert not accuracy.accepted([f, f], both)
    assert not accuracy.accepted([f], both)


def test_calls_are_found_in_whatever_key_arguments_stand():
    for key in ("arguments", "parameters"):
        text = f'<tool_call>\n{{"name": "f", "{key}": {{"a": 1}}}}\n</tool_call>'
        assert accuracy.calls_in(text) == [Call("f", {"a": 1})]
    assert accuracy.calls_in("I cannot help.") == []


def told(outputs):
    """What `accuracy` tells of two requests; `outputs` are the texts of `toolspec`."""
    right = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    report = report_on(DRAFTED, ("toolspec",))
    arms = ("generate()", "none", "toolspec @ 64", "toolspec @ measured")
    kept = {}
    for name, text in zip(("r0", "r1"), outputs, strict=True):
        drafted = 0 if text is None else 1
        kept[name] = {
            **REFERENCE,
            "texts": [right] if text is None else [right, text],
            "outputs": {arm: drafted if arm.startswith("toolspec") else 0 for arm in arms},
        }
    return accuracy.tell({"accuracy": {"API-Bank": kept}, "speed": {"API-Bank": report}})


def test_the_same_outputs_have_the_same_accuracy():
    section = told([None, None])
    assert "All 6 outputs" in section.found
    assert cells(section, "exact calls") == ["1.000"] * 4
    assert cells(section, "right tools") == ["1.000"] * 4
    assert cells(section, "same calls") == ["2/2"] * 4
    assert cells(section, "identical tokens") == ["2/2"] * 4


def test_other_outputs_are_counted_and_judged():
    other = '<tool_call>\n{"name": "f", "arguments": {"a": 2}}\n</tool_call>'
    section = told([None, other])
    assert "4 of 6 outputs" in section.found
    assert "2 of these hold other calls, and for 2 the verdict is another" in section.found
    assert "is 0.500" in section.found
    assert cells(section, "exact calls") == ["1.000", "1.000", "0.500", "0.500"]
    assert cells(section, "right tools") == ["1.000"] * 4
    assert cells(section, "same calls") == ["2/2", "2/2", "1/2", "1/2"]


def test_other_text_around_the_same_calls_changes_no_verdict():
    text = 'Sure. <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert "0 of these hold other calls" in told([None, text]).found


def test_a_turn_gains_by_the_share_of_generation():
    assert tools_time.gained(4.0, 1.0) == 4.0
    assert tools_time.gained(4.0, 0.8) == pytest.approx(2.5)
    assert tools_time.gained(4.0, 0.0) == 1.0


def test_tools_are_called_by_name_and_what_they_raise_is_their_answer():
    def half(n):
        return n / 2

    assert tools_time.run({"half": half}, Call("half", {"n": 3})) == 1.5
    assert "division" in tools_time.run({"half": lambda: 1 / 0}, Call("half", {}))


def test_recorded_results_may_be_cut():
    assert tools_time.agrees({"a": 1}, '{"a": 1}')
    assert tools_time.agrees("x" * 900, "x" * 600)
    assert not tools_time.agrees("x" * 900, "x" * 500)
    assert not tools_time.agrees(None, "1")


def test_calls_of_a_conversation_have_their_results():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    assert [*tools_time.recorded(messages)] == [(Call("f", {"a": 1}), "done")]


def test_tools_stand_beside_generation():
    tools = [
        {"request": f"r{i}", "prompt": 9, "calls": 2, "seconds": 0.002, "before": 3, "agree": 2}
        for i in range(2)
    ]
    kept = {"report": report_on(DRAFTED, ("toolspec",)), "tools": tools, "skipped": {"x": 1}}
    section = tools_time.tell({"tools-time": kept})
    # 33 s plain, prompts included, over 8 s; 4 ms of tools in four calls.
    assert "take 1000 µs each" in section.found
    assert "(4.12x, prompts included)" in section.found
    assert cells(section, "s of generation a turn") == ["16.50", "24.25", "4.00"]
    assert "4 of 6" in section.differs
    assert "1 where x" in section.differs


def test_sections_name_the_papers_set_up():
    modules = (ablation, accuracy, adherence, first_steps, lengths, phases, repeated, tools_time)
    assert all(module.PAPER for module in modules)
    assert isinstance(told([None, None]), Section)
