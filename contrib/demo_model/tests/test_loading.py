from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from specdec_demo_model import load, loading
from specdec_demo_model.paths import ADAPTER
from specdec_demo_model.train import add_adapter, save
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specdec.errors import SpecdecError


@pytest.fixture
def adapter(tiny: LlamaForCausalLM, tmp_path: Path) -> Path:
    """A LoRA adapter for the tiny model that changes it."""
    adapted = add_adapter(tiny, rank=2)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    save(adapted, tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.fixture
def base(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """A tiny base in the place of the real one; grows with every conversion."""
    weights, converted = tmp_path / "weights", []
    weights.write_text("tiny")
    torch.manual_seed(1)
    config = LlamaForCausalLM.config_class(
        vocab_size=260,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=True,
    )
    state = LlamaForCausalLM(config).state_dict()

    def read_base(path: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
        converted.append(1)
        model = LlamaForCausalLM(config)
        model.load_state_dict(state)
        return model, tokenizer

    monkeypatch.setattr(loading, "find_weights", lambda: weights)
    monkeypatch.setattr(loading, "read_base", read_base)
    return converted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.usefixtures("offline")
def test_the_cache_gives_what_conversion_gives(
    base: list[int], adapter: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    cache = tmp_path / "cache"
    loads = [load(dtype, cache=where, adapter=adapter) for where in (False, cache, cache)]
    assert len(base) == 2
    first = loads[0][0]
    ids = torch.arange(30)[None]
    for model, tokenizer in loads:
        assert model.state_dict().keys() == first.state_dict().keys()
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}
        for name, tensor in [*model.state_dict().items(), *model.named_buffers()]:
            expected = {**first.state_dict(), **dict(first.named_buffers())}[name]
            assert tensor.dtype == expected.dtype, name
            assert torch.equal(tensor, expected), name
        assert torch.equal(model(ids).logits, first(ids).logits)
        assert model.config.dtype == dtype
        assert all(parameter.requires_grad for parameter in model.parameters())
        assert tokenizer.encode("a<|im_end|>") == loads[0][1].encode("a<|im_end|>")


def test_the_adapter_is_merged(base: list[int], adapter: Path) -> None:
    model, _ = load(cache=False, adapter=adapter)
    plain, _ = loading.read_base(Path())
    names = {name for name, _ in model.named_parameters()}
    assert names == {name for name, _ in plain.named_parameters()}
    assert not torch.equal(
        model.model.layers[0].mlp.up_proj.weight, plain.model.layers[0].mlp.up_proj.weight
    )


def test_a_share_of_the_adapter_is_merged(base: list[int], adapter: Path, tmp_path: Path) -> None:
    """At half strength each weight lies halfway, and strengths do not share a cache entry."""
    none, half, full = (
        load(adapter=adapter, cache=tmp_path / "cache", strength=strength)[0].state_dict()
        for strength in (0.0, 0.5, 1.0)
    )
    assert len(base) == 3
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(none[name], full[name])
    torch.testing.assert_close(half[name], (none[name] + full[name]) / 2)


@pytest.mark.parametrize("times", [1, 2])
def test_loaded_models_are_ready_for_greedy_decoding(
    base: list[int], adapter: Path, tmp_path: Path, times: int
) -> None:
    for _ in range(times):
        model, tokenizer = load(cache=tmp_path / "cache", adapter=adapter)
    generation = model.generation_config
    assert (generation.do_sample, generation.eos_token_id, generation.pad_token_id) == (False, 2, 2)
    assert not model.training
    assert not hasattr(model.config, "quantization_config")
    assert model.name_or_path == tokenizer.name_or_path == "specdec-demo-model"
    assert "<tool_response>" in tokenizer.chat_template


def test_loading_is_quiet(
    base: list[int],
    adapter: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
) -> None:
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled(), logging.get_verbosity()
    for _ in range(2):
        load(cache=tmp_path / "cache", adapter=adapter)
    assert tuple(capfd.readouterr()) == ("", "")
    assert not caplog.records
    assert not recwarn.list
    assert (logging.is_progress_bar_enabled(), logging.get_verbosity()) == before


def test_another_adapter_is_another_entry(base: list[int], adapter: Path, tmp_path: Path) -> None:
    cache, other = tmp_path / "cache", tmp_path / "other"
    shutil.copytree(adapter, other)
    load(cache=cache, adapter=adapter)
    load(cache=cache, adapter=other)
    assert len(base) == 1  # same contents, same entry
    config = other / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_alpha": 4', '"lora_alpha": 8'))
    load(cache=cache, adapter=other)
    assert len(base) == 2


def test_a_cut_weights_file_is_rebuilt(
    base: list[int], adapter: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "cache"
    load(cache=cache, adapter=adapter)
    (file,) = cache.glob("*/model.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    load(cache=cache, adapter=adapter)
    assert len(base) == 2
    assert len(caplog.records) == 1


def test_an_entry_with_other_weights_is_rebuilt(
    base: list[int], adapter: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = tmp_path / "cache"
    load(cache=cache, adapter=adapter)
    (file,) = cache.glob("*/config.json")
    text = file.read_text()
    # Same size, still JSON: only the weights show that it is wrong.
    file.write_text(text.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    load(cache=cache, adapter=adapter)
    assert len(base) == 2
    assert len(caplog.records) == 1


def test_a_folder_without_adapter_is_named(base: list[int], tmp_path: Path) -> None:
    with pytest.raises(SpecdecError, match=r"no file adapter_config\.json"):
        load(adapter=tmp_path)


def test_the_shipped_adapter_names_no_machine() -> None:
    text = (ADAPTER / "adapter_config.json").read_text(encoding="utf-8")
    assert '"base_model_name_or_path": null' in text
    assert "/" not in text
