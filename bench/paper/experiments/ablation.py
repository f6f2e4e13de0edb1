"""Ablation: `toolspec` without its parts, and with more than the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.paper.experiment import Data, Experiment
from bench.paper.experiments.repeated import tokens_a_pass
from bench.paper.experiments.speed import with_interval
from bench.paper.lab import DATA_SETS, Lab
from bench.paper.results import row_at
from bench.paper.section import Grid, Section

DATA_SET: Final = "API-Bank"
WHOLE: Final = "toolspec"
LITERAL: Final = "toolspec(values=0)"
NEITHER: Final = "toolspec(schema=false, retrieval=false)"
NO_SCHEMA: Final = "toolspec(schema=false)"
NO_RETRIEVAL: Final = "toolspec(retrieval=false)"
PROMPT_ONLY: Final = "toolspec(schema=false, retrieval=retrieval(k=0))"
MERGED: Final = "merge(retrieval(from_start=true), schema, token-recycling)"

VARIANTS: Final = {
    WHOLE: ("schema, retrieval, values guessed", "the whole method, but leaves values alone"),
    LITERAL: ("no values guessed", "the whole method"),
    NO_SCHEMA: ("no schema", "slower than the whole"),
    NO_RETRIEVAL: ("no retrieval", "slower than the whole"),
    PROMPT_ONLY: (
        "neither, but matches in prompt and output",
        "neither: like PLD, slightly faster than Token Recycling",
    ),
    NEITHER: ("neither; Token Recycling alone", "Token Recycling, below all of these"),
    MERGED: ("all sources in one tree", "not in the paper"),
}
"""The stacks: what each is here, and what the paper's ablation says of its counterpart."""

PAPER: Final = (
    "on API-Bank with Llama-3.1-8B-Instruct, both parts are crucial to the speed; without both, "
    "ToolSpec is like PLD, matching suffixes within its input, and slightly faster than Token "
    "Recycling. (Its table's figures are not part of the text that was at hand.)"
)


def measure(lab: Lab) -> Data:
    """A comparison of all variants, as the report's JSON."""
    cases = lab.cases(DATA_SET, lab.scope.requests)
    return lab.study(f"ablation-{DATA_SETS[DATA_SET]}", cases, tuple(VARIANTS))


def tell(data: Mapping[str, Data]) -> Section:
    """One table of all variants."""
    report = data["ablation"]
    rows = []
    mats: dict[str, float] = {}
    gains: dict[str, float] = {}
    for stack, (ours, theirs) in VARIANTS.items():
        fixed = row_at(report, stack, measured=False)
        timed = row_at(report, stack, measured=True)
        mats[stack] = fixed["mat"] or 0.0
        gains[stack] = timed["decode_speedup"] or 0.0
        rows.append(
            (
                f"`{stack}`",
                ours,
                with_interval(fixed["mat"], fixed["mat_interval"]),
                tokens_a_pass(fixed),
                with_interval(timed["speedup"], timed["speedup_interval"], "x"),
                with_interval(timed["decode_speedup"], timed["decode_speedup_interval"], "x"),
                theirs,
            )
        )
    columns = (
        "stack",
        "what",
        "MAT at 64 nodes",
        "tokens a pass",
        "speed-up",
        "decode only",
        "the paper's",
    )
    return Section(
        found=_found(mats, gains, row_at(report, WHOLE, measured=False)["requests"]),
        paper=PAPER,
        differs=(
            "Whole calls are drafted here, with guessed values, by default; `toolspec(values=0)` "
            "is the paper's literal schema part. `toolspec(retrieval=false)` also gives up "
            "matching within prompt and output, which the paper's variant seems to keep; "
            f"`{PROMPT_ONLY}` keeps it. "
            '"Tokens a pass" also counts the prompts\' passes, which carry the first draft here.'
        ),
        grids=[Grid(columns, rows)],
    )


def _found(mats: Mapping[str, float], gains: Mapping[str, float], requests: int) -> str:
    parts = []
    for stack, name in ((NO_SCHEMA, "the schema"), (NO_RETRIEVAL, "retrieval")):
        way = "loses" if mats[stack] < mats[WHOLE] else "does not lose"
        parts.append(
            f"without {name} it {way} MAT ({mats[stack]:.2f}, decoding {gains[stack]:.2f}x)"
        )
    # The paper finds that both parts matter, and so must whoever repeats it, or say otherwise.
    idle = [stack for stack in (NO_SCHEMA, NO_RETRIEVAL) if mats[stack] >= mats[WHOLE]]
    best = max(mats, key=mats.__getitem__)
    text = (
        f"`toolspec` reaches MAT {mats[WHOLE]:.2f} and decodes {gains[WHOLE]:.2f} times as fast as "
        f"plain decoding; {'; '.join(parts)}; without both, MAT {mats[NEITHER]:.2f}, "
        f"{gains[NEITHER]:.2f}x. The paper's literal parts reach MAT {mats[LITERAL]:.2f}, "
        f"{gains[LITERAL]:.2f}x; all sources in one tree {mats[MERGED]:.2f}, {gains[MERGED]:.2f}x. "
        f"The highest MAT is that of `{best}`."
    )
    if idle:
        text += (
            " Unlike in the paper, not both parts bring something here, as far as "
            f"{requests} requests tell."
        )
    return text


EXPERIMENTS: Final = (Experiment("ablation", "Ablation", tell, measure),)
