"""Neighbours: how many similar earlier requests are recalled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from matplotlib.figure import Figure

from bench.paper.experiment import Data, Experiment
from bench.paper.experiments.replayed import BLIND, failures, rows
from bench.paper.experiments.speed import with_interval
from bench.paper.lab import DATA_SETS, NODES, Lab
from bench.paper.results import rows_of
from bench.paper.section import Grid, Picture, Section
from specdec.compare.canvas import axes, canvas, styled
from specdec.compare.palette import HUES, SURFACE

COUNTS: Final = (0, 1, 5, 10, 20, 50)

CHOSEN: Final = 10
"""The paper's choice."""

SETS: Final = ("API-Bank", "BFCLv2")

SAME: Final = 0.005
"""Two MAT closer than this are printed as the same number."""

PAPER: Final = (
    f"k = {CHOSEN} gives the highest speed-up of the values tried (table 7; Llama-3.1-8B, 100 "
    "requests of API-Bank's training set)."
)


STACKS: Final = {"toolspec": "toolspec(k={k})", "values=0": "toolspec(k={k}, values=0)"}
"""The stack as it ships, and as in the paper, where values are the general drafter's."""


def measure(lab: Lab) -> Data:
    """A replay of each data set with each k."""
    found = {}
    for name in SETS:
        cases = lab.cases(name, lab.scope.traces)
        report = lab.study(
            f"neighbours-{DATA_SETS[name]}",
            cases,
            [stack.format(k=k) for stack in STACKS.values() for k in COUNTS],
            subject=lab.replay(cases, "qwen2_5"),
            measured=False,
        )
        found[name] = rows(report)
    return found


def tell(data: Mapping[str, Data]) -> Section:
    """One row per k, and the curves of MAT over k."""
    known = data["neighbours"]
    columns = [(name, stack) for name in known for stack in STACKS]
    mats = {
        (name, stack): {k: _row(known[name], stack, k)["mat"] or 0.0 for k in COUNTS}
        for name, stack in columns
    }
    lines = []
    for k in COUNTS:
        cells: list[Any] = []
        for name, stack in columns:
            row = _row(known[name], stack, k)
            cells.append(with_interval(row["mat"], row["mat_interval"]))
        shipped = [_row(study, "toolspec", k) for study in known.values()]
        drafting = sum(row["phases"]["draft"] + row["phases"]["observe"] for row in shipped)
        cells.append(1000 * drafting / max(sum(row["passes"] for row in shipped), 1))
        lines.append((f"{k}" + (" (paper)" if k == CHOSEN else ""), *cells))
    found = [_found(name, stack, by_k) for (name, stack), by_k in mats.items()]
    heads = [f"{name}, `{stack}`" for name, stack in columns] + ["ms of drafting per pass"]
    return Section(
        found=f"By replay, {'; '.join(found)}.{failures(known)}",
        paper=PAPER,
        differs=(
            f"MAT at {NODES} nodes. With k = 0 the prompt and the output itself are still "
            "searched. The paper leaves values to the general drafter, as `toolspec(values=0)` "
            "does; the stack as it ships guesses them from the schema and the conversation, which "
            "leaves less to retrieval. Drafting is that of the stack as it ships, on this machine. "
            + BLIND
        ),
        grids=[Grid(("k", *heads), lines)],
        pictures=[
            Picture(
                "neighbours",
                f"MAT at {NODES} nodes by the number of episodes recalled; the dashed upright line "
                "is the paper's choice, dashed curves leave values to the general drafter.",
                draw(mats),
            )
        ],
        replay=True,
    )


def _found(name: str, stack: str, by_k: Mapping[int, float]) -> str:
    """How the paper's k does beside the best and beside none."""
    best = max(COUNTS, key=by_k.__getitem__)
    text = f"on {name} `{stack}` has MAT {by_k[CHOSEN]:.2f} with k = {CHOSEN}"
    if by_k[best] - by_k[CHOSEN] < SAME:
        return f"{text}, which no other k exceeds, and {by_k[0]:.2f} with k = 0"
    text += f", behind {by_k[best]:.2f} with k = {best}"
    return text if best == 0 else f"{text}; with k = 0 it has {by_k[0]:.2f}"


@styled
def draw(mats: Mapping[tuple[str, str], Mapping[int, float]]) -> Figure:
    """One line per data set and stack."""
    figure = canvas(2.9)
    ax = axes(figure, left=0.6, top=0.2, width=5.8, height=2.2)
    places = range(len(COUNTS))
    names = list(dict.fromkeys(name for name, _ in mats))
    top = max(max(by_k.values()) for by_k in mats.values()) or 1.0
    below = -top
    # From below, so that a label that would touch the one under it is moved up.
    for (name, stack), by_k in sorted(mats.items(), key=lambda item: item[1][COUNTS[-1]]):
        values = [by_k[k] for k in COUNTS]
        shipped = stack == "toolspec"
        colour = HUES[names.index(name) % len(HUES)]
        ax.plot(
            places,
            values,
            color=colour,
            marker="o",
            markerfacecolor=colour if shipped else SURFACE,
            ls="-" if shipped else (0, (5, 1.5)),
            lw=1.8,
        )
        below = max(values[-1], below + 0.09 * top)
        label = name if shipped else f"{name}, values=0"
        ax.text(places[-1] + 0.12, below, label, va="center", color=colour)
    ax.axvline(COUNTS.index(CHOSEN), color="#8c959f", lw=1, ls=(0, (4, 2)), zorder=0)
    ax.set_xticks(places, [str(k) for k in COUNTS])
    ax.set_xlabel("k, episodes recalled")
    ax.set_ylabel("tokens per step (MAT)")
    ax.set_ylim(0, 1.05 * top)
    ax.grid(axis="y")
    return figure


def _row(study: Mapping[str, Any], stack: str, k: int) -> Mapping[str, Any]:
    return rows_of(study, STACKS[stack].format(k=k))[str(NODES)]


EXPERIMENTS: Final = (Experiment("neighbours", "Number of retrieved calls", tell, measure),)
