"""The demo model, end to end: the same text as generate, in fewer passes."""

import json
import os
from itertools import islice
from pathlib import Path

import attrs
import pytest
import torch

from specdec import CostCurve, Engine, FixedBudget, MeasuredBudget, parse

pytestmark = pytest.mark.real_model

demo = pytest.importorskip("specdec_demo_model", reason="pip install -e contrib/demo_model")

STACK = "merge(pld, token-recycling)"
# A curve like that of a CPU in float32, so that the run does not depend on this machine's speed.
CURVE = CostCurve((0, 1, 7, 15, 31, 63), (512,), [[0.040, 0.060, 0.063, 0.077, 0.105, 0.160]])


@pytest.fixture(scope="module")
def target():
    from specdec.hf import HFTarget

    try:
        model, tokenizer = demo.load(dtype=torch.float32)
    except demo.MissingWeights as missing:
        pytest.skip(str(missing))
    return HFTarget(model, tokenizer)


def requests(target, count, limit=40):
    return [
        target.request(messages=e.messages, tools=e.tools, max_new_tokens=limit, id=e.id)
        for e in demo.requests()[:count]
    ]


def test_the_output_is_that_of_generate_in_far_fewer_passes(target):
    from specdec.hf import baseline

    engine = Engine(target, parse(STACK), budget=MeasuredBudget(CURVE), on_error="raise")
    passes = plain = 0
    for request in requests(target, 4):
        truth = baseline.generate(target, request)
        result = engine.generate(request)
        assert result.tokens == truth.tokens
        assert result.errors == ()
        passes, plain = passes + result.passes, plain + truth.passes
    assert plain / passes > 1.8


def test_in_bfloat16_outputs_differ_at_near_ties_only(target):
    from bench.differences import measure
    from specdec.hf import HFTarget

    pytest.importorskip("specdec_toolspec")
    half = HFTarget(*demo.load(dtype=torch.bfloat16))
    for tally in measure(half, requests(half, 6), "toolspec", 64):
        assert tally.asked == 6
        assert all(gap.near_tie for _, gap in tally.found), tally.found


def test_generate_with_one_argument_more_writes_the_same_in_far_fewer_passes(target):
    from specdec.hf import speculate

    pytest.importorskip("specdec_toolspec")
    model, tokenizer = target.model, target.tokenizer
    speculation = speculate("toolspec", tokenizer=tokenizer, budget=64, on_error="raise")
    passes = written = 0
    for request in requests(target, 4):
        inputs = {"input_ids": torch.tensor([request.prompt])}
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        plain = model.generate(**inputs, max_new_tokens=40, do_sample=False)
        ours = model.generate(
            **inputs,
            max_new_tokens=40,
            do_sample=False,
            custom_generate=speculation,
            tools=request.tools,
        )
        assert torch.equal(plain, ours)
        passes += speculation.results[0].passes
        written += ours.shape[1] - len(request.prompt)
    assert written / passes > 3


def test_little_time_is_spent_outside_the_targets_passes(target):
    engine = Engine(target, parse(STACK), budget=MeasuredBudget(CURVE), on_error="raise")
    results = [engine.generate(request) for request in requests(target, 3)]
    total = sum(r.seconds for r in results)
    forward = sum(r.prompt_phases.forward + r.decode_phases.forward for r in results)
    assert 1 - forward / total < 0.06


def test_seeded_sampling_is_that_of_generate(target):
    from specdec import Sampling
    from specdec.hf import baseline

    sampling = Sampling(temperature=0.8, top_k=50, top_p=0.9)
    request = attrs.evolve(requests(target, 1)[0], sampling=sampling)
    torch.manual_seed(7)
    truth = baseline.generate(target, request)
    torch.manual_seed(7)
    assert Engine(target, parse(STACK), budget=FixedBudget(8)).generate(request).tokens == (
        truth.tokens
    )


def test_equal_outputs_have_no_first_difference(target):
    from specdec.hf import baseline

    request = requests(target, 1, limit=6)[0]
    tokens = Engine(target).generate(request).tokens
    assert baseline.first_difference(target, request, tokens, tokens) is None


def test_a_wrong_token_is_no_near_tie(target):
    from specdec.hf import baseline

    request = requests(target, 1, limit=6)[0]
    tokens = Engine(target).generate(request).tokens
    wrong = (*tokens[:3], tokens[3] + 1, *tokens[4:])
    found = baseline.first_difference(target, request, tokens, wrong)
    assert (found.position, found.plain, found.other) == (3, tokens[3], tokens[3] + 1)
    assert not found.near_tie
    assert 0 < found.noise < 0.01 < found.margin
    cut = baseline.first_difference(target, request, tokens, tokens[:4])
    assert (cut.position, cut.other) == (4, None)


def test_the_demo_ends_with_a_table_and_writes_its_figures(target, tmp_path):
    import typer
    from typer.testing import CliRunner

    from specdec.cli import demo as command

    app = typer.Typer()
    app.command()(command.demo)
    file = tmp_path / "figures.json"
    # Loading is not what is tested here.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specdec.hf.loading.load_demo", lambda *_: target)
        options = ["--limit", "2", "--max-new-tokens", "24", "--dtype", "float32", "--budget", "8"]
        options += ["--drafter", "pld", "--drafter", STACK]
        done = CliRunner().invoke(app, [*options, "--json", str(file)])
        again = CliRunner().invoke(app, [*options[:-4], "--drafter", "pld"])
    assert done.exit_code == 0, done.output
    assert "Tokens by source" in done.output
    assert "The same text, token for token, in all 2 requests" in done.output
    data = json.loads(file.read_text())
    assert set(data) == {"model", "dtype", "threads", "rows"}
    names = ["generate()", "none", "pld", STACK, f"{STACK}, again"]
    assert [row["drafter"] for row in data["rows"]] == names
    assert f"The same requests again, with what {STACK} remembers" in " ".join(done.output.split())
    # What does not remember has nothing to show a second time.
    assert again.exit_code == 0
    assert "again" not in again.output
    keys = {"drafter", "requests", "tokens", "passes", "steps", "mat", "seconds", "decode_seconds",
            "tokens_per_second", "speedup", "decode_speedup", "identical", "by_source"}  # fmt: skip
    for row in data["rows"]:
        assert set(row) == keys
        assert row["identical"] == row["requests"] == 2
        assert row["tokens"] == data["rows"][0]["tokens"]
    assert max(data["rows"][2]["steps"], data["rows"][3]["steps"]) < data["rows"][0]["steps"]
    assert data["rows"][0]["mat"] == data["rows"][1]["mat"] == 1.0


def test_toolspec_writes_api_banks_calls_in_a_fraction_of_the_passes(target):
    """The prompts hold the tools and the format; nothing else tells of them."""
    from specdec.hf import baseline

    shared = Path(os.environ.get("SPECDEC_SHARED", Path(__file__).parents[2] / "shared"))
    file = shared / "data" / "api_bank_60.jsonl"
    if not file.exists():
        pytest.skip(f"no {file}")
    with file.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in islice(lines, 5)]
    engine = Engine(target, parse("toolspec"), budget=FixedBudget(64), on_error="raise")
    loop = baseline.plain(target)
    passes = tokens = 0
    for record in records:
        request = target.request(messages=record["messages"], max_new_tokens=160)
        result = engine.generate(request)
        assert result.tokens == loop.generate(request).tokens
        passes, tokens = passes + result.passes, tokens + len(result.tokens)
    assert tokens / passes > 8
