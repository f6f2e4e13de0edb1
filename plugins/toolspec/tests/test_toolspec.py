"""ToolSpec: the stack, its parts and options, and that it changes no output."""

import json
import random

import models
import numpy as np
import pytest
import torch
from specdec_pld import PromptLookup
from specdec_token_recycling import TokenRecycling
from specdec_toolspec import EpisodeMemory, RetrievalDrafter, SchemaDrafter, SchemaMachine, ToolSpec

from specdec import (
    DraftTree,
    Engine,
    Episode,
    ExpressionError,
    FixedBudget,
    Limit,
    Request,
    Tool,
    parse,
)
from specdec.calls import FORMATS, Call
from specdec.hf import HFTarget
from specdec.testing import CharCodec, OracleTarget

torch.set_num_threads(1)  # more only wait for each other on so small a model

CODEC = CharCodec()
HERMES = FORMATS["hermes"]
WEATHER = Tool(
    "get_weather",
    "The weather in a city.",
    {
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
)
CALL = Call("get_weather", {"city": "ulan bator", "unit": "celsius"})


def anything(request, result):
    return True


# The order of the parts


def always(token, source):
    """A drafter that always proposes one token."""
    return models.Scripted(lambda output, limit: DraftTree.chain([token], source=source))


def never():
    return models.Scripted(lambda output, limit: DraftTree.chain([], source="none"))


def first_draft(drafter):
    session = drafter.start(Request((1, 2), 9, codec=CODEC, tools=(WEATHER,)))
    return session.propose((1, 2), Limit(8, 8)).tokens


def test_retrieval_comes_first_then_the_schema_then_the_fallback():
    parts = {"retrieval": always(1, "a"), "schema": always(2, "b"), "fallback": always(3, "c")}
    assert first_draft(ToolSpec(**parts)) == (1,)
    assert first_draft(ToolSpec(**parts | {"retrieval": never()})) == (2,)
    assert first_draft(ToolSpec(**parts | {"retrieval": never(), "schema": never()})) == (3,)
    assert first_draft(ToolSpec(retrieval=never(), schema=never(), fallback=never())) == ()


def test_parts_can_be_left_out():
    stub = always(3, "c")
    assert first_draft(ToolSpec(retrieval=False, schema=False, fallback=stub)) == (3,)
    kinds = [type(part) for part in ToolSpec(retrieval=False).drafters]
    assert kinds == [SchemaDrafter, TokenRecycling]
    kinds = [type(part) for part in ToolSpec(schema=False, fallback=PromptLookup()).drafters]
    assert kinds == [RetrievalDrafter, PromptLookup]


def test_the_schema_drafts_where_nothing_is_retrieved():
    drafter = ToolSpec()
    written = CODEC.encode('<tool_call>\n{"name": "get_')
    request = Request((1, 2), 99, codec=CODEC, tools=(WEATHER,), call_format=HERMES)
    tree = drafter.start(request, written).propose((1, 2, *written), Limit(64, 64))
    assert CODEC.decode(tree.tokens[:7]) == "weather"
    assert {vote.source for votes in tree.votes for vote in votes} == {"schema"}


def test_an_unguessed_value_is_left_to_the_fallback():
    drafter = ToolSpec(values=0, fallback=always(3, "c"))
    written = CODEC.encode('<tool_call>\n{"name": "get_weather", "arguments": {"city": "os')
    request = Request((1, 2), 99, codec=CODEC, tools=(WEATHER,), call_format=HERMES)
    tree = drafter.start(request, written).propose((1, 2, *written), Limit(8, 8))
    assert tree.tokens == (3,)


# Options


def test_options_reach_their_parts():
    memory = EpisodeMemory()
    stack = ToolSpec(
        memory=memory,
        k=3,
        match=(4, 2),
        lengths=(9, 5),
        context=False,
        from_start=True,
        store=False,
        accept=anything,
        values=2,
        most=7,
        formats=("pythonic",),
        top_k=5,
        nodes=33,
    )
    retrieval, schema, recycling = stack.drafters
    assert stack.memory is retrieval.memory is memory
    wanted = {
        "k": 3,
        "match": (4, 2),
        "lengths": (9, 5),
        "context": False,
        "from_start": True,
        "store": False,
        "accept": anything,
    }
    assert {name: getattr(retrieval, name) for name in wanted} == wanted
    machine = schema.machine
    assert isinstance(machine, SchemaMachine)
    assert (machine.values, machine.most, schema.most) == (2, 7, 7)
    assert machine.formats == (FORMATS["pythonic"],)
    assert (recycling.top_k, recycling.nodes) == (5, 33)


def test_the_defaults_are_the_papers():
    retrieval, schema, recycling = ToolSpec().drafters
    assert (retrieval.k, retrieval.match, retrieval.lengths) == (10, (7, 6, 5), (32, 16, 8, 8))
    assert not retrieval.from_start
    assert isinstance(recycling, TokenRecycling)
    assert isinstance(schema, SchemaDrafter)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mode": "x"}, ValueError, r"mode must be one of 'paper', got 'x'"),
        ({"retrieval": 7}, TypeError, "retrieval must be true, false or a drafter, got 7"),
        ({"schema": "no"}, TypeError, "schema must be true, false or a drafter, got 'no'"),
        ({"schema": None}, TypeError, "schema must be true, false or a drafter, got None"),
        ({"retrieval": False, "memory": EpisodeMemory()}, ValueError, "a memory is for the retr"),
        ({"fallback": 7}, TypeError, "made of drafters"),
        ({"values": -1}, ValueError, "values must be at least 0"),
        ({"formats": ("x",)}, ValueError, "no call format named 'x'"),
        ({"top_k": 0}, ValueError, "top_k"),
    ],
)
def test_wrong_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        ToolSpec(**options)


