"""SchemaMachine: what it offers where in a call."""

import json
from itertools import takewhile

import pytest
from specdec_toolspec import SchemaMachine

from specdec import Request, Tool
from specdec.calls import FORMATS, Call
from specdec.testing import CharCodec

WEATHER = Tool(
    "get_weather",
    "The weather in a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer"},
            "hourly": {"type": "boolean"},
        },
        "required": ["city", "unit"],
    },
)
BOOK = Tool(
    "book_table",
    "Book a table.",
    {
        "type": "object",
        "properties": {
            "where": {"type": "object", "properties": {"name": {"type": "string"}}},
            "guests": {"type": "array", "items": {"type": "string"}},
        },
    },
)
PING = Tool("ping")
TOOLS = (WEATHER, BOOK, PING)
FORECAST = '<tool_call>\n{"name": "get_weather", "arguments": {'


def request(*tools, form="hermes", said="", **fields):
    """A request for these tools, in a format of the catalogue or in none that is known."""
    return Request(
        (1,),
        99,
        tools=tools or TOOLS,
        messages=({"role": "user", "content": said},) if said else (),
        call_format=FORMATS[form] if form else None,
        **fields,
    )


def wrote(machine, asked, *pieces):
    """The state after an output in pieces, each of them learned, as an engine does it."""
    state = machine.start(asked)
    for piece in pieces:
        before, state = state, machine.advance(state, piece)
        machine.learn(before, piece, state)
    return state


def offers(text, *tools, machine=None, values=0, **fields):
    """What is offered behind `text`, with its score."""
    machine = machine or SchemaMachine(values=values, most=64, least=0.0)
    state = machine.advance(machine.start(request(*tools, **fields)), text)
    return {offer.text: offer.score for offer in machine.continuations(state)}


def odds(offered, beginning):
    """P(the output goes on with `beginning`), as far as the offers tell."""
    return sum(score for text, score in offered.items() if text.startswith(beginning))


def argument(schema, **fields):
    """What is offered for the value of an argument `x` of this schema."""
    tool = Tool("f", "", {"properties": {"x": schema}, "required": ["x"]})
    return offers('<tool_call>\n{"name": "f", "arguments": {"x": ', tool, **fields)


# Typed values


def test_a_string_begins_with_a_quote():
    assert set(argument({"type": "string"})) == {'"'}


@pytest.mark.parametrize("kind", ["integer", "number"])
def test_a_number_begins_with_nothing_or_is_written_as_a_string(kind):
    # Nothing can be offered for a bare number: the key is, and its first digit is free.
    assert set(argument({"type": kind})) == {'"'}
    tool = Tool("f", "", {"properties": {"x": {"type": kind}}, "required": ["x"]})
    found = offers('<tool_call>\n{"name": "f", "arguments": {', tool)
    assert found['"x": '] > found['"x": "']


def test_a_boolean_is_one_of_two():
    found = argument({"type": "boolean"})
    assert odds(found, "true}}\n</tool_call>") == pytest.approx(odds(found, "false}}"))
    assert odds(found, "true") + odds(found, "false") > 0.7


def test_null_is_offered_where_it_is_allowed():
    assert odds(argument({"type": ["number", "null"]}), "null}}") > 0
    assert odds(argument({"type": "integer", "nullable": True}), "null}}") > 0
    assert odds(argument({"type": "integer"}), "null") == 0


def test_an_enum_is_its_values_however_they_are_typed():
    found = argument({"enum": ["red", 7, True, None, 'dark "red"', "café"]})
    for written in ('"red"', "7", "true", "null", '"dark \\"red\\""', '"café"'):
        assert odds(found, written + "}}\n</tool_call>") > 0.05
    assert odds(argument({"enum": ["red"]}, form="qwen3-coder"), "x") == 0


def test_a_constant_is_the_only_value():
    found = argument({"const": "v1"})
    assert odds(found, '"v1"}}') > 0.7


