"""The paper's experiments without a model: what they measure on small cases, and what they tell."""

import json
import re
from xml.etree import ElementTree

import pytest
import transformers as hf
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from bench.coverage.cases import SHARED, Missing
from bench.coverage.references import Encoder
from bench.paper import experiments
from bench.paper.document import markdown
from bench.paper.experiments import (
    cases,
    lengths_of_drafts,
    memory,
    neighbours,
    pass_costs,
    passes,
    replayed,
    sizes,
    statistics,
)
from bench.paper.lab import SCOPES, STACKS, Lab
from specdec import CostCurve
from specdec.calls import HERMES, Call, Tool
from specdec.compare import interval
from specdec.compare.cases import Case
from specdec.compare.journal import LINES
from specdec.compare.subject import ReplaySubject

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
BOOK = Tool(
    "book",
    "Books a flight.",
    {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("origin", "goal", "day")},
    },
)


def case(id, said, *values, name="book"):
    """A request for a flight, answered by one call."""
    arguments = dict(zip(("origin", "goal", "day"), values, strict=True))
    message = {"role": "user", "content": said}
    return Case(id, (message,), (BOOK,), (Call(name, arguments),))


CASES = (
    case("a", "From Rome to Bern on May 1, please", "Rome", "Bern", "May 1"),
    case("b", "I must be in Bern on May 1, I am in Rome", "Rome", "Bern", "May 1"),
    case("c", "From Oslo to Nice on June 2, please", "Oslo", "Nice", "June 2"),
)


@pytest.fixture(scope="module")
def tokenizer():
    vocabulary = {c: i for i, c in enumerate(sorted(ByteLevel.alphabet()))}
    made = Tokenizer(BPE(vocabulary, []))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = ByteLevelDecoder()
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")
    fast.chat_template = TEMPLATE
    return fast


@pytest.fixture
def lab(tokenizer, tmp_path, monkeypatch):
    """A lab whose data sets are all `CASES`, with a tokenizer of bytes."""

    class Small(Lab):
        def cases(self, name, count):
            return CASES

        def replay(self, cases, tokenizer_name):
            return ReplaySubject(cases, tokenizer, 160, form=HERMES)

    monkeypatch.setattr(interval, "RESAMPLES", 20)  # no test looks at the intervals
    monkeypatch.setattr(replayed, "DATA_SETS", {"API-Bank": "api_bank"})
    return Small(tmp_path, SCOPES["quick"])


def told(experiment, data):
    """The section on data that went through JSON, as Markdown."""
    (own,) = experiment.EXPERIMENTS
    section = own.tell({own.name: json.loads(json.dumps(data, allow_nan=False))})
    assert section.paper
    assert section.differs
    return section, markdown(section)


def row(drafter, budget="64", mat=2.0, **fields):
    """A row of a report, as far as sections read it."""
    base = {
        "drafter": drafter,
        "budget": budget,
        "requests": 10,
        "failed": 0,
        "tokens": 440,
        "passes": 210,
        "steps": 200,
        "mat": mat,
        "mat_interval": [mat, mat],
        "nodes_per_step": 20.0,
        "decode_speedup": mat,
        "decode_speedup_interval": [mat, mat],
        "phases": {"draft": 0.3, "observe": 0.12, "forward": 0.0, "verify": 0.0},
    }
    return base | fields


def test_the_experiments_are_in_the_document():
    names = [experiment.name for experiment in experiments.EXPERIMENTS]
    for name in ("statistics", "replayed", "sizes", "lengths_of_drafts", "neighbours", "memory"):
        assert names.count(name) == 1
    assert names.count("cases") == 1


# Statistics.


def test_calls_are_counted_by_tool(tokenizer):
    known = (*CASES, case("d", "Once", "X", "Y", "Z", name="other"))
    subject = ReplaySubject(known, tokenizer, 160, form=HERMES)
    found = statistics.figures(known, subject, Encoder("tiny", tokenizer))
    assert (found["requests"], found["tools"], found["calls"]) == (4, 2, 4)
    assert found["calls_per_tool"] == 2.0
    assert found["called_once"] == 1
    assert found["offered"] == 1
    text = [len(HERMES.render(one.calls)) for one in known]  # a token is a byte here
    assert found["tokens_per_call"] == sum(text) / 4
    values = sum(len(value) for one in known for value in one.calls[0].arguments.values())
    assert found["structural"] == pytest.approx(1 - values / sum(text))
    prompts = sorted(len(f"user: {c.messages[0]['content']}\nassistant: ") for c in known)
    assert found["prompt_tokens"] == (prompts[1] + prompts[2]) / 2


