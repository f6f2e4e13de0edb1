"""What cannot be decoded exactly is refused before the first token, with the reason."""

from __future__ import annotations

import sys
import threading
from typing import Any

import attrs
import pytest
import torch
import transformers as hf
from families import called
from models import FAMILIES, SWITCH, TABLE, WINDOW, build, check_rows, prompt_of, reference, tiny

from specdec.engine import Engine
from specdec.errors import UnsupportedModel
from specdec.hf import HFTarget, session
from specdec.hf.attention import NAME, attention_of, packed
from specdec.hf.limits import UNBOUNDED, ability
from specdec.hf.masks import MaskPlan

NARROW: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def make(config: hf.PretrainedConfig) -> hf.PreTrainedModel:
    return hf.AutoModelForCausalLM.from_config(config).eval()


def refused(model: hf.PreTrainedModel) -> str:
    with pytest.raises(UnsupportedModel) as caught:
        HFTarget(model)
    message = str(caught.value)
    assert type(model).__name__ in message, "a refusal names the model"
    return message


def test_an_encoder_decoder_model_is_refused() -> None:
    config = hf.T5Config(
        vocab_size=67,
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    assert "encoder-decoder" in refused(hf.T5ForConditionalGeneration(config).eval())


def test_a_model_in_training_mode_is_refused_with_the_way_out() -> None:
    assert "model.eval()" in refused(make(hf.LlamaConfig(**NARROW)).train())


@pytest.mark.parametrize("name", ["flash_attention_2", "flex_attention"])
def test_an_attention_back_end_without_tree_masks_is_refused(name: str) -> None:
    model = make(hf.LlamaConfig(**NARROW))
    model.config._attn_implementation_internal = name
    message = refused(model)
    assert name in message
    assert "attn_implementation='sdpa'" in message


def test_recurrent_models_are_refused() -> None:
    assert "model.generate()" in refused(make(called("Mamba").configuration()))
    jamba = hf.JambaConfig(
        **NARROW,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=2,
        mamba_d_state=4,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    )
    assert "rolled back" in refused(make(jamba))


def test_mixed_layers_with_convolutions_are_refused() -> None:
    config = hf.Lfm2Config(**NARROW, layer_types=["conv", "full_attention"])
    message = refused(make(config))
    assert "rolled back" in message or "conv" in message


def test_layers_without_a_known_tree_mask_are_refused_by_name() -> None:
    model = make(hf.Qwen3Config(**NARROW, head_dim=8))
    model.config.layer_types = ["indexed_attention", "full_attention"]
    assert "indexed_attention" in refused(model)


def test_alibi_models_are_refused() -> None:
    bloom = hf.BloomConfig(vocab_size=67, hidden_size=16, n_layer=2, n_head=2)
    assert "position_ids" in refused(make(bloom))
    falcon = hf.FalconConfig(
        vocab_size=67, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, alibi=True
    )
    assert "ALiBi" in refused(make(falcon))


def exact_or_refused(model: hf.PreTrainedModel, tokens: int = 14) -> None:
    """Both are honest; wrong rows and a crash in the middle of a request are not."""
    try:
        ours = HFTarget(model)
    except UnsupportedModel as refusal:
        assert "model.generate()" in str(refusal)  # noqa: PT017 - either outcome is fine
    else:
        assert check_rows(ours, prompt_of(9), tokens).worst < 1e-5


def test_windows_inside_the_model_are_exact_or_refused() -> None:
    """GPT-Neo's local layers count their window by cache row, whatever the mask says."""
    config = hf.GPTNeoConfig(
        vocab_size=67,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        window_size=5,
        attention_types=[[["global", "local"], 1]],
        bos_token_id=None,
        eos_token_id=None,
        max_position_embeddings=128,
        tie_word_embeddings=False,
    )
    exact_or_refused(build(config, attention="eager"))


def test_an_encoder_with_a_language_head_is_exact_or_refused() -> None:
    """BERT looks ahead unless it is told that it is a decoder."""
    config = hf.BertConfig(**NARROW | {"pad_token_id": 0}, tie_word_embeddings=False)
    exact_or_refused(build(config))


def test_layers_that_the_model_skips_are_exact_or_refused() -> None:
    """Mllama's cross-attention layers never see a token when there is no image."""
    config = hf.models.mllama.MllamaTextConfig(
        **NARROW
        | {"num_hidden_layers": 3, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0},
        cross_attention_layers=[1],
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=False,
    )
    model = hf.models.mllama.MllamaForCausalLM(config).to(torch.float64).eval()
    exact_or_refused(model)


def test_models_with_masks_by_head_are_exact_or_refused() -> None:
    """Doge turns the mask into one per key/value head before attention."""
    config = hf.DogeConfig(
        **NARROW | {"num_key_value_heads": 1}, head_dim=8, tie_word_embeddings=False
    )
    exact_or_refused(build(config))


@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PrefixTuningConfig"])
def test_virtual_tokens_of_an_adapter_are_exact_or_refused(kind: str) -> None:
    """They shift every position and every cache row by their number."""
    peft = pytest.importorskip("peft")
    config = getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = peft.get_peft_model(build(FAMILIES["llama"]()), config).to(torch.float64).eval()
    try:
        ours = HFTarget(model)
    except UnsupportedModel as refusal:
        assert "model.generate()" in str(refusal)  # noqa: PT017 - either outcome is fine
        return
    truth = reference(model, prompt_of(9), 8)
    request = ours.request(prompt_of(9), max_new_tokens=8)
    assert list(Engine(ours).generate(request).tokens) == truth


def test_abilities_are_read_from_the_configuration() -> None:
    assert ability(tiny("llama")).masks == MaskPlan()
    assert ability(tiny("llama")).table == UNBOUNDED
    assert ability(tiny("mistral-window")).masks == MaskPlan(WINDOW)
    assert ability(tiny("gemma3-mixed")).masks == MaskPlan(WINDOW, mapped=True)
    assert ability(tiny("gpt2-short")).table == TABLE
    phi = ability(tiny("phi3-longrope"))
    assert (phi.switch, phi.recompute_at, phi.drifts) == (SWITCH, SWITCH, False)
    dynamic = ability(tiny("llama-dynamic"))
    assert (dynamic.recompute_at, dynamic.drifts) == (UNBOUNDED, True)


def test_a_longrope_that_generate_does_not_recompute_is_not_recomputed() -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "factor": 4.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [2.0, 3.0, 4.0, 5.0],
        "original_max_position_embeddings": SWITCH,
    }
    config = FAMILIES["llama"]()
    model = build(hf.LlamaConfig(**config.to_dict() | {"rope_parameters": rope}))
    assert ability(model).recompute_at == UNBOUNDED
    for length in (SWITCH - 4, SWITCH, SWITCH + 3):
        ours = HFTarget(model)
        request = ours.request(prompt_of(length), max_new_tokens=12)
        expected = reference(model, prompt_of(length), 12)
        assert list(Engine(ours).generate(request).tokens) == expected


