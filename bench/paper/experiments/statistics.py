"""Statistics of the data sets: how often tools are called, and how long prompts and calls are."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.coverage.cases import SHARED, Missing
from bench.coverage.references import Encoder
from bench.coverage.references import load as load_encoder
from bench.paper.experiment import Data, Experiment
from bench.paper.lab import DATA_SETS, Lab
from bench.paper.section import Grid, Section
from specdec.calls import HERMES
from specdec.compare.cases import Case, read_cases
from specdec.compare.subject import ReplaySubject

TOKENIZER: Final = "qwen2_5"

BFCL_ALL: Final = "BFCLv2, all"

CUT: Final = frozenset({"ToolBench"})
"""Data sets whose public answers are cut, so that nothing can be said about their arguments."""

PAPER_CALLS: Final = 10.95
"""Calls per tool on API-Bank in the paper."""

PAPER: Final = (
    "Its table 2 counts how often tools are called; the text names one figure of it: on average "
    "more than 10.95 calls per tool on API-Bank. It describes API-Bank as 73 APIs (and a memory "
    "of it as 597 entries), ToolAlpaca as 10 simulated and 11 real-world tools, BFCLv2 in its "
    "single- and multiple-function settings, ToolBench as its single-tool subset of 16,464 APIs."
)


def sets(lab: Lab) -> dict[str, Sequence[Case]]:
    """The data sets, whole: counting is cheap, and calls per tool depend on how many there are."""
    found = {name: lab.cases(name, None) for name in DATA_SETS}
    path = SHARED / "data" / "bfcl.jsonl"
    if not path.is_file():
        raise Missing(f"no data set {BFCL_ALL!r}: there is no file {path}")
    live = [c for c in read_cases(path) if c.split in ("live_simple", "live_multiple")]
    order: dict[str, Sequence[Case]] = {}
    for name, cases in found.items():
        if name == "BFCLv2":
            order[BFCL_ALL] = live
            name = "BFCLv2, held out"
        order[name] = cases
    return order


def measure(lab: Lab) -> Data:
    """The figures of every data set."""
    encoder = load_encoder(TOKENIZER)
    return {
        name: figures(cases, lab.replay(cases, TOKENIZER), encoder)
        for name, cases in sets(lab).items()
    }


def figures(cases: Sequence[Case], subject: ReplaySubject, encoder: Encoder) -> dict[str, Any]:
    """What is counted in one data set.

    Args:
        cases: Its requests.
        subject: Makes their prompts as a model is shown them.
        encoder: Of the same tokenizer; writes their calls.
    """
    called = Counter(call.name for case in cases for call in case.calls)
    tokens = structural = 0
    for case in cases:
        if case.calls:
            written = encoder.reference(case, HERMES)
            tokens += len(written.tokens) - 1  # the end token is no part of a call
            structural += sum(written.structural)
    calls = called.total()
    return {
        "requests": len(cases),
        "tools": len(called),
        "calls": calls,
        "calls_per_tool": calls / len(called) if called else None,
        "called_once": sum(1 for count in called.values() if count == 1),
        "offered": statistics.mean(len(case.tools) for case in cases),
        "prompt_tokens": statistics.median(len(subject.request(case).prompt) for case in cases),
        "tokens_per_call": tokens / calls if calls else None,
        "structural": structural / tokens if tokens else None,
    }


def tell(data: Mapping[str, Data]) -> Section:
    """One row per data set."""
    known = data["statistics"]
    rows = []
    for name, row in known.items():
        cut = name in CUT
        rows.append(
            (
                name,
                row["requests"],
                row["tools"],
                row["calls"],
                row["calls_per_tool"],
                _share(row["called_once"], row["tools"]),
                row["offered"],
                f"{row['prompt_tokens']:,.0f}",
                None if cut else row["tokens_per_call"],
                None if cut or row["structural"] is None else f"{100 * row['structural']:.0f} %",
            )
        )
    columns = (
        "data set",
        "requests",
        "tools called",
        "calls",
        "calls per tool",
        "tools called once",
        "tools on offer",
        "prompt tokens (median)",
        "tokens per call",
        "structural tokens",
    )
    return Section(
        found=_found(known),
        paper=PAPER,
        differs=(
            "Tools are counted by name over the reference calls; the paper does not say how it "
            "counts. Tokens are those of Qwen2.5's tokenizer, prompts as its chat template writes "
            "them, calls in the Hermes format; a token is structural when it lies outside of all "
            "argument values. ToolBench's public answers are cut at 100 characters a step, so "
            "nothing is said about its arguments."
        ),
        grids=[Grid(columns, rows)],
    )


def _found(known: Mapping[str, Any]) -> str:
    parts = [
        f"{name} {row['calls_per_tool']:.2f}"
        for name, row in known.items()
        if row["calls_per_tool"] is not None
    ]
    text = f"Calls per tool: {', '.join(parts)}."
    bank = known.get("API-Bank")
    if bank and bank["calls_per_tool"] is not None:
        ours = bank["calls_per_tool"]
        side = "fewer" if ours < PAPER_CALLS else "no fewer"
        text += (
            f" On API-Bank that is {side} than the paper's {PAPER_CALLS}: the "
            f"{bank['calls']} calls go to {bank['tools']} tools."
        )
        if bank["structural"] is not None:
            text += (
                f" Of a call's {bank['tokens_per_call']:.0f} tokens there, "
                f"{100 * bank['structural']:.0f} % are structural: fixed by format and schema."
            )
    return text


def _share(part: int, whole: int) -> str | None:
    return f"{100 * part / whole:.0f} %" if whole else None


EXPERIMENTS: Final = (Experiment("statistics", "The data sets", tell, measure),)