def test_statistics_say_where_calls_are_fewer_than_the_papers():
    figures = {
        "requests": 20,
        "tools": 4,
        "calls": 20,
        "calls_per_tool": 5.0,
        "called_once": 1,
        "offered": 2.0,
        "prompt_tokens": 500,
        "tokens_per_call": 40.0,
        "structural": 0.6,
    }
    section, text = told(statistics, {"API-Bank": figures, "ToolBench": figures})
    assert "fewer than the paper's 10.95" in section.found
    assert "| API-Bank | 20 | 4 | 20 | 5.00 | 25 % | 2.00 | 500 | 40.00 | 60 % |" in text
    assert "| ToolBench | 20 | 4 | 20 | 5.00 | 25 % | 2.00 | 500 | - | - |" in text
    section, _ = told(statistics, {"API-Bank": figures | {"calls_per_tool": 12.0}})
    assert "no fewer than" in section.found


# Replayed.


def test_a_replay_measures_every_method(lab, monkeypatch):
    monkeypatch.setattr(replayed, "subject_of", lambda known, *_: lab.replay(known, ""))
    section, text = told(replayed, replayed.measure(lab))
    assert section.replay
    assert len(section.grids) == 2
    assert all(f"`{stack}`" in text for stack in ("none", *STACKS))


def test_a_replay_says_where_it_is_behind_the_paper():
    def study(mat):
        others = [row(stack, passes=420) for stack in STACKS[:-1]]
        return {"rows": [row("none", ""), *others, row("toolspec", mat=mat)], "failures": []}

    section, _ = told(replayed, {"Qwen2.5": {"API-Bank": study(1.1), "BFCLv2": study(5.0)}})
    assert "commits 1.10 to 5.00 tokens per step" in section.found
    assert "2.0 to 2.0 times as many passes" in section.found
    assert "behind the paper's range on API-Bank with Qwen2.5's tokenizer (1.10; 50 % of" in (
        section.found
    )
    section, _ = told(replayed, {"Qwen2.5": {"BFCLv2": study(5.0)}})
    assert "nowhere below the paper's range" in section.found


def test_requests_without_an_answer_are_told():
    study = {"rows": [row("none", ""), row("pld", failed=2)]}
    assert replayed.failures({"BFCLv2": study}) == (
        " Requests not answered by some arm: 2 on BFCLv2."
    )
    assert replayed.failures({"BFCLv2": {"rows": [row("pld")]}}) == ""


def test_a_missing_template_is_named():
    with pytest.raises(Missing, match="no tokenizer or template for 'nope'"):
        replayed.subject_of(CASES, "nope", "nope")


# Sizes.


CURVE = CostCurve((0, 64), (512,), ((0.1, 0.2),), "half as much for free")


def test_sizes_are_timed_by_their_curves(lab, monkeypatch):
    monkeypatch.setattr(sizes, "curve_of", lambda lab, shape, layers: CURVE)
    data = sizes.measure(lab)
    (size,) = data["sizes"]
    assert (size["shape"], size["plain_ms"], size["wide_ms"]) == ("qwen2.5-0.5b", 100.0, 200.0)
    section, text = told(sizes, data)
    gain = sizes.gains(data)
    assert gain["qwen2.5-0.5b"]["toolspec"] < gain[sizes.FLAT]["toolspec"]
    assert f"{gain['qwen2.5-0.5b']['toolspec']:.2f}x on qwen2.5-0.5b" in section.found
    assert "| qwen2.5-0.5b (scaled) | 0.49B | 100 | 200 | 2.00 |" in text
    assert "not measured on any GPU" in section.differs


def test_sizes_that_do_not_fit_are_told(lab, monkeypatch):
    monkeypatch.setattr(pass_costs, "_free_memory", lambda: 1e6)
    data = sizes.measure(lab)
    section, text = told(sizes, data)
    assert "No size was timed" in section.found
    assert "qwen2.5-0.5b: it takes 1.1 GB of memory, and 0.0 GB are free" in section.found
    assert "| qwen2.5-0.5b | 0.49B | - | - | - | - | - | - | - |" in text


