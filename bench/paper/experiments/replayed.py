"""MAT of all methods by replay of reference calls, with the tokenizers of the paper's models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench.coverage.cases import SHARED, Missing
from bench.paper.experiment import Data, Experiment
from bench.paper.experiments.speed import with_interval
from bench.paper.lab import DATA_SETS, MOST, NODES, STACKS, Lab
from bench.paper.results import rows_of
from bench.paper.section import Grid, Section
from specdec.compare.cases import Case
from specdec.compare.subject import ReplaySubject
from specdec.hf.loading import load_tokenizer

TOKENIZERS: Final = {
    "Qwen2.5": ("qwen2_5", "Qwen-Qwen2.5-7B-Instruct"),
    "Llama 3.1": ("llama3_1", "meta-llama-Llama-3.1-8B-Instruct"),
}
"""The paper's model families: folders of their tokenizers, files of their chat templates."""

PAPER_LOW: Final = 4.02
PAPER_HIGH: Final = 5.80
"""The range of ToolSpec's MAT in the paper's main table."""

BLIND: Final = (
    "A trace holds one token for each place, so the second choices that `token-recycling` (also "
    "inside `samd` and `toolspec`) lives on are stood in for by what followed a token earlier in "
    "the trace: it does worse here than behind a model. There are no hidden states either, so "
    "similar requests are found by their prompts' words."
)
"""What a replay does not know; every section that tells of one says so."""

PAPER: Final = (
    f"ToolSpec's MAT is {PAPER_LOW} to {PAPER_HIGH:.2f} over its models (Qwen2.5 and Llama 3 "
    "Instruct) and API-Bank, ToolAlpaca, BFCLv2 and ToolBench (A100, fp16, batch 1). The text "
    "gives no other method's MAT."
)


def rows(report: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a replay: its rows and failures, not every request's tokens."""
    return {name: report[name] for name in ("rows", "failures")}


def failures(studies: Mapping[str, Any]) -> str:
    """A sentence on the requests that were not answered; empty when all were."""
    counts = {name: sum(row["failed"] for row in study["rows"]) for name, study in studies.items()}
    missing = [f"{count} on {name}" for name, count in counts.items() if count]
    return f" Requests not answered by some arm: {', '.join(missing)}." if missing else ""


def subject_of(cases: Sequence[Case], tokenizer: str, template: str) -> ReplaySubject:
    """The cases' reference calls, as a family's models write them.

    A tokenizer's folder may hold an older chat template, which tells models of no tools.

    Raises:
        Missing: If the tokenizer or the template is not there.
    """
    folder, path = SHARED / "tokenizers" / tokenizer, SHARED / "data" / "chat_templates"
    for where in (folder / "tokenizer.json", path := path / f"{template}.jinja"):
        if not where.is_file():
            raise Missing(f"no tokenizer or template for {tokenizer!r}: there is no file {where}")
    loaded = load_tokenizer(folder)
    loaded.chat_template = path.read_text(encoding="utf-8")
    return ReplaySubject(cases, loaded, MOST)


def measure(lab: Lab) -> Data:
    """A replay of each data set with each tokenizer."""
    found: dict[str, dict[str, Any]] = {}
    for family, (tokenizer, template) in TOKENIZERS.items():
        found[family] = {}
        for name, file in DATA_SETS.items():
            cases = lab.cases(name, lab.scope.traces)
            subject = subject_of(cases, tokenizer, template)
            study = f"replayed-{tokenizer}-{file}"
            found[family][name] = rows(lab.study(study, cases, subject=subject, measured=False))
    return found


def tell(data: Mapping[str, Data]) -> Section:
    """One table per tokenizer: MAT and passes of each method on each data set."""
    known = data["replayed"]
    mats, leads, behind, lost = [], [], [], ""
    for family, studies in known.items():
        lost += failures({f"{name} ({family})": study for name, study in studies.items()})
        for name, study in studies.items():
            by_stack = {stack: rows_of(study, stack)[str(NODES)] for stack in STACKS}
            own = by_stack["toolspec"]
            mat = own["mat"] or 0.0
            mats.append(mat)
            others = min(passes(line) for s, line in by_stack.items() if s != "toolspec")
            leads.append(others / max(passes(own), 1.0))
            if mat < PAPER_LOW:
                share = 100 * (1 - mat * own["steps"] / max(own["tokens"], 1))
                behind.append(
                    f"{name} with {family}'s tokenizer ({mat:.2f}; {share:.0f} % of the tokens "
                    "come with the prompts' own passes, which MAT leaves out)"
                )
    found = (
        f"`toolspec` commits {min(mats):.2f} to {max(mats):.2f} tokens per step, and the best "
        f"other method takes {min(leads):.1f} to {max(leads):.1f} times as many passes. "
    )
    found += (
        f"MAT is behind the paper's range on {'; '.join(behind)}."
        if behind
        else f"MAT is nowhere below the paper's range, {PAPER_LOW} to {PAPER_HIGH:.2f}."
    )
    return Section(
        found=found + lost,
        paper=PAPER,
        differs=(
            "What is written are the reference calls, not what a model would have answered: they "
            "are correct and hold no free text, which makes them easier to draft. Llama 3.1 writes "
            "one call per turn, so of several only the first is replayed. The `schema` "
            "part drafts whole calls with guessed values, beyond the paper's, and the first draft "
            "rides on the prompt's pass. MAT leaves that pass out, so where it writes most of a "
            "call, what is left are the hard steps; the passes count it. " + BLIND
        ),
        grids=[_grid(family, studies) for family, studies in known.items()],
        replay=True,
    )


def passes(row: Mapping[str, Any]) -> float:
    """Passes per request, the prompt's included."""
    return float(row["passes"] / max(row["requests"], 1))


def _grid(family: str, studies: Mapping[str, Any]) -> Grid:
    lines = []
    for name, study in studies.items():
        for stack in ("none", *STACKS):
            by_budget = rows_of(study, stack)
            row = by_budget.get(str(NODES), by_budget.get(""))
            assert row is not None
            mat = with_interval(row["mat"], row["mat_interval"])
            nodes = row["nodes_per_step"] if stack != "none" else None
            lines.append((name, f"`{stack}`", row["requests"], mat, passes(row), nodes))
    columns = (
        "data set",
        "method",
        "requests",
        f"MAT at {NODES} nodes",
        "passes per request",
        "nodes per step",
    )
    return Grid(columns, lines, f"With {family}'s tokenizer and call format:")


EXPERIMENTS: Final = (Experiment("replayed", "MAT with the paper's tokenizers", tell, measure),)