def test_what_is_written_of_an_enum_leaves_those_that_fit():
    tool = Tool("f", "", {"properties": {"x": {"enum": ["north", "south", "southwest"]}}})
    found = offers('<tool_call>\n{"name": "f", "arguments": {"x": "so', tool)
    assert odds(found, 'uth"}}') > 0
    assert odds(found, 'uthwest"}}') > 0
    assert odds(found, "rth") == 0


def test_a_value_outside_of_the_enum_goes_on_freely():
    tool = Tool("f", "", {"properties": {"x": {"enum": ["north", "south"]}}})
    assert offers('<tool_call>\n{"name": "f", "arguments": {"x": "east', tool) == {}
    behind = offers('<tool_call>\n{"name": "f", "arguments": {"x": "east"', tool)
    assert odds(behind, "}}\n</tool_call>") > 0.3


def test_an_object_offers_its_own_keys_and_its_end():
    place = {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {}}}
    found = argument(place)
    assert odds(found, '{"lat": ') > odds(found, '{"lon": ') > 0
    assert odds(found, "{}}}") > 0
    tool = Tool("f", "", {"properties": {"x": place}})
    behind = offers('<tool_call>\n{"name": "f", "arguments": {"x": {"lon": 1, "lat": 2', tool)
    assert behind == {}, "a number may have more digits"
    behind = offers('<tool_call>\n{"name": "f", "arguments": {"x": {"lat": 2.5,', tool)
    assert odds(behind, ' "lon": ') > 0.3
    assert odds(behind, ' "lat": ') == 0


def test_a_list_offers_how_its_items_begin_and_its_end():
    names = {"type": "array", "items": {"type": "string"}}
    assert odds(argument(names), '["') > 0.3
    assert odds(argument(names), "[]}}") > 0
    tool = Tool("f", "", {"properties": {"x": names}})
    found = offers('<tool_call>\n{"name": "f", "arguments": {"x": ["eve"', tool)
    assert odds(found, ', "') > 0.2
    assert odds(found, "]}}\n</tool_call>") > 0.2


def test_what_stands_in_a_json_object_is_json_whatever_stands_outside():
    # Qwen3-Coder writes True for an argument, but true inside one.
    tool = Tool("f", "", {"properties": {"x": {"properties": {"on": {"const": True}}}}})
    text = FORMATS["qwen3-coder"].render([Call("f", {"x": {"on": True}})])
    assert odds(offers(text[: text.index("true")], tool, form="qwen3-coder"), "true}") > 0.3


def test_brackets_close_in_order():
    deep = {"properties": {"a": {"type": "array", "items": {"properties": {"b": {"const": 1}}}}}}
    tool = Tool("f", "", {"properties": {"x": deep}})
    found = offers('<tool_call>\n{"name": "f", "arguments": {"x": {"a": [{"b": 1}', tool)
    assert odds(found, "]}}}\n</tool_call>") > 0.2


def test_a_default_is_a_guess():
    assert odds(argument({"type": "integer", "default": 10}, values=8), "10}}") > 0.3
    assert odds(argument({"enum": ["a", "b", "c"], "default": "b"}, values=8), '"b"') > 0.4
    assert odds(argument({"type": "string", "default": 'a "b"'}, values=8), '"a \\"b\\""') > 0.3


@pytest.mark.parametrize("form", ["pythonic", "qwen3-coder", "gemma-4"])
def test_a_default_is_written_as_the_format_writes_it(form):
    tool = Tool("f", "", {"properties": {"x": {"type": "string", "default": "metric"}}})
    text = FORMATS[form].render([Call("f", {"x": "metric"})])
    at = text.index("metric")
    assert odds(offers(text[:at], tool, form=form, values=8), text[at:]) > 0.3


def test_references_and_alternatives_are_followed():
    schema = {
        "$defs": {"color": {"enum": ["red", "blue"]}},
        "properties": {"x": {"$ref": "#/$defs/color"}, "y": {"anyOf": [{"const": 1}, {}]}},
    }
    found = offers('<tool_call>\n{"name": "f", "arguments": {"x": ', Tool("f", "", schema))
    assert odds(found, '"red"') > 0.3
    either = argument({"anyOf": [{"type": "boolean"}, {"type": "null"}]})
    assert min(odds(either, "true"), odds(either, "null")) > 0.02


