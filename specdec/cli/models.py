"""What the commands that run a model share: options, threads, budgets."""

from __future__ import annotations

import os
import statistics
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from specdec.budget import CostCurve, FixedBudget, MeasuredBudget, Timed, measure_costs
from specdec.dtypes import DTYPES
from specdec.errors import RequestError
from specdec.interfaces import Budget

if TYPE_CHECKING:
    from specdec.hf import HFTarget

TOOLS_OPTION = typer.Option(
    "--tools/--no-tools",
    help="Whether the chat template is given the requests' tools; by default, unless a system "
    "message documents all of them.",
)

LIMIT_OPTION = typer.Option(help="Only the first N requests.", min=1)

TOKENS_OPTION = typer.Option(help="The most tokens per request.", min=1)

BUDGET_OPTION = typer.Option(help="Most drafted nodes per pass, or 'measured'.")

COST_CURVE_OPTION = typer.Option(help="File to keep the measured costs in, for repeatable runs.")

DEVICE_OPTION = typer.Option(help="Such as cpu or cuda:0.")

THREADS_OPTION = typer.Option(help="torch threads.")

DTYPE_HELP = f"One of {', '.join(DTYPES)}."


def quiet() -> None:
    """Keep transformers' progress bars and advice off the terminal."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module="transformers|torch|peft")


def set_threads(threads: int | None) -> int:
    """Set torch's thread count if given; returns the count in force."""
    import torch

    if threads is not None:
        if threads < 1:
            raise RequestError(f"--threads must be at least 1, got {threads}")
        most = 4 * (os.cpu_count() or 1)
        if threads > most:
            raise RequestError(f"--threads must be at most {most} on this machine, got {threads}")
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def faster_demo(device: str | None) -> tuple[HFTarget, str]:
    """The demo model in float32 or bfloat16, whichever decodes faster here, and a sentence on it.

    Judged by passes of 1 and 16 tokens: the first is plain decoding, the second a usual draft.
    Each dtype is loaded for itself: casting a loaded model also rounds what must stay exact.
    """
    from specdec.hf import loading

    place = loading.device_of(device)
    targets = {dtype: loading.load_demo(dtype, place) for dtype in ("float32", "bfloat16")}
    seconds: dict[str, tuple[float, float]] = {}
    for dtype, target in targets.items():
        turns = [(target.pass_seconds(0, 512), target.pass_seconds(15, 512)) for _ in range(5)][1:]
        one, many = (statistics.median(column) for column in zip(*turns, strict=True))
        seconds[dtype] = one, many
    sentence = "; ".join(
        f"{dtype}: {1000 * one:.0f} ms for a pass of 1 token, {1000 * many:.0f} ms for 16"
        for dtype, (one, many) in seconds.items()
    )
    return targets[min(seconds, key=lambda dtype: sum(seconds[dtype]))], sentence


def budget_of(text: str, target: HFTarget, curve: Path | None = None) -> Budget:
    """The budget asked for: a number of nodes, or "measured".

    Args:
        text: A number, or "measured".
        target: The target to measure.
        curve: File of a saved cost curve; see `curve_of`.

    Raises:
        RequestError: If the text is neither, or the file is not a cost curve of this target.
    """
    if text != "measured":
        return FixedBudget(nodes_of(text))
    return MeasuredBudget(curve_of(target, curve))


def nodes_of(text: str) -> int:
    """The number of nodes that a budget option gives.

    Raises:
        RequestError: If it gives none.
    """
    if not text.isdecimal():
        raise RequestError(f"--budget must be a number of nodes or 'measured', got {text!r}")
    return int(text)


def curve_of(target: Timed, file: Path | None = None) -> CostCurve:
    """What passes of the target cost.

    Args:
        target: The target to measure.
        file: File of a saved cost curve; read if it exists, else measured and written. Without
            one, the curve is measured.

    Raises:
        RequestError: If the file is not a cost curve of this target.
    """
    if file is not None and file.exists():
        costs = CostCurve.load(file)
        if costs.label != target.label:
            raise RequestError(
                f"cost curve {file} was measured on {costs.label}, this is {target.label}; give "
                "another file or delete it"
            )
        return costs
    costs = measure_costs(target)
    if file is not None:
        costs.save(file)
    return costs


def writable(path: Path | None, option: str) -> None:
    """Refuse a file that cannot be written before any work is done.

    Raises:
        RequestError: If its folder is missing or may not be written to.
    """
    if path is None:
        return
    if path.is_dir():
        raise RequestError(f"{option} {path} is a folder, not a file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise RequestError(f"{option} {path} cannot be written: no writable folder {path.parent}")
