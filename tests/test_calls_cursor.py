"""Following calls through text: the cursor, the parser, and every format of the catalogue."""

import itertools
import json
import random
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdec.calls import (
    FORMATS,
    HERMES,
    ArgumentDelta,
    Call,
    CallEnd,
    CallParser,
    CallStart,
    CallState,
    Cursor,
    TextDelta,
    Tool,
)

EVERY = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)

STRING, ANY = {"type": "string"}, {}
TOOLS = (
    Tool("get_weather", "", {"properties": {"city": STRING, "days": ANY, "opts": ANY, "on": ANY}}),
    Tool("now"),
    Tool("book", "", {"properties": {"to": STRING, "note": STRING, "price": {"type": "number"}}}),
)
WEATHER = Call(
    "get_weather",
    {"city": "São Paulo", "days": 3, "opts": {"unit": "C", "tags": ["a", "b"]}, "on": True},
)
NOW = Call("now", {})
BOOK = Call("book", {"to": "3", "note": 'say "hi"\nand <go>', "price": -1.5e-3})
TURNS = [[WEATHER], [NOW], [WEATHER, NOW], [NOW, BOOK, WEATHER], [BOOK, BOOK]]
NESTED = Call("f", {"a": {"b": [1, {"c": "x"}, None]}, "d": [], "e": {}, "g": ["", "\\", "é"]})


def cut(text, places):
    """`text` in pieces."""
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def parsed(form, pieces):
    """Calls and events of a text in pieces."""
    parser = CallParser(form, TOOLS)
    events = [event for piece in pieces for event in parser.push(piece)]
    return parser.calls, [*events, *parser.finish()]


def outside(events):
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@EVERY
@pytest.mark.parametrize("calls", TURNS)
def test_what_a_format_renders_is_parsed_back(form, calls):
    assert form.parse(form.render(calls), TOOLS) == calls


@EVERY
def test_text_and_thoughts_may_surround_calls(form):
    text = f"<think>\nhm, 1 < 2\n</think>\n\nSure.{form.after_text or chr(10)}"
    calls, events = parsed(form, [text + form.render([WEATHER, NOW]) + "\nBye."])
    assert calls == [WEATHER, NOW]
    assert outside(events).startswith(text.rstrip())
    assert outside(events).endswith("Bye.")
    assert "get_weather" not in outside(events)


@EVERY
def test_every_cut_gives_the_same_states_and_calls(form):
    """500 random cuts of one text per format, among them cuts at every character."""
    text = f"Well. {form.after_text}{form.render([WEATHER, NOW, BOOK])} <b> [x] {{y}} done"
    cursor = Cursor(form)
    along = [cursor.start()]
    for character in text:
        along.append(cursor.advance(along[-1], character))
    whole, said = parsed(form, [text])
    assert whole == [WEATHER, NOW, BOOK]
    generator = random.Random(7)
    for turn in range(500):
        edges = [generator.randrange(len(text)) for _ in range(generator.randrange(1, 8))]
        at, state = 0, cursor.start()
        for piece in cut(text, edges):
            state = cursor.advance(state, piece)
            at += len(piece)
            assert state == along[at], text[:at]
            assert hash(state) == hash(along[at])
        if turn % 10 == 0:
            calls, events = parsed(form, cut(text, edges))
            assert calls == whole
            assert flat(events) == flat(said)


def flat(events):
    """Events with neighbouring deltas put together, without the places where they were cut."""
    found = []
    for event in events:
        key = (type(event), getattr(event, "index", None), getattr(event, "key", None))
        if isinstance(event, TextDelta | ArgumentDelta):
            if found and found[-1][0] == key:
                found[-1] = (key, found[-1][1] + event.text)
            else:
                found.append((key, event.text))
        else:
            found.append((key, event))
    return found


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-999, 999)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet="aé \"'\\{}[],:<>\n/"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
some_calls = st.lists(
    st.builds(
        Call,
        st.sampled_from(["f", "get_it", "a.b-c"]),
        st.dictionaries(st.sampled_from(["x", "y_1", "zed"]), values, max_size=3),
    ),
    max_size=3,
)
LOSSLESS = [
    name
    for name, form in FORMATS.items()
    if form.arguments.values.strings == "json" and form.arguments.values.scalars == "json"
]


