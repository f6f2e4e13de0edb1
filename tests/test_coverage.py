"""The coverage benchmark: its own figures on cases counted by hand, and the drafters' on real data.

Calls are written with a « before and a » behind every value, and tokens are single characters
unless a test says otherwise.
"""

import json

import attrs
import numpy as np
import pytest
import transformers as hf
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from typer.testing import CliRunner

from bench.coverage import __main__ as command
from bench.coverage import cases, measure, references
from bench.coverage.cases import Case
from bench.coverage.measure import FAMILIES, Tally, misses, total, walk
from bench.coverage.spans import outside, render
from specdec import (
    Drafter,
    DraftSession,
    DraftTree,
    Engine,
    Fallback,
    Needs,
    ReplayTarget,
    Request,
    Tool,
    default_registry,
    parse,
)
from specdec.calls import FORMATS, Call
from specdec.errors import RequestError

ENOUGH = 0.98  # structural coverage asked of `schema`

ONE = Call("f", {"a": "xy"})
TWO = Call("f", {"a": "xy", "b": 12})


# Spans.


@pytest.mark.parametrize(
    ("name", "call", "marked"),
    [
        (
            "hermes",
            Call("f", {"a": "Os, lo", "n": 3, "o": {"k": ["x"]}, "t": True, "u": None, "e": ""}),
            '<tool_call>\n{"name": "f", "arguments": {"a": "«Os, lo»", "n": «3», "o": '
            '«{"k": ["x"]}», "t": «true», "u": «null», "e": "«»"}}\n</tool_call>',
        ),
        (
            "hermes-arguments-first",
            Call("f", {"a": 'say "a"'}),
            '<tool_call>\n{"arguments": {"a": "«say \\"a\\"»"}, "name": "f"}\n</tool_call>',
        ),
        (
            "granite-3",
            Call("f", {"a": [1, 2]}),
            '<|tool_call|>[\n    {\n        "name": "f",\n        "arguments": {\n            '
            '"a": «[\n                1,\n                2\n            ]»\n        }\n    }\n]',
        ),
        (
            "qwen3-coder",
            Call("f", {"a": "x\ny", "t": True}),
            "<tool_call>\n<function=f>\n<parameter=a>\n«x\ny»\n</parameter>\n<parameter=t>\n"
            "«True»\n</parameter>\n</function>\n</tool_call>",
        ),
        ("pythonic", Call("f", {"a": "it's", "l": ["x"]}), "[f(a=\"«it's»\", l=«['x']»)]"),
        (
            "gemma-4",
            Call("f", {"b": "x", "a": 1}),
            '<|tool_call>call:f{a:«1»,b:<|"|>«x»<|"|>}<tool_call|>',
        ),
        ("mistral-v13", Call("a", {}), "[TOOL_CALLS]a[ARGS]{}"),
    ],
)
def test_the_spans_are_those_of_the_values_without_quotes(name, call, marked):
    text, spans = render(FORMATS[name], [call])
    for start, end in reversed(spans):
        text = f"{text[:start]}«{text[start:end]}»{text[end:]}"
    assert text == marked


def test_a_name_or_argument_that_equals_a_value_is_no_value():
    text, spans = render(FORMATS["hermes"], [Call("xy", {"xy": "xy"}), ONE])
    assert [text[:start].count("xy") for start, _ in spans] == [2, 3]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_written_as_it_writes_itself(name):
    calls = [Call("f", {"a": "Oslo", "n": 37}), Call("g", {}, id="7")]
    text, spans = render(FORMATS[name], calls)
    assert text == FORMATS[name].render(calls)
    assert [text[start:end] for start, end in spans] == ["Oslo", "37"]


def test_calls_that_hold_the_marks_are_refused():
    with pytest.raises(ValueError, match="mark the values"):
        render(FORMATS["hermes"], [Call("f", {"a": "\ue000"})])


def test_a_token_is_outside_only_with_all_of_its_characters():
    #          a=     "x     y      ",     b=       12     )
    tokens = [(0, 2), (2, 4), (4, 5), (5, 7), (7, 9), (9, 11), (11, 12)]
    kept = outside(tokens, [(3, 5), (9, 11)])
    assert kept == (True, False, False, True, True, False, True)
    assert outside(tokens, [(5, 5)]) == (True,) * 7  # an empty value holds nothing
    assert outside([], []) == ()


