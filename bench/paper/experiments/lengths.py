"""Accepted lengths: how many drafted tokens each step accepts, per method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from bench.paper.experiment import Data, Experiment
from bench.paper.lab import STACKS
from bench.paper.results import rows_at
from bench.paper.section import Grid, Picture, Section
from specdec.compare.figures import accepted_lengths

DATA_SET: Final = "API-Bank"
LONGEST: Final = 17
"""From here on, lengths are shown together, as in the paper."""

BANDS: Final = ((0, 0), (1, 1), (2, 4), (5, 8), (9, 16), (LONGEST, None))
PAPER_OVER_8: Final = 0.22
PAPER_LONG: Final = 0.04
PAPER: Final = (
    "on API-Bank with Llama-3.1-8B-Instruct, 22 % of ToolSpec's steps accept more than 8 tokens "
    "and nearly 4 % accept 17 to 33; earlier methods mostly stay below 8."
)


def share(counts: Mapping[int, int], low: int, high: int | None = None) -> float:
    """The share of steps whose length is from `low` to `high`, both included.

    Args:
        counts: Steps by length.
        low: The shortest length that counts.
        high: The longest; None for no bound.
    """
    total = sum(counts.values())
    inside = sum(n for at, n in counts.items() if low <= at and (high is None or at <= high))
    return inside / total if total else 0.0


def tell(data: Mapping[str, Data]) -> Section:
    """Shares of steps per method and data set, and the distribution on the paper's."""
    rows = []
    found = ""
    for name, report in data["speed"].items():
        for row in rows_at(report, STACKS, measured=False):
            counts = row.accepted_lengths
            shares = [_per_cent(share(counts, *band)) for band in BANDS]
            longest = max(counts, default=None)
            rows.append((name, f"`{row.name}`", sum(counts.values()), *shares, longest))
            if name == DATA_SET and row.name == "toolspec":
                every = Counter(n for result in row.run.results for n in result.accepted)
                found = _found(counts, every)
    own = data["speed"].get(DATA_SET)
    drawn = accepted_lengths(rows_at(own, STACKS, measured=False)) if own else None
    heads = [f"{low}" if low == high else f"{low} to {high}" for low, high in BANDS[:-1]]
    return Section(
        found=found or f"{DATA_SET} was not measured.",
        paper=PAPER,
        differs=(
            "The paper's longest, 33, is its longest draft of 32 and the model's own token, so its "
            "lengths seem to count that token; the table counts drafted tokens only, and the "
            "sentence above gives both. Steps are those behind the prompt's pass, at 64 nodes. The "
            "prompt's pass carries a draft here, often a long one; in the paper that draft is a "
            "step of its own, so the sentence also says what the shares are with it. Outputs are "
            "short here, and the last step of each is cut by their end."
        ),
        grids=[Grid(("data set", "method", "steps", *heads, f"{LONGEST}+", "longest"), rows)],
        pictures=[
            Picture(
                "lengths",
                f"Share of the steps on {DATA_SET} by the drafted tokens that they accepted; "
                f"{LONGEST} stands for as many and more.",
                drawn,
            )
        ]
        if drawn is not None
        else (),
    )


def _found(counts: Mapping[int, int], every: Mapping[int, int]) -> str:
    """What `toolspec` does on the paper's data set.

    Args:
        counts: Steps by drafted tokens accepted.
        every: The same with the prompts' passes.
    """
    written, written_in_all = ({n + 1: count for n, count in c.items()} for c in (counts, every))
    over, long = share(written, 9), share(written, LONGEST)
    return (
        f"On {DATA_SET}, {_per_cent(share(counts, 9))} of the steps of `toolspec` accept more "
        f"than 8 drafted tokens and {_per_cent(share(counts, LONGEST))} accept {LONGEST} or more. "
        f"With "
        f"the model's own token, as the paper seems to count, {_per_cent(over)} write more than 8 "
        f"({_side(over, PAPER_OVER_8)} the paper's 22 %) and {_per_cent(long)} write {LONGEST} "
        f"or more ({_side(long, PAPER_LONG)} its nearly 4 %); with the prompts' passes, "
        f"{_per_cent(share(written_in_all, 9))} and {_per_cent(share(written_in_all, LONGEST))}."
    )


def _side(own: float, paper: float) -> str:
    return "above" if own >= paper else "behind"


def _per_cent(value: float) -> str:
    return f"{100 * value:.1f} %"


EXPERIMENTS: Final = (
    Experiment("lengths", "Distribution of accepted lengths", tell, needs=("speed",)),
)