def test_where_anything_may_stand_every_opening_is_offered():
    found = argument({})
    assert {'"', "{", "["} <= {text[:1] for text in found}


@pytest.mark.parametrize(
    ("form", "begun", "ended"),
    [
        ("glm-4.5", "</arg_key>\n<arg_value>", "</arg_value>\n</tool_call>"),
        ("qwen3-coder", ">\n", "\n</parameter>\n</function>\n</tool_call>"),
        ("seed-oss", ">", "</parameter>\n</function>\n</seed:tool_call>"),
    ],
)
def test_a_mark_ends_a_value_that_needs_no_quotes(form, begun, ended):
    tool = Tool("f", "", {"properties": {"x": {"const": True}, "y": {"type": "object"}}})
    text = FORMATS[form].render([Call("f", {"x": True})])
    before = text[: text.index(begun, text.index("x")) + len(begun)]
    assert odds(offers(before, tool, form=form), FORMATS[form].arguments.values.write(True)) > 0.5
    assert (
        odds(offers(before + "T", tool, form=form), "rue" + ended)
        + odds(offers(before + "t", tool, form=form), "rue" + ended)
        > 0.3
    )
    nested = before.replace("x", "y") + '{"deep": {}'
    assert odds(offers(nested, tool, form=form), "}" + ended) > 0.3
    assert odds(offers(nested + "}", tool, form=form), ended) > 0.5


# Which argument comes next


def test_arguments_come_in_the_order_of_the_schema():
    found = offers(FORECAST)
    assert max(found, key=found.__getitem__).startswith('"city": "')
    found = offers(FORECAST + '"city": "Oslo", ')
    assert max(found, key=found.__getitem__).startswith('"unit": "')


def test_every_argument_not_yet_written_is_offered():
    found = offers(FORECAST + '"unit": "celsius", ')
    for key in ("city", "days", "hourly"):
        assert odds(found, f'"{key}": ') > 0.01
    assert odds(found, '"unit"') == 0


def test_the_end_is_likely_once_everything_required_is_there_and_offered_before():
    behind = "}}\n</tool_call>"
    early = odds(offers(FORECAST + '"city": "Oslo"'), behind)
    late = odds(offers(FORECAST + '"city": "Oslo", "unit": "celsius"'), behind)
    assert 0.005 < early < 0.15 < late


def test_a_tool_without_arguments_is_closed_at_once():
    found = offers('<tool_call>\n{"name": "ping"')
    assert odds(found, ', "arguments": {') > 0.9
    known = Tool("ping", "", {"properties": {}, "additionalProperties": False})
    found = offers('<tool_call>\n{"name": "ping"', known)
    assert odds(found, ', "arguments": {}}\n</tool_call>') > 0.8
    assert odds(offers("<tool_call>ping", known, form="glm-4.5"), "\n</tool_call>") > 0.8


def test_arguments_come_by_the_alphabet_where_the_format_sorts():
    found = offers("<|tool_call>call:get_weather{", form="gemma-4")
    assert max(found, key=found.__getitem__).startswith("city:")
    found = offers('<|tool_call>call:get_weather{city:<|"|>Oslo<|"|>,', form="gemma-4")
    assert odds(found, "days:") > 0.2


def test_an_unknown_argument_is_followed_and_the_known_ones_come_back():
    assert odds(offers(FORECAST + '"planet'), '": ') > 0
    found = offers(FORECAST + '"planet": "mars", ')
    assert odds(found, '"city": "') > 0.3


def test_an_unknown_tool_gets_the_arguments_of_the_one_most_like_it():
    found = offers('<tool_call>\n{"name": "weather_forecast", "arguments": {')
    assert odds(found, '"city": "') > 0.3
    found = offers('<tool_call>\n{"name": "xyz", "arguments": {"a": 1, "b": "2"')
    assert odds(found, "}}\n</tool_call>") > 0.1


# Around calls


def test_an_output_begins_with_a_call():
    found = offers("", said="What is the weather in Oslo?")
    assert odds(found, '<tool_call>\n{"name": "') > 0.8
    assert odds(found, '<tool_call>\n{"name": "get_weather", "arguments": {') > 0.4
    assert odds(found, '<tool_call>\n{"name": "ping", "arguments": {') > 0


