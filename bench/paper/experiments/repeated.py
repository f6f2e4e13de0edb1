"""Repeated calls: the same requests once more, when memories hold their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.paper.experiment import Data, Experiment
from bench.paper.experiments.speed import with_interval
from bench.paper.lab import DATA_SETS, STACKS, Lab
from bench.paper.results import row_at
from bench.paper.section import Grid, Section

DATA_SET: Final = "API-Bank"
FROM_START: Final = "toolspec(from_start=true)"
STACKS_AGAIN: Final = ("token-recycling", "toolspec", FROM_START)
"""The stacks that remember something from one request to the next."""

PAPER_MAT: Final = 9.3
PAPER_SPEEDUP: Final = 5.5
PAPER: Final = (
    "on repeated tool calls of API-Bank with Llama-3.1-8B-Instruct, ToolSpec accepts 9.3 tokens a "
    "step and is about 5.5 times as fast as plain decoding (4.45 times on all of API-Bank)."
)


def measure(lab: Lab) -> Data:
    """All methods on requests that each has answered once before, as the report's JSON."""
    cases = lab.cases(DATA_SET, lab.scope.requests)
    name = f"repeated-{DATA_SETS[DATA_SET]}"
    return lab.study(name, cases, STACKS_AGAIN, warm=True)


def tell(data: Mapping[str, Data]) -> Section:
    """The second time beside the first."""
    again, first = data["repeated"], data["speed"].get(DATA_SET)
    rows = []
    for stack in STACKS_AGAIN:
        fixed, timed = (row_at(again, stack, measured=measured) for measured in (False, True))
        once: Mapping[str, Any] = {}
        once_timed: Mapping[str, Any] = {}
        if first is not None and stack in STACKS:
            once, once_timed = (row_at(first, stack, measured=timed) for timed in (False, True))
        rows.append(
            (
                f"`{stack}`",
                once.get("mat"),
                with_interval(fixed["mat"], fixed["mat_interval"]),
                f"{fixed['steps']} of {fixed['requests']}",
                tokens_a_pass(once) if once else None,
                tokens_a_pass(fixed),
                with_interval(once_timed.get("decode_speedup"), None, "x"),
                with_interval(timed["decode_speedup"], timed["decode_speedup_interval"], "x"),
                with_interval(once_timed.get("speedup"), None, "x"),
                with_interval(timed["speedup"], timed["speedup_interval"], "x"),
            )
        )
    columns = (
        "method",
        "MAT, first time",
        "MAT, again",
        "steps of requests, again",
        "tokens a pass, first time",
        "tokens a pass, again",
        "decode only, first time",
        "decode only, again",
        "speed-up, first time",
        "speed-up, again",
    )
    return Section(
        found=_found(again, first),
        paper=PAPER,
        differs=(
            "The paper does not say which calls count as repeated; here every request is asked "
            "twice and the second time counts, which is as repeated as can be. The first time is "
            "that of the speed table, with an empty memory at its start. The prompt's own pass "
            "carries a draft here and may write most of a call, so few steps are left to count: "
            '"tokens a pass" counts that pass too, as the paper\'s MAT counts the step that drafts '
            "the same, and decode-only times leave out what that pass wrote. "
            f"`{FROM_START}` also drafts a remembered output from its first token, which the "
            "paper's method, matching 5 tokens at least, cannot."
        ),
        grids=[Grid(columns, rows)],
    )


def tokens_a_pass(row: Mapping[str, Any]) -> float | None:
    """Tokens per pass of the model, the prompts' passes among them."""
    return row["tokens"] / row["passes"] if row["passes"] else None


def _found(again: Mapping[str, Any], first: Mapping[str, Any] | None) -> str:
    mats = {s: row_at(again, s, measured=False)["mat"] or 0.0 for s in STACKS_AGAIN}
    fixed = row_at(again, "toolspec", measured=False)
    timed = row_at(again, "toolspec", measured=True)
    once = row_at(first, "toolspec", measured=False)["mat"] if first is not None else None
    before = f" (the first time {once:.2f})" if once is not None else ""
    mat, gain = mats["toolspec"], timed["decode_speedup"] or 0.0
    a_pass = tokens_a_pass(fixed) or 0.0
    leader = max(mats, key=mats.__getitem__)
    reached = (
        f"reaches MAT {mat:.2f}{before}, {_side(mat, PAPER_MAT)} the paper's {PAPER_MAT}, and"
        if fixed["steps"]
        else f"needs no step behind the prompts' passes, so has no MAT{before}, but"
    )
    text = (
        f"Asked again, `toolspec` {reached} {a_pass:.1f} tokens a pass with the prompts' own, "
        f"{_side(a_pass, PAPER_MAT)} {PAPER_MAT}. It decodes {gain:.1f} times as fast as plain "
        f"decoding, {_side(gain, PAPER_SPEEDUP)} the paper's {PAPER_SPEEDUP}; with the prompts' "
        f"passes, {timed['speedup'] or 0.0:.2f} times. `{FROM_START}` reaches MAT "
        f"{mats[FROM_START]:.2f}."
    )
    if fixed["steps"] < fixed["requests"]:
        text += (
            " Most calls are over after the prompt's pass (steps left: "
            f"{fixed['steps']}, requests: {fixed['requests']}), so MAT and decode-only times say "
            "little."
        )
    if leader not in ("toolspec", FROM_START):
        text += f" `{leader}` is ahead of it, with MAT {mats[leader]:.2f}."
    return text


def _side(own: float, paper: float) -> str:
    return "above" if own >= paper else "behind"


EXPERIMENTS: Final = (Experiment("repeated", "Repeated calls", tell, measure, ("speed",)),)
