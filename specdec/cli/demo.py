"""``specdec demo``: a real model writes tool calls, plainly and speculatively."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
from rich.console import Console
from rich.text import Text

from specdec.calls import read_tools
from specdec.cli import models, show
from specdec.compare.cases import Case, offered, read_cases
from specdec.engine import Engine
from specdec.expression import parse
from specdec.registry import default_registry
from specdec.report import Run
from specdec.request import Request, Result

if TYPE_CHECKING:
    from specdec.hf import HFTarget

DEFAULT_STACK = "toolspec"

SHOWN = 300
"""Characters of a question that are shown."""

AGAIN = ", again"
"""Behind a stack's name in the row of its second pass."""


def demo(
    drafter: Annotated[
        list[str] | None, typer.Option(help="A stack expression; may be given several times.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help=f"{models.DTYPE_HELP} auto takes the faster.")
    ] = "auto",
    requests_file: Annotated[
        Path | None,
        typer.Option(
            "--requests",
            help="Other requests: JSON lines, an OpenAI request log, or a benchmark's own file.",
        ),
    ] = None,
    tools: Annotated[bool | None, models.TOOLS_OPTION] = None,
    limit: Annotated[int | None, models.LIMIT_OPTION] = None,
    max_new_tokens: Annotated[int, models.TOKENS_OPTION] = 128,
    budget: Annotated[str, models.BUDGET_OPTION] = "measured",
    cost_curve: Annotated[Path | None, models.COST_CURVE_OPTION] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again/--once", help="Whether the last stack, if it remembers, answers all once more."
        ),
    ] = True,
    device: Annotated[str | None, models.DEVICE_OPTION] = None,
    threads: Annotated[int | None, models.THREADS_OPTION] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file.")
    ] = None,
) -> None:
    """Answer tool-calling requests plainly and speculatively, and compare."""
    from specdec.hf import baseline, loading

    console = show.console()
    stacks = drafter or [DEFAULT_STACK]
    for stack in stacks:
        parse(stack)  # a bad expression is reported before the model loads
    asked = read_cases(requests_file) if requests_file is not None else None
    models.writable(json_file, "--json")
    models.writable(cost_curve, "--cost-curve")
    count = models.set_threads(threads)
    console.print("Loading the demo model (SmolLM2-135M-Instruct, tuned to call tools) ...")
    models.quiet()
    if dtype == "auto":
        target, sentence = models.faster_demo(device)
        console.print(f"Faster dtype here: {_name(target)} ({sentence}).", highlight=False)
    else:
        target = loading.load_demo(dtype, loading.device_of(device))
    costs = models.budget_of(budget, target, cost_curve)
    requests = _requests(target, asked, max_new_tokens, tools=tools)[:limit]
    hook = default_registry().hook
    engines = {
        stack: Engine(target, parse(stack), budget=costs, on_error="raise", hook=hook)
        for stack in stacks
    }
    loop = baseline.plain(target)
    console.print(
        f"{len(requests)} requests, one at a time, each by model.generate(), by our plain loop and "
        f"with {', '.join(stacks)}; {_name(target)}, {count} torch threads.\n",
        highlight=False,
    )
    # One short round warms up all of them, so that none pays for the first.
    short = attrs.evolve(requests[0], max_new_tokens=8)
    baseline.generate(target, short)
    for stack in ("none", *stacks):
        Engine(target, parse(stack), budget=costs).generate(short)

    palette = show.Palette()
    kept: dict[str, list[Result]] = {name: [] for name in ("generate()", "none", *stacks)}
    for request in requests:
        # Taken in turn, request by request, so that drift of the machine hits all alike.
        with console.status("model.generate(), the plain loop ..."):
            kept["generate()"].append(baseline.generate(target, request))
            kept["none"].append(loop.generate(request))
            for stack in stacks[:-1]:
                kept[stack].append(engines[stack].generate(request))
        last = stacks[-1]  # the one whose tokens are shown as they arrive
        kept[last].append(_write(console, palette, target, engines[last], request))

    if again and engines[stacks[-1]].drafter.remembers:
        with console.status(f"The same requests again, {stacks[-1]} remembering them ..."):
            kept[stacks[-1] + AGAIN] = list(map(engines[stacks[-1]].generate, requests))

    # What the model itself writes is what generate() writes.
    plain = [result.tokens for result in kept["generate()"]]
    runs = {name: Run.of(name, results, plain) for name, results in kept.items()}
    plain_runs = [runs["generate()"], runs["none"]]
    console.print()
    console.print(palette.legend())
    title = "Speed-ups are over the faster of generate() and our plain loop (none)"
    console.print(show.results([*runs.values()], plain_runs, title))
    console.print(show.phases(runs[last]))
    ties = _differences(console, target, requests, [*runs.values()])
    console.print(_verdict(runs[last], plain_runs, ties), highlight=False)
    if last + AGAIN in runs:
        console.print(_remembered(runs[last], runs[last + AGAIN]), highlight=False)
    if json_file is not None:
        _write_json(json_file, target, count, [run.row(plain_runs) for run in runs.values()])
        console.print(f"Figures written to {json_file}.")


