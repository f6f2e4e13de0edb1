"""Outputs of a real engine with the proposer are those of the same engine without it.

Every engine runs in a process of its own. ``SPECDEC_DATA`` names a folder with API-Bank's requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import workloads

HERE = Path(__file__).parent
DATA = Path(os.environ.get("SPECDEC_DATA", HERE.parents[4] / "shared" / "data"))
NEAR = 0.5
"""Log-probability between two tokens up to which bfloat16 may choose either: what the demo
model's logits differ by between passes of one and of many tokens is up to 0.9."""


def run(model: Path, requests: Path, method: str, *options: str) -> Any:
    """What one engine wrote."""
    out = requests.with_suffix(f".{method}.json")
    command = [sys.executable, str(HERE / "engine.py"), "--model", str(model)]
    told = ["--requests", str(requests), "--out", str(out), "--method", method, *options]
    done = subprocess.run([*command, *told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "specdec drafts nothing" not in done.stdout + done.stderr
    return json.loads(out.read_text(encoding="utf-8"))


def departures(plain: Any, other: Any) -> list[dict[str, list[int]]]:
    """The prefixes behind which two runs chose different tokens, and those tokens."""
    found = []
    for prompt, one, two in zip(plain["prompts"], plain["outputs"], other["outputs"], strict=True):
        if one != two:
            same = next(i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
            found.append({"ids": [*prompt, *one[:same]], "tokens": [one[same], two[same]]})
    return found


def check_same(
    model: Path, folder: Path, plain: Any, other: Any, near: float, *options: str
) -> None:
    """Both runs wrote the same, but for near-ties; `options` are those that both had."""
    differ = departures(plain, other)
    print(f"\n{len(differ)} of {len(plain['outputs'])} outputs differ")
    print(other["drafts"], other["proposals"], *(r["tokens_per_second"] for r in (plain, other)))
    assert other["drafts"]["vllm:spec_decode_num_accepted_tokens"] > 0
    if not differ:
        return
    asked = workloads.write(folder / "prefixes.jsonl", differ)
    margins = run(model, asked, "plain", "--margins", *options)
    print("margins where they differ:", [round(margin, 4) for margin in margins])
    assert max(margins) <= near
    assert len(differ) <= len(plain["outputs"]) / 2


def mixed() -> list[dict[str, Any]]:
    """Chat, the demo model's calls, BFCL's and, where the data are, API-Bank's."""
    file = DATA / "api_bank_60.jsonl"
    records = [*workloads.chat(), *workloads.calls(), *workloads.bfcl(5)]
    return [*records, *(workloads.api_bank(file, 16) if file.is_file() else ())]


@pytest.mark.parametrize(("dtype", "near"), [("bfloat16", NEAR), ("float32", 0.001)])
def test_eight_requests_at_once(model: Path, tmp_path: Path, dtype: str, near: float) -> None:
    requests = workloads.write(tmp_path / "requests.jsonl", mixed())
    options = ("--chat", "--in-flight", "8", "--dtype", dtype, "--max-new-tokens", "96")
    plain, other = (run(model, requests, m, *options) for m in ("plain", "specdec"))
    assert plain["prompts"] == other["prompts"]
    assert len(plain["outputs"]) >= 40
    check_same(model, tmp_path, plain, other, near, *options)


def test_prompts_whose_prefix_is_kept(model: Path, tmp_path: Path) -> None:
    """As vLLM does unless told otherwise; the second half asks the same again."""
    requests = workloads.write(tmp_path / "requests.jsonl", workloads.calls() * 2)
    kept = json.dumps({"enable_prefix_caching": True})
    options = ("--in-flight", "8", "--engine", kept, "--dtype", "float32")
    plain, other = (run(model, requests, m, *options) for m in ("plain", "specdec"))
    assert min(sum(report["reused"].values()) for report in (plain, other)) > 0
    check_same(model, tmp_path, plain, other, 0.001, *options)


def test_prompts_in_chunks(model: Path, tmp_path: Path) -> None:
    requests = workloads.write(tmp_path / "requests.jsonl", workloads.calls())
    options = ("--in-flight", "8", "--chunk", "128", "--dtype", "float32")
    plain, other = (run(model, requests, m, *options) for m in ("plain", "specdec"))
    check_same(model, tmp_path, plain, other, 0.001, *options)


def test_requests_given_up_midway(model: Path, tmp_path: Path) -> None:
    """Those that stay are not harmed."""
    requests = workloads.write(tmp_path / "requests.jsonl", workloads.calls())
    options = ("--in-flight", "8", "--dtype", "float32")
    plain = run(model, requests, "plain", *options)
    other = run(model, requests, "specdec", *options, "--abort", "3")
    for report in (plain, other):
        for key in ("prompts", "outputs"):
            report[key] = [x for i, x in enumerate(report[key]) if i % 3 != 2]
    check_same(model, tmp_path, plain, other, 0.001, *options)


def test_workers_that_share_the_model(model: Path, tmp_path: Path) -> None:
    """Three, which the demo model's 9 heads divide by; all of them must propose the same."""
    requests = workloads.write(tmp_path / "requests.jsonl", workloads.calls()[:6])
    shared = json.dumps({"tensor_parallel_size": 3})
    options = ("--in-flight", "3", "--engine", shared, "--dtype", "float32")
    plain, other = (run(model, requests, m, *options) for m in ("plain", "specdec"))
    check_same(model, tmp_path, plain, other, 0.001, *options)


def test_five_hundred_tools(model: Path, tmp_path: Path) -> None:
    requests = workloads.write(tmp_path / "requests.jsonl", workloads.many_tools())
    options = ("--length", "32768", "--max-new-tokens", "24", "--limit", "1")
    plain, other = (run(model, requests, m, *options) for m in ("plain", "specdec"))
    check_same(model, tmp_path, plain, other, NEAR, *options)
