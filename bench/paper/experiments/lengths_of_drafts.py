"""Continuation lengths: how far the retrieved continuations reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.paper.experiment import Data, Experiment
from bench.paper.experiments.replayed import BLIND, failures, rows
from bench.paper.experiments.speed import with_interval
from bench.paper.lab import DATA_SETS, NODES, Lab
from bench.paper.results import rows_of
from bench.paper.section import Grid, Section
from specdec import FixedBudget
from specdec.compare.study import Study

LENGTHS: Final[tuple[tuple[int, ...], ...]] = (
    (32, 16, 8, 8),
    (16, 8, 4, 4),
    (64, 32, 16, 8),
    (16, 16, 16, 16),
)
"""The paper's choices, the one that it takes first."""

VERDICTS: Final = {
    (32, 16, 8, 8): "its setting: the highest speed-up",
    (16, 8, 4, 4): "lower MAT and speed-up",
    (64, 32, 16, 8): "slightly higher MAT, lower speed-up",
    (16, 16, 16, 16): "less gain than longer first continuations",
}
"""What the paper's text says of each."""

SETS: Final = ("API-Bank", "BFCLv2")

SAME: Final = 0.005
"""Two MAT closer than this are printed as the same number."""

UNCUT: Final = 128
"""More nodes than any of the choices has (the longest 120): drafts as the paper verifies them."""

STACKS: Final = {
    "toolspec": ("toolspec(lengths={lengths})", NODES),
    "values=0": ("toolspec(lengths={lengths}, values=0)", UNCUT),
}
"""The stack as it ships, and as in the paper, where values are the general drafter's and no
continuation is cut; each with its budget.
"""

PAPER: Final = (
    "{32, 16, 8, 8} is best (table 6; Llama-3.1-8B, 100 requests of API-Bank's training set): "
    "{16, 8, 4, 4} has a lower MAT and speed-up, {64, 32, 16, 8} a slightly higher MAT but a lower "
    "speed-up for what it costs, and uniform {16, 16, 16, 16} gains less."
)


def expression(stack: str, lengths: tuple[int, ...]) -> str:
    """The stack with these continuation lengths."""
    return STACKS[stack][0].format(lengths=list(lengths))


def measure(lab: Lab) -> Data:
    """A replay of each data set with each choice, by each stack at its budget."""
    found: dict[str, dict[str, Any]] = {}
    for name in SETS:
        cases = lab.cases(name, lab.scope.traces)
        subject = lab.replay(cases, "qwen2_5")
        found[name] = {}
        for stack, (_, nodes) in STACKS.items():
            study = f"lengths_of_drafts-{DATA_SETS[name]}-{nodes}"
            report = Study(
                subject,
                cases,
                [expression(stack, lengths) for lengths in LENGTHS],
                [FixedBudget(nodes)],
                {"study": study, **lab.settings},
            ).run(lab.folder / study, lab.progress, lab.ready)
            found[name][stack] = rows(report.to_json())
    return found


def tell(data: Mapping[str, Data]) -> Section:
    """One table per data set, a row per choice."""
    known = data["lengths_of_drafts"]
    grids, lost = [], ""
    comparisons: dict[str, Choices] = {}
    for name, studies in known.items():
        by_stack = {
            stack: {
                lengths: rows_of(study, expression(stack, lengths))[str(STACKS[stack][1])]
                for lengths in LENGTHS
            }
            for stack, study in studies.items()
        }
        lost += failures({f"{name}, {stack}": study for stack, study in studies.items()})
        comparisons |= {f"{name} (`{stack}`)": chosen for stack, chosen in by_stack.items()}
        lines = []
        for lengths in LENGTHS:
            cells: list[Any] = []
            for chosen in by_stack.values():
                row = chosen[lengths]
                cells += [with_interval(row["mat"], row["mat_interval"]), row["nodes_per_step"]]
            lines.append((braces(lengths), *cells, VERDICTS[lengths]))
        heads = [
            head
            for stack, (_, nodes) in STACKS.items()
            for head in (f"`{stack}`: MAT at {nodes} nodes", "nodes per step")
        ]
        grids.append(Grid(("lengths", *heads, "paper"), lines, f"{name}:"))
    return Section(
        found=_found(comparisons) + lost,
        paper=PAPER,
        differs=(
            "MAT and nodes only: what a node costs depends on the device, so more nodes for the "
            "same MAT are the loss here. The paper leaves values to the general drafter and cuts "
            f"nothing, as `toolspec(values=0)` does at {UNCUT} nodes; the stack as it ships "
            "guesses values from the schema and the conversation, which leaves less to retrieval. "
            "Continuations share their prefixes in one tree, so longer ones cost fewer nodes than "
            "in the paper. " + BLIND
        ),
        grids=grids,
        replay=True,
    )


def braces(lengths: tuple[int, ...]) -> str:
    """The lengths as the paper writes them."""
    return f"{{{', '.join(map(str, lengths))}}}"


Choices = Mapping[tuple[int, ...], Mapping[str, Any]]
"""The row of each choice."""


def _found(comparisons: Mapping[str, Choices]) -> str:
    """How the other choices do beside the paper's, over all comparisons."""
    base = ", ".join(
        f"{rows_by[LENGTHS[0]]['mat'] or 0.0:.2f} on {where}"
        for where, rows_by in comparisons.items()
    )
    parts = [f"With the paper's {braces(LENGTHS[0])} MAT is {base}"]
    for lengths in LENGTHS[1:]:
        mats = _changes(comparisons, lengths, "mat")
        nodes = _changes(comparisons, lengths, "nodes_per_step")
        parts.append(f"{braces(lengths)} changes MAT by {mats} and nodes by {nodes}")
    ahead = {
        braces(lengths): sum(
            (by[lengths]["mat"] or 0.0) - (by[LENGTHS[0]]["mat"] or 0.0) >= SAME
            for by in comparisons.values()
        )
        for lengths in LENGTHS[1:]
    }
    better = [f"{name} in {count}" for name, count in ahead.items() if count]
    text = "; ".join(parts)
    if not better:
        return f"{text}. No other choice has a higher MAT than the paper's."
    return f"{text}. In MAT the paper's is behind {', '.join(better)} of {len(comparisons)} cases."


def _changes(comparisons: Mapping[str, Choices], lengths: tuple[int, ...], name: str) -> str:
    """The least and the greatest change of a figure against the paper's choice."""
    found = sorted(
        100 * ((by[lengths][name] or 0.0) / by[LENGTHS[0]][name] - 1)
        for by in comparisons.values()
        if by[LENGTHS[0]][name]
    )
    if not found:
        return "an unknown share"
    return f"{found[0]:+.1f} to {found[-1]:+.1f} %"


EXPERIMENTS: Final = (Experiment("lengths_of_drafts", "Continuation lengths", tell, measure),)