@pytest.mark.parametrize(
    ("expression", "kinds"),
    [
        ("toolspec", [RetrievalDrafter, SchemaDrafter, TokenRecycling]),
        ("toolspec(schema=false, fallback=pld())", [RetrievalDrafter, PromptLookup]),
        ("toolspec(retrieval=false, values=0)", [SchemaDrafter, TokenRecycling]),
        ("toolspec(schema=pld(), nodes=9)", [RetrievalDrafter, PromptLookup, TokenRecycling]),
    ],
)
def test_stacks_are_built_from_expressions(expression, kinds):
    stack = parse(expression)
    assert isinstance(stack, ToolSpec)
    assert [type(part) for part in stack.drafters] == kinds


def test_a_memory_is_built_from_an_expression():
    stack = parse("toolspec(memory=episodes(entries=5))")
    for i in range(9):
        stack.memory.store(Episode((i,), (i, i)))
    assert len(stack.memory) == 5


def test_an_expression_with_a_wrong_option_is_refused():
    with pytest.raises(ExpressionError, match="mode must be one of 'paper'"):
        parse("toolspec(mode='fast')")


# Memory


def decode(drafter, text, *, tools=(WEATHER,), prompt="user: hi\n", **fields):
    """The result of writing `text`, and what plain decoding writes."""
    target = OracleTarget(script=CODEC.encode(text))
    fields = {"call_format": HERMES} | fields
    request = Request(CODEC.encode(prompt), len(target.script), codec=CODEC, tools=tools, **fields)
    result = Engine(target, drafter, on_error="raise").generate(request)
    assert result.tokens == target.plain(request)
    assert result.errors == ()
    return result


def test_two_stacks_can_share_a_memory():
    memory = EpisodeMemory()
    one, two = (ToolSpec(memory=memory, schema=False, accept=anything) for _ in range(2))
    text = HERMES.render([CALL])
    alone = decode(ToolSpec(schema=False, accept=anything), text).passes
    decode(one, text)
    assert len(memory) == 1
    assert decode(two, text).passes < alone


def test_what_was_learned_is_saved_and_restored():
    one, two = ToolSpec(accept=anything), ToolSpec(accept=anything)
    decode(one, HERMES.render([CALL]))
    two.restore(one.state())
    again = HERMES.render([CALL])
    assert decode(two, again).passes == decode(one, again).passes


# A call that is made again


def test_a_repeated_call_takes_at_most_five_steps():
    """Of SmolLM2's tokens, written by a target that knows them."""
    result, again = repeated(ToolSpec())
    assert again.steps <= 5
    assert result.steps > again.steps


