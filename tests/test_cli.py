"""The command line: one clear line for every error, and figures that add up."""

import json
import os
import re
import subprocess
import sys

import pytest

import specdec as specdec_package
from specdec import cli


def specdec(*arguments, code=0, **environment):
    """Run the command line in a process of its own; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "specdec", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def one_line(monkeypatch, capsys):
    """The error of a command that fails, run in this process: no traceback."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["specdec", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 1
        return capsys.readouterr().err

    return run


def run(folder, *arguments):
    return ("run", "--model", folder, "--budget", "8", "--threads", "1", *arguments)


def test_a_message_is_answered_with_its_figures(tiny_folder):
    text = specdec(*run(tiny_folder, "Hello", "--max-new-tokens", "12"))
    assert "12 tokens in" in text
    assert "1 threads" in text


def test_json_holds_text_calls_and_figures(tiny_folder):
    found = json.loads(specdec(*run(tiny_folder, "Hello", "--max-new-tokens", "12", "--json")))
    assert found["tokens"] == 12
    assert found["passes"] == found["steps"] + 1
    assert found["finish"] == "length"
    assert found["tool_calls"] == []
    assert set(found["phases"]) == {"draft", "forward", "verify", "observe"}
    plain = json.loads(
        specdec(*run(tiny_folder, "Hello", "--max-new-tokens", "12", "--json", "--drafter", "none"))
    )
    assert plain["text"] == found["text"]
    assert plain["steps"] == 11
    assert plain["by_source"] == {}


def test_sampling_with_a_seed_repeats(tiny_folder):
    arguments = run(tiny_folder, "Hi", "--json", "--temperature", "1", "--seed", "5")
    texts = {json.loads(specdec(*arguments, "--max-new-tokens", "9"))["text"] for _ in range(2)}
    assert len(texts) == 1


def test_messages_and_tools_come_from_files(tiny_folder, tmp_path):
    (tmp_path / "m.json").write_text(json.dumps([{"role": "user", "content": "Hello"}]))
    (tmp_path / "t.json").write_text(json.dumps([{"name": "f", "parameters": {}}]))
    arguments = ("--messages", tmp_path / "m.json", "--tools", tmp_path / "t.json")
    found = json.loads(specdec(*run(tiny_folder, *arguments, "--max-new-tokens", "3", "--json")))
    assert found["tokens"] == 3


def test_a_cost_curve_is_kept_and_used_again(tiny_folder, tmp_path):
    curve = tmp_path / "curve.json"
    arguments = (
        "run",
        "--model",
        tiny_folder,
        "Hi",
        "--max-new-tokens",
        "4",
        "--cost-curve",
        curve,
    )
    specdec(*arguments)
    first = curve.read_text()
    assert "LlamaForCausalLM (2x32, 256 ids) float32 cpu" in first
    specdec(*arguments)
    assert curve.read_text() == first


