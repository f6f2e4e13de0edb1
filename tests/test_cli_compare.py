"""``specdec compare``: the whole command, on a tiny model and on replays."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from specdec import CostCurve, cli
from specdec.calls import FORMATS, Call
from specdec.compare.journal import LINES

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
DRAFTERS = ("pld", "token-recycling", "toolspec")


@pytest.fixture
def specdec(monkeypatch, capsys):
    """The command line in this process; returns what it printed."""

    def run(*arguments, code=0):
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["specdec", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == code, printed.out + printed.err
        return printed.out + printed.err

    return run


@pytest.fixture
def asked(tmp_path):
    """Six requests in the uniform layout, with the answers that a replay writes."""
    path = tmp_path / "asked.jsonl"
    with path.open("w") as file:
        for number, city in enumerate(("Oslo", "Rome", "Oslo", "Bern", "Rome", "Oslo")):
            call = FORMATS["hermes"].render([Call("get_weather", {"city": city})])
            record = {
                "id": f"w-{number}",
                "messages": [{"role": "user", "content": f"Weather in {city}?"}],
                "tools": [WEATHER],
                "output": call,
            }
            file.write(json.dumps(record) + "\n")
    return path


def compare(folder, asked, out, *arguments):
    drafters = [word for name in DRAFTERS for word in ("--drafter", name)]
    return (
        *("compare", "--model", folder, "--requests", asked, "--out", out, *drafters),
        *("--budget", "8", "--threads", "1", "--max-new-tokens", "12", *arguments),
    )


def report(out):
    return json.loads((out / "report.json").read_text())


def timeless(out):
    """What a report says of everything but time."""
    found = report(out)
    fields = ("drafter", "budget", "requests", "tokens", "passes", "steps", "mat", "mat_interval")
    fields += ("identical", "by_source", "nodes_per_step", "accepted_lengths", "failed")
    requests = [
        {**one, "result": {**one["result"], "prompt_phases": 0, "decode_phases": 0}}
        for one in found["requests"]
    ]
    return [{name: row[name] for name in fields} for row in found["rows"]], requests


def test_a_comparison_prints_a_table_and_writes_a_report_and_a_page(
    specdec, tiny_folder, asked, tmp_path
):
    out = tmp_path / "new" / "out"
    text = specdec(*compare(tiny_folder, asked, out))
    for key in ("generate()", "none", "pld @ 8", "pld @ measured", "toolspec @ measured"):
        assert key in text
    assert "All outputs are the same, token for token." in text
    assert "threads: 1" in text
    assert "torch 2." in text
    found = report(out)
    assert (found["dtype"], found["threads"]) == ("float32", 1)
    assert [row["identical"] for row in found["rows"]] == [6] * 8
    assert len(found["requests"]) == 6 * 8
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in out.iterdir()) == [
        "costs.json",
        "report.html",
        "report.json",
    ]


def test_the_same_command_again_gives_the_same_mats_with_the_same_costs(
    specdec, tiny_folder, asked, tmp_path
):
    specdec(*compare(tiny_folder, asked, tmp_path))
    first, costs = timeless(tmp_path), (tmp_path / "costs.json").read_bytes()
    specdec(*compare(tiny_folder, asked, tmp_path))
    assert timeless(tmp_path) == first
    assert (tmp_path / "costs.json").read_bytes() == costs


def test_a_comparison_that_was_killed_goes_on_and_says_the_same(
    specdec, tiny_folder, asked, tmp_path
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    specdec(*compare(tiny_folder, asked, whole))
    killed.mkdir()
    (killed / "costs.json").write_bytes((whole / "costs.json").read_bytes())
    command = [sys.executable, "-m", "specdec", *map(str, compare(tiny_folder, asked, killed))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    # The settings and two rounds of eight arms.
    while time.monotonic() < deadline and lines(killed) < 17:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert lines(killed) >= 17, "it was over before it could be killed"
    specdec(*compare(tiny_folder, asked, killed))
    assert timeless(killed) == timeless(whole)


def lines(folder):
    path = folder / LINES
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def test_an_interrupted_comparison_of_something_else_is_kept(specdec, tiny_folder, asked, tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / LINES).write_text('{"arms": 3}\n')
    error = specdec(*compare(tiny_folder, asked, tmp_path / "o"), code=1)
    assert "holds an interrupted comparison with other settings" in error
    assert "--restart" in error
    assert lines(tmp_path / "o") == 1


FAULTY = """
import time
import specdec

