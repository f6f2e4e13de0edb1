"""Which of a node's children the target takes, and what a pass brings: on the demo model.

    python -m bench.ranks --stack token-recycling --stack "token-recycling(keep=false)"

Token Recycling's tree is cut, and its nodes are scored, by how often a token's first, second ...
last seen successor is right; the figures come from here.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Annotated

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bench.coverage.cases import SHARED, Missing, spread
from specdec import Engine, FixedBudget, Step, parse
from specdec.compare.cases import read_cases
from specdec.compare.subject import ModelSubject
from specdec.errors import SpecdecError
from specdec.hf import HFTarget

SHOWN = 8
"""Children of a node that have a column of their own."""


class Tally:
    """Visited nodes, and which child was taken of each."""

    def __init__(self) -> None:
        self.visited = 0
        self.taken: Counter[int] = Counter()

    def count(self, step: Step) -> None:
        """Count one step."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(step.tree.parents):
            children.setdefault(parent, []).append(node)
        above = -1
        for node in step.path:
            self.taken[children[above].index(node)] += 1
            above = node
        self.visited += len(step.path) + 1


def main(
    stack: Annotated[
        list[str] | None, typer.Option(help="A stack expression; may be given several times.")
    ] = None,
    requests: Annotated[int, typer.Option(help="API-Bank requests, evenly spread.", min=1)] = 20,
    nodes: Annotated[int, typer.Option(help="Most nodes per pass.", min=1)] = 64,
    dtype: Annotated[str, typer.Option(help="Of the demo model.")] = "bfloat16",
    threads: Annotated[int, typer.Option(help="torch threads.", min=1)] = 1,
) -> None:
    """Measure acceptance by rank and tokens per pass."""
    import specdec_demo_model

    torch.set_num_threads(threads)
    path = SHARED / "data" / "api_bank_60.jsonl"
    if not path.is_file():
        raise Missing(f"no requests: there is no file {path}")
    target = HFTarget(*specdec_demo_model.load(dtype=getattr(torch, dtype)))
    subject = ModelSubject(target, max_new_tokens=160)
    asked = [subject.request(case) for case in spread(read_cases(path), requests)]
    table = Table(box=box.SIMPLE, title=f"{dtype}, {nodes} nodes, {len(asked)} requests")
    for name in ("drafter", "tokens\n/pass", "MAT", *(f"child {i}" for i in range(SHOWN))):
        table.add_column(name, justify="left" if name == "drafter" else "right")
    for expression in stack or ["token-recycling"]:
        engine = Engine(target, parse(expression), budget=FixedBudget(nodes), on_error="raise")
        tally = Tally()
        results = [engine.generate(request, each=tally.count) for request in asked]
        tokens = sum(len(result.tokens) for result in results)
        passes = sum(result.passes for result in results)
        steps = sum(result.steps for result in results)
        first = sum(result.prompt_tokens for result in results)
        shares = (f"{tally.taken[rank] / tally.visited:.3f}" for rank in range(SHOWN))
        mat = (tokens - first) / steps if steps else 0.0
        table.add_row(expression, f"{tokens / passes:.3f}", f"{mat:.3f}", *shares)
    console = Console()
    narrow = not console.is_terminal and "COLUMNS" not in os.environ
    (Console(width=130) if narrow else console).print(table)


if __name__ == "__main__":
    try:
        typer.run(main)
    except SpecdecError as error:
        raise SystemExit(f"bench.ranks: {error}") from None
