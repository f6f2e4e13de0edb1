"""How often rounding changes an output, and by how little it does: on the demo model.

    python -m bench.differences --requests api_bank_60.jsonl

In each dtype every request is answered by `generate()`, by the engine without a drafter and with
one. Where an output differs, the two best logits at the first difference are compared with what
logits differ by between passes of one token and of many.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import attrs
import torch
import typer
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.data import named, spread
from specdec import Engine, FixedBudget, Request, parse
from specdec.compare.cases import read_cases
from specdec.compare.subject import ModelSubject
from specdec.errors import SpecdecError
from specdec.hf import HFTarget, baseline

PLAIN = "no drafter"


@attrs.define
class Tally:
    """The outputs of one arm in one dtype."""

    asked: int = 0
    found: list[tuple[str, baseline.Difference]] = attrs.field(factory=list)

    def row(self) -> tuple[str, ...]:
        """Differing outputs and their share, the largest margin and noise, and near-ties."""
        share = 100 * len(self.found) / self.asked
        gaps = [gap for _, gap in self.found]
        margin = f"{max(gap.margin for gap in gaps):.4f}" if gaps else "-"
        noise = f"{max(gap.noise for gap in gaps):.4f}" if gaps else "-"
        near = f"{sum(gap.near_tie for gap in gaps)}/{len(gaps)}" if gaps else "-"
        return f"{len(self.found)}/{self.asked}", f"{share:.1f} %", margin, noise, near


def measure(target: HFTarget, requests: Sequence[Request], stack: str, nodes: int) -> list[Tally]:
    """Without a drafter, and with `stack`."""
    engines = [
        Engine(target, None if name is None else parse(name), budget=FixedBudget(nodes))
        for name in (None, stack)
    ]
    tallies = [Tally() for _ in engines]
    for request in track(requests, f"{target.model.dtype}", console=Console(stderr=True)):
        own = baseline.generate(target, request).tokens
        for engine, tally in zip(engines, tallies, strict=True):
            other = engine.generate(request).tokens
            gap = baseline.first_difference(target, request, own, other)
            tally.asked += 1
            if gap is not None:
                tally.found.append((request.id, gap))
    return tallies


def main(
    drafter: Annotated[str, typer.Option(help="A stack expression.")] = "toolspec",
    requests: Annotated[
        Path | None, typer.Option(help="A requests file; the demo's requests by default.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Requests, evenly spread.", min=1)] = 60,
    nodes: Annotated[int, typer.Option(help="Most nodes per pass.", min=1)] = 64,
    dtype: Annotated[list[str] | None, typer.Option(help="Several may be given.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Per request.", min=1)] = 160,
    threads: Annotated[int, typer.Option(help="torch threads.", min=1)] = 2,
) -> None:
    """Count outputs that differ, and say by how much."""
    import specdec_demo_model

    torch.set_num_threads(threads)
    cases = spread(named("demo") if requests is None else read_cases(requests), limit)
    table = Table(box=box.SIMPLE, title=f"{drafter}, {nodes} nodes, {threads} threads")
    columns = ("outputs that\ndiffer", "share", "largest\nmargin", "largest\nnoise", "near-ties")
    for name in ("dtype", "drafter"):
        table.add_column(name)
    for name in columns:
        table.add_column(name, justify="right")
    apart: list[str] = []
    for name in dtype or ["float32", "bfloat16", "float16"]:
        target = HFTarget(*specdec_demo_model.load(dtype=getattr(torch, name)))
        subject = ModelSubject(target, max_new_tokens)
        asked = [subject.request(case) for case in cases]
        found = measure(target, asked, drafter, nodes)
        for arm, tally in zip((PLAIN, drafter), found, strict=True):
            table.add_row(name, arm, *tally.row())
            apart += [
                f"{name}, {arm}, {request}: token {gap.position}, margin {gap.margin:.4f}, noise "
                f"{gap.noise:.4f}" + ("" if gap.near_tie else ": NOT a near-tie")
                for request, gap in tally.found
            ]
    narrow = not Console().is_terminal and "COLUMNS" not in os.environ
    console = Console(width=110) if narrow else Console()
    console.print(table)
    for line in apart:
        console.print(line, highlight=False)


if __name__ == "__main__":
    try:
        typer.run(main)
    except SpecdecError as error:
        raise SystemExit(f"bench.differences: {error}") from None
