"""The families of decoder-only models that transformers has, each as a tiny random model.

`FAMILIES` says which of them are decoded exactly and which are refused; `try_out` finds out. The
table of both is docs/families.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import attrs
import torch
import transformers as hf
from models import (
    SWITCH,
    VOCABULARY,
    WINDOW,
    build,
    check_rows,
    junk,
    mixed,
    oracle,
    prompt_of,
    reference,
)

from specdec.engine import Engine
from specdec.errors import UnsupportedModel
from specdec.hf import HFTarget
from specdec.hf.compat import reset_frequencies
from specdec.hf.limits import UNBOUNDED
from specdec.request import Result, Sampling

LENGTH = 64
"""Positions of each model; where they are a table, generation ends with it."""

CHUNK = 8

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "query_pre_attn_scalar": 8,
    "max_position_embeddings": LENGTH,
    "sliding_window": WINDOW,
    # GPT-2 and its like
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": LENGTH,
    "rotary_dim": 4,
    # mixtures of experts
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "moe_intermediate_size": 16,
    "shared_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    # multi-head latent attention
    "kv_lora_rank": 8,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    # recurrent layers
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_ssm": 64,
}
"""A configuration takes those that it knows; what is particular is in the family's changes."""


@attrs.frozen(eq=False)
class Family:
    """Models of one architecture, or one setting of theirs.

    Attributes:
        name: What it is called.
        models: Models that one would know it by.
        config: Name of its configuration in transformers.
        changes: What the tiny model sets beside `SIZES`.
        text: For models that also see images: name of their language model's configuration, which
            the changes then belong to.
        vision: The changes of the rest.
        refused: A part of the reason, if it is refused.
    """

    name: str
    models: str
    config: str
    changes: Mapping[str, Any] = attrs.field(factory=dict)
    text: str | None = None
    vision: Mapping[str, Any] = attrs.field(factory=dict)
    refused: str = ""

    @property
    def known(self) -> bool:
        """Whether the installed transformers has it."""
        return all(hasattr(hf, name) for name in (self.config, self.text) if name)

    def configuration(self) -> hf.PretrainedConfig:
        """A tiny one; without the kernels that group experts, which know no float64."""
        if self.text is None:
            made = _configuration(self.config, self.changes)
        else:
            text = _configuration(self.text, self.changes).to_dict()
            made = getattr(hf, self.config)(
                text_config=text, **{"tie_word_embeddings": False} | dict(self.vision)
            )
        made._experts_implementation = "eager"
        return made


def _configuration(name: str, changes: Mapping[str, Any]) -> hf.PretrainedConfig:
    kind = getattr(hf, name)
    known = set(inspect.signature(kind).parameters)
    return kind(**{key: SIZES[key] for key in SIZES if key in known} | dict(changes))


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


def _longrope(**more: Any) -> dict[str, Any]:
    return _rope(
        "longrope",
        short_factor=[1.0, 1.1, 1.2, 1.3],
        long_factor=[2.0, 3.0, 4.0, 5.0],
        original_max_position_embeddings=SWITCH,
        **more,
    )


def _layers(*kinds: str) -> dict[str, Any]:
    return {"layer_types": list(kinds), "num_hidden_layers": len(kinds)}


