"""What differs between the supported versions of transformers (5.16 to current), in one place."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any, Final

import torch
from transformers import DynamicCache, LogitsProcessorList, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from specdec.errors import UnsupportedModel
from specdec.request import Request

WAY_OUT: Final = "decode this model with model.generate()"

PLAIN_LAYERS = (DynamicLayer, DynamicSlidingWindowLayer)
"""Cache layers that hold keys and values by position and nothing else."""

EMPTY_LAYER: Final = "DummyLayer"
"""Since 5.20: the cache layer of a model's layer that attends with the keys of another."""


def base_model(model: PreTrainedModel) -> Any:  # noqa: ANN401 - any architecture
    """The model itself, behind any PEFT wrapper."""
    unwrap: Any = getattr(model, "get_base_model", None)
    return unwrap() if unwrap is not None else model


def forward_parameters(model: PreTrainedModel) -> frozenset[str]:
    """Names of the arguments of the model's own forward, behind any PEFT wrapper."""
    inner = base_model(model)
    # Decorators such as deprecate_kwarg keep the signature; accelerate's hooks keep the old method.
    forward = getattr(inner, "_old_forward", inner.forward)
    return frozenset(inspect.signature(forward).parameters)


def mentions(method: Any, name: str) -> bool:  # noqa: ANN401 - any function
    """Whether the code of `method` itself, behind any decorators, reads something called `name`."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    return code is not None and name in code.co_names + code.co_consts


def asks_for(model: PreTrainedModel, setting: str) -> bool:
    """Whether the model's code reads this setting of its configuration.

    GPT-NeoX has inherited `is_decoder` and never looks at it; BERT does.
    """
    kinds = {type(module) for module in base_model(model).modules()}
    return any(
        mentions(kind.__init__, setting) or mentions(kind.forward, setting) for kind in kinds
    )


def processors_of(model: PreTrainedModel, request: Request) -> LogitsProcessorList:
    """The logits processors that `generate` would apply to this request, in its order.

    What the model's generation config asks for (penalties, forced and forbidden tokens), the
    request's own, and for sampling the warpers, those of the config included.
    """
    inner: Any = base_model(model)
    config = copy.deepcopy(inner.generation_config)
    config.do_sample = request.sampling is not None
    if request.sampling is not None:
        config.temperature = request.sampling.temperature
        config.top_k = request.sampling.top_k
        config.top_p = request.sampling.top_p
    config.eos_token_id = sorted(request.stop_ids) or None
    config.max_new_tokens = request.max_new_tokens
    config.max_length = len(request.prompt) + request.max_new_tokens
    device = model.get_input_embeddings().weight.device
    inner._prepare_special_tokens(config, device=device)
    found: LogitsProcessorList = inner._get_logits_processor(
        generation_config=config,
        input_ids_seq_length=len(request.prompt),
        logits_processor=LogitsProcessorList(request.processors),
        device=device,
    )
    return found


ORIGINAL: Final = "original_inv_freq"
"""Frequencies of a rotary module before they change; one for each type of layer, or for all."""


def drifting_modules(model: PreTrainedModel) -> list[Any]:
    """Modules whose rotary frequencies depend on the longest text seen so far (dynamic NTK)."""
    return [
        module
        for module in model.modules()
        if hasattr(module, "max_seq_len_cached") and _originals(module)
    ]


def _originals(module: torch.nn.Module) -> list[str]:
    return [name for name in dir(module) if name.endswith(ORIGINAL)]


def reset_frequencies(modules: Sequence[Any]) -> None:
    """Forget the lengths of earlier passes, so that a pass depends on its own positions only.

    transformers keeps the frequencies of the longest text until a shorter one comes, which would
    let one request change another's output.
    """
    for module in modules:
        for name in _originals(module):
            prefix = name.removesuffix(ORIGINAL)
            setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)
            device = getattr(module, f"{prefix}inv_freq").device
            frequencies = getattr(module, name).to(device)
            module.register_buffer(f"{prefix}inv_freq", frequencies, persistent=False)


def cache_argument(parameters: frozenset[str], name: str) -> str:
    """The argument that takes the cache: `past_key_values` became `cache` in 5.24.

    Raises:
        UnsupportedModel: If a forward with these parameters takes none.
    """
    for argument in ("cache", "past_key_values"):
        if argument in parameters:
            return argument
    raise UnsupportedModel(
        f"{name} takes no key/value cache (its forward has neither 'cache' nor "
        f"'past_key_values'); {WAY_OUT}"
    )


def plain_layers(config: Any, name: str) -> int:  # noqa: ANN401 - transformers' configs are untyped
    """How many cache layers a model needs, all of them plain keys and values.

    Raises:
        UnsupportedModel: If a layer keeps anything that cannot be rolled back token by token
            (recurrent and convolution states, compressed or indexed keys).
    """
    layers = DynamicCache(config=config).layers
    strange = {type(layer).__name__ for layer in layers if type(layer) not in PLAIN_LAYERS}
    strange.discard(EMPTY_LAYER)
    if strange:
        raise UnsupportedModel(
            f"{name} keeps {', '.join(sorted(strange))} in its cache, which cannot be rolled back "
            f"to the accepted tokens; {WAY_OUT}"
        )
    return len(layers) or int(config.num_hidden_layers)


def windows_of(config: Any) -> set[int]:  # noqa: ANN401 - transformers' configs are untyped
    """The windows beyond which the cache of `generate` drops keys and values."""
    layers = DynamicCache(config=config).layers
    return {
        layer.sliding_window for layer in layers if isinstance(layer, DynamicSlidingWindowLayer)
    }


class TreeLayer(CacheLayerMixin):
    """Keys and values of one layer, written in place into spare capacity.

    Transformers' own dynamic layer copies the whole cache at every step (`torch.cat`); this one
    copies the new rows only, and on `keep` the accepted rows of the tail only. It also holds the
    full history for sliding-window layers: the window is in the mask.
    """

    is_compileable = False
    is_croppable = True
    is_sliding = False
    supports_early_init = True

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate on the device and in the dtype of the first states."""
        self.device = key_states.device
        self._keys = self._room(key_states)
        self._values = self._room(value_states)
        self.is_initialized = True

    def _room(self, states: torch.Tensor) -> torch.Tensor:
        batch, heads, _, size = states.shape
        return states.new_zeros((batch, heads, self.capacity, size))

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: Any,  # noqa: ANN401, ARG002 - older versions pass cache_kwargs
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (1, heads, q, size) states; returns views of everything kept so far."""
        end = self.length + key_states.shape[-2]
        if end > self.capacity:
            self._grow(end)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        elif key_states.dtype != self._keys.dtype:  # a cache handed in may have had another
            self._keys, self._values = self._keys.to(key_states), self._values.to(value_states)
        self._keys[:, :, self.length : end] = key_states
        self._values[:, :, self.length : end] = value_states
        self.length = end
        self.keys, self.values = self._keys[:, :, :end], self._values[:, :, :end]
        return self.keys, self.values

    def _grow(self, needed: int) -> None:
        self.reserve(max(needed, self.capacity + self.capacity // 2))

    def reserve(self, capacity: int) -> None:
        """Make room for at least `capacity` tokens; what is kept stays."""
        if capacity <= self.capacity:
            return
        self.capacity = capacity
        if self.is_initialized:
            for name in ("_keys", "_values"):
                old = getattr(self, name)
                new = self._room(old)
                new[:, :, : self.length] = old[:, :, : self.length]
                setattr(self, name, new)

    def keep(
        self, length: int, rows: Sequence[int], index: dict[torch.device, torch.Tensor]
    ) -> None:
        """Keep the first `length` tokens and, behind them, some of the rows beyond.

        Args:
            length: Tokens kept as they are.
            rows: Rows kept behind them, rising.
            index: `rows` by device, filled on demand and shared between layers.
        """
        if not self.is_initialized:  # a layer that the model did not use in this request
            return
        if rows and rows[-1] != length + len(rows) - 1:
            if self.device not in index:
                index[self.device] = torch.tensor(rows, device=self.device)
            for buffer in (self._keys, self._values):
                # Indexing copies, so source and destination may overlap.
                buffer[:, :, length : length + len(rows)] = buffer[:, :, index[self.device]]
        self.crop(length + len(rows) - self.length)

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last ``-tokens_to_remove`` tokens (a negative count, as in transformers)."""
        if tokens_to_remove > 0 or -tokens_to_remove > self.length:
            raise ValueError(
                f"crop takes a negative count of at most {self.length} tokens, got "
                f"{tokens_to_remove}"
            )
        self.length += tokens_to_remove
        if self.is_initialized:
            self.keys = self._keys[:, :, : self.length]
            self.values = self._values[:, :, : self.length]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:  # noqa: ANN401 - int or tensor
        """Length and offset of the keys that a pass of `query_length` tokens sees."""
        q = query_length.shape[0] if isinstance(query_length, torch.Tensor) else int(query_length)
        return self.length + q, 0

    def get_seq_length(self) -> int:
        """Tokens kept."""
        return self.length

    def get_max_length(self) -> int:
        """No maximum: the layer grows."""
        return -1

    def get_max_cache_shape(self) -> int:
        """Older name of `get_max_length`."""
        return -1
