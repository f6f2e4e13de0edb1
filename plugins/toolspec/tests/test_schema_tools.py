"""The schema drafter on many tools, on odd tools and on odd requests."""

import random
import statistics
import time

import numpy as np
import pytest
from specdec_toolspec import SchemaDrafter

from specdec import EMPTY, Engine, Limit, Request, Step, Tool
from specdec.calls import FORMATS, Call
from specdec.testing import CharCodec, OracleTarget

WIDE = Limit(64, 64)
CODEC = CharCodec()
SOME = (
    "hermes",
    "hermes-arguments-first",
    "qwen3-coder",
    "glm-4.5",
    "pythonic",
    "gemma-4",
    "react",
)
"""Formats of every kind."""


def session_of(drafter, tools, written="", *, form="hermes", codec=CODEC, prompt=(1, 2), **fields):
    """A session behind `written`, and the tokens so far."""
    asked = Request(
        prompt, 999, codec=codec, tools=tools, call_format=FORMATS[form], on_error="raise", **fields
    )
    tokens = codec.encode(written, prompt) if codec else ()
    return drafter.start(asked, tokens), (*prompt, *tokens)


def drafts(tools, written="", *, drafter=None, **fields):
    """What is drafted behind `written`, as texts."""
    session, tokens = session_of(drafter or SchemaDrafter(), tools, written, **fields)
    tree = session.propose(tokens, Limit(2000, 200))  # a token is a character
    leaves = set(range(len(tree))) - set(tree.parents)
    return [CODEC.decode([tree.tokens[n] for n in tree.path_to(leaf)]) for leaf in leaves]


def decoded(text, tools, *, drafter=None, **fields):
    """The result of writing `text` with a drafter whose errors are raised."""
    target = OracleTarget(script=CODEC.encode(text))
    engine = Engine(target, drafter or SchemaDrafter(), on_error="raise")
    asked = Request(
        CODEC.encode("user: hi\n"), len(target.script), codec=CODEC, tools=tools, **fields
    )
    result = engine.generate(asked)
    assert result.tokens == target.plain(asked)
    return result


# Names


ODD = (
    'say "hi"',
    "größe\N{PILE OF POO}",
    "two words",
    "line\nbreak",
    "x" * 300,
    "",
    "</tool_call>",
    "{name}",
    "\0",
    "back\\slash",
    "'",
)


@pytest.mark.parametrize("form", SOME)
@pytest.mark.parametrize("name", ODD, ids=lambda name: ascii(name[:12]))
def test_a_tool_may_have_any_name(form, name):
    tool = Tool(name, "", {"properties": {name or "x": {"type": "string"}}})
    text = FORMATS[form].render([Call(name, {name or "x": "y"}), Call(name, {})])
    decoded(text, (tool, Tool("ping")), call_format=FORMATS[form])


def test_an_odd_name_is_drafted_as_it_is_written():
    found = drafts((Tool('say "hi"'),), '<tool_call>\n{"name": "')
    assert any(text.startswith('say \\"hi\\"", "arguments": {') for text in found)
    found = drafts((Tool("größe"),), '<tool_call>\n{"name": "gr')
    assert any(text.startswith("öße") for text in found)


def test_a_tool_without_a_name_is_not_drafted():
    assert drafts((Tool(""),)) == []


# Schemas

GARBAGE = (
    {"properties": [1, 2]},
    {"properties": {"x": {"type": 7}}},
    {"properties": {"x": None, "y": True, "z": "int"}},
    {"properties": {"x": {"$ref": "#"}}},
    {"properties": {"x": {"$ref": "#/nowhere"}, "y": {"$ref": 7}}},
    {"properties": {"x": {"enum": 7}, "y": {"enum": []}, "z": {"enum": [float("nan"), {}, [1]]}}},
    {"properties": {"x": {"type": "string", "default": {"a": [1]}}}, "required": 7},
    {"anyOf": [{"$ref": "#"}, 7], "allOf": "x"},
    {"type": "array", "items": {"items": {"items": {}}}},
    [1],
)


@pytest.mark.parametrize("schema", GARBAGE, ids=range(len(GARBAGE)))
def test_a_schema_may_be_garbage(schema):
    for form in SOME:
        text = FORMATS[form].render([Call("f", {"x": {"x": [1, {"y": None}]}, "z": "1"})])
        decoded(text, (Tool("f", "", schema),), call_format=FORMATS[form])