@pytest.mark.parametrize("name", [*LOSSLESS, "pythonic", "lfm2"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(calls=some_calls, places=st.lists(st.integers(0, 10_000), max_size=6))
def test_any_values_survive_where_the_format_quotes_them(name, calls, places):
    form = FORMATS[name]
    assert parsed(form, cut(form.render(calls), places))[0] == calls


soup = st.lists(
    st.sampled_from(
        [
            *"{}[]()\"'\\:=,<>|\n x1",
            *("<tool_call>", "</tool_call>", '{"name": "', '", "arguments": {', "}}", '"a": '),
            *("<function=", "</function>", "<parameter=", "[TOOL_CALLS]", "[ARGS]", "call:"),
            *('<|"|>', "<|tool_call>", "f(", "Action: ", "\nAction Input: ", "<arg_key>"),
        ]
    ),
    max_size=40,
).map("".join)


@pytest.mark.parametrize(
    "name", ["hermes", "llama-4", "mistral-v13", "qwen3-coder", "glm-4.5", "gemma-4", "pythonic"]
)
@settings(max_examples=60, deadline=None)
@given(text=soup, place=st.integers(0, 1000))
def test_any_text_is_followed_and_cutting_it_changes_nothing(name, text, place):
    cursor = Cursor(FORMATS[name])
    state = cursor.start()
    for piece in cut(text, [place, place // 2]):
        state = cursor.advance(state, piece)
    assert state == cursor.advance(cursor.start(), text)
    calls, events = parsed(FORMATS[name], [text])
    assert parsed(FORMATS[name], text)[0] == calls
    assert [event.call for event in events if isinstance(event, CallEnd) and event.call] == calls


@EVERY
def test_after_nonsense_a_call_is_found_again(form):
    for nonsense in ("?!é }]) \n", "{" * 50 + "\n", '"\n\n', "<tool_call>\n", "[TOOL_CALLS]\n"):
        assert form.parse(nonsense + form.render([WEATHER]), TOOLS)[-1:] == [WEATHER], nonsense


@EVERY
def test_a_call_that_breaks_off_does_not_hide_the_next(form):
    whole = form.render([NOW])
    for size in range(1, len(whole)):
        if form.open.startswith("{") and not form.block_open and whole[:size].rstrip()[-1] == ":":
            continue  # what follows may well be the arguments
        found = form.parse(whole[:size] + "\n\n" + form.render([NOW]), TOOLS)
        assert found[-1:] == [NOW], whole[:size]


@pytest.mark.parametrize("name", ["hermes", "llama-4", "qwen3-coder", "pythonic", "gemma-4"])
@pytest.mark.parametrize(
    "text", ["{" * 3000 + "[" * 3000, "a" * 20_000, "[x " * 7000, "<" * 20_000]
)
def test_hostile_text_takes_little_time(name, text):
    state = Cursor(FORMATS[name]).advance(CallState(), text)
    assert len(state.raw) < 5000


def test_the_state_says_where_in_a_call_the_text_ends():
    cursor = Cursor(HERMES)

    def after(text):
        return cursor.advance(cursor.start(), text)

    assert after("Sure. ").phase == "text"
    assert after("Sure.\n<tool").tail == "\n<tool"
    opened = after('Sure.\n<tool_call>\n{"na')
    assert (opened.phase, opened.tail) == ("open", '\n<tool_call>\n{"na')
    head = '<tool_call>\n{"name": "'
    name = after(f"{head}get_wea")
    assert (name.phase, name.tail, name.name) == ("name", "get_wea", None)
    link = after(f'{head}f", "arg')
    assert (link.phase, link.tail, link.name) == ("link", '", "arg', "f")
    head += 'f", "arguments": {'
    key = after(f'{head}"ci')
    assert (key.phase, key.tail, key.key) == ("argument", '"ci', None)
    assert after(f'{head}"city": ').key == "city"
    value = after(f'{head}"city": "Os')
    assert (value.phase, value.key, value.tail, value.path) == ("value", "city", '"Os', ())
    nested = after(f'{head}"o": {{"a": [1, {{"b": "x')
    assert (nested.phase, nested.key, nested.path) == ("value", "o", ("a", 1, "b"))
    more = after(f'{head}"city": "Oslo", "d')
    assert (more.phase, more.keys, more.values) == ("argument", ("city",), ('"Oslo"',))
    assert more.tail == ', "d'
    closed = after(f'{head}"city": "Oslo"}}')
    assert (closed.phase, closed.closed, closed.calls) == ("close", True, 0)
    done = after(f'{head}"city": "Oslo"}}}}\n</tool')
    assert (done.phase, done.tail, done.calls) == ("after", "}\n</tool", 1)
    again = after(f'{head}}}}}\n</tool_call>\n<tool_call>\n{{"name": "g')
    assert (again.phase, again.tail, again.keys, again.calls) == ("name", "g", (), 1)


def test_the_state_follows_raw_parameters():
    cursor = Cursor(FORMATS["qwen3-coder"])
    head = "<tool_call>\n<function=f>\n<parameter=city>\n"
    state = cursor.advance(cursor.start(), f"{head}New <Yo")
    assert (state.phase, state.name, state.key, state.tail) == ("value", "f", "city", "\nNew <Yo")
    state = cursor.advance(state, "rk>\n</parameter>\n<para")
    assert (state.phase, state.keys, state.values) == ("argument", ("city",), ("\nNew <York>\n",))
    assert state.tail == "\n<para"


def test_arguments_may_stand_before_the_name():
    state = Cursor(HERMES).advance(CallState(), '<tool_call>\n{"arguments": {"a": 1}, "na')
    assert (state.phase, state.keys, state.closed, state.name) == ("link", ("a",), True, None)
    text = '<tool_call>{"arguments": {"a": "xyz"}, "name": "f"}</tool_call>'
    calls, events = parsed(HERMES, text)
    assert calls == [Call("f", {"a": "xyz"})]
    assert events[0] == CallStart(0, "f")
    assert flat(events) == flat(parsed(HERMES, [text])[1])


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>',
        '<tool_call>\n  {"name": "f", "parameters": {"a": 1}}',
        '```<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n```',
        '<tool_call>\n```json\n{"name": "f", "arguments": {"a": 1}}\n```\n</tool_call>',
        '<tool_call>[{"name": "f", "arguments": {"a": 1}}]</tool_call>',
        "<tool_call>{'name': 'f', 'arguments': {'a': 1}}</tool_call>",
        '<tool_call>{"id": "x", "name": "f", "more": [{}], "arguments": {"a": 1}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": 1}, "id": "c1"}</tool_call>',
    ],
)
def test_calls_are_read_in_every_guise(text):
    assert HERMES.parse(text) == [Call("f", {"a": 1})]


def test_several_objects_may_stand_in_one_pair_of_marks():
    one, two = ('{"name": "f", "arguments": {}}', '{"name": "g", "arguments": {"a": []}}')
    for between in ("\n", ", ", "; ", ""):
        text = f"<tool_call>\n{one}{between}{two}\n</tool_call>"
        assert HERMES.parse(text) == [Call("f", {}), Call("g", {"a": []})]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "f", "arguments": {"a": }}',
        '<tool_call>{"name": "f", "arguments": {"a": tru}}',
        '<tool_call>{"name": "f", "arguments": [1]}',
        '<tool_call>{"name": "f", "arguments": {"a": 1',
        '<tool_call>{"name": ["f"], "arguments": {}}',
        '<tool_call>{"name": "f", "arguments": {"a": {"b": }}}',
    ],
)
def test_what_is_malformed_is_no_call(text):
    calls, events = parsed(HERMES, [text])
    assert calls == []
    assert all(event.call is None for event in events if isinstance(event, CallEnd))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>\n{"name": "now", "arguments": {}'),
        ("qwen3-coder", "<tool_call>\n<function=now>\n</function>"),
        ("phi-4", '<|tool_call|>[{"name": "now", "arguments": {}}]'),
        ("granite-3", '<|tool_call|> [{"name": "now", "arguments": {}}'),
        ("mistral-v3", '[TOOL_CALLS] [{"name": "now", "arguments": {}}]'),
        ("kimi-k2", "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}"),
        ("llama-3", '<|python_tag|>{"name": "now", "parameters": {}}<|eom_id|>'),
    ],
)
def test_missing_marks_are_forgiven(name, text):
    assert FORMATS[name].parse(text) == [NOW]


