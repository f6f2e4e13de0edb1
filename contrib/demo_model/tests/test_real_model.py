from __future__ import annotations

import json
import re
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from specdec_demo_model import REQUESTS, DemoRequest, load
from specdec_demo_model.weights import read_base

if TYPE_CHECKING:
    from specdec_demo_model.loading import Loaded

pytestmark = pytest.mark.real_model

TEXTS = (
    "<|im_start|>user\nBook  12:30 on 2026-05-06, that's 1,000.5 €!<|im_end|>\n",
    '<tool_call>\n{"name": "f", "arguments": {"x": [1, 22, 333]}}\n</tool_call>',
    "Grüße aus 東京\t\n\n   def f(x):\n        return x**2",
)


@pytest.mark.slow
def test_the_file_reads_as_transformers_reads_it(weights: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    pytest.importorskip("accelerate", reason="transformers needs accelerate to read GGUF files")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = AutoModelForCausalLM.from_pretrained(
            weights.parent, gguf_file=weights.name, dtype=torch.float32
        )
        their_tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    ours, tokenizer = read_base(weights)
    expected = theirs.state_dict()
    assert ours.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in ours.state_dict().items())
    for name in ("max_position_embeddings", "rms_norm_eps", "rope_parameters", "vocab_size"):
        assert getattr(ours.config, name) == getattr(theirs.config, name)
    for text in TEXTS:
        assert tokenizer.encode(text) == their_tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.usefixtures("offline")
def test_the_second_load_is_quick_and_equal(real: Loaded, real_cache: Path) -> None:
    started = time.perf_counter()
    model, tokenizer = load(cache=real_cache)
    assert time.perf_counter() - started < 5  # about 0.4 s on an idle machine
    expected = real[0].state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 8192
    assert tokenizer.get_vocab() == real[1].get_vocab()


def test_prompts_are_short(real: Loaded) -> None:
    assert max(len(prompt(request, real)) for request in REQUESTS) < 700


@pytest.mark.parametrize("request_", REQUESTS[:3], ids=lambda request_: request_.id)
def test_it_calls_the_right_tool(real: Loaded, request_: DemoRequest) -> None:
    model, tokenizer = real
    ids = torch.tensor([prompt(request_, real)])
    with torch.inference_mode():
        output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=96)
    text = tokenizer.decode(output[0, ids.shape[1] :])
    match = re.fullmatch(r"<tool_call>\n(\{.*\})\n</tool_call><\|im_end\|>", text)
    assert match, text
    call = json.loads(match[1])
    assert call["name"] == request_.expected
    (tool,) = (t["function"] for t in request_.tools if t["function"]["name"] == call["name"])
    assert set(tool["parameters"]["required"]) <= set(call["arguments"])
    assert set(call["arguments"]) <= set(tool["parameters"]["properties"])


def prompt(request: DemoRequest, loaded: Loaded) -> list[int]:
    ids = loaded[1].apply_chat_template(
        list(request.messages),
        tools=list(request.tools),
        add_generation_prompt=True,
        return_dict=False,
    )
    assert isinstance(ids, list)
    return ids