def test_a_schema_may_contradict_the_call():
    schema = {"properties": {"n": {"type": "integer"}, "c": {"const": 1}}, "required": ["missing"]}
    for form in SOME:
        for arguments in ({"n": "seven"}, {"n": {"a": [1]}}, {"c": None, "extra": [True]}, {}):
            text = FORMATS[form].render([Call("f", arguments)])
            decoded(text, (Tool("f", "", schema),), call_format=FORMATS[form])


def test_250_required_arguments_are_followed_in_good_time():
    keys = [f"p{i}" for i in range(250)]
    tool = Tool("f", "", {"properties": {k: {"const": 1} for k in keys}, "required": keys})
    text = FORMATS["hermes"].render([Call("f", dict.fromkeys(keys, 1))])
    begun = time.perf_counter()
    result = decoded(text[:600], (tool,), call_format=FORMATS["hermes"])
    assert time.perf_counter() - begun < 20
    assert result.mat > 8, "most of it is drafted"


def test_an_enum_of_5000_values_is_narrowed_as_it_is_written():
    tool = Tool("f", "", {"properties": {"x": {"enum": [f"item {i}" for i in range(5000)]}}})
    drafter = SchemaDrafter()
    begun = time.perf_counter()
    found = drafts(
        (tool,), '<tool_call>\n{"name": "f", "arguments": {"x": "item 432', drafter=drafter
    )
    assert time.perf_counter() - begun < 2
    assert {text[:2] for text in found} >= {'0"', '1"', '9"'}


def test_keys_may_hold_quotes():
    tool = Tool("f", "", {"properties": {'the "key"': {"const": 1}}})
    found = drafts((tool,), '<tool_call>\n{"name": "f", "arguments": {')
    assert any(text.startswith('"the \\"key\\"": 1}}') for text in found)


# Conversations

MESSAGES = (
    {},
    {"role": "user"},
    {"role": "user", "content": None},
    {"role": "user", "content": 7},
    {"role": ["user"], "content": {"text": "x"}},
    {"role": "user", "content": [{"type": "text", "text": None}, "x", 7, None, {}]},
    {"role": "assistant", "content": "", "tool_calls": 7},
    {"role": "assistant", "tool_calls": [{"function": None}, None]},
    {"role": "tool", "content": b"bytes"},
)


@pytest.mark.parametrize("message", MESSAGES, ids=map(str, MESSAGES))
def test_a_message_may_have_any_shape(message):
    text = FORMATS["hermes"].render([Call("f", {"x": "y"})])
    tool = Tool("f", "", {"properties": {"x": {}}})
    for form in (FORMATS["hermes"], None):
        decoded(text, (tool,), call_format=form, messages=(message,))


HUGE = {
    "prose": "Meet Bob Smith at 5pm on 12 May 2024 in 'Room 5', bob@example.com; ",
    "letters": "a",
    "digits": "1",
    "quotes": "\"'",
    "brackets": "{[(",
    "calls": '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n',
    "names": "A ",
}