def _requests(
    target: HFTarget, asked: Sequence[Case] | None, max_new_tokens: int, *, tools: bool | None
) -> list[Request]:
    import specdec_demo_model

    if asked is None:
        asked = [
            Case(entry.id, tuple(entry.messages), read_tools(entry.tools))
            for entry in specdec_demo_model.requests()
        ]
    return [
        target.request(
            messages=case.messages,
            tools=offered(case, tools),
            max_new_tokens=max_new_tokens,
            id=case.id,
        )
        for case in asked
    ]


def _write(
    console: Console,
    palette: show.Palette,
    target: Any,  # noqa: ANN401
    engine: Engine,
    request: Request,
) -> Result:
    """Decode one request and show its tokens as they arrive."""
    console.print(Text(shortened(str(request.messages[-1].get("content"))), style="bold"))
    writer = show.Writer(console, palette, target.codec.decoder())
    result = engine.generate(request, each=lambda step: writer.write(step, request.stop_ids))
    console.print("\n")
    return result


def shortened(text: str) -> str:
    """The end of a text that is too long to show."""
    return text if len(text) <= SHOWN else "... " + text[-SHOWN:].strip()


def _name(target: Any) -> str:  # noqa: ANN401
    return str(target.model.dtype).removeprefix("torch.")


def _differences(
    console: Console,
    target: Any,  # noqa: ANN401
    requests: list[Request],
    runs: list[Run],
) -> int:
    """Explain every output that differs from generate()'s; returns how many are no near-tie."""
    from specdec.hf import baseline

    unexplained = 0
    plain = runs[0]
    for run in runs:
        for request, own, other in zip(requests, plain.results, run.results, strict=True):
            found = baseline.first_difference(target, request, own.tokens, other.tokens)
            if found is None:
                continue
            unexplained += not found.near_tie
            console.print(
                f"{request.id}, {run.drafter}: differs from token {found.position} on; the two "
                f"best logits there are {found.margin:.4f} apart, passes of different size differ "
                f"by up to {found.noise:.4f}: "
                + ("a near-tie." if found.near_tie else "NOT a near-tie."),
                highlight=False,
            )
    return unexplained


def _verdict(run: Run, plain: Sequence[Run], unexplained: int) -> Text:
    """One plain sentence that says what the table means."""
    row = run.row(plain)
    total = len(run.results)
    if run.identical == total:
        same = f"The same text, token for token, in all {total} requests"
    elif unexplained:
        same = f"{total - (run.identical or 0)} of {total} outputs differ and not by rounding alone"
    else:
        same = (
            f"The same text in {run.identical} of {total} requests, and a near-tie decided by "
            "rounding in the others"
        )
    return Text(
        f"{same}, written {show.number(row['decode_speedup'])} times as fast as plain decoding "
        f"({show.number(row['speedup'])} times with the prompts' own passes, in the median request "
        f"{show.number(median_speedup(run, plain))} times): each step brought "
        f"{show.number(run.mat, 1)} tokens instead of 1.",
        style="bold",
    )


def _remembered(first: Run, second: Run) -> str:
    """One plain sentence on what memory does."""
    before, after = (run.passes / len(run.results) for run in (first, second))
    return (
        f"The same requests again, with what {first.drafter} remembers of them: {after:.1f} passes "
        f"per request instead of {before:.1f}, {show.number(second.mat, 1)} tokens per step "
        f"instead of {show.number(first.mat, 1)}."
    )


def median_speedup(run: Run, plain: Sequence[Run]) -> float:
    """Median over the requests of the speed-up over the faster of `plain`, prompts included."""
    fastest = (min(times) for times in zip(*(r.times for r in plain), strict=True))
    ratios = [a / b for a, b in zip(fastest, run.times, strict=True) if b]
    return statistics.median(ratios) if ratios else math.nan


def _write_json(path: Path, target: Any, threads: int, rows: list[dict[str, Any]]) -> None:  # noqa: ANN401
    data = {
        "model": "SmolLM2-135M-Instruct + toolcaller",
        "dtype": _name(target),
        "threads": threads,
        "rows": rows,
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
