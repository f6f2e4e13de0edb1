"""Attention over grouped query heads without a copy of the cache per head."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME: Final = "specdec_packed_sdpa"


def packed_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,  # noqa: ANN401 - transformers' attention interface is open
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Transformers' sdpa with the queries packed per key/value head.

    With a mask, transformers repeats keys and values for every query head (`repeat_kv`), a copy
    of the whole cache at every layer; without one, torch's grouped kernel is slower than this on
    a CPU in bfloat16. The groups' queries can instead be rows of one longer query against the
    shared head: (1, H, q, D) becomes (1, H_kv, G * q, D). Prompts without a mask keep
    transformers' causal kernel.
    """
    length, rows = query.shape[2], length_of(attention_mask, query)
    if rows < length:
        # A draft rides on a prompt: the mask is for the root and the nodes only. The prompt's
        # rows before the root attend among themselves, by transformers' causal kernel.
        head = length - rows
        before, _ = sdpa_attention_forward(
            module, query[:, :, :head], key[:, :, :head], value[:, :, :head], None, **kwargs
        )
        behind, _ = packed_sdpa(module, query[:, :, head:], key, value, attention_mask, **kwargs)
        return torch.cat([before, behind], dim=1), None
    groups = getattr(module, "num_key_value_groups", 1)
    ordinary = kwargs.get("position_bias") is None and kwargs.get("softcap") is None
    batch, heads, _, size = query.shape
    packable = length == 1 if attention_mask is None else attention_mask.shape[1] == 1
    if groups == 1 or not packable or not ordinary:
        if attention_mask is not None:
            attention_mask = _in(query.dtype, attention_mask)
        result: tuple[torch.Tensor, torch.Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **kwargs
        )
        return result
    mask = None if attention_mask is None else _repeated(attention_mask, groups, query.dtype)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(batch, heads // groups, groups * length, size),
        key,
        value,
        attn_mask=mask,
        scale=kwargs.get("scaling"),
    )
    out = out.reshape(batch, heads, length, value.shape[-1])
    return out.transpose(1, 2).contiguous(), None


def length_of(mask: torch.Tensor | None, query: torch.Tensor) -> int:
    """Query rows that `mask` is for; all of them without a mask."""
    return query.shape[2] if mask is None else mask.shape[2]


def _repeated(mask: torch.Tensor, groups: int, dtype: torch.dtype) -> torch.Tensor:
    """(1, 1, groups * q, kv) mask; the same for every layer of a pass, so it is made once."""
    made: tuple[object, torch.Tensor] | None = getattr(mask, "_specdec_repeated", None)
    if made is None or made[0] != (groups, dtype):
        made = (groups, dtype), _in(dtype, mask.repeat(1, 1, groups, 1))
        mask._specdec_repeated = made  # type: ignore[attr-defined]
    return made[1]


def _in(dtype: torch.dtype, mask: torch.Tensor) -> torch.Tensor:
    """An additive mask in the dtype that attention computes in.

    Quantised and mixed models may compute in another dtype than their first parameter's, and sdpa
    is silently wrong with a float mask beside double queries (torch 2.13, CPU, from 16 rows on).
    transformers' own masks for one token are boolean, and stay so.
    """
    return mask.to(dtype) if mask.is_floating_point() else mask


AttentionInterface.register(NAME, packed_sdpa)
AttentionMaskInterface.register(NAME, sdpa_mask)


_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_inside: Counter[int] = Counter()
"""By id of a configuration, how many passes use `packed_sdpa` under it: models may share one."""
_guard: Final = threading.Lock()


def lock_of(model: Any) -> threading.RLock:  # noqa: ANN401 - any module
    """The lock that guards a model's passes: one per model, however many targets wrap it."""
    with _guard:
        return _locks.setdefault(model, threading.RLock())


def dispatches(config: Any) -> bool:  # noqa: ANN401 - transformers' configs are untyped
    """Whether models of this configuration look their attention up by its name.

    Some compare the name with "sdpa" instead (Falcon) and would take any other for eager.
    """
    # Some families have a configuration of their own for another family's model (EXAONE 3).
    model = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    own = type(config).__module__.replace("configuration_", "modeling_")
    homes = (sys.modules.get(own), model and sys.modules[model.__module__])
    return any(hasattr(home, "ALL_ATTENTION_FUNCTIONS") for home in homes)


def attention_of(config: Any) -> str:  # noqa: ANN401 - transformers' configs are untyped
    """The attention back end, also while a pass has `packed_sdpa` in place of sdpa."""
    name: str = config._attn_implementation
    return "sdpa" if name == NAME else name


@contextmanager
def packed(config: Any) -> Iterator[None]:  # noqa: ANN401 - transformers' configs are untyped
    """Use `packed_sdpa` in place of sdpa inside the block; the caller holds `lock_of` the model."""
    if attention_of(config) != "sdpa" or not dispatches(config):
        yield
        return
    with _guard:
        _inside[id(config)] += 1
        config._attn_implementation = NAME
    try:
        yield
    finally:
        with _guard:
            _inside[id(config)] -= 1
            if not _inside[id(config)]:
                del _inside[id(config)]
                config._attn_implementation = "sdpa"