@pytest.mark.parametrize("piece", HUGE.values(), ids=HUGE)
def test_a_conversation_of_a_megabyte_takes_little_time(piece):
    said = (piece * (1_000_000 // len(piece) + 1))[:1_000_000]
    tool = Tool("f", "", {"properties": {"x": {"type": "string"}}})
    begun = time.perf_counter()
    session, tokens = session_of(
        SchemaDrafter(),
        (tool,),
        '<tool_call>\n{"name": "f", "arguments": {"x": "',
        messages=({"role": "user", "content": said},),
    )
    session.propose(tokens, WIDE)
    assert time.perf_counter() - begun < 3


def test_a_long_value_is_no_slower_at_its_end():
    text = FORMATS["hermes"].render([Call("f", {"x": "word " * 3000})])
    drafter, tool = SchemaDrafter(), Tool("f", "", {"properties": {"x": {"type": "string"}}})
    session, tokens = session_of(drafter, (tool,), text[:-200])
    begun = time.perf_counter()
    session.propose(tokens, WIDE)
    assert time.perf_counter() - begun < 0.5


def test_without_a_codec_nothing_is_drafted():
    session, tokens = session_of(SchemaDrafter(), (Tool("f"),), codec=None)
    session.observe(Step(0, EMPTY, (), (3, 4)))
    assert session.propose(tokens, WIDE) == EMPTY


class Broken(CharCodec):
    """Reads replacement characters everywhere."""

    def decode(self, ids):
        return "\ufffd" * len(ids)

    def encode(self, text, after=()):
        return tuple(range(min(len(text), 60)))


def test_a_codec_that_reads_nothing_is_survived():
    tool = Tool("f", "", {"properties": {"x": {"type": "string"}}})
    drafter = SchemaDrafter()
    asked = Request((1, 2, 3), 99, codec=Broken(), tools=(tool,), on_error="raise")
    session = drafter.start(asked, (4, 5))
    assert len(session.propose((1, 2, 3, 4, 5), WIDE)) <= WIDE.nodes
    assert drafter.start(Request((1,), 9, codec=Broken())).propose((1,), WIDE) == EMPTY


# Many tools

WORDS = """
get list create update delete search find send cancel book check
invoice customer order flight hotel weather ticket calendar email contact payment refund report
file folder message playlist song movie recipe city route user account product stock
"""
VERBS, NOUNS = WORDS.split()[:11], WORDS.split()[11:]
KINDS = (
    {"type": "string"},
    {"type": "integer"},
    {"type": "boolean"},
    {"enum": ["low", "high"]},
    {"type": "array", "items": {"type": "string"}},
)


def many(count, draw):
    """Tools as a large service has them: names, texts and arguments alike."""
    tools = {}
    while len(tools) < count:
        verb, noun, other = draw.choice(VERBS), draw.choice(NOUNS), draw.choice(NOUNS)
        keys = [f"{key}_id" for key in draw.sample(NOUNS, draw.randint(2, 6))]
        schema = {"properties": {k: draw.choice(KINDS) for k in keys}, "required": keys[:2]}
        name = f"{verb}_{noun}_{other}"
        tools[name] = Tool(name, f"{verb} the {noun} of a {other}.", schema)
    return tuple(tools.values())


def conversation(draw):
    words = [*NOUNS, *VERBS, "the", "on 12 May 2024", "at 5pm", '"Blue Note"', "Oslo", "A-17"]
    said = " ".join(draw.choices(words, k=draw.randint(200, 500)))
    return ({"role": "user", "content": said}, {"role": "user", "content": said[-100:]})


def test_the_tool_asked_for_is_drafted_among_500():
    tools = many(500, random.Random(0))
    asked = {"role": "user", "content": f"Please {tools[321].description}"}
    assert any(
        text.startswith(f'<tool_call>\n{{"name": "{tools[321].name}", "arguments": {{')
        for text in drafts(tools, messages=(asked,))
    )


@pytest.mark.real_model
def test_a_draft_for_500_tools_takes_a_few_milliseconds(capsys):
    demo = pytest.importorskip("specdec_demo_model", reason="pip install -e contrib/demo_model")
    from specdec.hf.codec import HFCodec

    try:
        codec = HFCodec(demo.load()[1])
    except demo.MissingWeights as missing:
        pytest.skip(str(missing))
    draw = random.Random(1)
    tools, drafter = many(500, draw), SchemaDrafter()
    times = {"start": [], "first": [], "in a name": [], "in arguments": []}
    for turn in range(21):  # the first one warms up
        tool = draw.choice(tools)
        prompt = codec.encode(f"user: request {turn}\nassistant:\n", ())
        begun = time.perf_counter()
        session, tokens = session_of(
            drafter, tools, codec=codec, prompt=prompt, messages=conversation(draw)
        )
        times["start"].append(time.perf_counter() - begun)
        for place, text in (
            ("first", ""),
            ("in a name", '<tool_call>\n{"name": "' + tool.name[:4]),
            ("in arguments", tool.name[4:] + '", "arguments": {'),
        ):
            if new := codec.encode(text, tokens):
                session.observe(Step(0, EMPTY, (), new))
                tokens = (*tokens, *new)
            begun = time.perf_counter()
            tree = session.propose(tokens, WIDE)
            times[place].append(time.perf_counter() - begun)
            assert tree
    with capsys.disabled():
        for place, seconds in times.items():
            median, worst = (1e3 * f(seconds[1:]) for f in (statistics.median, np.max))
            print(f"\n{place}: median {median:.1f} ms, worst {worst:.1f} ms", end="")
    assert max(statistics.median(seconds[1:]) for seconds in times.values()) < 0.02