def test_a_draft_stops_at_the_table_and_at_the_switch() -> None:
    plain = ability(tiny("llama"))
    assert plain.depth(10**6) > 10**6
    table = attrs.evolve(plain, table=48)
    assert [table.depth(root) for root in (0, 40, 46, 47, 48)] == [47, 7, 1, 0, 0]
    switch = attrs.evolve(plain, switch=24)
    assert [switch.depth(root) for root in (20, 22, 23)] == [3, 1, 0]
    assert switch.depth(24) > 10**6
    drift = attrs.evolve(plain, switch=24, drifts=True)
    assert [drift.depth(root) for root in (23, 24, 500)] == [0, 0, 0]
    anew = attrs.evolve(plain, switch=24, recompute_at=30)
    assert [anew.depth(root) for root in (23, 24, 29, 30)] == [0, 5, 0, 0]
    assert anew.depth(31) > 10**6


def test_nothing_rides_on_a_prompt_that_was_split_at_the_switch() -> None:
    switch = attrs.evolve(ability(tiny("llama")), switch=24)
    assert [switch.depth(30, split) for split in (10, 24)] == [0, 0]
    assert switch.depth(30, 25) > 10**6
    assert switch.depth(20, 10) == 3


def test_a_model_that_ignores_masks_or_positions_is_refused_by_the_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny("llama")
    monkeypatch.setattr(
        session,
        "positions",
        # by index instead of by depth
        lambda cached, pending, tree: torch.arange(cached, cached + pending + len(tree))[None],
    )
    assert "does not follow tree masks or positions" in refused(model)
    HFTarget(model, probe=False)


@pytest.mark.parametrize("heads", [2, 4])
def test_a_model_that_computes_in_another_dtype_than_it_embeds_in_is_exact(heads: int) -> None:
    """A mask in the embedding's dtype is silently wrong in sdpa, from 16 rows on."""
    config = FAMILIES["llama"]()
    config.num_key_value_heads = heads
    model = build(config)
    embedding: Any = model.get_input_embeddings().float()
    embedding.register_forward_hook(lambda module, inputs, output: output.double())
    assert check_rows(HFTarget(model), prompt_of(21), 14, nodes=24).worst < 1e-6


def test_a_model_that_changed_since_its_target_was_built_is_refused() -> None:
    model = build(FAMILIES["llama"]())
    ours = HFTarget(model)
    request = ours.request(prompt_of(9), max_new_tokens=4)
    before = Engine(ours).generate(request).tokens
    model.set_attn_implementation("eager")
    with pytest.raises(UnsupportedModel, match="uses eager attention, unlike when its target"):
        Engine(ours).generate(request)
    model.set_attn_implementation("sdpa")
    model.train()
    with pytest.raises(UnsupportedModel, match="is in training mode, unlike when its target"):
        Engine(ours).generate(request)
    model.eval()
    assert Engine(ours).generate(request).tokens == before


def test_models_may_share_one_configuration_in_several_threads() -> None:
    """A pass changes the attention back end in the configuration while it lasts."""
    config = FAMILIES["llama"]()
    first = build(config)
    other = hf.LlamaForCausalLM(first.config).to(torch.float64).eval()
    targets = [HFTarget(first), HFTarget(other)]
    requests = [t.request(prompt_of(9), max_new_tokens=12) for t in targets]
    alone = [
        Engine(t).generate(request).tokens for t, request in zip(targets, requests, strict=True)
    ]
    found: list[list[tuple[int, ...]]] = [[], []]

    def run(i: int) -> None:
        for _ in range(25):
            target = HFTarget(targets[i].model)  # looks at the back end, too
            found[i].append(Engine(target).generate(requests[i]).tokens)

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    assert found == [[alone[0]] * 25, [alone[1]] * 25]
    assert first.config._attn_implementation == "sdpa"


def test_the_packed_kernel_stays_until_the_last_pass_under_a_configuration_ends() -> None:
    config = build(FAMILIES["llama"]()).config
    with packed(config):
        with packed(config):
            assert config._attn_implementation == NAME
        assert config._attn_implementation == NAME
        assert attention_of(config) == "sdpa"
    assert config._attn_implementation == "sdpa"