def test_the_next_call_ends_a_value_that_lost_its_end():
    broken = '<tool_call>\n{"name": "f", "arguments": {"a": "lost\n</tool_call>\n'
    assert HERMES.parse(broken + HERMES.render([NOW])) == [NOW]
    coder = FORMATS["qwen3-coder"]
    lost = "<tool_call>\n<function=f>\n<parameter=a>\nlost\n"
    assert coder.parse(lost + coder.render([NOW])) == [NOW]


@pytest.mark.parametrize("name", ["hermes", "gemma-4", "apertus", "command-r7b"])
def test_nested_values_are_read(name):
    call = Call("f", {key: NESTED.arguments[key] for key in ("a", "d", "e")})
    assert FORMATS[name].parse(FORMATS[name].render([call])) == [call]


def test_the_schema_tells_a_raw_string_from_a_number():
    text = FORMATS["qwen3-coder"].render([Call("book", {"to": "3", "price": 3})])
    assert FORMATS["qwen3-coder"].parse(text, TOOLS) == [Call("book", {"to": "3", "price": 3})]
    assert FORMATS["qwen3-coder"].parse(text) == [Call("book", {"to": 3, "price": 3})]
    dsml = FORMATS["deepseek-v3.2"]
    calls = [Call("f", {"to": "3", "n": 3})]
    assert dsml.parse(dsml.render(calls)) == calls


