"""Shapes of public models and models of them with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from models import FAMILIES, oracle

from specdec import Engine, Needs, ReplayTarget, Request, UnknownName
from specdec.hf import HFTarget, shapes
from specdec.hf.shapes import SHAPES, parameters, random_model

# As published with the weights.
PUBLISHED = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
}


def small(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> str:
    """The name of a small shape: that of a large model in miniature."""
    sizes = {
        "vocab_size": 199,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
    }
    base = dict(SHAPES["qwen2.5-7b"])
    monkeypatch.setattr(shapes, "SHAPES", {**SHAPES, "small": {**base, **sizes, **changes}})
    return "small"


def logits(model: hf.PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(1, 40)[None]).logits.float()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_the_published_number_of_parameters(shape: str) -> None:
    assert parameters(shape) == PUBLISHED[shape]


def test_an_unknown_shape_is_refused_with_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"'qwen2.5-7B'; did you mean 'qwen2.5-7b'\?"):
        parameters("qwen2.5-7B")
    with pytest.raises(UnknownName, match=r"smollm2-1.7b, and any folder with a config\.json"):
        random_model(tmp_path, dtype=torch.float32, device="cpu")


@pytest.mark.parametrize("layers", [0, 25])
def test_layers_that_are_not_there_are_refused(layers: int) -> None:
    with pytest.raises(ValueError, match=f"from 1 to the 24 of qwen2.5-0.5b, got {layers}"):
        random_model("qwen2.5-0.5b", dtype=torch.float32, device="cpu", layers=layers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("deep", [3, 80])
def test_a_model_of_any_depth_passes_the_probe(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, deep: int
) -> None:
    model = random_model(small(monkeypatch, num_hidden_layers=deep), dtype=dtype, device="cpu")
    assert not model.training
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    target = HFTarget(model)
    assert target.vocabulary == 199
    stream: list[torch.Tensor] = []
    model.model.norm.register_forward_pre_hook(lambda _, inputs: stream.append(inputs[0]))
    row = logits(model)
    assert 0.1 < stream[0].float().std() < 2  # what leaves the last layer
    assert row.isfinite().all()
    assert 0.3 < row.std() < 3  # near 1, so rounding stays small beside it
    assert (row[0, 1:] - row[0, :-1]).abs().amax() > 0.1  # positions differ


def test_rotations_are_those_of_a_model_made_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    name = small(monkeypatch, **{"rope_parameters": SHAPES["llama-3.2-1b"]["rope_parameters"]})
    made = random_model(name, dtype=torch.bfloat16, device="cpu")
    usual = hf.AutoModelForCausalLM.from_config(made.config)
    ours, theirs = made.model.rotary_emb.inv_freq, usual.model.rotary_emb.inv_freq
    assert ours.dtype == torch.float32
    assert torch.equal(ours, theirs)


def test_tied_embeddings_are_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    for tied in (True, False):
        name = small(monkeypatch, tie_word_embeddings=tied)
        model = random_model(name, dtype=torch.float32, device="cpu")
        assert (model.lm_head.weight is model.model.embed_tokens.weight) == tied
        assert sum(weight.numel() for weight in model.parameters()) == parameters(name)


def test_the_seed_decides_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    name = small(monkeypatch)
    state = torch.random.get_rng_state()
    one, same, other = (
        logits(random_model(name, dtype=torch.float32, device="cpu", seed=seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), state)  # nobody else's numbers change


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_with_a_config_is_a_shape(family: str, tmp_path: Path) -> None:
    FAMILIES[family]().save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"]
    model = random_model(tmp_path, dtype=torch.float32, device="cpu")
    assert HFTarget(model).vocabulary > 0
    assert logits(model).isfinite().all()
    assert parameters(tmp_path) == sum(weight.numel() for weight in model.parameters())


def test_fewer_layers_of_a_mixed_model_keep_their_kinds(tmp_path: Path) -> None:
    FAMILIES["gemma3-mixed"]().save_pretrained(tmp_path)
    model = random_model(tmp_path, dtype=torch.float32, device="cpu", layers=2)
    assert model.config.layer_types == ["sliding_attention", "full_attention"]
    assert len(HFTarget(model).start(Request((1,), 1), Needs())._layers) == 2


def test_the_shapes_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.dumps({name: dict(shape) for name, shape in SHAPES.items()})
    random_model(small(monkeypatch), dtype=torch.float32, device="cpu")
    parameters("llama-3.2-1b")
    assert json.dumps({name: dict(shape) for name, shape in SHAPES.items()}) == before
    with pytest.raises(TypeError):
        SHAPES["qwen2.5-7b"]["vocab_size"] = 1  # type: ignore[index]


def test_a_trace_runs_on_a_random_model(tiny_folder: Path) -> None:
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder)
    model = random_model(tiny_folder, dtype=torch.bfloat16, device="cpu")
    target = HFTarget(model, tokenizer)
    asked = target.request("f(x) f(x)", max_new_tokens=50, id="call")
    written = tuple(tokenizer("f(x) f(y)")["input_ids"])
    replay = ReplayTarget({"call": written}, len(tokenizer), model=target)
    result = Engine(replay, oracle(written, vocabulary=256), on_error="raise").generate(asked)
    assert result.tokens == written
    assert result.passes < len(written)