def repeated(drafter):
    """The results of the same call, made twice in requests of different words."""
    demo = pytest.importorskip("specdec_demo_model", reason="pip install -e contrib/demo_model")
    from specdec.hf.codec import HFCodec

    try:
        tokenizer = demo.load()[1]
    except demo.MissingWeights as missing:
        pytest.skip(str(missing))
    codec = HFCodec(tokenizer)
    script = (*codec.encode(HERMES.render([CALL]), ()), tokenizer.eos_token_id)
    target = OracleTarget(vocabulary=len(tokenizer), script=script)
    engine = Engine(target, drafter, budget=FixedBudget(64), on_error="raise")
    results = []
    for asked in ("How is the weather in ulan bator?", "And the weather in ulan bator now?"):
        messages = ({"role": "user", "content": asked},)
        prompt = codec.encode(f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n", ())
        request = Request(
            prompt,
            len(script),
            stop_ids=tokenizer.eos_token_id,
            codec=codec,
            tools=(WEATHER,),
            messages=messages,
            call_format=HERMES,
        )
        results.append(engine.generate(request))
        assert results[-1].tokens == script
    return results


# The output stays the same


def hostile(vocabulary, *, tenant=""):
    """A memory of wrong, foreign and huge episodes."""
    draw = random.Random(0)
    memory = EpisodeMemory(entries=64)
    texts = [form.render([CALL, Call("ping", {})]) for form in FORMATS.values()]
    for i, text in enumerate(texts):
        key = np.array([1.0, i], dtype=np.float32)
        output = CODEC.encode(text)
        memory.store(Episode((1, 2), output, key, text, tenant if i % 2 else f"other {i}"))
    for size in (1, 4_000):
        ids = tuple(draw.randrange(vocabulary) for _ in range(size))
        memory.store(Episode(ids, ids, None, "\ufffd" * size, tenant))
    # Of another tokenizer: ids that this target does not know.
    for low in (vocabulary, 1 << 30):
        ids = tuple(range(low - 20, low + 20))
        memory.store(Episode(ids, ids * 3, None, None, tenant))
    return memory


MANY = tuple(Tool(f"tool_{i}", f"Does {i}.", {"properties": {"x": {}}}) for i in range(500))
ODD = tuple(
    Tool(name, "", {"properties": {name: {"enum": [name]}}}) for name in ('"', "é\n", "{id}")
)
WRONG = (Tool("get_weather", "", {"properties": {"city": {"const": 1}}, "required": ["x"]}),)


@pytest.mark.parametrize("tools", [(WEATHER,), MANY, ODD, WRONG, ()], ids=range(5))
@pytest.mark.parametrize("form", ["hermes", "hermes-arguments-first", "qwen3-coder", None])
def test_a_scripted_output_is_unchanged(tools, form):
    stack = ToolSpec(memory=hostile(64, tenant="a"), accept=anything, from_start=True)
    calls = [CALL, Call('"', {'"': "é"}), Call("tool_7", {"x": [1, {"y": None}]})]
    text = "Sure.\n" + FORMATS[form or "hermes"].render(calls)
    for tenant in ("a", "b", "a"):
        given = FORMATS[form] if form else None
        decode(stack, text, tools=tools, call_format=given, tenant=tenant)


@pytest.mark.parametrize("tools", [(WEATHER,), MANY, ODD, WRONG], ids=range(4))
def test_a_models_output_is_unchanged(tools):
    config = models.FAMILIES["llama"]()
    config.vocab_size = CODEC.vocabulary
    model = models.build(config)
    target = HFTarget(model, probe=False)
    assert next(model.parameters()).dtype == torch.float64
    memory = hostile(CODEC.vocabulary, tenant="a")
    for seed in range(2):  # what the model will write, a little wrong
        prompt = models.prompt_of(30, seed=seed, vocabulary=CODEC.vocabulary)
        truth = models.reference(model, prompt, 24)
        memory.store(Episode(tuple(prompt), (*truth[:8], 5, *truth[8:]), None, None, "a"))
    stack = ToolSpec(memory=memory, accept=anything, from_start=True, match=(3, 2))
    engine = Engine(target, stack, budget=FixedBudget(8), on_error="raise")
    accepted = 0
    for seed in range(2):
        prompt = models.prompt_of(30, seed=seed, vocabulary=CODEC.vocabulary)
        request = Request(
            prompt, 24, codec=CODEC, tools=tools, call_format=HERMES, tenant="ab"[seed % 2]
        )
        result = engine.generate(request)
        assert list(result.tokens) == models.reference(model, prompt, 24)
        accepted += sum(result.accepted)
    assert accepted > 0, "some drafts were right"


def test_a_call_of_a_format_that_no_one_told_is_drafted_the_second_time():
    text = FORMATS["mistral-v13"].render([CALL])
    stack = ToolSpec(retrieval=False, fallback=never())
    first = decode(stack, text, call_format=None)
    second = decode(stack, text, call_format=None)
    assert second.passes < first.passes / 2


def test_state_is_plain():
    stack = ToolSpec(retrieval=False, accept=anything)
    decode(stack, HERMES.render([CALL]))
    json.dumps(stack.drafters[0].state())
