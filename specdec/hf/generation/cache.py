"""A cache that a caller hands to `generate`: taken over, and given back with what was added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from specdec.errors import RequestError
from specdec.hf.compat import EMPTY_LAYER, PLAIN_LAYERS, TreeLayer


def check_cache(cache: Any, length: int) -> None:  # noqa: ANN401 - whatever a caller hands over
    """Refuse a cache that cannot be taken over.

    Args:
        cache: What was handed over.
        length: Tokens of the prompt.

    Raises:
        RequestError: If it is not made of plain keys and values, or leaves nothing to compute.
    """
    kind = type(cache).__name__
    if not isinstance(cache, Cache) or not hasattr(cache, "layers"):
        raise RequestError(f"the cache is a {kind}; hand over a DynamicCache, or leave it out")
    if any(getattr(layer, "record_past", False) for layer in cache.layers):
        raise RequestError(
            f"a {kind} that records its past (activate_past_recording) cannot be continued "
            "speculatively; hand over one that does not"
        )
    layers = sorted({type(layer).__name__ for layer in cache.layers if not _plain(layer)})
    if layers or getattr(cache, "offloading", False):
        what = ", ".join(layers) if layers else "offloaded layers"
        raise RequestError(
            f"a {kind} with {what} cannot be continued speculatively; hand over a DynamicCache, or "
            "leave out cache and cache_implementation"
        )
    held = int(cache.get_seq_length())
    if held >= length:
        raise RequestError(
            f"the cache holds {held} tokens and the prompt has {length}, so there is nothing to "
            f"compute; give the whole conversation as input_ids, and crop the cache with "
            f"cache.crop({length - held - 1}) if it goes further"
        )


def _plain(layer: object) -> bool:
    return type(layer) in PLAIN_LAYERS or type(layer).__name__ == EMPTY_LAYER


def take_over(cache: Cache, count: int, room: int, padding: int) -> list[TreeLayer]:
    """Layers that hold what `cache` holds of the text.

    Args:
        cache: What `check_cache` let pass; it is left as it is.
        count: Layers that the model needs.
        room: Tokens to make room for.
        padding: Rows in front that are no text.
    """
    layers = [TreeLayer(room) for _ in range(count)]
    held = int(cache.get_seq_length())
    sources: list[Any] = cache.layers
    for layer, source in zip(layers, sources, strict=False):
        if held > padding and getattr(source, "keys", None) is not None:
            keys, values = (_behind(s, held) for s in (source.keys, source.values))
            layer.update(keys[:, :, padding:], values[:, :, padding:])
    return layers


def _behind(states: torch.Tensor, held: int) -> torch.Tensor:
    """(1, heads, held, size) states; a sliding layer has dropped the first ones.

    No later token may look at those (they lie outside the window), so anything can stand there.
    """
    return _blank_before(states, held - states.shape[-2])


def _blank_before(states: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.nn.functional.pad(states, (0, 0, rows, 0)) if rows else states


def give_back(layers: Sequence[TreeLayer], cache: Cache, padding: int) -> None:
    """Make `cache` hold what `layers` hold, as if `generate` had written it.

    Args:
        layers: Keys and values of the text.
        cache: Where they go.
        padding: Rows in front of them that are no text; no mask will ever show them.
    """
    kept: Sequence[Any] = layers
    for index, layer in enumerate(kept):
        if not layer.is_initialized:  # the model did not use it
            continue
        if index < len(cache.layers):
            cache.layers[index] = _fresh(cache.layers[index])
        # Ordinary tensors: those of inference mode could not be changed outside of it.
        keys, values = (_blank_before(s.clone(), padding) for s in (layer.keys, layer.values))
        cache.update(keys, values, index)


def _fresh(layer: Any) -> Any:  # noqa: ANN401 - any of PLAIN_LAYERS
    window = getattr(layer, "sliding_window", None)
    if window is None:
        return type(layer)()
    return type(layer)(window)