FULL = {"sliding_window": None}
MIXED = _layers("sliding_attention", "full_attention")
SHARED = _layers(*MIXED["layer_types"] * 2) | {
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
}
HALF = {"use_sliding_window": True, "max_window_layers": 1}
LATENT = {"num_key_value_heads": 4}
CHUNKED = _layers("chunked_attention", "full_attention") | {
    "attention_chunk_size": CHUNK,
    "intermediate_size_mlp": 48,
    "no_rope_layers": [1, 0],
}
NESTED = {  # in some layers only
    "max_position_embeddings": SWITCH,
    "rope_parameters": {
        "full_attention": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
YARN = {"factor": 4.0, "original_max_position_embeddings": SWITCH}
PHI3 = FULL | {"original_max_position_embeddings": SWITCH}
MSCALE = {"short_mscale": 1.1, "long_mscale": 1.3}
HEADS = {"d_model": 32, "n_layers": 2, "n_heads": 4}
ALTUP = {"altup_num_inputs": 2, "laurel_rank": 4, "activation_sparsity_pattern": [0.5] + [0.0] * 3}
BLOCKS = {"moe_num_experts": 4, "moe_top_k": 2, "ffn_hidden_size": 48}
DBRX = HEADS | {
    "max_seq_len": LENGTH,
    "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
    "ffn_config": BLOCKS,
}
LONGCAT = LATENT | {
    "num_layers": 2,
    "ffn_hidden_size": 32,
    "expert_ffn_hidden_size": 16,
    "zero_expert_num": 2,
}

# Models with images, used for text.
SIGHT = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}
IMAGE = {"image_token_id": 60}
INDEX = {"image_token_index": 60}
BLIND = {"vision_config": None, "audio_config": None}
TOKENS = IMAGE | {"video_token_id": 61, "vision_start_token_id": 62, "vision_end_token_id": 63}
QWEN_VL = TOKENS | {
    "vision_config": {
        "depth": 1,
        "hidden_size": 16,
        "embed_dim": 16,
        "num_heads": 2,
        "intermediate_size": 16,
        "out_hidden_size": 32,
        "patch_size": 4,
        "mlp_ratio": 1,
    }
}
SECTIONS = _rope("default", mrope_section=[1, 1, 2])
PIXTRAL = INDEX | {"vision_config": SIGHT | {"model_type": "pixtral", "head_dim": 8}}

STATES = "recurrent states"
PLACES = "position_ids"

FAMILIES = (
    Family(
        "Llama",
        "Llama 2 and 3, DeepSeek-R1-Distill-Llama, Yi, Vicuna, SmolLM2, TinyLlama, Falcon 3",
        "LlamaConfig",
    ),
    Family(
        "Llama, linear rotations",
        "LongChat, Vicuna 16k",
        "LlamaConfig",
        _rope("linear", factor=4.0),
    ),
    Family(
        "Llama, Llama 3 rotations",
        "Llama 3.1 to 3.3",
        "LlamaConfig",
        _rope(
            "llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=SWITCH,
        ),
    ),
    Family(
        "Llama, YaRN",
        "any with YaRN, such as Qwen beyond 32k",
        "LlamaConfig",
        _rope("yarn", **YARN),
    ),
    Family("Llama, long-rope", "any with long-rope", "LlamaConfig", _longrope(factor=4.0)),
    Family(
        "Llama, dynamic NTK",
        "any with dynamic NTK",
        "LlamaConfig",
        {"max_position_embeddings": SWITCH} | _rope("dynamic", factor=2.0),
    ),
    Family("Qwen 2", "Qwen 2, Qwen 2.5, QwQ, DeepSeek-R1-Distill-Qwen", "Qwen2Config"),
    Family("Qwen 2, sliding", "with use_sliding_window", "Qwen2Config", HALF),
    Family("Qwen 2 MoE", "Qwen1.5-MoE, Qwen2-57B-A14B", "Qwen2MoeConfig"),
    Family("Qwen 3", "Qwen 3", "Qwen3Config"),
    Family("Qwen 3, sliding", "with use_sliding_window", "Qwen3Config", HALF),
    Family("Qwen 3 MoE", "Qwen3-30B-A3B, Qwen3-Coder", "Qwen3MoeConfig"),
    Family("Mistral", "Mistral 7B, Zephyr", "MistralConfig"),
    Family(
        "Mistral, full attention", "Mistral 7B from 0.2, Nemo, Codestral", "MistralConfig", FULL
    ),
    Family("Mixtral", "Mixtral 8x7B, 8x22B", "MixtralConfig", FULL),
    Family("Ministral", "Ministral 8B", "MinistralConfig", MIXED),
    Family("Ministral 3", "Ministral 3", "Ministral3Config", FULL),
    Family("Mistral 4", "Mistral Small 4", "Mistral4Config", LATENT),
    Family("Gemma", "Gemma, CodeGemma", "GemmaConfig"),
    Family("Gemma 2", "Gemma 2", "Gemma2Config", MIXED),
    Family("Gemma 3", "Gemma 3 1B, FunctionGemma", "Gemma3TextConfig", MIXED),
    Family("Gemma 3, dynamic NTK", "any with dynamic NTK", "Gemma3TextConfig", MIXED | NESTED),
    Family("Gemma 3n", "Gemma 3n (text)", "Gemma3nTextConfig", SHARED | ALTUP),
    Family("Gemma 4, small", "Gemma 4 E2B, E4B (text)", "Gemma4TextConfig", SHARED),
    Family(
        "Gemma 4, large",
        "Gemma 4 26B-A4B, 31B (text)",
        "Gemma4TextConfig",
        MIXED
        | {
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "top_k_experts": 2,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "global_head_dim": 16,
            "use_bidirectional_attention": "vision",
        },
    ),
    Family("Gemma 4 Unified", "Gemma 4 12B (text)", "Gemma4UnifiedTextConfig", MIXED),
    Family("VaultGemma", "VaultGemma 1B", "VaultGemmaConfig", MIXED),
    Family("Phi", "Phi-1, 1.5, 2", "PhiConfig", {"partial_rotary_factor": 0.5}),
    Family("Phi 3", "Phi-3 4k, Phi-4", "Phi3Config"),
    Family("Phi 3, long-rope", "Phi-3 128k, Phi-3.5, Phi-4-mini", "Phi3Config", PHI3 | _longrope()),
    Family("PhiMoE", "Phi-3.5-MoE", "PhimoeConfig", FULL | _longrope(**MSCALE)),
    Family("Granite", "Granite 3", "GraniteConfig"),
    Family("Granite MoE", "Granite 3 1B-A400M, 3B-A800M", "GraniteMoeConfig"),
    Family("Granite MoE, shared", "with shared experts", "GraniteMoeSharedConfig"),
    Family(
        "Granite 4, attention only",
        "Granite 4.0 Micro, 350M, 1B",
        "GraniteMoeHybridConfig",
        _layers("full_attention", "full_attention") | {"position_embedding_type": "rope"},
    ),
    Family("Granite SWA", "Granite Swash", "GraniteSWAConfig", MIXED),
    Family("Granite MoE SWA", "Granite Swash MoE", "GraniteMoeSWAConfig", MIXED),
    Family("GPT-2", "GPT-2, DistilGPT-2", "GPT2Config"),
    Family("GPT-J", "GPT-J 6B", "GPTJConfig"),
    Family("GPT-NeoX", "Pythia, GPT-NeoX 20B, Dolly 2, RedPajama-INCITE", "GPTNeoXConfig"),
    Family("GPT-NeoX Japanese", "GPT-NeoX-Japanese 2.7B", "GPTNeoXJapaneseConfig"),
    Family("GPT BigCode", "StarCoder, SantaCoder", "GPTBigCodeConfig"),
    Family("CodeGen", "CodeGen, CodeGen 2", "CodeGenConfig"),
    Family("OPT", "OPT", "OPTConfig", {"word_embed_proj_dim": 32, "ffn_dim": 48}),
    Family("BioGPT", "BioGPT", "BioGptConfig"),
    Family("CTRL", "CTRL", "CTRLConfig", {"dff": 48}),
    Family("OLMo", "OLMo", "OlmoConfig"),
    Family("OLMo 2", "OLMo 2", "Olmo2Config"),
    Family("OLMo 3", "OLMo 3", "Olmo3Config", MIXED),
    Family("OLMoE", "OLMoE", "OlmoeConfig"),
    Family("FlexOlmo", "FlexOlmo", "FlexOlmoConfig"),
    Family("StarCoder 2", "StarCoder 2", "Starcoder2Config"),
    Family("Cohere", "Command R, Command R+", "CohereConfig"),
    Family("Cohere 2", "Command R7B, Command A", "Cohere2Config", MIXED),
    Family("Cohere 2 MoE", "Command A+", "Cohere2MoeConfig", MIXED),
    Family("GLM", "GLM-4-9B, GLM-Edge", "GlmConfig"),
    Family("GLM 4", "GLM-4-32B-0414, GLM-Z1", "Glm4Config"),
    Family("GLM 4 MoE", "GLM-4.5, 4.6, 4.7", "Glm4MoeConfig"),
    Family("GLM 4 MoE Lite", "GLM-4.7-Flash", "Glm4MoeLiteConfig", LATENT),
    Family("gpt-oss", "gpt-oss-20b, gpt-oss-120b", "GptOssConfig", MIXED),
    Family("DeepSeek V2", "DeepSeek-V2, -V2-Lite, -Coder-V2", "DeepseekV2Config", LATENT),
    Family(
        "DeepSeek V3",
        "DeepSeek-V3, -R1, -V3.1",
        "DeepseekV3Config",
        LATENT | _rope("yarn", mscale=1.0, mscale_all_dim=1.0, **YARN),
    ),
    Family("LongCat Flash", "LongCat-Flash", "LongcatFlashConfig", LONGCAT),
    Family("Youtu", "Youtu-LLM 2B", "YoutuConfig", LATENT),
    Family("MiniCPM 3", "MiniCPM3-4B", "MiniCPM3Config", LATENT | _longrope(factor=4.0)),
    Family("SmolLM 3", "SmolLM3-3B", "SmolLM3Config", FULL | {"no_rope_layers": [1, 0]}),
    Family("Falcon", "Falcon 7B", "FalconConfig"),
    Family(
        "Falcon, grouped heads",
        "Falcon 40B, 180B, 11B",
        "FalconConfig",
        {"new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    Family("StableLM", "StableLM 3B, StableLM 2", "StableLmConfig"),
    Family("Persimmon", "Persimmon 8B", "PersimmonConfig"),
    Family("Nemotron", "Nemotron-3 8B, Nemotron-4, Minitron", "NemotronConfig"),
    Family("EXAONE", "EXAONE 3.0, 3.5, Deep", "ExaoneConfig"),
    Family("EXAONE 4", "EXAONE 4.0", "Exaone4Config", MIXED),
    Family("EXAONE MoE", "K-EXAONE", "ExaoneMoeConfig", MIXED),
    Family("ERNIE 4.5", "ERNIE-4.5-0.3B", "Ernie4_5Config"),
    Family("ERNIE 4.5 MoE", "ERNIE-4.5-21B-A3B", "Ernie4_5_MoeConfig", {"moe_k": 2}),
    Family(
        "Hunyuan",
        "Hunyuan 0.5B to 7B, Hunyuan-MT",
        "HunYuanDenseV1Config",
        _rope("dynamic", factor=1.0, alpha=100.0),
    ),
    Family("Hunyuan MoE", "Hunyuan-A13B", "HunYuanMoEV1Config"),
    Family("Hy 3", "Hy3", "HYV3Config"),
    Family("Seed-OSS", "Seed-OSS-36B", "SeedOssConfig"),
    Family("MiniMax M2", "MiniMax-M2", "MiniMaxM2Config"),
    Family("MiMo V2", "MiMo-V2-Flash", "MiMoV2FlashConfig", MIXED),
    Family("InternLM 3", "InternLM3-8B", "InternLM3Config"),
    Family("HyperCLOVA X", "HyperCLOVAX-SEED-Think", "HyperCLOVAXConfig"),
    Family("Solar Open", "Solar-Open-100B", "SolarOpenConfig"),
    Family("A.X K1", "A.X-K1", "AXK1Config", LATENT),
    Family("Apertus", "Apertus 8B, 70B", "ApertusConfig"),
    Family("Arcee", "AFM-4.5B", "ArceeConfig"),
    Family("AFMoE", "Trinity", "AfmoeConfig", MIXED),
    Family("Aria", "Aria (text)", "AriaTextConfig"),
    Family("BitNet", "BitNet b1.58 2B4T", "BitNetConfig"),
    Family("CWM", "Code World Model", "CwmConfig", MIXED | {"bos_token_id": 0}),
    Family("DBRX", "DBRX", "DbrxConfig", DBRX),
    Family("DiffLlama", "DiffLlama", "DiffLlamaConfig"),
    Family("dots1", "dots.llm1", "Dots1Config", {"n_shared_experts": 1}),
    Family("Helium", "Helium 1", "HeliumConfig"),
    Family("HRM", "HRM-Text-1B", "HrmTextConfig"),
    Family("IQuest Coder", "IQuest-Coder-V1", "IQuestCoderConfig"),
    Family("Jais 2", "Jais 2", "Jais2Config"),
    Family("JetMoE", "JetMoE 8B", "JetMoeConfig", {"kv_channels": 8}),
    Family("Laguna", "Laguna", "LagunaConfig", MIXED),
    Family("Llama 4", "Llama 4 Scout, Maverick (text)", "Llama4TextConfig", CHUNKED),
    Family("Mellum", "Mellum 2", "MellumConfig", MIXED),
    Family(
        "ModernBERT decoder",
        "Ettin decoders",
        "ModernBertDecoderConfig",
        MIXED | {"pad_token_id": 0, "bos_token_id": 0, "local_attention": WINDOW},
    ),
    Family("nanochat", "nanochat", "NanoChatConfig"),
    Family("Sarvam MLA", "Sarvam-105B", "SarvamMLAConfig", LATENT),
    # models with images, used for text
    Family(
        "Gemma 3 with images",
        "Gemma 3 4B to 27B, MedGemma",
        "Gemma3Config",
        MIXED,
        text="Gemma3TextConfig",
        vision=INDEX | {"vision_config": SIGHT, "mm_tokens_per_image": 4},
    ),
    Family(
        "Gemma 4 with images",
        "Gemma 4",
        "Gemma4Config",
        SHARED | {"pad_token_id": 0},
        text="Gemma4TextConfig",
        vision=IMAGE | BLIND | {"pad_token_id": 0},
    ),
    Family("Qwen 2 VL", "Qwen2-VL", "Qwen2VLConfig", SECTIONS, "Qwen2VLTextConfig", QWEN_VL),
    Family(
        "Qwen 2.5 VL", "Qwen2.5-VL", "Qwen2_5_VLConfig", SECTIONS, "Qwen2_5_VLTextConfig", QWEN_VL
    ),
    Family("Qwen 3 VL", "Qwen3-VL", "Qwen3VLConfig", SECTIONS, "Qwen3VLTextConfig", QWEN_VL),
    Family(
        "Qwen 3 VL MoE",
        "Qwen3-VL-30B-A3B",
        "Qwen3VLMoeConfig",
        SECTIONS,
        "Qwen3VLMoeTextConfig",
        QWEN_VL,
    ),
    Family(
        "Mistral 3",
        "Mistral Small 3.1, 3.2",
        "Mistral3Config",
        FULL,
        text="MistralConfig",
        vision=PIXTRAL,
    ),
    Family(
        "LLaVA", "LLaVA 1.5", "LlavaConfig", {}, "LlamaConfig", INDEX | {"vision_config": SIGHT}
    ),
    Family(
        "SmolVLM",
        "SmolVLM, SmolVLM2",
        "SmolVLMConfig",
        {},
        "LlamaConfig",
        IMAGE | {"vision_config": SIGHT},
    ),
    Family(
        "Kimi K2.5",
        "Kimi K2.5, K2.6",
        "Kimi_K25Config",
        LATENT,
        text="DeepseekV3Config",
        vision={"vision_config": SIGHT},
    ),
    # refused
    Family("Qwen 3 Next", "Qwen3-Next", "Qwen3NextConfig", refused=STATES),
    Family("Qwen 3.5", "Qwen 3.5", "Qwen3_5TextConfig", refused=STATES),
    Family("Qwen 3.5 MoE", "Qwen 3.5 35B-A3B", "Qwen3_5MoeTextConfig", refused=STATES),
    Family(
        "Granite 4, hybrid",
        "Granite 4.0 H",
        "GraniteMoeHybridConfig",
        _layers("linear_attention", "full_attention"),
        refused=STATES,
    ),
    Family("Bamba", "Bamba 9B", "BambaConfig", refused=STATES),
    Family("Falcon H1", "Falcon-H1", "FalconH1Config", refused=STATES),
    Family("Falcon Mamba", "Falcon Mamba 7B", "FalconMambaConfig", refused=STATES),
    Family("Jamba", "Jamba", "JambaConfig", refused=STATES),
    Family("Kimi Linear", "Kimi-Linear-48B-A3B", "KimiLinearConfig", LATENT, refused=STATES),
    Family("Ling 3", "Ling 3.0", "BailingHybridConfig", LATENT, refused=STATES),
    Family("Mamba", "Mamba", "MambaConfig", refused=STATES),
    Family(
        "Mamba 2",
        "Mamba 2, Codestral Mamba",
        "Mamba2Config",
        {"num_heads": 8, "n_groups": 1},
        refused=STATES,
    ),
    Family(
        "Nemotron H",
        "Nemotron-H, Nemotron Nano 2 and 3",
        "NemotronHConfig",
        {"layers_block_type": ["mamba", "attention"]},
        refused=STATES,
    ),
    Family("OLMo Hybrid", "OLMo Hybrid 7B", "OlmoHybridConfig", refused=STATES),
    Family("RecurrentGemma", "RecurrentGemma", "RecurrentGemmaConfig", refused=STATES),
    Family("RWKV", "RWKV 4", "RwkvConfig", refused=STATES),
    Family("xLSTM", "xLSTM 7B", "xLSTMConfig", refused=STATES),
    Family(
        "Zamba",
        "Zamba 7B",
        "ZambaConfig",
        {"num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid", "mamba"]},
        refused=STATES,
    ),
    Family(
        "Zamba 2",
        "Zamba 2",
        "Zamba2Config",
        {"layers_block_type": ["mamba", "hybrid"]},
        refused=STATES,
    ),
    Family("Zaya", "ZAYA1-8B", "ZayaConfig", {"num_experts_per_tok": 1}, refused=STATES),
    Family("DeepSeek V4", "DeepSeek-V4", "DeepseekV4Config", LATENT, refused=STATES),
    Family("DeepSeek V3.2", "DeepSeek-V3.2", "DeepseekV32Config", LATENT, refused="layers of type"),
    Family("GLM 5", "GLM-5", "GlmMoeDsaConfig", LATENT, refused="layers of type"),
    Family("LFM 2", "LFM2", "Lfm2Config", _layers("conv", "full_attention"), refused="type conv"),
    Family(
        "LFM 2 MoE",
        "LFM2-8B-A1B",
        "Lfm2MoeConfig",
        _layers("conv", "full_attention"),
        refused="type conv",
    ),
    Family("MiniMax", "MiniMax-Text-01, M1", "MiniMaxConfig", refused="type linear_attention"),
    Family(
        "MiniMax M3",
        "MiniMax-M3 (text)",
        "MiniMaxM3VLTextConfig",
        _layers("minimax_m3_sparse", "full_attention"),
        refused="minimax_m3_sparse",
    ),
    Family("Bloom", "BLOOM, BLOOMZ", "BloomConfig", refused=PLACES),
    Family("MPT", "MPT 7B, 30B", "MptConfig", HEADS, refused=PLACES),
    Family("Falcon, ALiBi", "Falcon RW", "FalconConfig", {"alibi": True}, refused="ALiBi"),
    Family(
        "GPT-Neo",
        "GPT-Neo 125M to 2.7B",
        "GPTNeoConfig",
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        refused="cache row",
    ),
    Family("OpenAI GPT", "GPT", "OpenAIGPTConfig", refused="no key/value cache"),
)


def called(name: str) -> Family:
    """The family of a name."""
    return next(family for family in FAMILIES if family.name == name)


CLOSE = 1e-4
"""Norms, routers and eager's softmax are computed in float32 whatever the model's dtype: where a
sum falls on a border of float32, a row is off by some 1e-6, and more behind many layers."""

TOKENS_WRITTEN = 12


class NotOffered(Exception):
    """The family has no such attention in transformers."""


@cache
def tiny_family(family: Family, attention: str) -> hf.PreTrainedModel:
    """Its tiny float64 model; shared by all tests, so leave it as it is.

    Raises:
        NotOffered: If the family has no such attention.
    """
    auto = hf.AutoModelForImageTextToText if family.text else hf.AutoModelForCausalLM
    if family.config == "Mistral4Config":  # listed with models that see images, and sees none
        auto = hf.AutoModelForImageTextToText
    try:
        model = build(family.configuration(), attention=attention, auto=auto)
    except ValueError as error:
        if "scaled_dot_product_attention" in str(error):
            raise NotOffered from error
        raise
    _stir(model)
    return model


@torch.no_grad()
def _stir(model: hf.PreTrainedModel) -> None:
    """Let vectors matter too: biases, norms, sinks, and what routers add to choose experts."""
    draw = torch.Generator().manual_seed(0)
    added = [buffer for name, buffer in model.named_buffers() if name.endswith("bias")]
    for vector in [*model.parameters(), *added]:
        if vector.ndim == 1 and vector.is_floating_point():
            vector += 0.2 * torch.randn(vector.shape, generator=draw)


@attrs.frozen
class Outcome:
    """What came of a family under one kind of attention.

    Attributes:
        verdict: "exact", "refused", or "none" where the family has no such attention.
        reason: Why it is refused.
        masks: Which masks it takes.
        faults: What differed from `generate`; not empty only where something is broken.
    """

    verdict: str
    reason: str = ""
    masks: str = ""
    faults: tuple[str, ...] = ()


@cache
def try_out(family: Family, attention: str) -> Outcome:
    """Build the model, and compare with `generate` whatever is not refused."""
    try:
        model = tiny_family(family, attention)
        target = HFTarget(model)
    except NotOffered:
        return Outcome("none")
    except UnsupportedModel as refusal:
        return Outcome("refused", str(refusal))
    plan = target.ability.masks
    kinds = ["sliding"] * bool(plan.window) + ["chunked"] * bool(plan.chunk)
    if plan.mapped or not kinds:
        kinds.append("full")
    return Outcome("exact", "", " and ".join(kinds), tuple(faults(target)))


def faults(target: HFTarget) -> Iterator[str]:
    """Every difference found between what the target does and what its model does alone."""
    yield from _row_faults(target)
    yield from _greedy_faults(target)
    yield from _sampled_faults(target)
    yield from _end_faults(target)


def _row_faults(target: HFTarget) -> Iterator[str]:
    """Rows of random trees against plain passes, from prompts on both sides of the switch."""
    able = target.ability
    for seed, (length, tokens) in enumerate(((2, 12), (SWITCH - 7, 12), (SWITCH + 8, 12))):
        across = length <= able.switch < length + tokens
        # Keys from before a switch stay as they are unless `generate` recomputes them too; in a
        # plain pass they change.
        if (across and able.recompute_at == UNBOUNDED) or (
            able.drifts and length + tokens > able.switch
        ):
            continue
        worst = check_rows(target, prompt_of(length, seed=seed), tokens, seed=seed).worst
        if not worst < CLOSE:
            yield f"rows are off by {worst:.1e} behind {length} tokens"


def _greedy_faults(target: HFTarget) -> Iterator[str]:
    for length in (2, SWITCH - 4, SWITCH, 45):
        prompt = prompt_of(length)
        truth = _written(target, length, TOKENS_WRITTEN)
        for name, drafter in (
            ("honest", oracle(truth)),
            ("mixed", mixed(truth)),
            ("random", junk()),
        ):
            request = target.request(prompt, max_new_tokens=TOKENS_WRITTEN, stop_ids=())
            result = Engine(target, drafter, on_error="raise").generate(request)
            if list(result.tokens) != truth:
                yield f"output behind {length} tokens differs with {name} drafts"


def _sampled_faults(target: HFTarget) -> Iterator[str]:
    options = {"do_sample": True, "temperature": 1.2, "top_k": 0, "top_p": 1.0}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        truth = _written(target, 9, TOKENS_WRITTEN, **options)
    sampling = Sampling(temperature=1.2, seed=1)
    request = target.request(
        prompt_of(9), max_new_tokens=TOKENS_WRITTEN, stop_ids=(), sampling=sampling
    )
    result = Engine(target, mixed(truth), on_error="raise").generate(request)
    if list(result.tokens) != truth:
        yield "sampled output differs"


def _end_faults(target: HFTarget) -> Iterator[str]:
    """At the end of a position table all that fits is written; elsewhere nothing ends there."""
    length = LENGTH - 5
    result = to_the_end(target, length)
    ends = target.ability.table < UNBOUNDED
    if result.finish != ("context" if ends else "length"):
        yield f"generation ended by {result.finish} at the end of the positions"
    if len(result.tokens) != (6 if ends else TOKENS_WRITTEN):
        yield f"wrote {len(result.tokens)} tokens at the end of the positions"
    if list(result.tokens) != _written(target, length, len(result.tokens)):
        yield "output at the end of the positions differs"


def to_the_end(target: HFTarget, length: int) -> Result:
    """Decode from a prompt that leaves fewer positions than tokens are asked for."""
    request = target.request(prompt_of(length), max_new_tokens=TOKENS_WRITTEN, stop_ids=())
    return Engine(target, junk(), on_error="raise").generate(request)


def _written(target: HFTarget, length: int, tokens: int, **options: Any) -> list[int]:
    """What `generate` writes behind a prompt of `length` tokens, whatever it wrote before."""
    reset_frequencies(target.drifting)
    return reference(target.model, prompt_of(length), tokens, **options)