# Cases.

ASKED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}],
}
ANSWERED = {"role": "tool", "name": "f", "content": "done"}


def test_cases_are_taken_at_even_distances():
    assert cases.spread(range(10), 4) == [0, 2, 5, 7]
    assert list(cases.spread(range(3), 5)) == [0, 1, 2]
    assert list(cases.spread(range(3), None)) == [0, 1, 2]


def test_missing_data_is_named(tmp_path):
    with pytest.raises(cases.Missing, match=r"no data set 'nope'.*nope\.jsonl"):
        cases.load("nope", tmp_path)
    with pytest.raises(cases.Missing, match=r"no tokenizer 'nope'.*tokenizer\.json"):
        references.load("nope", tmp_path)


# References.


def encoder(*merges):
    """An encoder whose tokens are single characters, and the texts that `merges` join."""
    vocabulary = {c: i for i, c in enumerate(sorted(ByteLevel.alphabet()))}
    for one, two in merges:
        vocabulary.setdefault(one + two, len(vocabulary))
    tokenizer = Tokenizer(BPE(vocabulary, list(merges)))
    # Without its own splitting, so that a merge may join quotes and letters.
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    return references.Encoder("tiny", fast)


def case(*calls, messages=({"role": "user", "content": "Go."},)):
    return Case("r", tuple(messages), (Tool("f"),), calls)


def test_a_reference_is_the_text_and_the_end_token():
    tiny = encoder()
    made = tiny.reference(case(ONE), FORMATS["pythonic"])  # [f(a='xy')]
    assert tiny.codec.decode(made.tokens) == "[f(a='xy')]<end>"
    assert len(made.tokens) == 12
    assert [i for i, structural in enumerate(made.structural) if structural] == [
        *range(6),  # [f(a='
        *range(8, 11),  # ')]
    ]
    assert made.calls == 1
    assert made.request.id == "r"
    assert made.request.stop_ids == {made.tokens[-1]}
    assert made.request.tools == (Tool("f"),)
    assert made.request.call_format == FORMATS["pythonic"]
    assert tiny.codec.decode(made.request.prompt) == "user:\nGo.\n\nassistant:\n"


def test_a_token_that_straddles_a_value_is_not_structural():
    made = encoder(("'", "x"), ("'", ")")).reference(case(ONE), FORMATS["pythonic"])
    # [ f ( a = 'x y ') ] <end>
    assert made.structural == (True,) * 5 + (False, False, True, True, False)


def test_a_character_of_several_tokens_is_one_value():
    made = encoder().reference(case(Call("f", {"a": "é"})), FORMATS["pythonic"])
    assert made.structural == (True,) * 6 + (False, False) + (True,) * 3 + (False,)


def test_a_turn_that_may_hold_one_call_holds_the_first():
    made = encoder().reference(case(ONE, TWO), FORMATS["react"])
    assert made.calls == 1
    assert made.tokens == encoder().reference(case(ONE), FORMATS["react"]).tokens


def test_calls_in_the_conversation_are_written_in_the_format():
    messages = ({"role": "user", "content": "Go."}, ASKED, ANSWERED)
    assert references.conversation(messages, FORMATS["pythonic"]) == (
        "user:\nGo.\n\nassistant:\n[f(a=1)]\n\ntool:\ndone\n\nassistant:\n"
    )


# Walks.


class Oracle(Drafter):
    """Drafts what a function of the output so far says, as sequences below the root."""

    def __init__(self, propose, needs=None):
        self.propose = propose
        self._needs = needs or Needs()
        self.steps = []
        self.results = []

    @property
    def needs(self):
        return self._needs

    def start(self, request, committed=()):
        return OracleSession(self, len(request.prompt))


class OracleSession(DraftSession):
    def __init__(self, oracle, prompt):
        self.oracle, self.prompt = oracle, prompt

    def propose(self, tokens, limit):
        sequences = self.oracle.propose(tuple(tokens[self.prompt :]))
        return DraftTree.from_sequences(sequences, source="oracle", limit=limit)

    def observe(self, step):
        self.oracle.steps.append(step)

    def finish(self, result):
        self.oracle.results.append(result)


