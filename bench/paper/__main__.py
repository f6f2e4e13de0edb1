"""``python -m bench.paper``: measure what is not measured yet, and write the document."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import matplotlib
import torch
import typer
from rich.console import Console

from bench.coverage.cases import Missing
from bench.paper import document
from bench.paper.experiments import EXPERIMENTS
from bench.paper.lab import SCOPES, Lab
from specdec.cli import models
from specdec.cli.bar import Bar
from specdec.errors import RequestError, SpecdecError, did_you_mean
from specdec.hf.loading import dtype_of

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

ROOT = Path(__file__).resolve().parents[2]


@app.command()
def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="A few requests of each data set.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="All requests of each data set.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="An experiment; may be given several times.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the demo model.")] = "bfloat16",
    threads: Annotated[int | None, typer.Option(help="torch threads.")] = None,
    work: Annotated[
        Path | None, typer.Option(help="Where measurements are kept; .paper/SCOPE by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where paper.md goes; docs, or with --quick the --work folder."),
    ] = None,
) -> None:
    """Repeat the ToolSpec paper's experiments; goes on where it was stopped."""
    if quick and full:
        raise RequestError("--quick and --full exclude each other")
    known = [experiment.name for experiment in EXPERIMENTS]
    for name in only or ():
        if name not in known:
            raise RequestError(
                f"--only must be one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"
            )
    dtype_of(dtype)
    models.quiet()
    scope = SCOPES["quick" if quick else "full" if full else "standard"]
    folder = work or ROOT / ".paper" / scope.name
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams["svg.hashsalt"] = "specdec"  # the same figure is the same file
    console = Console()
    with Bar(console) as bar:
        lab = Lab(
            folder,
            scope,
            dtype,
            models.set_threads(threads),
            progress=lambda outcome: bar.advance(f"{outcome.request}, {outcome.arm}"),
            ready=bar.ready,
        )
        data = {}
        for experiment in EXPERIMENTS:
            if experiment.measure is not None and (found := lab.kept(experiment.name)) is not None:
                data[experiment.name] = found
                continue
            if experiment.measure is None or (only and experiment.name not in only):
                continue
            start = time.perf_counter()
            try:
                data[experiment.name] = experiment.measure(lab)
            except Missing as missing:  # the document says so too
                console.print(f"{experiment.title}: not measured, {missing}", highlight=False)
                continue
            lab.keep(experiment.name, data[experiment.name])
            taken = time.perf_counter() - start
            console.print(f"{experiment.title}: measured in {taken:.0f} s", highlight=False)
    target = out or (folder if quick else ROOT / "docs")
    path = document.write(target, EXPERIMENTS, data, {**lab.settings, "machine": machine()})
    console.print(f"Written to {path}", soft_wrap=True)


def machine() -> str:
    """The processor, for the record."""
    kind = torch.backends.cpu.get_cpu_capability()
    return f"a CPU with {os.cpu_count()} cores ({kind})"


if __name__ == "__main__":
    try:
        app(prog_name="python -m bench.paper")
    except SpecdecError as error:
        raise SystemExit(f"bench.paper: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("bench.paper: interrupted; the same command goes on from here") from None
