from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
import torch
from specdec_demo_model import MissingWeights, find_weights, load
from specdec_demo_model.paths import CHAT_TEMPLATE
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

if TYPE_CHECKING:
    from specdec_demo_model.loading import Loaded

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real_model: needs the demo model's weights")
    config.addinivalue_line("markers", "slow: takes more than some ten seconds")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes as tokens, with the special tokens and the template of the demo model."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*SPECIAL, *alphabet, "ab"])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        pad_token=SPECIAL[2],
        unk_token=SPECIAL[0],
    )
    made.chat_template = CHAT_TEMPLATE.read_text(encoding="utf-8")
    return made


@pytest.fixture
def tiny() -> LlamaForCausalLM:
    """A random Llama of two small layers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to reach the network fails the test."""

    def refuse(*_: object, **__: object) -> NoReturn:
        pytest.fail("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.fixture(scope="session")
def weights() -> Path:
    try:
        return find_weights()
    except MissingWeights as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def real_cache(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    yield folder
    shutil.rmtree(folder)  # half a gigabyte, which pytest would keep for three runs


@pytest.fixture(scope="session")
def real(real_cache: Path) -> Loaded:
    return load(cache=real_cache)