def reference_of(*calls, form="pythonic"):
    return encoder().reference(case(*calls), FORMATS[form])


def tally_of(reference, drafter):
    return Tally.of(walk(drafter, reference, encoder().vocabulary))


def test_without_drafts_nothing_is_covered():
    reference = reference_of(ONE)  # [f(a='xy')]<end>
    tally = tally_of(reference, Fallback())
    assert (tally.requests, tally.calls, tally.tokens) == (1, 1, 12)
    assert (tally.structural, tally.covered) == (9, 0)
    assert (tally.passes, tally.steps, tally.nodes, tally.step_nodes) == (12, 11, 0, 0)
    assert (tally.coverage, tally.steps_per_call, tally.nodes_per_step) == (0.0, 11.0, 0.0)


def test_whoever_knows_the_output_covers_all_of_it_in_one_pass():
    reference = reference_of(ONE)
    tally = tally_of(reference, Oracle(lambda output: [reference.tokens[len(output) :]]))
    assert (tally.structural, tally.covered, tally.coverage) == (9, 9, 1.0)
    assert (tally.passes, tally.steps, tally.nodes, tally.step_nodes) == (1, 0, 12, 0)
    assert tally.passes_per_call == 1.0
    assert tally.row()["nodes_per_step"] is None  # there was no step


def test_the_budget_cuts_and_the_bonus_is_not_covered():
    # Of 78 tokens the first pass drafts 64 and adds the 65th itself; 13 are left.
    reference = reference_of(Call("f", {"a" * 70: 1}))  # [f(aaa...a=1)]<end>
    assert len(reference.tokens) == 3 + 70 + 4 + 1
    tally = tally_of(reference, Oracle(lambda output: [reference.tokens[len(output) :]]))
    assert (tally.structural, tally.covered) == (76, 75)
    assert (tally.passes, tally.nodes, tally.step_nodes) == (2, 64 + 13, 13)
    assert tally.nodes_per_step == 13.0


def test_separators_that_are_not_drafted_are_not_covered():
    # {"name": "f", "parameters": {"a": "xy", "b": 12}}; and so twice, with "; " between.
    reference = reference_of(TWO, TWO, form="llama-3")
    text = '{"name": "f", "parameters": {"a": "xy", "b": 12}}'
    assert len(reference.tokens) == 2 * len(text) + len("; ") + 1 == 101
    comma = reference.tokens[text.index(",")]

    def up_to_a_comma(output):
        rest = reference.tokens[len(output) :]
        return [rest[: rest.index(comma)] if comma in rest else rest]

    tally = tally_of(reference, Oracle(up_to_a_comma))
    # Values hold 2 * (2 + 2) characters; each call has two commas, each one the bonus of a pass.
    assert (tally.calls, tally.structural, tally.covered) == (2, 92, 88)
    assert (tally.passes, tally.passes_per_call, tally.steps_per_call) == (5, 2.5, 2.0)
    assert tally.nodes == 101 - 4
    assert tally.step_nodes == tally.nodes - text.index(",")


def test_a_separator_inside_a_value_is_not_structural():
    reference = reference_of(Call("f", {"a": "x, y"}))
    comma = encoder().codec.encode(",", ())[0]
    known = Oracle(lambda output: [[t for t in reference.tokens[len(output) :] if t != comma]])
    tally = tally_of(reference, known)
    assert tally.structural == tally.covered == len("[f(a='')]")


def test_all_nodes_count_and_the_path_is_found_among_them():
    reference = reference_of(ONE)
    wrong = encoder().codec.encode("?!", ())
    tally = tally_of(
        reference,
        Oracle(lambda output: [wrong, reference.tokens[len(output) :][:1]]),
    )
    # Every pass has three nodes and commits one of them and the bonus.
    assert (tally.passes, tally.nodes, tally.step_nodes) == (6, 18, 15)
    assert tally.nodes_per_step == 3.0
    # Places 0, 2, 4 ... are drafted: [ ( = x ' ]; one of these is inside the value.
    assert tally.covered == 5


def test_no_drafter_is_told_where_the_output_ends():
    reference = reference_of(ONE)
    endless = Oracle(lambda output: [reference.tokens[len(output) :] + (0,) * 99])
    tally = tally_of(reference, endless)
    assert (tally.passes, tally.nodes) == (1, 64)