@pytest.mark.parametrize("name", ["hermes", "command-r7b", "apertus", "granite-3"])
@pytest.mark.parametrize("odd", ['a "b"', "ü ö", "a\\b", "</tool_call>", "a\nb"])
def test_odd_names_survive_in_json(name, odd):
    call = Call(odd, {odd: odd})
    assert parsed(FORMATS[name], FORMATS[name].render([call]))[0] == [call]


def test_ids_are_read_where_the_format_has_them():
    for name in ("mistral-v3", "mistral-v11", "solar"):
        made = FORMATS[name].render([Call("f", {"a": 1}, "abc123DEF"), Call("g", {})])
        assert [call.id for call in FORMATS[name].parse(made)] == ["abc123DEF", "000000002"]


def test_arguments_arrive_as_they_are_written():
    parser = CallParser(FORMATS["qwen3-coder"])
    parser.push("Hi <tool_call>\n<function=f>\n<parameter=a>\n")
    assert parser.push("one\n</par") == [ArgumentDelta(0, "a", "one")]
    assert parser.push("a\n</parameter>") == [ArgumentDelta(0, "a", "\n</para")]
    assert parser.push("\n</function>") == [CallEnd(0, Call("f", {"a": "one\n</para"}))]


def test_any_mapping_is_written_as_a_call():
    frozen = MappingProxyType({"a": MappingProxyType({"b": (1, 2)})})
    assert json.loads(HERMES.render([Call("f", frozen)])[12:-12])["arguments"] == {
        "a": {"b": [1, 2]}
    }


@EVERY
def test_calls_begun_again_and_again_are_followed_without_recursion(form):
    begun = form.open + "f" + form.between + form.arguments.open + form.arguments.key_open
    for piece in (form.open, begun, f"{begun}k{form.arguments.key_close}", form.open[:-1]):
        if piece:
            assert form.parse(piece * (6_000 // len(piece)) + "\n" * 2) is not None
