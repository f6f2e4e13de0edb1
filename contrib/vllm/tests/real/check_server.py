"""`vllm serve` with the proposer, asked through the official client, answers as without it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import workloads
from openai import OpenAI

NAME = "demo"
SPECULATION = {
    "method": "custom_class",
    "model": "specdec_vllm.Proposer",
    "num_speculative_tokens": 24,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
        },
    },
}
PARALLEL = "What is the weather in Lisbon and in Paris? In celsius."
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CHOICES = ("none", "auto", "required", NAMED)


@contextmanager
def server(model: Path, folder: Path, *options: str) -> Iterator[str]:
    """A server's address, while it runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    # What `vllm serve` runs; that command itself needs the distribution to be called vllm.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    told = ["--port", port, "--served-model-name", NAME, "--dtype", "float32", "--enforce-eager"]
    parser = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    counts = folder / f"prometheus-{port}"
    counts.mkdir()
    environ = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "HF_HUB_OFFLINE": "1",
        "PROMETHEUS_MULTIPROC_DIR": str(counts),
    }
    log = folder / f"server-{port}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, *told, *parser, "--max-num-seqs", "8", *options],
            env={**os.environ, **environ},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)
    assert "specdec drafts nothing" not in log.read_text(encoding="utf-8")


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        assert process.poll() is None, log.read_text(encoding="utf-8")[-3000:]
        try:
            urllib.request.urlopen(address, timeout=2).close()
        except OSError:
            time.sleep(1)
        else:
            return
    pytest.fail("the server did not come up in 300 s")


def questions() -> list[dict[str, Any]]:
    """Requests as a client makes them."""
    weather = {"tools": [WEATHER], "messages": [{"role": "user", "content": PARALLEL}]}
    return [
        *({**weather, "tool_choice": choice} for choice in CHOICES),
        *workloads.calls(),
        *workloads.chat(),
    ]


def ask(client: OpenAI, question: dict[str, Any], stream: bool) -> Any:
    """Text and calls of one answer, and why it ended."""
    answer = client.chat.completions.create(
        model=NAME, temperature=0.0, max_tokens=80, stream=stream, **question
    )
    if not stream:
        choice = answer.choices[0]
        message = choice.message
        called = [(c.function.name, c.function.arguments) for c in message.tool_calls or ()]
        return message.content or "", called, choice.finish_reason
    text, calls, why = "", {}, None
    for choice in (choice for chunk in answer for choice in chunk.choices):
        why = choice.finish_reason or why
        text += choice.delta.content or ""
        for part in choice.delta.tool_calls or ():
            name, arguments = calls.get(part.index, ("", ""))
            function = part.function
            calls[part.index] = (
                name + (function.name or ""),
                arguments + (function.arguments or ""),
            )
    return text, [calls[i] for i in sorted(calls)], why


def check_choices(answered: list[Any]) -> None:
    """What each tool choice allows, streamed and not."""
    for start in (0, len(answered) // 2):
        none, auto, required, named = (calls for _, calls, _ in answered[start:][: len(CHOICES)])
        assert none == []
        assert len(auto) > 1
        assert required
        assert {name for name, _ in (*auto, *required, *named)} == {"get_weather"}
        assert len(named) == 1


def answers(address: str) -> dict[str, list[Any]]:
    """All questions, streamed and not, one at a time and by six clients at once."""
    client = OpenAI(base_url=f"{address}/v1", api_key="none", timeout=600)
    asked = [(question, stream) for stream in (False, True) for question in questions()]
    with ThreadPoolExecutor(6) as clients:
        together = list(clients.map(lambda a: ask(client, *a), asked))
    return {"alone": [ask(client, *a) for a in asked], "together": together}


def test_answers_are_those_of_the_server_without_it(model: Path, tmp_path: Path) -> None:
    with server(model, tmp_path) as address:
        plain = answers(address)
    memory = tmp_path / "memory.npz"
    settings = {"specdec": {"memory": str(memory), "log_every": 1}}
    speculating = ("--speculative-config", json.dumps(SPECULATION))
    options = (*speculating, "--additional-config", json.dumps(settings))
    with server(model, tmp_path, *options) as address:
        drafted = answers(address)
        metrics = urllib.request.urlopen(f"{address}/metrics").read().decode()
    logs = "".join(p.read_text(encoding="utf-8") for p in tmp_path.glob("server-*.log"))
    print("\n" + "\n".join(line for line in metrics.splitlines() if line.startswith("specdec:")))
    print([line for line in logs.splitlines() if "specdec: accepted" in line][-1])
    for how in ("alone", "together"):
        differ = [(a, b) for a, b in zip(plain[how], drafted[how], strict=True) if a != b]
        print(how, len(differ), "of", len(plain[how]), "answers differ")
        assert differ == []
    check_choices(drafted["alone"])
    assert 'specdec:accepted_tokens_total{source="schema"}' in metrics
    assert memory.exists()