def test_a_result_is_handed_to_what_learns():
    drafter = Oracle(lambda output: [])

    def recall(output):
        return [drafter.results[-1].tokens[len(output) :]] if drafter.results else []

    drafter.propose = recall
    reference = reference_of(ONE)
    walks = [walk(drafter, reference, encoder().vocabulary) for _ in range(2)]
    assert [Tally.of(one).covered for one in walks] == [0, 9]
    tally = total(walks)
    assert (tally.requests, tally.passes, tally.steps) == (2, 12 + 1, 11)
    assert tally.coverage == 0.5
    result = drafter.results[0]
    assert (result.tokens, result.finish) == (reference.tokens, "stop_id")


def test_an_error_of_a_drafter_is_raised():
    def fail(output):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        walk(Oracle(fail), reference_of(ONE), encoder().vocabulary)


def test_misses_are_counted_by_what_stands_before_them():
    reference = reference_of(ONE, ONE)  # [f(a='xy'), f(a='xy')]
    known = Oracle(lambda output: [reference.tokens[len(output) : len(output) + 4]])
    found = misses([walk(known, reference, encoder().vocabulary)], context=3)
    # Every fifth token is a bonus.
    assert found == {("f(a", "="): 1, ("xy'", ")"): 1, (" f(", "a"): 1, ("'xy", "'"): 1}


def test_top_ids_begin_with_where_the_output_goes_on():
    reference = reference_of(ONE)
    first, second, third, *_ = reference.tokens
    wrong = encoder().codec.encode("?", ())
    oracle = Oracle(lambda output: [[first, second], wrong] if not output else [], Needs(top_k=4))
    walk(oracle, reference, encoder().vocabulary)
    root, *nodes = oracle.steps[0].top_ids
    assert [root[0], nodes[0][0], nodes[1][0]] == [first, second, third]
    assert nodes[2].tolist() == [0, 1, 2, 3]  # nothing has followed the wrong token yet
    for step in oracle.steps:
        assert step.top_ids.shape == (len(step.tree) + 1, 4)
        assert step.top_ids.dtype == np.int64
        assert all(len(set(row)) == 4 for row in step.top_ids.tolist())


def test_top_ids_off_the_path_are_what_followed_last():
    script = (1, 2, 1, 3, 4)
    oracle = Oracle(lambda output: [[9, 1]] if len(output) == 4 else [], Needs(top_k=3))
    request = Request(prompt=(7,), max_new_tokens=20)
    Engine(ReplayTarget({request.id: script}, 10), oracle, on_error="raise").generate(request)
    assert oracle.steps[-1].top_ids.tolist() == [[4, 0, 1], [0, 1, 2], [3, 2, 0]]


# Figures.


def test_tallies_add_up_field_by_field():
    one = Tally(1, 2, 30, 20, 15, 4, 50, 40, 0.5)
    assert one + Tally() == one
    both = one + Tally(1, 1, 10, 0, 0, 2, 6, 5, 0.25)
    assert both == Tally(2, 3, 40, 20, 15, 6, 56, 45, 0.75)
    assert (both.steps, both.nodes_per_step) == (4, 45 / 4)
    assert both.row() == {
        **attrs.asdict(both),
        "steps": 4,
        "coverage": 0.75,
        "passes_per_call": 2.0,
        "steps_per_call": 4 / 3,
        "nodes_per_step": 45 / 4,
    }
    assert Tally().row()["coverage"] is None


def test_every_pair_of_tokenizer_and_format_is_in_the_sample_once():
    tiny = encoder()
    some = tuple(attrs.evolve(case(ONE), id=str(i)) for i in range(40))
    met = {}
    for i in range(4):
        for j in range(4):
            groups = list(measure.sample(tiny, some, i + j, 2))
            met[i, j] = [form.name for form, _ in groups]
            ids = [one.request.id for _, known in groups for one in known]
            assert len(set(ids)) == 2 * len(met[i, j])
    for i in range(4):
        assert sorted(name for j in range(4) for name in met[i, j]) == sorted(FAMILIES)
        assert sorted(name for j in range(4) for name in met[j, i]) == sorted(FAMILIES)


# Real data.