def test_what_the_conversation_mentions_is_the_likeliest_tool():
    found = offers('<tool_call>\n{"name": "', said="Please book a table for two.")
    assert odds(found, "book_table") > odds(found, "get_weather")


def test_a_begun_name_leaves_the_tools_that_fit():
    found = offers('<tool_call>\n{"name": "get_', *TOOLS, Tool("get_time"))
    assert odds(found, "weather") > 0.1
    assert odds(found, "time") > 0.1
    assert odds(found, "ing") == 0


def test_the_likeliest_of_many_tools_are_offered():
    one_key = {"properties": {"x": {"type": "string"}, "y": {}}}
    tools = [Tool(f"tool_{i}", "", one_key) for i in range(300)]
    tools.append(Tool("send_invoice", "", one_key))
    machine = SchemaMachine(values=0)
    found = offers("", *tools, machine=machine, said=f"An invoice. {'So be it. ' * 80}")
    assert odds(found, '<tool_call>\n{"name": "send_invoice"') > 0


def test_the_second_call_gets_its_name():
    text = FORMATS["hermes"].render([Call("ping", {})])
    found = offers(text)
    assert odds(found, '\n<tool_call>\n{"name": "get_weather", "arguments": {') > 0
    found = offers(text + '\n<tool_call>\n{"name": "')
    assert odds(found, 'get_weather", "arguments": {') > 0.1


def test_a_second_call_may_come_behind_more_text():
    text = FORMATS["hermes"].render([Call("ping", {})]) + "\nNow the weather.\n"
    assert offers(text) == {}
    assert odds(offers(text + "<tool"), '_call>\n{"name": "get_weather') > 0.1
    assert odds(offers(text + '<tool_call>\n{"name": "'), "get_weather") > 0.1


def test_a_new_line_of_text_may_begin_a_call():
    for text in ("Let me look.\n", "<think>\nThe user wants rain.\n</think>\n\n"):
        assert odds(offers(text * 4), '<tool_call>\n{"name": "') > 0.2
    assert offers("Let me look at this in some detail, and then at that." * 2) == {}
    assert odds(offers("Let me see. <tool_"), 'call>\n{"name": "get_weather') > 0.1


def test_a_short_word_before_the_first_call_is_no_obstacle():
    assert odds(offers("Sure!\n"), '<tool_call>\n{"name": "') > 0.2
    assert odds(offers("Sure!\n\n<tool"), '_call>\n{"name": "') > 0.2


def test_what_stands_before_the_first_call_becomes_a_habit():
    machine = SchemaMachine(least=0.0)
    call = FORMATS["hermes"].render([Call("ping", {})])
    for _ in range(3):
        wrote(machine, request(), "```xml\n", call, "\n```")
    assert odds(offers("", machine=machine), "```xml\n<tool_call>\n") > 0.3


def test_an_output_that_is_no_call_becomes_a_habit():
    machine = SchemaMachine()
    fresh = odds(offers("", machine=machine), "<tool_call>")
    for _ in range(12):
        wrote(machine, request(), "It is raining.", " Take a coat.")
    assert odds(offers("", machine=machine), "<tool_call>") < fresh / 2


def test_a_missing_end_is_no_obstacle():
    text = '<tool_call>\n{"name": "ping", "arguments": {}}'
    assert odds(offers(text), "\n</tool_call>") > 0.5
    lost = text + "\n\nOops, once more:\n" * 3 + '<tool_call>\n{"name": "get_weather", "argu'
    assert odds(offers(lost), 'ments": {"city": "') > 0.5


@pytest.mark.parametrize("noise", ["}]) é?!", "{" * 60, '"\n\n', "</tool_call></tool_call>"])
def test_after_other_text_the_next_call_is_helped_again(noise):
    assert odds(offers(noise + "\n" + FORECAST), '"city": "') > 0.3


