"""``specdec run``: one conversation on a model, streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer
from rich.console import Console

from specdec.calls import HERMES, load_tools
from specdec.calls.tools import read_json
from specdec.cli import models, show
from specdec.engine import Engine
from specdec.errors import RequestError
from specdec.expression import parse
from specdec.registry import default_registry
from specdec.report import Run
from specdec.request import Request, Result, Sampling, Step

if TYPE_CHECKING:
    from specdec.hf import HFTarget


def run(
    message: Annotated[str | None, typer.Argument(help="What the user says.")] = None,
    model: Annotated[
        str, typer.Option(help="A model folder, or 'demo' for the demo model.")
    ] = "demo",
    drafter: Annotated[
        str, typer.Option(help="A stack expression; 'none' decodes plainly.")
    ] = "merge(pld, token-recycling)",
    messages: Annotated[
        Path | None, typer.Option(help="JSON file with a list of chat messages.")
    ] = None,
    tools: Annotated[Path | None, typer.Option(help="JSON file with a list of tools.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The most tokens to write.", min=0)] = 256,
    temperature: Annotated[
        float, typer.Option(help="0 is greedy; above, tokens are sampled.")
    ] = 0.0,
    top_k: Annotated[int, typer.Option(help="Sample from this many tokens; 0 for all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Sample from this much probability.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the sampling.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="A text that ends the output.")] = None,
    budget: Annotated[str, models.BUDGET_OPTION] = "measured",
    cost_curve: Annotated[Path | None, models.COST_CURVE_OPTION] = None,
    dtype: Annotated[str, typer.Option(help=models.DTYPE_HELP)] = "auto",
    device: Annotated[str | None, models.DEVICE_OPTION] = None,
    threads: Annotated[int | None, models.THREADS_OPTION] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Let a model answer, speculatively, and show where each token came from."""
    conversation = _conversation(message, messages)
    known = load_tools(tools) if tools is not None else ()
    stack = parse(drafter)
    if not temperature and (top_k or top_p < 1 or seed is not None):
        raise RequestError("--top-k, --top-p and --seed are for sampling; give --temperature too")
    if temperature < 0:
        raise RequestError(f"--temperature must be at least 0, got {temperature}")
    sampling = Sampling(temperature, top_k, top_p, seed) if temperature else None
    models.writable(cost_curve, "--cost-curve")
    count = models.set_threads(threads)
    models.quiet()
    from specdec.hf import loading

    target = loading.load(model, dtype, device)
    request = target.request(
        messages=conversation,
        tools=known,
        max_new_tokens=max_new_tokens,
        stop_strings=stop or (),
        sampling=sampling,
    )
    with Console(stderr=True).status("Measuring what passes cost ..."):
        costs = models.budget_of(budget, target, cost_curve)
    engine = Engine(
        target,
        stack,
        budget=costs,
        hook=default_registry().hook,
    )
    console = show.console()
    palette = show.Palette()
    assert target.codec is not None
    writer = show.Writer(console, palette, target.codec.decoder())

    def show_step(step: Step) -> None:
        if not as_json:
            writer.write(step, request.stop_ids)

    result = engine.generate(request, each=show_step)
    text = target.codec.decode([t for t in result.tokens if t not in request.stop_ids])
    if as_json:
        typer.echo(json.dumps(_record(request, result, text, drafter, target), ensure_ascii=False))
        return
    for error in result.errors:
        console.print(f"drafter error: {error}", style="red", markup=False)
    row = Run.of(drafter, [result])
    console.print()
    console.print(palette.legend())
    console.print(
        f"{row.tokens} tokens in {row.passes} passes, MAT {show.number(row.mat)}, "
        f"{row.seconds:.2f} s on {target.ability.name}, {target.model.dtype}, {count} threads",
        style="dim",
        highlight=False,
    )


def _conversation(message: str | None, file: Path | None) -> list[Mapping[str, Any]]:
    if (message is None) == (file is None):
        raise RequestError("give either a message or --messages FILE")
    if message is not None:
        if not message.strip():
            raise RequestError("the message is empty; say what the model should do")
        return [{"role": "user", "content": message}]
    assert file is not None
    data = read_json(file, "messages")
    if not isinstance(data, list) or not data:
        raise RequestError(f"messages file {file} must hold a non-empty JSON list of messages")
    for number, entry in enumerate(data, start=1):
        _check_message(entry, f"messages file {file}, message {number}")
    return list(data)


ROLES = ("system", "developer", "user", "assistant", "tool")


def _check_message(entry: object, where: str) -> None:
    """Refuse what a chat template would render as something else than what was meant."""
    if not isinstance(entry, dict) or entry.get("role") not in ROLES:
        raise RequestError(f"{where} must be an object with a 'role' of {', '.join(ROLES)}")
    content, calls = entry.get("content"), entry.get("tool_calls")
    if content is None and entry["role"] == "assistant" and calls:
        return
    if not isinstance(content, str):
        raise RequestError(
            f"{where} must have a text 'content' (parts are not supported), got "
            f"{type(content).__name__}"
        )


def _record(
    request: Request, result: Result, text: str, drafter: str, target: HFTarget
) -> dict[str, Any]:
    run = Run.of(drafter, [result])
    row = run.row([run])
    for key in ("requests", "speedup", "decode_speedup", "identical"):
        del row[key]
    # The model's own chat template says how it writes calls; the commonest form where it does not.
    form = request.call_format or HERMES
    calls = [{"name": c.name, "arguments": dict(c.arguments)} for c in form.parse(text)]
    return {
        "text": text,
        "tool_calls": calls,
        "finish": result.finish,
        "target": target.label,
        **row,
        "phases": attrs.asdict(run.phases),
        "errors": list(result.errors),
    }
