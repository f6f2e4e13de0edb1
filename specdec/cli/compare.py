"""``specdec compare``: which drafter is best for these requests."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from specdec.budget import CostCurve, MeasuredBudget
from specdec.cli import models, show
from specdec.cli.bar import Bar
from specdec.errors import RequestError, SpecdecError, did_you_mean
from specdec.files import replace
from specdec.registry import default_registry

if TYPE_CHECKING:
    from specdec.compare.cases import Case
    from specdec.compare.outcome import Outcome
    from specdec.compare.report import Report
    from specdec.compare.study import Study
    from specdec.compare.subject import Subject
    from specdec.hf import HFTarget

DEFAULT_STACKS = ("pld", "token-recycling", "samd", "toolspec")

PACKAGES = ("cattrs", "jinja2", "matplotlib")
"""What a comparison needs besides the core's own dependencies."""


def compare(
    requests: Annotated[
        Path,
        typer.Option(
            help="Requests: JSON lines, an OpenAI request log, or a benchmark's own file or folder."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="A model folder, 'demo' for the demo model, or 'replay' to write what the "
            "requests' file records."
        ),
    ] = "demo",
    drafter: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A stack expression; may be given several times. Without one: "
            f"{', '.join(DEFAULT_STACKS)}. The plain loop, 'none', is always there."
        ),
    ] = None,
    limit: Annotated[int | None, models.LIMIT_OPTION] = None,
    tools: Annotated[bool | None, models.TOOLS_OPTION] = None,
    layout: Annotated[
        str | None, typer.Option(help="The requests' layout, where it is not recognised.")
    ] = None,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm",
            help="Let each stack answer all requests once, uncounted, before it is judged.",
        ),
    ] = False,
    budget: Annotated[
        str,
        typer.Option(
            help="Nodes per pass at which MAT and steps are judged, beside the measured budget at "
            "which time is; 'measured' for that one alone."
        ),
    ] = "64",
    cost_curve: Annotated[
        Path | None,
        typer.Option(help="File to keep the measured costs in; without it, in the --out folder."),
    ] = None,
    dtype: Annotated[str, typer.Option(help=models.DTYPE_HELP)] = "auto",
    device: Annotated[str | None, models.DEVICE_OPTION] = None,
    threads: Annotated[int | None, models.THREADS_OPTION] = None,
    max_new_tokens: Annotated[int, models.TOKENS_OPTION] = 256,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for report.json and report.html; an interrupted comparison is taken up "
            "from there. Without it, only the table is printed."
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Drop an interrupted comparison in --out.")
    ] = False,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder of the tokenizer of a replay.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="How a replay writes calls; else as the chat template does."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="A replay runs passes of a random model of this shape, such as qwen2.5-7b, or of "
            "a folder's config.json; else none."
        ),
    ] = None,
) -> None:
    """Answer requests with several drafters in turn, and report which is best and by how much."""
    _installed()
    from specdec.compare.arm import check_stacks
    from specdec.compare.cases import offered, read_cases
    from specdec.compare.study import Study, budgets_of, versions

    stacks = check_stacks(drafter or list(DEFAULT_STACKS))
    nodes = None if budget == "measured" else models.nodes_of(budget)
    _fits(model, {"--tokenizer": tokenizer, "--format": form, "--shape": shape})
    models.writable(cost_curve, "--cost-curve")
    folder = _folder(out, restart=restart)
    cases = read_cases(requests, layout=layout)[:limit]
    count = models.set_threads(threads)
    console = show.console()
    subject = _subject(
        model,
        cases,
        dtype,
        device,
        max_new_tokens,
        tools=tools,
        tokenizer=tokenizer,
        form=form,
        shape=shape,
    )
    curve = _curve(subject, cost_curve, folder, console)
    if nodes is None and curve is None:
        raise RequestError(
            "a replay without passes has no costs to weigh, so there is no measured budget; give "
            "--budget NODES, --shape, or a --cost-curve measured on the model in question"
        )
    settings = {
        "model": model,
        "target": subject.label,
        "dtype": _dtype(subject),
        "threads": count,
        "requests file": requests.name,
        "requests asked": len(cases),
        "of them with tools for the chat template": sum(bool(offered(c, tools)) for c in cases),
        "most new tokens": max_new_tokens,
        "drafters": list(stacks),
        "budget for MAT and steps": budget,
        "budget for time": None if curve is None else MeasuredBudget(curve).most,
        "costs measured on": None if curve is None else curve.label,
        "warm": warm,
        "versions": versions(default_registry().plugins),
    }
    study = Study(
        subject,
        cases,
        stacks,
        budgets_of(nodes, curve),
        settings,
        warm=warm,
        curve=curve,
        hook=default_registry().hook,
    )
    report = _measured(study, folder, console)
    show.report(console, report)
    if folder is not None:
        written = folder / "report.html"
        console.print(f"Report written to {written} and report.json.", soft_wrap=True)
    if not report.complete:
        raise typer.Exit(1)


