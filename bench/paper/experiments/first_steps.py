"""Tokens of the first two steps: what drafts of the tool's name and first argument bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import attrs

from bench.paper.experiment import Data, Experiment
from bench.paper.lab import STACKS
from bench.paper.results import PLAIN, committed, rows_at
from bench.paper.section import Grid, Picture, Section
from specdec.compare.canvas import axes, canvas, styled
from specdec.compare.palette import HUES, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA_SET: Final = "API-Bank"
PAPER_TOOLSPEC: Final = 19.3
PAPER: Final = (
    "on API-Bank with Llama-3.1-8B-Instruct, the first two steps (the tool's name, the first "
    "argument's name) write 19.3 tokens with ToolSpec, 8.5 with Token Recycling and 2 with "
    "EAGLE-3, which is what plain decoding writes."
)
METHODS: Final = (PLAIN, *STACKS)


@attrs.frozen
class Opening:
    """What a method's first passes wrote, one number per request.

    Attributes:
        passes: (n,) tokens of the first two passes, the prompt's own among them.
        steps: (m,) tokens of the first two steps behind the prompt's pass, of the requests that
            took a step.
        ended: How many of the n requests were over after two passes.
        length: Mean length of the outputs.
    """

    passes: tuple[int, ...]
    steps: tuple[int, ...]
    ended: int
    length: float


def openings(report: Mapping[str, Any]) -> dict[str, Opening]:
    """What each method's first passes wrote, at the fixed budget."""
    found = {}
    for row in rows_at(report, METHODS, measured=False):
        counts = [committed(result) for result in row.run.results]
        if counts:
            found[row.name] = Opening(
                tuple(sum(count[:2]) for count in counts),
                tuple(sum(count[1:3]) for count in counts if len(count) > 1),
                sum(len(count) <= 2 for count in counts),
                fmean(len(result.tokens) for result in row.run.results),
            )
    return found


def tell(data: Mapping[str, Data]) -> Section:
    """Means per method and data set, and their spread on the paper's."""
    found = {name: openings(report) for name, report in data["speed"].items()}
    rows = [
        (
            name,
            f"`{method}`",
            fmean(opening.passes),
            fmean(opening.steps) if opening.steps else None,
            f"{opening.ended}/{len(opening.passes)}",
            opening.length,
        )
        for name, methods in found.items()
        for method, opening in methods.items()
    ]
    columns = (
        "data set",
        "method",
        "first two passes",
        "first two steps behind the prompt's pass",
        "over after two passes",
        "tokens of an output",
    )
    own = found.get(DATA_SET) or next(iter(found.values()))
    return Section(
        found=_found(own),
        paper=PAPER,
        differs=(
            "Here the prompt's own pass carries a draft too, so the name is usually drafted in it: "
            '"first two passes" counts it and the step behind it, which draft what the paper\'s '
            "two "
            'steps draft. "First two steps behind the prompt\'s pass" leaves it out, as the paper '
            "does, but starts further into the call. Both count all tokens that are written, the "
            "model's own one per pass among them (plain decoding: 2), at 64 nodes. An output "
            "that is over counts with what it had, so short outputs cap both."
        ),
        grids=[Grid(columns, rows)],
        pictures=[
            Picture(
                "first-steps",
                f"Tokens written by the first two passes on {DATA_SET}, the prompt's own among "
                "them. Boxes hold the middle half of the requests, triangles are means.",
                draw(own),
            )
        ],
    )


def _found(own: Mapping[str, Opening]) -> str:
    toolspec = own["toolspec"]
    passes = fmean(toolspec.passes)
    text = (
        f"On {DATA_SET}, the first two passes write {passes:.1f} tokens with `toolspec`, "
        f"{_mean(own, 'token-recycling')} with `token-recycling`, {_mean(own, 'samd')} with "
        f"`samd`, {_mean(own, 'pld')} with `pld`"
    )
    text += f": {_side(passes)} the paper's {PAPER_TOOLSPEC}."
    if not toolspec.steps:
        return text
    steps = fmean(toolspec.steps)
    return (
        f"{text} The first two steps behind the prompt's pass, counted as the paper counts, write "
        f"{steps:.1f} with `toolspec`, {_side(steps)} {PAPER_TOOLSPEC}: what they would draft, the "
        "prompt's pass has often written already."
    )


def _side(own: float) -> str:
    return "above" if own >= PAPER_TOOLSPEC else "behind"


def _mean(own: Mapping[str, Opening], method: str) -> str:
    return f"{fmean(own[method].passes):.1f}" if method in own else "-"


@styled
def draw(own: Mapping[str, Opening]) -> Figure:
    """Boxes over the requests, one per method."""
    names: Sequence[str] = [name for name in reversed(METHODS) if name in own]
    figure = canvas(0.36 * len(names) + 0.6)
    ax = axes(figure, left=1.35, top=0.08, width=6.7, height=0.36 * len(names))
    ax.boxplot(
        [own[name].passes for name in names],
        orientation="horizontal",
        tick_labels=list(names),
        showmeans=True,
        meanprops={"marker": "^", "markerfacecolor": HUES[2], "markeredgecolor": HUES[2]},
        flierprops={"marker": "D", "markersize": 3, "markeredgecolor": INK},
        medianprops={"color": HUES[1]},
    )
    ax.set_xlim(left=0)
    ax.grid(axis="x")
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("tokens written by the first two passes")
    return figure


EXPERIMENTS: Final = (
    Experiment("first-steps", "Accepted tokens in the first two steps", tell, needs=("speed",)),
)
