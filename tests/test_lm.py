"""LanguageModel: options, predictions, many threads, interruptions, clear errors."""

import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import transformers as hf
from models import Scripted
from spoken import TOOLS, Told

import specdec
from specdec import Call, DraftTree, Engine, FixedBudget, LanguageModel, Registry, hookimpl, load
from specdec.errors import ExpressionError, RequestError
from specdec.lm.messages import readable
from specdec.testing import CharCodec

HELLO = [{"role": "user", "content": "Hello"}]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}\n{% endfor %}assistant: "
)


@pytest.fixture(scope="module")
def parts(tiny_folder):
    """A model in float64, so that outputs can be compared, and its tokenizer."""
    model = hf.AutoModelForCausalLM.from_pretrained(tiny_folder).to(torch.float64).eval()
    with torch.no_grad():  # weights large enough that prompts and positions matter
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(weight.numel()))
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.chat_template = TEMPLATE
    return model, tokenizer


@pytest.fixture
def lm(parts):
    return load(*parts, drafter="merge(pld, token-recycling)", budget=16, on_error="raise")


def reading(text):
    """A model that writes a text, in characters."""
    codec = CharCodec()
    output = (*codec.encode(text), codec.vocabulary)
    return Told(codec, output, vocabulary=codec.vocabulary + 1, stop=codec.vocabulary)


# What comes out.


def test_the_reply_is_what_the_engine_writes(lm):
    request = lm.target.request(messages=HELLO, max_new_tokens=40)
    plain = Engine(lm.target).generate(request)
    reply = lm.chat(HELLO, max_new_tokens=40)
    assert reply.tokens == plain.tokens
    assert reply.result.passes < plain.passes
    assert reply.text == lm.target.codec.decoder().push(plain.tokens)
    assert reply.prompt_tokens == len(request.prompt)
    assert reply.finish_reason == "length"
    assert lm.generate(request.prompt, max_new_tokens=40).tokens == plain.tokens
    text = lm.target.tokenizer.apply_chat_template(HELLO, tokenize=False)
    assert lm.generate(text, max_new_tokens=40).tokens == plain.tokens
    *events, done = lm.stream(HELLO, max_new_tokens=40)
    assert done.reply.tokens == plain.tokens
    assert "".join(event.text for event in events) == reply.text
    assert reply.report == specdec.Acceptance.of(reply.result)


def test_a_criterion_ends_a_reply(lm):
    whole = lm.chat(HELLO, max_new_tokens=12)

    def third(ids, scores):
        return ids.shape[1] == whole.prompt_tokens + 3

    cut = lm.chat(HELLO, max_new_tokens=12, criteria=[third])
    assert cut.tokens == whole.tokens[:3]
    assert (cut.result.finish, cut.finish_reason) == ("criterion", "stop")


def test_a_folder_is_loaded_and_its_costs_are_measured_at_the_first_request(
    tiny_folder, monkeypatch
):
    measured = []

    def costs(target):
        measured.append(target)
        return specdec.CostCurve((0, 7), (64,), [[1.0, 1.1]])

    monkeypatch.setattr("specdec.lm.model.measure_costs", costs)
    lm = load(tiny_folder, dtype="float32", device="cpu", drafter="pld")
    assert measured == []
    assert len(lm.chat(HELLO, max_new_tokens=5).tokens) == 5
    assert len(lm.generate("Hi", max_new_tokens=3).tokens) == 3
    assert measured == [lm.target]
    assert isinstance(lm.budget, specdec.MeasuredBudget)