class Raises(specdec.Drafter):
    def start(self, request, committed=()):
        if "Bern" in str(request.messages):
            raise RuntimeError("no idea about Bern")
        return Silent()

class Silent(specdec.DraftSession):
    def propose(self, tokens, limit):
        return specdec.DraftTree()

class Junk(specdec.Drafter):
    def start(self, request, committed=()):
        return Wrong()

class Wrong(specdec.DraftSession):
    def propose(self, tokens, limit):
        made = [(7 * len(tokens) + 13 * i) % 251 for i in range(min(limit.nodes, limit.depth))]
        return specdec.DraftTree.chain(made, source="junk", score=0.9) if made else specdec.EMPTY

class Sleeps(specdec.Drafter):
    def start(self, request, committed=()):
        return Slow()

class Slow(Silent):
    def propose(self, tokens, limit):
        time.sleep(0.02)
        return super().propose(tokens, limit)

@specdec.hookimpl
def register_drafters(register):
    register("raises", Raises)
    register("junk", Junk)
    register("sleeps", Sleeps)
"""


def test_drafters_at_fault_show_up_as_exactly_that(tiny_folder, asked, tmp_path):
    plugin = tmp_path / "faulty-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[specdec]\nfaulty = faulty\n")
    (tmp_path / "faulty.py").write_text(FAULTY)
    out = tmp_path / "out"
    command = [
        *("compare", "--model", tiny_folder, "--requests", asked, "--out", out),
        *("--drafter", "raises", "--drafter", "junk", "--drafter", "sleeps", "--drafter", "pld"),
        *("--budget", "32", "--threads", "1", "--max-new-tokens", "40"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "specdec", *map(str, command)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(tmp_path)},
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    found = report(out)
    said = "\n".join(found["findings"])
    assert "raises @ 32 failed on 1 of 6 requests: RuntimeError: no idea about Bern" in said
    assert "junk @ 32 proposes junk" in said
    assert "sleeps @ 32 is slow" in said
    assert "pld @ 32 failed" not in said
    assert "pld @ 32 proposes junk" not in said
    (failure,) = found["failures"]
    assert (failure["request"], failure["arms"]) == ("w-3", ["raises @ 32", "raises @ measured"])
    assert "failed: w-3, raises @ 32, raises @ measured" in done.stdout
    rows = {(row["drafter"], row["budget"]): row for row in found["rows"]}
    assert [rows[name, "32"]["identical"] for name in ("raises", "junk", "sleeps")] == [5, 6, 6]
    page = (out / "report.html").read_text()
    assert "no idea about Bern" in page
    assert "proposes junk" in page


def test_a_request_the_model_cannot_take_is_listed_and_the_others_go_on(
    specdec, tiny_folder, asked, tmp_path
):
    long = {"id": "long", "messages": [{"role": "user", "content": "x" * 500}]}
    asked.write_text(asked.read_text() + json.dumps(long) + "\n")
    error = specdec(*compare(tiny_folder, asked, tmp_path / "out"), code=1)
    assert "Traceback" not in error
    found = report(tmp_path / "out")
    (failure,) = found["failures"]
    assert failure["request"] == "long"
    # generate() itself runs past the model's positions without a word.
    assert len(failure["arms"]) == 7
    assert "shorten the prompt" in failure["error"]
    assert {row["requests"] for row in found["rows"]} == {6}


# Replays


@pytest.fixture
def tokenizer_folder(tiny_folder, tmp_path):
    """The tiny model's tokenizer alone, with an end token."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.add_special_tokens({"eos_token": "<|end|>"})
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def replay(asked, tokenizer_folder, out, *arguments):
    command = compare("replay", asked, out, "--tokenizer", tokenizer_folder, *arguments)
    return [str(word) if word != "12" else "90" for word in command]


def test_a_replay_needs_no_model_and_says_what_it_is(specdec, asked, tokenizer_folder, tmp_path):
    out = tmp_path / "out"
    text = specdec(*replay(asked, tokenizer_folder, out))
    assert "replay" in text
    found = report(out)
    assert found["replay"] is True
    assert {row["drafter"] for row in found["rows"]} == {"none", *DRAFTERS}
    assert all(row["speedup_interval"] is None for row in found["rows"])
    best = next(row for row in found["rows"] if row["drafter"] == "toolspec")
    assert best["mat"] > 4
    assert best["identical"] == 6
    assert "replay" in (out / "report.html").read_text().lower()


