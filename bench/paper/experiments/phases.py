"""Time by phase: how much of each method's time is the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.paper.experiment import Data, Experiment
from bench.paper.lab import STACKS
from bench.paper.results import PLAIN, rows_at
from bench.paper.section import Grid, Picture, Section
from specdec.compare.figures import times
from specdec.request import Phases, Result

DATA_SET: Final = "API-Bank"
PAPER_DRAFT: Final = 0.057
PAPER: Final = (
    "on API-Bank with Llama-3.1-8B-Instruct on an A100, 91.0 % of the time is the target's "
    "decoding and 5.7 % is retrieval and building drafts; the rest is not told apart."
)
PHASES: Final = ("forward", "draft", "verify", "observe")


def shares(phases: Phases) -> dict[str, float]:
    """The share of the time that each phase took."""
    total = phases.total
    return {name: getattr(phases, name) / total if total else 0.0 for name in PHASES}


def whole(results: tuple[Result, ...], *, decode: bool = False) -> Phases:
    """Seconds by phase of all results.

    Args:
        results: The results.
        decode: Whether to leave out the prompts' passes.
    """
    kept = [r.decode_phases if decode else r.prompt_phases + r.decode_phases for r in results]
    return sum(kept, Phases())


def tell(data: Mapping[str, Data]) -> Section:
    """Shares per method and data set, and seconds on the paper's."""
    rows = []
    found = ""
    for name, report in data["speed"].items():
        for row in rows_at(report, (PLAIN, *STACKS), measured=True):
            results = row.run.results
            if not results:
                continue
            total, decode = whole(results), whole(results, decode=True)
            parts, parts_decode = shares(total), shares(decode)
            per_pass = 1000 * (total.draft + total.observe) / row.run.passes
            rows.append(
                (
                    name,
                    f"`{row.name}`",
                    *(_per_cent(parts[phase]) for phase in PHASES),
                    _per_cent(parts_decode["forward"]),
                    _per_cent(parts_decode["draft"]),
                    per_pass,
                )
            )
            if name == DATA_SET and row.name == "toolspec":
                found = _found(parts, parts_decode, per_pass)
    columns = (
        "data set",
        "method",
        "forward",
        "draft",
        "verify",
        "observe",
        "forward, decode only",
        "draft, decode only",
        "ms of drafting and learning a pass",
    )
    own = data["speed"].get(DATA_SET)
    drawn = times(rows_at(own, (PLAIN, *STACKS), measured=True)) if own else None
    return Section(
        found=found or f"{DATA_SET} was not measured.",
        paper=PAPER,
        differs=(
            "A pass of a 135M model on a CPU is not a pass of an 8B model on a GPU, so the shares "
            "say what drafting costs here and the last column what it costs anywhere: it is Python "
            "on one core, whatever the model. `draft` is the paper's retrieval and building of "
            "drafts, cut to the budget; `observe` is what drafters learn from a step and tidying "
            "the cache. Measured budget; the prompts' passes count, and are left out where it "
            "says so."
        ),
        grids=[Grid(columns, rows)],
        pictures=[
            Picture(
                "phases",
                f"Seconds of a request on {DATA_SET} by phase, the prompt's pass and decoding "
                "apart.",
                drawn,
            )
        ]
        if drawn is not None
        else (),
    )


def _found(parts: Mapping[str, float], decode: Mapping[str, float], per_pass: float) -> str:
    side = "more than" if decode["draft"] > PAPER_DRAFT else "no more than"
    return (
        f"On {DATA_SET} with `toolspec`, {_per_cent(parts['forward'])} of the time is the model's "
        f"passes and {_per_cent(parts['draft'])} is drafting; without the prompts' passes, "
        f"{_per_cent(decode['forward'])} and {_per_cent(decode['draft'])}, {side} the paper's "
        f"5.7 %. Drafting and learning take {per_pass:.1f} ms a pass."
    )


def _per_cent(value: float) -> str:
    return f"{100 * value:.1f} %"


EXPERIMENTS: Final = (Experiment("phases", "Time by phase", tell, needs=("speed",)),)
