"""Requests for the real engines: chat, BFCL's tools, API-Bank's prompts, one prefix, 500 tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from specdec.calls import Tool
from specdec.compare.cases import bfcl_files, read_cases

Record = dict[str, Any]

BFCL = ("simple_python", "live_multiple", "parallel", "parallel_multiple")

CHAT = (
    "Hello! Who are you?",
    "Name the planets of the solar system, one per line.",
    "Write a short poem about the sea.",
    "What is the capital of Portugal?",
)


def write(path: Path, records: Sequence[Record]) -> Path:
    """One JSON object per line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def chat() -> list[Record]:
    """Plain conversations."""
    return [{"messages": [{"role": "user", "content": text}]} for text in CHAT]


def calls() -> list[Record]:
    """The demo model's own requests, with tools for the template; the prompts share a prefix."""
    from specdec_demo_model import REQUESTS

    return [{"messages": [*r.messages], "tools": [*r.tools]} for r in REQUESTS]


def bfcl(each: int) -> list[Record]:
    """So many questions of each of BFCL's sets, from its package."""
    files = bfcl_files()
    cases = [case for name in BFCL for case in read_cases(files[name])[:each]]
    return [{"messages": [*c.messages], "tools": [*map(_openai, c.tools)]} for c in cases]


def api_bank(file: Path, most: int) -> list[Record]:
    """API-Bank's prompts, which tell of their tools themselves."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:most]]


def many_tools(count: int = 500) -> list[Record]:
    """Questions with so many small tools, some 22,000 tokens each."""
    tools = [*_tools(count)]
    asked = ("Add a note: buy milk.", "What does tool number 77 say about Lisbon?")
    return [{"messages": [{"role": "user", "content": text}], "tools": tools} for text in asked]


def _openai(tool: Tool) -> Record:
    return {"type": "function", "function": attrs.asdict(tool)}


def _tools(count: int) -> Iterator[Record]:
    for i in range(count):
        argument = {"type": "object", "properties": {"q": {"type": "string"}}}
        yield {"type": "function", "function": {"name": f"tool_{i}", "parameters": argument}}