def test_other_white_space_is_followed():
    tight = '<tool_call>{"name":"get_weather","arguments":{"city":"Oslo",'
    assert odds(offers(tight), ' "unit": "') + odds(offers(tight + "\n"), '"unit": "') > 1.0
    wide = '<tool_call>\n{\n  "name": "get_weather",\n  "arguments": {\n    '
    assert odds(offers(wide), '"city": "') > 0.3


# Name first, or arguments first


def test_arguments_may_come_before_the_name():
    form = "hermes-arguments-first"
    begun = '<tool_call>\n{"arguments": {'
    assert odds(offers("", form=form), begun) > 0.5
    found = offers(begun + '"city": "Oslo", ', form=form)
    assert odds(found, '"unit": "') > 0.5, "the argument tells the tool"
    found = offers(begun + '"city": "Oslo", "unit": "celsius"}', form=form)
    assert odds(found, ', "name": "get_weather"}\n</tool_call>') > 0.5


@pytest.mark.parametrize(
    ("known", "used"),
    [("hermes", "hermes-arguments-first"), ("hermes-arguments-first", "hermes")],
)
def test_the_order_that_the_model_chooses_is_followed_and_learned(known, used):
    text = FORMATS[used].render([Call("get_weather", {"city": "Oslo", "unit": "celsius"})])
    behind = text.index('"city"')
    assert odds(offers(text[:behind], form=known), '"city": "') > 0.2
    end = text.index("celsius") + len('celsius"')
    assert odds(offers(text[:end], form=known), text[end:]) > 0.1
    machine = SchemaMachine(least=0.0)
    wrote(machine, request(form=known), text)
    assert odds(offers("", machine=machine, form=known), text[:behind]) > 0.3


# Every format of the catalogue