def _installed() -> None:
    """Refuse before any work what would fail after hours of it."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise SpecdecError(
            f"specdec compare needs {', '.join(missing)}; install with: "
            "pip install 'specdec-core[compare]'"
        )


def _fits(model: str, options: Mapping[str, object]) -> None:
    """Refuse options of a replay where a model answers."""
    given = [name for name, value in options.items() if value is not None]
    if model != "replay" and given:
        raise RequestError(f"{', '.join(given)}: for --model replay only, got --model {model}")
    if model == "replay" and "--tokenizer" not in given:
        raise RequestError("--model replay needs --tokenizer FOLDER, that of the model replayed")


def _folder(out: Path | None, *, restart: bool) -> Path | None:
    if out is None:
        if restart:
            raise RequestError("--restart drops what --out holds; give --out too")
        return None
    if out.exists() and not out.is_dir():
        raise RequestError(f"--out {out} is a file; expected a folder, or a name for a new one")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"--out {out} cannot be made: {error.strerror}") from None
    if restart:
        from specdec.compare.journal import drop

        drop(out)
    return out


def _subject(
    model: str,
    cases: Sequence[Case],
    dtype: str,
    device: str | None,
    max_new_tokens: int,
    *,
    tools: bool | None,
    tokenizer: Path | None,
    form: str | None,
    shape: str | None,
) -> Subject:
    """What answers: the model, or a replay of what the cases record."""
    from specdec.calls import FORMATS
    from specdec.compare.subject import ModelSubject, ReplaySubject
    from specdec.hf import loading

    models.quiet()
    if model != "replay":
        target = loading.load(model, dtype, device)
        return ModelSubject(target, max_new_tokens, tools=tools)
    if form is not None and form not in FORMATS:
        raise RequestError(
            f"--format must be one of {', '.join(FORMATS)}, got {form!r}"
            f"{did_you_mean(form, FORMATS)}"
        )
    assert tokenizer is not None
    return ReplaySubject(
        cases,
        loading.load_tokenizer(tokenizer),
        max_new_tokens,
        tools=tools,
        form=None if form is None else FORMATS[form],
        model=None if shape is None else _random(shape, dtype, device),
    )


def _random(shape: str, dtype: str, device: str | None) -> HFTarget:
    """A target of random weights, for what its passes cost."""
    from specdec.hf import HFTarget, loading
    from specdec.hf.shapes import random_model

    kind = loading.dtype_of("float32" if dtype == "auto" else dtype)
    return HFTarget(random_model(shape, dtype=kind, device=loading.device_of(device)), probe=False)


def _curve(
    subject: Subject, file: Path | None, folder: Path | None, console: Console
) -> CostCurve | None:
    """What passes cost: measured once, or read from the file that keeps it."""
    from specdec.replay import ReplayTarget

    target = subject.target
    if isinstance(target, ReplayTarget) and target.model is None:
        # There is nothing to measure; costs of the model in question may have been kept.
        return None if file is None else CostCurve.load(file)
    if file is None and folder is not None:
        file = folder / "costs.json"
    with console.status("Measuring what passes cost ..."):
        return models.curve_of(target, file)


def _dtype(subject: Subject) -> str | None:
    """What the passes are computed in; None where there are none."""
    from specdec.replay import ReplayTarget

    target = subject.target
    model = getattr(target.model if isinstance(target, ReplayTarget) else target, "model", None)
    return None if model is None else str(model.dtype).removeprefix("torch.")


def _measured(study: Study, folder: Path | None, console: Console) -> Report:
    """The comparison, with a bar that says how long it will take."""
    with Bar(console) as bar:

        def advance(outcome: Outcome) -> None:
            bar.advance(f"{outcome.request}, {outcome.arm}")

        def write(report: Report) -> None:
            if folder is not None:
                _write(report, folder)

        try:
            return study.run(folder, advance, bar.ready, write)
        except KeyboardInterrupt:
            if folder is not None:
                console.print(f"Interrupted; the same command goes on from what {folder} holds.")
            raise


def _write(report: Report, folder: Path) -> None:
    from specdec.compare.page import write_page

    text = json.dumps(report.to_json(), indent=1, allow_nan=False)
    replace(folder / "report.json", text + "\n")
    write_page(report, folder / "report.html")