def test_a_lead_that_shrinks_and_a_gain_behind_the_paper_are_told():
    def size(shape, mat):
        drafted = [row(stack, "measured", 1.0) for stack in STACKS[:-1]]
        return {
            "shape": shape,
            "parameters": 10**9,
            "layers": None,
            "plain_ms": 1.0,
            "wide_ms": 2.0,
            "rows": [row("none", ""), *drafted, row("toolspec", "measured", mat)],
        }

    bound = {"rows": [row("none", "", steps=400), *(row(stack) for stack in STACKS)]}
    data = {"sizes": [size("small", 2.5), size("large", 2.0)], "bound": bound}
    section, _ = told(sizes, data)
    assert "flat cost would give at most 2.0x" in section.found
    assert "+150 % on small, +100 % on large, which, unlike in the paper" in section.found
    assert "On large it is behind the paper's 3x" in section.found


def test_a_curve_is_scaled_by_layers():
    few, more = (CostCurve((0, 8), (512,), ((a, b),), "m") for a, b in ((2.0, 4.0), (4.0, 3.0)))
    found = pass_costs.scaled(few, more, (2, 6), 10)
    assert found.seconds == ((6.0, 4.0),)  # what seems to get cheaper is noise
    assert "scaled from 2 and 6 to 10 layers" in found.label


def test_curves_are_measured_and_kept(lab, tiny_folder, monkeypatch):
    made = []

    def tiny(shape, *, dtype, device, layers):
        made.append(layers)
        return hf.AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=dtype)

    monkeypatch.setattr(pass_costs, "random_model", tiny)
    curve = pass_costs.curve_of(lab, "qwen2.5-0.5b", (2, 6))
    assert made == [2, 6]
    assert (lab.folder / "costs-qwen2.5-0.5b-6-layers.json").exists()
    assert all(seconds > 0 for line in curve.seconds for seconds in line)


# Lengths and neighbours.


def test_lengths_are_compared(lab):
    section, text = told(lengths_of_drafts, lengths_of_drafts.measure(lab))
    assert len(section.grids) == 2
    assert text.count("| {16, 16, 16, 16} |") == 2


def test_lengths_that_beat_the_papers_are_told():
    mats = dict(zip(lengths_of_drafts.LENGTHS, (4.0, 3.5, 4.25, 4.0), strict=True))
    studies = {
        stack: {
            "rows": [
                row(lengths_of_drafts.expression(stack, lengths), str(nodes), mat)
                for lengths, mat in mats.items()
            ]
        }
        for stack, (_, nodes) in lengths_of_drafts.STACKS.items()
    }
    section, text = told(lengths_of_drafts, {"API-Bank": studies})
    assert "MAT is 4.00 on API-Bank (`toolspec`), 4.00 on" in section.found
    assert "{16, 8, 4, 4} changes MAT by -12.5 to -12.5 % and nodes by +0.0 to" in section.found
    assert "the paper's is behind {64, 32, 16, 8} in 2 of 2 cases" in section.found
    assert "| {16, 8, 4, 4} | 3.50 | 20.00 | 3.50 | 20.00 | lower MAT and speed-up |" in text


def test_neighbours_are_compared(lab):
    section, text = told(neighbours, neighbours.measure(lab))
    assert section.replay
    assert "| 10 (paper) |" in text


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (10, "has MAT 3.00 with k = 10, which no other k exceeds, and 2.00 with k = 0"),
        (20, "has MAT 2.00 with k = 10, behind 3.00 with k = 20; with k = 0 it has 2.00"),
        (0, "has MAT 2.00 with k = 10, behind 3.00 with k = 0."),
    ],
)
def test_the_papers_k_is_judged(best, expected):
    lines = [
        row(stack.format(k=k), mat=3.0 if k == best else 2.0)
        for stack in neighbours.STACKS.values()
        for k in neighbours.COUNTS
    ]
    section, text = told(neighbours, {"API-Bank": {"rows": lines}})
    assert expected in section.found
    assert "| 2.00 |" in text  # 0.42 s of drafting in 210 passes


# Memory.


def test_entries_are_weighed(lab):
    data = memory.measure(lab)
    none, small, large = data["episodes"]
    assert [row["width"] for row in data["episodes"]] == [0, 576, 4096]
    assert none["entries"] == small["entries"] == len(CASES)
    for one in (small, large):
        keys = 4 * one["width"] * one["entries"]
        assert keys < one["saved"] - none["saved"] < keys + 1000
        assert one["held"] > keys
    table, automaton = data["others"]
    assert table["bytes"] > 0
    assert automaton["each"] > 0
    section, text = told(memory, data)
    assert "behind the paper" in section.found
    assert "| the paper | 597 | - | - | 4.90 MB | 8.2 kB |" in text