def test_the_next_turn_can_be_rendered(lm):
    reply = specdec.Reply(
        "Sure.", "", (Call("f", {"city": "Oslo"}, "abcdef123"),), lm.generate("x").result, 3
    )
    result = {"role": "tool", "tool_call_id": "abcdef123", "content": "rain"}
    message = reply.to_message()
    assert message["tool_calls"][0]["id"] == "abcdef123"
    request = lm.target.request(messages=[*HELLO, message, result])
    printed = lm.target.codec.decode(request.prompt)
    assert '{"name": "f", "arguments": {"city": "Oslo"}}' in printed
    # OpenAI's own form has the arguments as text.
    answer = reply.to_openai()["choices"][0]["message"]
    assert json.loads(answer["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert readable([answer])[0]["tool_calls"] == message["tool_calls"]
    with_text = lm.chat([*HELLO, answer, result], max_new_tokens=4)
    assert with_text.prompt_tokens == len(request.prompt)
    broken = {"role": "assistant", "tool_calls": [{"function": {"arguments": '{"a'}}, None]}
    assert readable([broken]) == (broken,)


def test_an_openai_response_has_usage_and_metrics(lm):
    reply = lm.chat(HELLO, max_new_tokens=20, id="mine")
    found = json.loads(json.dumps(reply.to_openai(model="tiny")))
    assert (found["id"], found["object"], found["model"]) == ("mine", "chat.completion", "tiny")
    assert found["choices"][0]["message"] == {"role": "assistant", "content": reply.text}
    assert found["usage"]["total_tokens"] == reply.prompt_tokens + 20
    spec = found["metrics"]["speculative_decoding"]
    assert spec["num_accepted_draft_tokens"] == reply.report.num_accepted_draft_tokens


# Options.


def test_sampling_repeats_with_a_seed(lm):
    options = {"temperature": 1.5, "seed": 7, "max_new_tokens": 20}
    one = lm.chat(HELLO, **options)
    assert one.tokens == lm.chat(HELLO, **options, drafter=None).tokens
    assert one.tokens != lm.chat(HELLO, **options | {"seed": 8}).tokens
    greedy = lm.chat(HELLO, max_new_tokens=20).tokens
    assert greedy == lm.chat(HELLO, max_new_tokens=20, temperature=0, top_p=0.5, seed=3).tokens
    assert greedy == lm.chat(HELLO, max_new_tokens=20, temperature=None).tokens


def test_a_request_may_ask_for_another_stack_or_none(lm):
    plain = lm.chat(HELLO, max_new_tokens=30, drafter=None)
    assert plain.result.passes == 30
    assert plain.report.num_draft_tokens == 0
    assert lm.chat(HELLO, max_new_tokens=30, drafter="none").report.num_draft_tokens == 0
    assert set(lm.chat(HELLO, max_new_tokens=30, drafter="pld").report.by_source) == {"pld"}
    told = Scripted(lambda written, limit: DraftTree.chain((1,), source="mine"))
    other = lm.chat(HELLO, max_new_tokens=30, drafter=told)
    assert set(other.report.by_source) == {"mine"}
    assert other.tokens == plain.tokens


def test_a_stack_is_kept_with_what_it_learned(lm):
    first, again = (lm.chat(HELLO, max_new_tokens=40, drafter="samd") for _ in range(2))
    assert lm.chat(HELLO, max_new_tokens=40, drafter=" samd").result.passes <= first.result.passes
    assert again.tokens == first.tokens
    assert lm.chat(HELLO, max_new_tokens=40).tokens == first.tokens


def test_what_is_learned_stays_with_its_tenant(parts):
    lm = load(*parts, drafter="token-recycling", budget=16)
    lm.chat(HELLO, tenant="a", max_new_tokens=4)
    lm.chat(HELLO, tenant="b", max_new_tokens=4)
    assert set(lm.drafter.state()) == {"a", "b"}


# Predictions.

CODE = "def area(width, height):\n    return width * height\n\nprint(area(2, 3))\n"


def test_a_prediction_saves_passes_and_changes_nothing():
    written = CODE.replace("area", "surface")
    lm = load(reading(written), drafter="pld", budget=64, on_error="raise")
    plain = lm.generate("edit", drafter=None)
    alone = lm.generate("edit")
    assert plain.text == alone.text == written
    edited = lm.generate("edit", prediction=CODE)
    exact = lm.generate("edit", prediction=written)
    wrong = lm.generate("edit", prediction="Nothing that is like it at all? 1234567890" * 3)
    for reply in (edited, exact, wrong):
        assert reply.tokens == plain.tokens
        assert reply.result.errors == ()
    assert exact.result.passes <= 3
    assert edited.result.passes < alone.result.passes / 2
    assert wrong.result.passes <= alone.result.passes
    assert edited.report.by_source["prediction"].accepted > 30


def test_a_prediction_is_merged_into_the_stack_that_is_asked_for():
    lm = load(reading(CODE), drafter=None, budget=64, on_error="raise")
    assert set(lm.generate("x", prediction=CODE).report.by_source) == {"prediction"}
    assert "pld" in lm.generate("x", prediction="0" + CODE[20:], drafter="pld").report.by_source
    assert lm.generate("x", prediction=CODE, drafter=None).report.num_draft_tokens == 0
    other = load(reading(CODE), drafter=None, budget=64, prediction_drafter="predicktion")
    assert other.generate("x").text == CODE
    with pytest.raises(ExpressionError, match="did you mean 'prediction'"):
        other.generate("x", prediction=CODE)


def test_what_the_merged_stack_learned_is_kept_beside_the_same_base():
    lm = load(reading(CODE), drafter="token-recycling", budget=64)
    base = lm.drafter
    first = lm._stacks.beside_prediction(base)
    assert first.drafters[1] is base
    assert lm._stacks.beside_prediction(base) is first
    own = Scripted(lambda written, limit: DraftTree())
    assert lm._stacks.beside_prediction(own) is not lm._stacks.beside_prediction(own)


# Many at once.


def test_many_threads_get_what_they_would_get_alone(parts):
    pytest.importorskip("specdec_toolspec")
    lm = load(*parts, drafter="toolspec", budget=16, on_error="raise")
    stacks = ("toolspec", "merge(pld, token-recycling)", "samd", None, "fallback(pld, sure=0.5)")
    asked = [
        {
            "messages": [{"role": "user", "content": f"Question {number % 6}"}],
            "max_new_tokens": 24,
            "drafter": stacks[number % 5],
            "tenant": f"t{number % 3}",
            "stop": "\x00never" if number % 2 else (),
            **({"temperature": 1.0, "seed": number} if number % 4 == 0 else {}),
            **({"prediction": "Question 1 Question 2"} if number % 3 == 0 else {}),
            "tools": TOOLS if number % 2 else (),
        }
        for number in range(40)
    ]

    def answer(options):
        options = dict(options)
        *_, done = lm.stream(options.pop("messages"), **options)
        assert done.reply.result.errors == ()
        return done.reply.tokens

    plain = load(*parts, drafter=None, budget=0)
    alone = [
        plain.chat(**options | {"drafter": None, "prediction": None}).tokens for options in asked
    ]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(answer, asked)) == alone


def test_costs_are_measured_once_however_many_ask(parts, monkeypatch):
    measured = []
    curve = specdec.CostCurve((0, 7), (64,), [[1.0, 1.1]])
    monkeypatch.setattr(
        "specdec.lm.model.measure_costs", lambda target: measured.append(target) or curve
    )
    lm = load(*parts, drafter="pld")
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: lm.chat(HELLO, max_new_tokens=4), range(8)))
    assert len({reply.tokens for reply in replies}) == len(measured) == 1