CORNERS = [
    pytest.param(i + j, data, tokenizer, id=f"{data}-{tokenizer}")
    for i, data in enumerate(cases.DATA_SETS)
    for j, tokenizer in enumerate(references.TOKENIZERS)
]


def sample(corner, data, tokenizer, each):
    """An encoder and its groups of references; skips the test without the data."""
    try:
        some, real = cases.load(data), references.load(tokenizer)
    except cases.Missing as missing:
        pytest.skip(str(missing))
    return real, measure.sample(real, some, corner, each)


@pytest.mark.parametrize(("corner", "data", "tokenizer"), CORNERS)
def test_real_outputs_are_whole_and_can_be_covered(corner, data, tokenizer):
    real, groups = sample(corner, data, tokenizer, 3)
    for form, known in groups:
        for one in known:
            written = real.codec.decode(one.tokens[:-1])
            assert len(form.parse(written, one.request.tools)) == one.calls
            # What a drafter encodes behind the prompt are the very tokens.
            assert real.codec.encode(written, one.request.prompt) == one.tokens[:-1]
            oracle = Oracle(lambda output, one=one: [one.tokens[len(output) :]])
            tally = Tally.of(walk(oracle, one, real.vocabulary))
            passes = -(-len(one.tokens) // 65)
            assert (tally.passes, tally.tokens) == (passes, len(one.tokens))
            assert tally.structural - tally.covered < passes
            assert 0 < tally.structural < len(one.tokens)


@pytest.fixture(scope="module")
def schema_walks():
    """Walks with `schema` by data set: every format family with every tokenizer."""
    if "schema" not in default_registry().names("drafter"):
        pytest.skip("no drafter named schema")
    found = {}
    for corner, data, tokenizer in (param.values for param in CORNERS):
        real, groups = sample(corner, data, tokenizer, 12)
        for _, known in groups:
            drafter = parse("schema")
            walks = [walk(drafter, one, real.vocabulary) for one in known]
            found.setdefault(data, []).extend(walks)
    return found


@pytest.mark.parametrize("data", cases.DATA_SETS)
def test_schema_covers_the_structure_of_real_calls(schema_walks, data):
    """Calls that break their schema, or call a tool that is not there, are among them."""
    tally = total(schema_walks[data])
    lost = misses(schema_walks[data]).most_common(8)
    assert tally.coverage >= ENOUGH - 0.01, f"{tally}, missed {lost}"
    assert tally.passes_per_call < 8


def test_schema_covers_98_percent_of_the_structure_overall(schema_walks):
    tally = total(walk for walks in schema_walks.values() for walk in walks)
    assert tally.coverage >= ENOUGH, str(tally)


# The command line.


def run(*arguments):
    return CliRunner().invoke(command.app, arguments, catch_exceptions=False)


def test_the_command_writes_tables_and_figures(tmp_path):
    sample(0, "toolalpaca", "qwen2_5", 1)
    path = tmp_path / "figures.json"
    options = ["--data", "toolalpaca", "--tokenizer", "qwen2_5", "--limit", "3", "--misses", "2"]
    formats = ["--format", "hermes", "--format", "pythonic"]
    shown = run(*options, *formats, "--stack", "fallback", "--stack", "pld", "--json", str(path))
    assert shown.exit_code == 0
    for text in ("Over all formats", "Over all data sets and tokenizers", "Missed by pld"):
        assert text in shown.output
    rows = json.loads(path.read_text())
    places = [(row["format"], row["stack"], row["requests"]) for row in rows]
    assert places == [
        ("hermes", "fallback", 3),
        ("hermes", "pld", 3),
        ("pythonic", "fallback", 3),
        ("pythonic", "pld", 3),
    ]
    assert [row["covered"] for row in rows[::2]] == [0, 0]
    assert rows[0]["passes"] == rows[0]["tokens"]
    assert {"coverage", "steps_per_call", "nodes_per_step", "data", "tokenizer"} <= set(rows[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "bfkl"], r"--data must be one of api_bank, .*'bfkl'.*bfcl"),
        (["--tokenizer", "qwen"], r"--tokenizer must be one of qwen2_5, .*'qwen'"),
        (["--format", "hermess"], r"--format must be one of .*'hermess'.*hermes"),
    ],
)
def test_unknown_names_are_refused(options, message):
    with pytest.raises(RequestError, match=message):
        run(*options)