# Cases.


def test_pairs_are_of_one_tool_asked_in_other_words():
    again = case("e", CASES[0].messages[0]["content"], "Rome", "Bern", "May 1")
    other = case("f", "Something else", "Rome", "Bern", "May 1", name="other")
    known = list(cases.pairs((*CASES, again, other)))
    names = {(pair.first.id, pair.second.id) for pair in known}
    assert names == {("a", "b"), ("a", "c"), ("b", "c"), ("b", "e"), ("c", "e")}
    best, differing = cases.similar(known), cases.other_values(known)
    assert (best.first.id, best.second.id, best.equal, best.arguments) == ("a", "b", 3, 3)
    assert (differing.first.id, differing.second.id, differing.equal) == ("a", "c", 0)
    assert cases.similar([]) is cases.other_values([]) is None


def test_what_the_user_said_last_is_found_in_a_dialogue():
    said = "History\n<user>One</user>\n<user>Two\nlines</user>\n<user> Based on our conversation"
    said += " above</user>"
    assert cases.query(case("a", said, "1", "2", "3")) == "Two lines"
    assert cases.query(CASES[0]) == "From Rome to Bern on May 1, please"


def test_cases_are_measured_and_drawn(lab):
    data = cases.measure(lab)
    assert list(data) == ["similar", "other-values"]
    for one in data.values():
        written = "".join(text for step in one["passes"] for text, _ in step["tokens"])
        assert sum(len(step["tokens"]) for step in one["passes"]) == one["tokens"]
        assert written.startswith('<tool_call>\n{"name": "book"')
        assert len(one["passes"]) <= one["passes_without"]
    section, _ = told(cases, data)
    assert [picture.name for picture in section.pictures] == ["cases-similar", "cases-other-values"]
    for picture, one in zip(section.pictures, data.values(), strict=True):
        drawn = "".join(ElementTree.fromstring(picture.figure).itertext())
        for number in range(1, len(one["passes"]) + 1):
            assert f"pass {number}" in drawn


def test_a_pass_that_is_too_long_goes_on_below():
    letters = passes.LETTERS
    placed = list(passes.lay_out([("x" * (letters - 5), "schema"), ("y" * 10, "target")]))
    assert [(token.line, token.at) for token in placed] == [(0, 0.0), (1, 0.0)]
    (cut,) = passes.lay_out([("x" * (letters + 50), "schema")])
    assert cut.width <= passes.ROOM
    (blank,) = passes.lay_out([("", "target")])
    assert blank.text == " "


def test_texts_are_escaped_and_unknown_sources_get_a_colour():
    one = {"nodes": 1, "tokens": [["<a&b>\n", "mine"], ["\x00", "target"]]}
    text = passes.draw({"asked": "<now>"}, [one])
    drawn = "".join(ElementTree.fromstring(text).itertext())
    assert "<a&b>↵" in drawn
    assert "<now>" in drawn
    assert "\x00" not in text
    colours = passes.colours_of(["mine", "target"])
    assert len(set(colours.values())) == len(colours)


def test_the_real_cases_are_found(tmp_path):
    if not (SHARED / "data" / "api_bank.jsonl").is_file():
        pytest.skip(f"needs the data sets in {SHARED / 'data'}")
    data = cases.measure(Lab(tmp_path, SCOPES["quick"]))
    assert data["similar"]["equal"] == data["similar"]["arguments"] >= cases.LEAST
    assert data["other-values"]["equal"] == 0
    section, _ = told(cases, data)
    assert re.search(r"\(a\) a similar query: \d+ tokens in \d+ passes", section.found)


# The lab


def test_a_finished_study_is_read_and_one_of_other_requests_is_measured_anew(lab):
    asked = []
    lab.progress = lambda outcome: asked.append(outcome.request)
    subject = lab.replay(CASES, "any")
    first = lab.study("it", CASES, ("pld",), subject=subject, measured=False)
    count = len(asked)
    assert count == 2 * len(CASES)
    again = lab.study("it", CASES, ("pld",), subject=subject, measured=False)
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(first))
    assert len(asked) == count
    # An interrupted study of other requests, as after a change of the data.
    (lab.folder / "it" / "report.json").unlink()
    (lab.folder / "it" / LINES).write_text('{"arms": 9}\n')
    fewer = lab.study("it", CASES[:1], ("pld",), subject=subject, measured=False)
    assert len(asked) == count + 2
    assert {row["requests"] for row in fewer["rows"]} == {1}