def test_a_replay_with_costs_says_how_long_it_would_take(
    specdec, asked, tokenizer_folder, tmp_path
):
    curve = CostCurve((0, 1, 7, 31), (64, 512), [[0.1, 0.11, 0.12, 0.2]] * 2, "a big model")
    curve.save(tmp_path / "costs.json")
    out = tmp_path / "out"
    specdec(*replay(asked, tokenizer_folder, out, "--cost-curve", tmp_path / "costs.json"))
    rows = {(row["drafter"], row["budget"]): row for row in report(out)["rows"]}
    assert rows["toolspec", "measured"]["decode_speedup"] > 2
    steps = rows["none", ""]["steps"]
    assert rows["none", ""]["decode_seconds"] == pytest.approx(0.1 * steps, rel=0.2)


def test_a_replay_can_run_passes_of_a_random_model(
    specdec, asked, tokenizer_folder, tiny_folder, tmp_path
):
    out = tmp_path / "out"
    specdec(*replay(asked, tokenizer_folder, out, "--shape", tiny_folder))
    found = report(out)
    assert "on passes of" in found["target"]
    assert all(row["speedup"] for row in found["rows"])
    assert (out / "costs.json").exists()


def test_what_has_no_recorded_output_fails_by_name(specdec, asked, tokenizer_folder, tmp_path):
    bare = {"id": "bare", "messages": [{"role": "user", "content": "Hi"}]}
    asked.write_text(asked.read_text() + json.dumps(bare) + "\n")
    specdec(*replay(asked, tokenizer_folder, tmp_path / "out"), code=1)
    (failure,) = report(tmp_path / "out")["failures"]
    assert failure["request"] == "bare"
    assert "neither a recorded output nor reference calls" in failure["error"]


# Bad input


def test_bad_input_is_one_clear_line(tiny_folder, asked, tmp_path, specdec, tokenizer_folder):
    (tmp_path / "file").write_text("x")
    good = ("compare", "--requests", asked, "--model", tiny_folder, "--threads", "1")
    cases = {
        (*good, "--drafter", "pldd"): "did you mean 'pld'",
        (*good, "--drafter", "pld", "--drafter", "pld"): "given twice",
        (*good, "--budget", "some"): "number of nodes or 'measured'",
        (*good, "--layout", "bfclx"): "did you mean 'bfcl'",
        (*good, "--tokenizer", tmp_path): "for --model replay only",
        (*good, "--format", "hermes", "--shape", "x"): "--format, --shape: for --model replay only",
        (*good, "--restart"): "give --out too",
        (*good, "--out", tmp_path / "file"): "is a file",
        ("compare", "--requests", tmp_path / "none"): "cannot be read",
        ("compare", "--requests", asked, "--model", "replay"): "needs --tokenizer",
        (
            *("compare", "--requests", asked, "--model", "replay", "--budget", "measured"),
            *("--tokenizer", tokenizer_folder),
        ): "give --budget NODES",
        (
            *("compare", "--requests", asked, "--model", "replay", "--cost-curve", tmp_path / "no"),
            *("--tokenizer", tokenizer_folder),
        ): "cannot be read",
        (
            *("compare", "--requests", asked, "--model", "replay", "--format", "hermess"),
            *("--tokenizer", tokenizer_folder),
        ): "did you mean 'hermes'",
    }
    for arguments, expected in cases.items():
        error = specdec(*arguments, code=1)
        assert expected in error, (arguments, error)
        assert "Traceback" not in error


def test_the_guide_runs(tiny_folder, asked, tmp_path, monkeypatch):
    """The guide's Python, on a tiny model."""
    import re
    from pathlib import Path

    from specdec import measure_costs
    from specdec.hf import loading

    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[1] / "docs" / "compare.md").read_text()
    scope = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], scope)  # our own documentation
    target = loading.load(str(tiny_folder), "float32", "cpu")
    found = scope["compare"](target, str(asked), measure_costs(target, repeats=1))
    assert [row.key for row in found.rows][2:4] == ["pld @ 64", "pld @ measured"]
    assert Path("report/report.html").exists()