# Interruptions.


class Stumbling:
    """An observer that raises in the third step, once."""

    def __init__(self):
        self.left = 1

    @hookimpl
    def on_step(self, request, step):
        if step.index == 2 and self.left:
            self.left = 0
            raise OSError("the observer's disk is full")


def drafters():
    retrieval = pytest.importorskip("specdec_toolspec").RetrievalDrafter(
        accept=lambda request, result: True, from_start=True
    )
    return retrieval, specdec.Merge(retrieval, specdec.parse("token-recycling"))


def stop_consuming(lm):
    for number, _ in enumerate(lm.stream(HELLO, max_new_tokens=40)):
        if number == 3:
            break


def raise_in_consumer(lm):
    def consume():
        for _ in lm.stream(HELLO, max_new_tokens=40):
            raise LookupError("of the consumer's own")

    with pytest.raises(LookupError, match="of the consumer's own"):
        consume()


def press_ctrl_c(lm):
    calls = []

    def interrupt(*_):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt

    handle = lm.target.model.model.layers[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        lm.chat(HELLO, max_new_tokens=40)
    handle.remove()


def stumble_in_a_hook(lm):
    with pytest.raises(OSError, match="the observer's disk is full"):
        lm.chat(HELLO, max_new_tokens=40)


def free(lock):
    """Whether another thread can have the lock."""
    held = lock.acquire(timeout=5)
    if held:
        lock.release()
    return held


@pytest.mark.parametrize(
    "interrupt", [stop_consuming, raise_in_consumer, press_ctrl_c, stumble_in_a_hook]
)
def test_an_interrupted_request_leaves_no_trace(parts, interrupt):
    registry = Registry(None)
    if interrupt is stumble_in_a_hook:
        registry.register(Stumbling(), "stumbling")
    retrieval, stack = drafters()
    lm = load(*parts, drafter=stack, budget=16, on_error="raise", registry=registry)
    alone = Engine(lm.target).generate(lm.target.request(messages=HELLO, max_new_tokens=40)).tokens
    closed = []
    start = lm.target.start

    def watched(*given):
        session = start(*given)
        close = session.close
        session.close = lambda: (closed.append(session), close())
        return session

    lm.target.start = watched
    interrupt(lm)
    lm.target.__dict__.pop("start")
    assert len(closed) == 1
    assert len(retrieval.memory) == 0
    assert lm.target.config._attn_implementation == "sdpa"
    with ThreadPoolExecutor(1) as other:
        assert other.submit(free, lm.target.lock).result()
    assert lm.chat(HELLO, max_new_tokens=40).tokens == alone
    assert len(retrieval.memory) == 1


def test_the_engine_closes_its_stream_when_its_caller_raises(lm):
    request = lm.target.request(messages=HELLO, max_new_tokens=9)
    closed = []
    start = lm.target.start

    def watched(*given):
        session = start(*given)
        session.close = lambda: closed.append(session)
        return session

    def each(step):
        raise StopIteration("of the caller's own")

    lm.target.start = watched
    try:
        with pytest.raises(StopIteration, match="of the caller's own") as caught:
            Engine(lm.target).generate(request, each=each)
        assert len(closed) == 1  # while the traceback still holds the generator
        assert caught.value
    finally:
        del lm.target.start


# Errors, and what is loaded when.


def test_the_room_knows_neither_torch_nor_transformers():
    code = "import sys, specdec.lm; sys.exit(bool({'torch', 'transformers'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_errors_say_what_is_wrong_and_the_way_out(lm, parts, tmp_path):
    model, tokenizer = parts
    cases = [
        (lambda: lm.chat(HELLO, max_tokens=4), "no option 'max_tokens'; did you mean 'max_new"),
        (lambda: lm.stream(HELLO, zzz=4), "no option 'zzz'; options are: max_new_tokens,"),
        (lambda: lm.stream(HELLO, seed=4), "seed: for sampling only; give temperature too"),
        (
            lambda: lm.chat(HELLO, temperature=-1),
            "must be a number of at least 0, got -1",
        ),
        (lambda: lm.chat(HELLO, temperature="1"), "a number of at least 0, got '1'"),
        (lambda: lm.chat(HELLO, temperature=1, seed=1.5), "seed must be an integer, got 1.5"),
        (lambda: lm.chat(HELLO, temperature=1, top_k=True), "top_k must be an integer, got True"),
        (lambda: lm.chat(HELLO, processors=[3]), "must be callable, got 3"),
        (lambda: lm.chat(HELLO, prediction="a\ud800"), "prediction holds half a character at 1"),
        (lambda: lm.generate("\ud800"), "the prompt holds half a character at 0"),
        (lambda: lm.generate([-1]), "the prompt holds token -1; ids begin at 0"),
        (lambda: lm.generate(None), "expected messages, a text or token ids, got None"),
        (lambda: lm.chat(HELLO, tools=len), "tools must be a list of tools"),
        (lambda: lm.chat(HELLO, drafter=3), "drafter must be a stack expression, a Drafter or"),
        (lambda: lm.chat(HELLO, stop=3), "stop must be a text or a list of texts, got 3"),
        (lambda: lm.chat(HELLO, stop=""), "a stop string is empty"),
        (lambda: lm.chat(HELLO, prediction=["a"]), "prediction must be the text that is expected"),
        (lambda: lm.chat(HELLO, drafter="pdl"), "did you mean 'pld'"),
        (lambda: lm.chat("Hello"), "messages must be a list of messages, got str; write"),
        (lambda: lm.chat(HELLO[0]), "messages must be a list of messages, got dict"),
        (lambda: lm.chat(["Hello"]), "must be"),
        (lambda: lm.chat([{"content": "a"}]), "message 1 must be an object with a 'role'"),
        (lambda: lm.chat([]), "either a prompt or messages"),
        (lambda: lm.chat(HELLO, tools=[{"nome": "f"}]), "a tool must be an object"),
        (lambda: load(model), "needs its tokenizer; give tokenizer= too"),
        (lambda: load(3), "expected a folder, 'demo', a transformers model or a target, got a int"),
        (lambda: load(str(tmp_path)), "expected a folder with config.json"),
        (lambda: load(model, tokenizer, dtype="float16"), "this model is loaded already"),
        (lambda: load(lm.target, tokenizer), "a target has its tokenizer already"),
        (lambda: load(lm.target, budget="lots"), "budget must be a number of nodes, a Budget or"),
        (lambda: load(lm.target, budget=-1), "budget must be a number of nodes, a Budget or"),
        (lambda: load(lm.target, drafter="pdl"), "did you mean 'pld'"),
        (lambda: load("demo", dtype="float31", device="cpu"), "dtype must be one of auto, float32"),
        (lambda: load("demo", device="abacus"), "device abacus cannot be used"),
        (
            lambda: load(specdec.ReplayTarget({}, 3)),
            "expected a folder, 'demo', a transformers model or a target, got a ReplayTarget",
        ),
    ]
    for action, message in cases:
        with pytest.raises(specdec.SpecdecError, match=re.escape(message)):
            action()


def test_a_target_needs_a_tokenizer_and_passes_that_can_be_timed():
    silent = reading("a")
    silent.codec = None
    with pytest.raises(RequestError, match="needs a tokenizer; give tokenizer="):
        LanguageModel(silent, None, budget=4)

    class Untimed:
        vocabulary, lock = 3, threading.Lock()
        codec, request, start = CharCodec(), None, None

    with pytest.raises(RequestError, match="passes of Untimed cannot be timed"):
        LanguageModel(Untimed(), None)
    assert isinstance(LanguageModel(Untimed(), None, budget=FixedBudget(3)).budget, FixedBudget)


def test_the_page_on_chatting_runs(tiny_folder, capsys):
    pytest.importorskip("specdec_toolspec")
    page = Path(__file__).parents[1] / "docs" / "chat.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    assert len(blocks) >= 4
    scope = {}
    for block in blocks:
        exec(block.replace("path/to/model", str(tiny_folder)), scope)  # our own documentation
    assert "tokens per step" in capsys.readouterr().out
