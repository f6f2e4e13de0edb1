"""HFTarget: top ids, embeddings, requests, adapters, and several requests at once."""

from __future__ import annotations

import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from models import (
    FAMILIES,
    VOCABULARY,
    Scripted,
    build,
    check_rows,
    junk,
    mixed,
    oracle,
    prompt_of,
    reference,
    tiny,
)

from specdec.calls import FORMATS, HERMES, Call
from specdec.compose import Merge
from specdec.engine import Engine
from specdec.errors import RequestError
from specdec.hf import HFTarget
from specdec.hf.tools import tokenizer_format
from specdec.hf.tops import top_ids
from specdec.interfaces import Needs
from specdec.request import Sampling
from specdec.tree import EMPTY, Limit


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 5, 63, 64, 65, 640, 641, 1000, 4159, 49_152])
@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_top_ids_equal_topk(size: int, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(size)
    logits = torch.randn(7, size, dtype=torch.float64).to(dtype)
    found = top_ids(logits, k)
    expected = logits.topk(min(k, size), dim=-1)
    assert found.shape == (7, min(k, size))
    assert found.dtype == np.int64
    # Which of equal logits comes first is torch's affair; the values may not differ.
    rows = torch.from_numpy(found)
    assert torch.equal(logits.gather(1, rows), expected.values)
    assert all(len(set(row)) == len(row) for row in found.tolist())
    if dtype == torch.float64:
        assert torch.equal(rows, expected.indices)


@pytest.mark.parametrize("place", [0, 63, 64, 639, 640, 700])
def test_top_ids_find_the_largest_wherever_it_stands(place: int) -> None:
    """At the borders of the chunks and in the rest behind the last whole one."""
    logits = torch.full((1, 701), -torch.inf)
    logits[0, place] = 1.0
    logits[0, (place + 1) % 701] = 0.5
    assert top_ids(logits, 2).tolist() == [[place, (place + 1) % 701]]


def test_top_ids_when_one_chunk_holds_them_all() -> None:
    logits = torch.arange(2000.0)[None].repeat(2, 1)
    logits[1] = -logits[1]
    assert top_ids(logits, 5).tolist() == [[1999, 1998, 1997, 1996, 1995], [0, 1, 2, 3, 4]]


def test_step_top_ids_follow_root_and_nodes() -> None:
    target, prompt = HFTarget(tiny("llama")), prompt_of(9)
    drafter = Scripted(junk().offer, Needs(top_k=4))
    Engine(target, drafter, on_error="raise").generate(target.request(prompt, max_new_tokens=6))
    text = list(prompt)
    for step in drafter.steps:
        assert step.top_ids.shape == (1 + len(step.tree), 4)
        for row, node in enumerate(range(-1, len(step.tree))):
            path = [step.tree.tokens[i] for i in step.tree.path_to(node)]
            plain = target.model(input_ids=torch.tensor([text + path])).logits[0, -1]
            assert step.top_ids[row].tolist() == plain.topk(4).indices.tolist()
        text += step.committed


@pytest.mark.parametrize("ride", [4, 512])
@pytest.mark.parametrize("family", ["llama", "gemma3-mixed", "gpt2", "phi3-longrope"])
@pytest.mark.parametrize("drafts", [False, True])
def test_the_embedding_is_the_hidden_state_of_the_last_prompt_token(
    family: str, drafts: bool, ride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without a draft in the same pass, whole prompt or split."""
    monkeypatch.setattr("specdec.hf.session.RIDE", ride)
    target, prompt = HFTarget(tiny(family)), prompt_of(13)
    offer = junk().offer if drafts else lambda output, limit: EMPTY
    drafter = Scripted(offer, Needs(embedding=True))
    Engine(target, drafter, on_error="raise").generate(target.request(prompt, max_new_tokens=4))
    assert (len(drafter.steps[0].tree) > 0) == drafts
    plain = target.model(input_ids=torch.tensor([prompt]), output_hidden_states=True)
    (embedding,) = drafter.embeddings
    assert embedding.dtype == np.float32
    np.testing.assert_allclose(embedding, plain.hidden_states[-1][0, -1].float().detach().numpy())


def test_no_hook_stays_on_the_model() -> None:
    target = HFTarget(build(FAMILIES["llama"]()))
    drafter = Scripted(junk().offer, Needs(embedding=True))
    for _ in range(2):
        Engine(target, drafter).generate(target.request(prompt_of(5), max_new_tokens=3))
    assert not target.model.get_output_embeddings()._forward_pre_hooks
    assert target.model.config._attn_implementation == "sdpa"


def test_the_attention_back_end_is_restored_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = HFTarget(build(FAMILIES["llama"]()))

    def broken(**_: Any) -> None:
        raise MemoryError("no room on the device")

    with monkeypatch.context() as patch:
        patch.setattr(target.model, "forward", broken, raising=False)
        with pytest.raises(MemoryError):
            Engine(target).generate(target.request(prompt_of(5), max_new_tokens=3))
    assert target.model.config._attn_implementation == "sdpa"
    result = Engine(target, junk()).generate(target.request(prompt_of(5), max_new_tokens=3))
    assert list(result.tokens) == reference(target.model, prompt_of(5), 3)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty prompt"),
        ([1, VOCABULARY], f"token {VOCABULARY}, outside the vocabulary of {VOCABULARY}"),
        ([-1, 1], "token -1; ids begin at 0"),
        ([1] * 49, "the prompt has 49 tokens, but GPT2LMHeadModel has 48 positions"),
    ],
)
def test_a_request_that_cannot_be_served_says_why(prompt: list[int], message: str) -> None:
    target = HFTarget(tiny("gpt2-short"))
    with pytest.raises(RequestError, match=message):
        Engine(target).generate(target.request(prompt, max_new_tokens=4))


def test_text_without_a_tokenizer_is_refused_with_the_way_out() -> None:
    target = HFTarget(tiny("llama"))
    with pytest.raises(RequestError, match=r"HFTarget\(model, tokenizer\)"):
        target.request("hello", max_new_tokens=4)
    with pytest.raises(RequestError, match="either a prompt or messages"):
        target.request(max_new_tokens=4)
    with pytest.raises(RequestError, match="either a prompt or messages"):
        target.request([1], messages=[{"role": "user", "content": "x"}], max_new_tokens=4)


def test_an_adapter_is_decoded_with_and_not_around() -> None:
    peft = pytest.importorskip("peft")
    base = build(FAMILIES["llama"]())
    prompt, plain = prompt_of(9), reference(base, prompt_of(9), 20)
    options = {"r": 4, "target_modules": ["q_proj", "v_proj"], "init_lora_weights": False}
    torch.manual_seed(0)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **options))
    target = HFTarget(model.to(torch.float64).eval())
    truth = reference(model, prompt, 20)
    assert truth != plain, "this adapter changes nothing"
    needs = Scripted(mixed(truth).offer, Needs(top_k=3, embedding=True))
    for drafter in (None, oracle(truth), needs):
        request = target.request(prompt, max_new_tokens=20)
        assert list(Engine(target, drafter, on_error="raise").generate(request).tokens) == truth
    assert check_rows(target, prompt, 12).worst < 1e-5


def test_a_model_loaded_with_a_device_map_is_exact(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    saved = build(FAMILIES["qwen2"]())
    saved.save_pretrained(tmp_path)
    model = hf.AutoModelForCausalLM.from_pretrained(tmp_path, device_map="cpu", dtype=torch.float64)
    target, prompt = HFTarget(model), prompt_of(9)
    truth = reference(saved, prompt, 20)
    for drafter in (None, oracle(truth), junk()):
        request = target.request(prompt, max_new_tokens=20)
        assert list(Engine(target, drafter, on_error="raise").generate(request).tokens) == truth


def test_a_model_with_accelerates_hooks_is_exact() -> None:
    """Its forward is wrapped: the arguments must be read from the one inside."""
    accelerate = pytest.importorskip("accelerate")
    model = build(FAMILIES["llama"]())
    accelerate.hooks.add_hook_to_module(model, accelerate.hooks.AlignDevicesHook("cpu"))
    target = HFTarget(model)
    assert target.ability.keeps_logits
    assert check_rows(target, prompt_of(9), 12).worst < 1e-5


def test_a_model_without_logits_to_keep_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(FAMILIES["llama"]())
    honest = model.forward
    known = inspect.signature(honest).parameters.values()

    def forward(**arguments: Any) -> Any:
        return honest(**arguments)

    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            p.replace(kind=p.KEYWORD_ONLY)
            for p in known
            if p.name != "logits_to_keep" and p.kind != p.VAR_KEYWORD
        ]
    )
    monkeypatch.setattr(model, "forward", forward, raising=False)
    target = HFTarget(model)
    assert not target.ability.keeps_logits
    drafter = Scripted(junk().offer, Needs(embedding=True))
    Engine(target, drafter).generate(target.request(prompt_of(9), max_new_tokens=2))
    plain = honest(input_ids=torch.tensor([prompt_of(9)]), output_hidden_states=True)
    expected = plain.hidden_states[-1][0, -1].float().detach().numpy()
    np.testing.assert_allclose(drafter.embeddings[0], expected)
    monkeypatch.undo()
    assert check_rows(target, prompt_of(9), 12).worst < 1e-5


@pytest.mark.parametrize("family", ["llama", "llama-dynamic"])
def test_requests_open_at_once_get_what_they_get_alone(family: str) -> None:
    target = HFTarget(build(FAMILIES[family]()))
    prompts = [prompt_of(4 + 3 * i, seed=i) for i in range(6)]
    truths = [reference(target.model, prompt, 20) for prompt in prompts]
    sampled = Sampling(temperature=0.9, seed=7)
    requests = [target.request(p, max_new_tokens=20) for p in prompts]
    requests += [target.request(p, max_new_tokens=20, sampling=sampled) for p in prompts]
    alone = [Engine(target).generate(request).tokens for request in requests]
    assert [list(tokens) for tokens in alone[:6]] == truths

    def one_of(output: tuple[int, ...], limit: Limit) -> Any:
        truth = next((t for t in truths if tuple(t[: len(output)]) == output), truths[0])
        return oracle(truth).offer(output, limit)

    engine = Engine(target, Merge(Scripted(one_of), junk(nodes=5)), on_error="raise")
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda request: engine.generate(request).tokens, requests * 2))
    assert together == alone * 2


@pytest.mark.parametrize("family", ["llama", "gemma3-mixed", "llama-dynamic", "phi3-longrope"])
def test_interleaved_streams_share_one_target(family: str) -> None:
    """Step by step in turns, without threads: the same fault shows every time."""
    target = HFTarget(tiny(family))
    prompts = [prompt_of(20, seed=1), prompt_of(6, seed=2), prompt_of(22, seed=3)]
    truths = [tuple(reference(target.model, prompt, 14)) for prompt in prompts]
    outputs: list[tuple[int, ...]] = [()] * 3
    streams = [
        Engine(target, junk(), on_error="raise").stream(target.request(prompt, max_new_tokens=14))
        for prompt in prompts
    ]
    running = set(range(3))
    while running:
        for i in sorted(running):
            try:
                outputs[i] += next(streams[i]).committed
            except StopIteration:
                running.discard(i)
    assert outputs == truths


def test_a_stream_closed_early_leaves_the_target_usable() -> None:
    target = HFTarget(tiny("llama"))
    running = Engine(target, junk()).stream(target.request(prompt_of(9), max_new_tokens=20))
    next(running)
    running.close()
    result = Engine(target, junk()).generate(target.request(prompt_of(9), max_new_tokens=8))
    assert list(result.tokens) == reference(target.model, prompt_of(9), 8)


def test_targets_of_one_model_share_its_lock() -> None:
    peft = pytest.importorskip("peft")
    model = build(FAMILIES["llama"]())
    lock = HFTarget(model).lock
    assert lock is HFTarget(model).lock
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"])).eval()
    assert HFTarget(adapted).lock is lock
    assert HFTarget(model).lock is not HFTarget(tiny("qwen2")).lock


class Int8Linear(torch.nn.Module):
    """A weight-only quantised layer: int8 weights, one scale per row, no float parameter."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("scale", scale)
        self.register_buffer("weight", (weight / scale).round().to(torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight.to(x.dtype) * self.scale)


def test_a_model_with_quantised_weights_is_exact() -> None:
    model = build(FAMILIES["llama"]())
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, child in list(part.named_children()):
                if isinstance(child, torch.nn.Linear):
                    setattr(part, name, Int8Linear(child))
    target, prompt = HFTarget(model), prompt_of(30)
    truth = reference(model, prompt, 24)
    for drafter in (oracle(truth), junk()):
        request = target.request(prompt, max_new_tokens=24)
        assert list(Engine(target, drafter, on_error="raise").generate(request).tokens) == truth


def test_an_offloaded_model_is_exact() -> None:
    accelerate = pytest.importorskip("accelerate")
    model, prompt = build(FAMILIES["llama"]()), prompt_of(20)
    truth = reference(model, prompt, 12)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    ours = HFTarget(model)
    request = ours.request(prompt, max_new_tokens=12)
    assert list(Engine(ours, oracle(truth), on_error="raise").generate(request).tokens) == truth


def test_a_python_function_is_a_tool(tiny_folder: Path) -> None:
    def get_weather(city: str, days: int = 1) -> str:
        """Weather of a city.

        Args:
            city: Its name.
            days: How many.
        """
        return city * days

    model = hf.AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    ours = HFTarget(model, hf.AutoTokenizer.from_pretrained(tiny_folder))
    messages = [{"role": "user", "content": "Hi"}]
    request = ours.request(messages=messages, tools=[get_weather], max_new_tokens=1)
    (tool,) = request.tools
    assert tool.name == "get_weather"
    assert list(tool.parameters["properties"]) == ["city", "days"]


def test_prompts_of_full_attention_models_need_no_mask_of_their_own() -> None:
    """The probe would hide a fault in that path by falling back to full masks."""
    assert HFTarget(tiny("llama")).short_masks
    assert HFTarget(tiny("qwen3")).short_masks
    assert not HFTarget(tiny("mistral-window")).short_masks
    assert not HFTarget(tiny("llama", "eager")).short_masks


WRITES_CALLS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls %}{{ '\\n' if not loop.first }}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
ASK = {"messages": [{"role": "user", "content": "Hi"}], "max_new_tokens": 1}
NOW = {"name": "now", "parameters": {"type": "object", "properties": {}}}
FORMAT_WARNING = "no call format can be read off"


@pytest.fixture
def talker(tiny_folder: Path) -> HFTarget:
    """A tiny model with a chat template of its own."""
    model = hf.AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    return HFTarget(model, hf.AutoTokenizer.from_pretrained(tiny_folder), probe=False)


@pytest.fixture
def induced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry per time that a chat template is asked for its format."""
    times: list[Any] = []

    def count(*args: Any, **options: Any) -> Any:
        times.append(options)
        time.sleep(0.02)  # other threads ask meanwhile
        return tokenizer_format(*args, **options)

    monkeypatch.setattr("specdec.hf.target.tokenizer_format", count)
    return times


def test_a_request_knows_how_the_chat_template_writes_calls(
    talker: HFTarget, induced: list[Any]
) -> None:
    assert talker.tokenizer is not None
    talker.tokenizer.chat_template = WRITES_CALLS
    calls = [Call("now", {}), Call("at", {"city": "Oslo"})]
    with ThreadPoolExecutor(4) as pool:
        requests = list(pool.map(lambda _: talker.request(**ASK), range(8)))
    requests += [talker.request(tools=[NOW], **ASK), talker.request("Hi", max_new_tokens=1)]
    for request in requests:
        assert request.call_format is not None
        assert request.call_format.render(calls) == HERMES.render(calls)
    assert len(induced) == 1, "it is read off once, whatever is asked at the same time"


def test_a_format_that_the_caller_gives_wins(talker: HFTarget, induced: list[Any]) -> None:
    form = FORMATS["llama-3"]
    assert talker.request(call_format=form, tools=[NOW], **ASK).call_format is form
    assert talker.request(call_format=None, tools=[NOW], **ASK).call_format is None
    assert induced == []


def test_a_template_without_calls_is_worth_one_warning_where_there_are_tools(
    talker: HFTarget, induced: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="specdec"):
        for _ in range(3):
            assert talker.request(**ASK).call_format is None
        assert FORMAT_WARNING not in caplog.text
        for _ in range(3):
            assert talker.request(tools=[NOW], **ASK).call_format is None
            assert talker.request(**ASK).call_format is None
        assert caplog.text.count(FORMAT_WARNING) == 1
    assert len(induced) == 2


def test_without_a_tokenizer_no_format_is_looked_for(caplog: pytest.LogCaptureFixture) -> None:
    request = HFTarget(tiny("llama")).request([1], tools=[NOW], max_new_tokens=1)
    assert request.call_format is None
    assert FORMAT_WARNING not in caplog.text