def test_bad_input_is_one_clear_line(tiny_folder, tmp_path, one_line):
    broken = tmp_path / "tools.json"
    broken.write_text('[{"nome": "f"}]')
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.json").write_text("{}")
    foreign = tmp_path / "curve.json"
    specdec_package.CostCurve((0,), (9,), [[1.0]], "another model").save(foreign)
    parts = [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text"}]}]
    (tmp_path / "parts.json").write_text(json.dumps(parts))
    (tmp_path / "role.json").write_text('[{"role": "banana", "content": "a"}]')
    good = json.dumps({"messages": [{"role": "user", "content": "a"}]})
    (tmp_path / "asked.jsonl").write_text(f'{good}\n\n{{"message": "Hi"}}\n')
    (tmp_path / "torn.jsonl").write_text(f'{good}\n{{"messages"\n')
    (tmp_path / "empty.jsonl").write_text("\n")
    tiny = ("--model", str(tiny_folder))
    cases = {
        ("demo", "--requests", "missing.jsonl"): "cannot be read",
        ("demo", "--requests", str(tmp_path / "asked.jsonl")): "is not of the layout 'uniform'",
        ("demo", "--requests", str(tmp_path / "torn.jsonl")): "line 2 is not JSON",
        ("demo", "--requests", str(tmp_path / "empty.jsonl")): "is empty",
        ("run", "Hi", "--drafter", "pdl"): "did you mean 'pld'",
        ("run", "Hi", "--model", "nowhere"): "no model at 'nowhere'",
        ("run", "Hi", "--model", str(half)): "does not load",
        ("run", "Hi", "--tools", str(broken)): "string 'name'",
        ("run", "Hi", "--tools", "missing.json"): "cannot be read",
        ("run",): "either a message or --messages",
        ("run", " "): "the message is empty",
        ("run", "Hi", "--messages", str(broken)): "either a message or",
        ("run", "Hi", "--temperature", "-1"): "at least 0, got -1",
        ("run", "Hi", "--threads", "0"): "at least 1, got 0",
        ("run", "Hi", "--device", "abacus"): "device abacus cannot be used",
        ("run", "Hi", *tiny, "--dtype", "float31"): "did you mean 'float32'",
        ("run", "Hi", *tiny, "--budget", "lots"): "number of nodes or 'measured'",
        ("run", "x" * 600, *tiny, "--budget", "8"): "shorten the prompt",
        ("run", "Hi", *tiny, "--cost-curve", str(foreign)): "was measured on another model",
        ("run", "Hi", "--cost-curve", "/no/where/c.json"): "no writable folder",
        ("run", "Hi", "--device", "meta"): "device meta holds no numbers",
        ("run", "Hi", "--threads", "99999999999"): "must be at most",
        ("run", "Hi", "--seed", "5"): "give --temperature too",
        ("run", "Hi", "--temperature", "1", "--seed", "9" * 30): "a seed must be",
        ("run", "Hi", "--temperature", "1e-320"): "at least 1e-6",
        ("run", "--messages", str(tmp_path / "parts.json")): "message 2 must have a text",
        ("run", "--messages", str(tmp_path / "role.json")): "message 1 must be an object with",
        ("demo", "--json", "/no/where/f.json"): "no writable folder",
        ("demo", "--json", str(tmp_path)): "is a folder",
        ("check", "pdl"): "did you mean 'pld'",
        ("demo", "--drafter", "pld(ngrams=2)"): "did you mean 'ngram'",
    }
    for arguments, message in cases.items():
        assert message in one_line(*arguments), arguments


def test_a_traceback_is_shown_when_asked_for():
    assert "Traceback" in specdec("--traceback", "run", "Hi", "--model", "nowhere", code=1)


def test_plugins_are_listed_working_or_not(tmp_path):
    (tmp_path / "sick-1.0.dist-info").mkdir()
    (tmp_path / "sick-1.0.dist-info/METADATA").write_text("Name: sick\nVersion: 1.0\n")
    (tmp_path / "sick-1.0.dist-info/entry_points.txt").write_text("[specdec]\nsick = nowhere\n")
    found = json.loads(specdec("plugins", "--json", PYTHONPATH=str(tmp_path)))
    sick = next(plugin for plugin in found if plugin["name"] == "sick")
    assert sick["error"] == "ModuleNotFoundError: No module named 'nowhere'"
    table = specdec("plugins", PYTHONPATH=str(tmp_path))
    assert "No module named 'nowhere'" in table
    assert re.search(r"pld .* ok", table)


def test_a_drafter_is_checked_by_name():
    table = specdec("check", "pld(ngram=2)")
    assert "output_is_unchanged" in table
    assert "failed" not in table


def test_the_version_is_printed():
    assert specdec("--version").strip() == f"specdec {specdec_package.__version__}"


def test_help_names_every_command():
    text = specdec("--help")
    for command in ("demo", "run", "plugins", "check"):
        assert command in text


def test_the_log_observer_writes_a_line_per_step(tiny_folder, tmp_path):
    pytest.importorskip("specdec_step_log")
    log = tmp_path / "steps.jsonl"
    arguments = run(tiny_folder, "Hello", "--max-new-tokens", "6", "--json")
    found = json.loads(specdec(*arguments, SPECDEC_STEP_LOG=str(log)))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(found["passes"]))
    assert sum(len(line["committed"]) for line in lines) == 6


def test_an_unforeseen_error_is_one_line_too(one_line, monkeypatch):
    def broken(*_):
        raise OSError("disk on fire\nsecond line")

    monkeypatch.setattr("specdec.cli.models.set_threads", broken)
    assert "OSError: disk on fire (specdec --traceback ... shows more)" in one_line("run", "Hi")
