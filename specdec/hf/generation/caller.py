"""What `generate` knows and does not hand on to a custom loop."""

from __future__ import annotations

import sys
from typing import Any, Final

import torch
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.integrations.fsdp import is_fsdp_managed_module

CACHE_NAMES: Final = ("cache", "past_key_values")
"""What transformers calls the cache, since 5.24 and before."""

KEPT_BACK: Final = ("streamer", "assistant_model", "synced_gpus")
"""Arguments that `generate` gives to its built-in loops only."""


def kept_back() -> dict[str, Any]:
    """Those of `KEPT_BACK` that the calling `generate` was given.

    It takes them as arguments of its own and hands them on to no custom loop (5.16 to 5.24), so
    its frame is the only place where they can be found.
    """
    frame = sys._getframe(1)
    while frame is not None:
        local = frame.f_locals
        if frame.f_code.co_name == "generate" and "custom_generate" in local:
            return {name: local[name] for name in KEPT_BACK if local.get(name) is not None}
        frame = frame.f_back  # type: ignore[assignment] # None behind the last
    return {}


def adapter_around(model: Any) -> Any:  # noqa: ANN401 - any architecture
    """The PEFT model whose `generate` called that of `model`; None if there is none.

    It puts its own method on the model it wraps for the time of the call.
    """
    method = vars(model).get("prepare_inputs_for_generation")
    owner = getattr(method, "__self__", None)
    return owner if owner is not model and hasattr(owner, "active_peft_config") else None


def in_lockstep(model: torch.nn.Module, synced: bool | None) -> bool:
    """Whether all processes must run the same number of passes of `model`.

    Args:
        model: The model.
        synced: What `generate` was given as ``synced_gpus``.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return bool(synced)
    shared = is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model)
    return shared and torch.distributed.get_world_size() > 1 if synced is None else synced
