"""Shapes of public models, and models of a shape with random weights, to time passes with."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

from specdec.errors import UnknownName, did_you_mean

_QWEN_2_5: Final[Mapping[str, Any]] = {
    "model_type": "qwen2",
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "tie_word_embeddings": False,
    "bos_token_id": 151643,
    "eos_token_id": [151645, 151643],
}
_QWEN_2_5_SMALL: Final = {**_QWEN_2_5, "vocab_size": 151936, "tie_word_embeddings": True}


def _llama_3(factor: float, *, tied: bool) -> Mapping[str, Any]:
    return {
        "model_type": "llama",
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": tied,
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
    }


def _smollm_2(theta: float) -> Mapping[str, Any]:
    return {
        "model_type": "llama",
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _shape(
    family: Mapping[str, Any], layers: int, hidden: int, inner: int, heads: int, kv_heads: int
) -> Mapping[str, Any]:
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
    }
    return MappingProxyType({**family, **sizes})


SHAPES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "qwen2.5-0.5b": _shape(_QWEN_2_5_SMALL, 24, 896, 4864, 14, 2),
        "qwen2.5-1.5b": _shape(_QWEN_2_5_SMALL, 28, 1536, 8960, 12, 2),
        "qwen2.5-3b": _shape(_QWEN_2_5_SMALL, 36, 2048, 11008, 16, 2),
        "qwen2.5-7b": _shape(_QWEN_2_5, 28, 3584, 18944, 28, 4),
        "qwen2.5-14b": _shape(_QWEN_2_5, 48, 5120, 13824, 40, 8),
        "qwen2.5-32b": _shape(_QWEN_2_5, 64, 5120, 27648, 40, 8),
        "qwen2.5-72b": _shape(_QWEN_2_5, 80, 8192, 29568, 64, 8),
        "llama-3.1-8b": _shape(_llama_3(8.0, tied=False), 32, 4096, 14336, 32, 8),
        "llama-3.1-70b": _shape(_llama_3(8.0, tied=False), 80, 8192, 28672, 64, 8),
        "llama-3.2-1b": _shape(_llama_3(32.0, tied=True), 16, 2048, 8192, 32, 8),
        "llama-3.2-3b": _shape(_llama_3(32.0, tied=True), 28, 3072, 8192, 24, 8),
        "smollm2-135m": _shape(_smollm_2(100000.0), 30, 576, 1536, 9, 3),
        "smollm2-360m": _shape(_smollm_2(100000.0), 32, 960, 2560, 15, 5),
        "smollm2-1.7b": _shape(_smollm_2(130000.0), 24, 2048, 8192, 32, 32),
    }
)
"""What the published config.json of the instruct models says, as far as it decides the time of a
pass or where a text ends: arguments of ``AutoConfig.for_model``."""


def random_model(
    shape: str | Path,
    *,
    dtype: torch.dtype,
    device: torch.device | str,
    layers: int | None = None,
    seed: int = 0,
) -> PreTrainedModel:
    """A model of a shape with random weights, in eval mode: its passes cost what real ones do.

    It is made on the device and in the dtype, without a copy, so it takes as much memory as the
    real one. The weights are scaled so that activations stay near 1 at any depth: logits are
    finite and the probe of `HFTarget` holds in bfloat16 too. What the model writes means nothing.
    No other thread may build or load a model meanwhile: it would be left without its weights'
    initialisation.

    Args:
        shape: A name in `SHAPES`, or a folder with a config.json.
        dtype: Of the weights, such as ``torch.bfloat16``.
        device: Where they lie.
        layers: Fewer layers than the shape has, for a quick look; all by default.
        seed: Of the weights.

    Raises:
        UnknownName: If `shape` is neither.
        ValueError: If `layers` is not between 1 and what the shape has.
    """
    device = torch.device(device)
    # No initialisation but ours: torch's own would take longer than a run on a CPU. Buffers, such
    # as rotary frequencies, are computed as always.
    with no_init_weights(), device:
        model = _empty(_config(shape, layers), dtype)
    model.tie_weights()
    _fill(model, torch.Generator(device).manual_seed(seed))
    model.eval()
    return model


def parameters(shape: str | Path) -> int:
    """How many parameters a model of a shape has, tied ones counted once; takes no memory.

    Raises:
        UnknownName: If `shape` is neither a name in `SHAPES` nor a folder with a config.json.
    """
    with torch.device("meta"):
        model = _empty(_config(shape, None), torch.float32)
    return sum(weight.numel() for weight in model.parameters())


def _empty(config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model


def _config(shape: str | Path, layers: int | None) -> PretrainedConfig:
    """The configuration of a shape, with its first `layers` layers only."""
    known = SHAPES.get(str(shape))
    if known is not None:
        config = AutoConfig.for_model(**copy.deepcopy(dict(known)))
    elif (Path(shape) / "config.json").is_file():
        config = AutoConfig.from_pretrained(shape)
    else:
        raise UnknownName(
            f"no model shape {str(shape)!r}{did_you_mean(str(shape), SHAPES)}; there are "
            f"{', '.join(SHAPES)}, and any folder with a config.json is one"
        )
    if layers is not None:
        text = config.get_text_config(decoder=True)
        if not 1 <= layers <= text.num_hidden_layers:
            raise ValueError(
                f"layers must be from 1 to the {text.num_hidden_layers} of {shape}, got {layers}"
            )
        text.num_hidden_layers = layers
        if getattr(text, "layer_types", None):
            text.layer_types = text.layer_types[:layers]
    return config


@torch.no_grad()
def _fill(model: PreTrainedModel, generator: torch.Generator) -> None:
    """Random matrices, norms of 1 and biases of 0.

    A matrix of deviation 1 / sqrt(inputs) keeps the size of what goes through it. Each layer adds
    two outputs to the residual stream, so theirs are smaller by sqrt(2 * layers).
    """
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            deviation = float(weight.shape[-1]) ** -0.5
            if "o_proj" in name or "down_proj" in name:
                deviation /= (2 * layers) ** 0.5
            weight.normal_(0.0, deviation, generator=generator)
        else:
            weight.fill_(0.0 if name.endswith("bias") else 1.0)