def agreed(offered, text):
    """How many characters of an offer are those of `text`."""
    pairs = zip(offered, text, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def uncovered(form, calls, tools):
    """The characters of the calls' text that no offer begins with, in one text."""
    machine = SchemaMachine(values=0, most=64, least=0.0)
    text, missed, at = form.render(calls), "", 0
    state = machine.start(request(*tools, form=form.name))
    while at < len(text):
        right = max((agreed(o.text, text[at:]) for o in machine.continuations(state)), default=0)
        missed += "" if right else text[at]
        state, at = machine.advance(state, text[at : at + max(right, 1)]), at + max(right, 1)
    return missed


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_every_piece_of_a_call_that_no_value_needs_is_offered(form):
    tools = (
        Tool("turn_on", "", {"properties": {"lamp": {"enum": ["hall", "desk"]}, "dim": {}}}),
        Tool(
            "plan",
            "",
            {
                "properties": {
                    "fast": {"type": "boolean"},
                    "at": {"type": "object", "properties": {"far": {"const": True}}},
                    "stops": {"type": "array", "items": {"enum": ["rome", "oslo"]}},
                    "back": {"const": None},
                }
            },
        ),
        Tool("ping", "", {"properties": {}, "additionalProperties": False}),
    )
    calls = [
        Call("turn_on", {"lamp": "desk"}),
        Call("ping", {}),
        Call("plan", {"fast": False, "at": {"far": True}, "stops": ["oslo", "rome"], "back": None}),
        Call("plan", {"stops": [], "at": {}}),
        Call("turn_on", {"lamp": "hall"}),
    ]
    for some in [calls] if form.several else [[call] for call in calls]:
        assert uncovered(form, some, tools) == ""


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_only_free_values_and_their_ends_are_left_to_others(form):
    arguments = form.arguments
    ends = set(arguments.value_close + arguments.values.write("")[1:] + "\"',")
    for call in (
        Call("get_weather", {"city": "Zug", "unit": "celsius", "days": 3, "hourly": True}),
        Call("book_table", {"where": {"name": "Zug"}, "guests": ["Zug", "Zug"]}),
    ):
        missed = uncovered(form, [call], TOOLS)
        assert "Zug" in missed
        assert set(missed) <= {*"Zug3", *ends}, missed


# A format that nobody told


def test_the_format_is_learned_from_the_first_call():
    calls = [Call("get_weather", {"city": "Oslo", "unit": "celsius"}), Call("ping", {})]
    for name in ("mistral-v13", "qwen3-coder", "pythonic", "kimi-k2", "deepseek-v3"):
        form = FORMATS[name]
        first, both = form.render(calls[:1]), form.render(calls)
        assert offers("", form=None) == {}
        machine = SchemaMachine(values=0, least=0.0)
        begun = both[: both.index("ping") + 1]
        assert odds(offers(begun, machine=machine, form=None), "ing") > 0.1, name
        wrote(machine, request(form=None), first)
        opened = first[: first.index("get_weather")]
        assert odds(offers("", machine=machine, form=None), opened) > 0.5, name


def test_the_format_is_read_off_the_prompt():
    example = FORMATS["mistral-v13"].render([Call("ping", {})])
    found = offers("", form=None, said=f"You may call tools, as in {example}")
    assert odds(found, "[TOOL_CALLS]get_weather[ARGS]{") > 0


def test_a_message_in_parts_shows_a_format_too():
    shown = [{"type": "text", "text": "Call as in"}]
    shown.append({"type": "text", "text": FORMATS["granite-3"].render([Call("ping", {"a": 1})])})
    asked = Request((1,), 9, tools=TOOLS, messages=({"role": "user", "content": shown},))
    machine = SchemaMachine()
    texts = [offer.text for offer in machine.continuations(machine.start(asked))]
    assert any(text.startswith("<|tool_call|>[\n    {\n") for text in texts)


def test_more_formats_can_be_named():
    machine = SchemaMachine(formats=("functionary-v3.1",))
    assert odds(offers("", machine=machine, form=None), "<function=get_weather>{") > 0.1
    with pytest.raises(ValueError, match=r"no call format named 'hermse'; known are: .*hermes"):
        SchemaMachine(formats=("hermse",))


def test_tools_are_read_off_the_prompt_where_none_are_given():
    machine = SchemaMachine()
    listed = json.dumps([tool.to_openai() for tool in TOOLS])
    asked = Request((1,), 9, messages=({"role": "system", "content": listed},))
    state = machine.advance(machine.start(asked), '<tool_call>\n{"name": "get_')
    assert list(machine.continuations(state)) == [], "no format is known"
    machine = SchemaMachine(formats=("hermes",))
    state = machine.advance(machine.start(asked), '<tool_call>\n{"name": "get_')
    assert any(offer.text.startswith("weather") for offer in machine.continuations(state))


@pytest.mark.parametrize(
    ("name", "spaced"),
    [("compact", (",", ":")), ("usual", (", ", ": "))],
)
def test_white_space_is_learned(name, spaced):
    body = {"name": "get_weather", "arguments": {"city": "Oslo", "unit": "celsius"}}
    text = f"<tool_call>\n{json.dumps(body, separators=spaced)}\n</tool_call>"
    machine = SchemaMachine(values=0, least=0.0)
    wrote(machine, request(), text)
    opened = text[: text.index('"city"')]
    assert odds(offers("", machine=machine), opened) > 0.3
    behind = text[: text.index("celsius") - 1]
    behind, key = behind[: behind.index('"unit"') - len(spaced[0])], f'{spaced[0]}"unit"{spaced[1]}'
    assert odds(offers(behind, machine=machine), key) > 0.5


def test_indented_arguments_are_learned():
    body = json.dumps({"city": "Oslo", "unit": "celsius"}, indent=2)
    text = f'<tool_call>\n{{"name": "get_weather", "arguments": {body}}}\n</tool_call>'
    machine = SchemaMachine(values=0, least=0.0)
    wrote(machine, request(), text)
    assert odds(offers(FORECAST, machine=machine), '\n  "city": "') > 0.5
    assert odds(offers(FORECAST + '\n  "city": "Oslo"', machine=machine), ',\n  "unit": "') > 0.5


# Habits


def taught(tenant, times=4, **options):
    """A machine for which a tenant's model always writes the same odd call."""
    machine = SchemaMachine(**options)
    odd = Call("get_weather", {"days": 3, "city": "Ulan Bator"})
    for _ in range(times):
        wrote(machine, request(tenant=tenant), FORMATS["hermes"].render([odd]))
    return machine


def test_names_order_and_values_become_habits():
    machine = taught("a", times=6, least=0.0)
    found = offers(FORECAST, machine=machine, tenant="a")
    assert odds(found, '"days": ') > odds(found, '"city": ')
    assert odds(found, '"days": 3, "city": "') > 0.1
    found = offers(FORECAST + '"days": 3, "city": ', machine=machine, tenant="a")
    assert odds(found, '"Ulan Bator"}}\n</tool_call>') > 0.3
    assert odds(offers("", machine=machine, tenant="a"), FORECAST) > 0.4


def test_what_is_learned_counts_in_the_same_request():
    machine = SchemaMachine(values=0, least=0.0)
    start = machine.start(request())
    state = machine.advance(start, FORECAST)
    fresh = {offer.text: offer.score for offer in machine.continuations(state)}
    assert odds(fresh, '"city"') > odds(fresh, '"days"')
    text = FORMATS["hermes"].render([Call("get_weather", {"days": 3, "city": "Oslo"})])
    for _ in range(6):
        machine.learn(start, text, machine.advance(start, text))
    taught = {offer.text: offer.score for offer in machine.continuations(state)}
    assert odds(taught, '"days"') > odds(taught, '"city"')


@pytest.mark.parametrize("form", ["pythonic", "qwen3-coder", "glm-4.7"])
def test_choices_become_habits_however_they_are_written(form):
    machine = SchemaMachine(least=0.0)
    text = FORMATS[form].render([Call("get_weather", {"unit": "fahrenheit"})])
    wrote(machine, request(form=form), text)
    at = text.index("fahrenheit")
    found = offers(text[:at], machine=machine, form=form)
    assert odds(found, "fahrenheit") > 2 * odds(found, "celsius")


def test_no_habit_crosses_tenants():
    machine = taught("a")
    for text in ("", FORECAST, FORECAST + '"city": ', FORECAST + '"days": 3, '):
        fresh = offers(text, machine=SchemaMachine(), tenant="b")
        assert offers(text, machine=machine, tenant="b") == pytest.approx(fresh)
        assert offers(text, machine=machine, tenant="a") != fresh


def test_learning_never_affects_where_a_text_leads():
    for text in ("", FORECAST, FORECAST + '"city": "Oslo"}}', "[get_weather(city='x')]", "No.\n"):
        machine, fresh = taught(""), SchemaMachine()
        start, untaught = machine.start(request()), fresh.start(request())
        before = machine.advance(start, text)
        machine.learn(start, text, before)
        assert machine.advance(start, text) == before == fresh.advance(untaught, text)


def test_habits_are_saved_and_restored_by_tenant():
    machine, other = taught("a"), SchemaMachine()
    other.restore(json.loads(json.dumps(machine.state())))
    for tenant in ("a", "b"):
        for text in ("", FORECAST, FORECAST + '"days": 3, '):
            kept = offers(text, machine=other, tenant=tenant)
            assert kept == pytest.approx(offers(text, machine=machine, tenant=tenant))
    assert json.dumps(other.state()) == json.dumps(machine.state())


def test_restoring_forgets_what_was_there():
    machine = taught("a")
    machine.restore(SchemaMachine().state())
    assert offers(FORECAST, machine=machine, tenant="a") == pytest.approx(
        offers(FORECAST, machine=SchemaMachine())
    )


def test_habits_are_bounded():
    machine = SchemaMachine()
    for i in range(10_000):
        call = Call(f"made_up_{i}", {f"key_{i}": "x" * 300, "n": i})
        wrote(machine, request(), FORMATS["hermes"].render([call]))
        if i == 5_000:
            half = len(json.dumps(machine.state()))
    assert len(json.dumps(machine.state())) < 1.2 * half
    assert odds(offers(FORECAST, machine=machine), '"city": "') > 0.3


def test_a_new_habit_takes_the_place_of_an_old_one():
    machine = taught("", times=6, values=0)
    usual = FORMATS["hermes"].render([Call("get_weather", {"unit": "celsius", "city": "Oslo"})])
    for _ in range(12):
        wrote(machine, request(), usual)
    found = offers(FORECAST, machine=machine)
    assert odds(found, '"unit"') > odds(found, '"days"')


# Values


def test_without_guesses_nothing_is_offered_inside_a_free_value():
    for text in (
        FORECAST + '"city": "',
        FORECAST + '"city": "Oslo',
        FORECAST + '"city": "Oslo", "days": 1',
        '<tool_call>\n{"name": "book_table", "arguments": {"where": {"name": "Os',
    ):
        assert offers(text, said="It rains in Oslo.", machine=SchemaMachine(values=0)) == {}


def test_the_conversation_gives_guesses():
    said = "It rains in Ulan Bator, says bob@example.com; his {'token': 'abc-9x'} is valid."
    tool = Tool("f", "", {"properties": {k: {"type": "string"} for k in ("token", "mail", "x")}})
    begun = '<tool_call>\n{"name": "f", "arguments": {'
    for key, value in (("token", "abc-9x"), ("mail", "bob@example.com"), ("x", "Ulan Bator")):
        found = offers(f'{begun}"{key}": "', tool, values=8, said=said)
        assert odds(found, value + '"') > 0.1, key


def test_what_is_written_of_a_value_picks_the_guesses():
    said = "From Oslo to Ostrava."
    found = offers(FORECAST + '"city": "Os', values=8, said=said)
    assert min(odds(found, "lo"), odds(found, "trava")) > 0.02
    found = offers(FORECAST + '"city": "Ost', values=8, said=said)
    assert odds(found, "rava") > 0.3


def test_the_words_of_the_conversation_go_on_inside_a_value():
    said = "Remind me to water the plants in the hall, please."
    found = offers(FORECAST + '"city": "water', values=8, said=said)
    assert odds(found, " the plants") > 0.1


def test_a_value_that_nobody_guessed_may_end():
    found = offers(FORECAST + '"city": "Xanadu', values=8)
    assert 0.3 < odds(found, '", "unit": "') < 0.5, "it may as well go on"
    assert odds(offers(FORECAST + '"city": "Xan\\', values=8), '"') == 0, "an escape"


def test_where_a_value_ends_its_last_character_tells_when_nothing_else_does():
    written = ("Xanadu (old)", "Xanadu", "Xanadu 7", "Xanadu -")
    ends = [odds(offers(FORECAST + f'"city": "{text}', values=8), '"') for text in written]
    assert ends == sorted(ends, reverse=True)
    assert ends[0] > 0.8
    assert ends[2] < 0.25
    assert ends[3] < 0.05


def test_earlier_values_are_guesses():
    machine = SchemaMachine(least=0.0)
    city = Call("get_weather", {"city": "Xanadu", "unit": "celsius"})
    wrote(machine, request(), FORMATS["hermes"].render([city]))
    assert odds(offers(FORECAST + '"city": ', machine=machine), '"Xanadu", "unit": "') > 0.3


def test_values_are_guessed_where_strings_have_no_quotes():
    form = FORMATS["qwen3-coder"]
    text = form.render([Call("get_weather", {"city": "Oslo"})])
    begun = text[: text.index("Oslo")]
    found = offers(begun, form="qwen3-coder", values=8, said="The weather in Ulan Bator?")
    assert odds(found, "Ulan Bator\n</parameter>\n") > 0.1


# Options


@pytest.mark.parametrize("most", [1, 3, 17])
def test_no_more_texts_are_offered_than_asked_for(most):
    assert len(offers("", machine=SchemaMachine(most=most))) == most


def test_what_is_unlikely_is_kept_back():
    text = "A call may begin on a new line of a text, but most lines do not begin one.\n"
    assert offers(text, machine=SchemaMachine(values=0, least=0.1)) != {}
    assert offers(text, machine=SchemaMachine(values=0, least=0.6)) == {}


@pytest.mark.parametrize("options", [{"values": -1}, {"most": 0}, {"least": 1.0}, {"least": -0.1}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        SchemaMachine(**options)


def test_without_tools_nothing_is_offered():
    machine = SchemaMachine(formats=("hermes",))
    state = machine.start(Request((1,), 9, codec=CharCodec()))
    assert list(machine.continuations(machine.advance(state, "<tool_call>\n"))) == []
