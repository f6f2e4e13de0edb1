"""The parts of the schema machine: alignment, dates, nesting, habits, tools, guesses, spelling."""

import json
import threading
import time

import pytest
from specdec_toolspec.schema.align import WILD, align, wild
from specdec_toolspec.schema.context import Context
from specdec_toolspec.schema.dates import normalised
from specdec_toolspec.schema.guesses import Guesses
from specdec_toolspec.schema.habits import CHOICES, PLACES, Counts, Habits
from specdec_toolspec.schema.nested import open_frames
from specdec_toolspec.schema.order import as_written, other_order
from specdec_toolspec.schema.record import format_from, format_to
from specdec_toolspec.schema.spelling import spelling
from specdec_toolspec.schema.toolset import Toolset, Toolsets, words
from specdec_toolspec.schema.values import overlap

from specdec import Request, Tool
from specdec.calls import FORMATS, FREE, Call, Cursor, Slot, compile_schema

# align


@pytest.mark.parametrize(
    ("literal", "written", "left"),
    [
        ('", "b": ', "", ('", "b": ', "")),
        ('", "b": ', '", ', ('"b": ', "")),
        ("ab", "abcd", ("", "cd")),
        ("ab", "b", None),
        ('{"a": ', '{ "a" :', (" ", "")),
        (', "a": ', ',\n  "a', ('": ', "")),
        ('{"a": 1}', '{"a":1}', ("", "")),
        ("}\n</call>", "} ", ("</call>", "")),
        ("[1, 2]", "[1,", (" 2]", "")),
    ],
)
def test_white_space_is_free_between_marks(literal, written, left):
    assert align(literal, written) == left


def test_white_space_counts_where_it_must():
    assert align("a b", "a  b", exact=True) is None
    assert align("a b", "a ", exact=True) == ("b", "")


def test_a_wild_part_is_any_text_up_to_what_stands_behind_it():
    literal = wild("[ID]{id}[ARGS]{")
    assert literal == f"[ID]{WILD}[ARGS]{{"
    assert align(literal, "[ID]") == (f"{WILD}[ARGS]{{", "")
    assert align(literal, "[ID]abc") is None, "nobody knows where it ends"
    assert align(literal, "[ID]abc[ARGS") == ("]{", "")


def test_the_end_of_a_text_may_be_the_beginning_of_a_mark():
    assert overlap("Oslo</par", "</parameter>\n") == 5
    assert overlap("Oslo", "</parameter>\n") == 0
    assert overlap("Oslo</parameter>\n", "</parameter>\n") == 0, "all of it is no beginning"


# dates


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("on March 20, 2023", "2023-03-20"),
        ("on 3rd of May 2024", "2024-05-03"),
        ("in 2025, on dec. 1st", "2025-12-01"),
        ("at 6:30 pm", "18:30:00"),
        ("at 12 a.m.", "00:00"),
        ("at 09:05", "09:05:00"),
        ("on 2024-02-03 at 5pm", "2024-02-03 17:00:00"),
        ("May 3, 2024, 14:00", "2024-05-03 14:00"),
    ],
)
def test_dates_and_times_are_written_as_calls_write_them(said, written):
    assert written in {text for text, _, _ in normalised(said)}


@pytest.mark.parametrize("said", ["", "the 45 May 2024", "at 25:99", "13pm", "maybe 7", "1 May"])
def test_what_is_no_date_gives_none(said):
    assert list(normalised(said)) == []


def test_only_the_last_dates_are_combined():
    said = " ".join(f"{day} May 2024 at {day % 24}:15" for day in range(1, 29))
    assert len(list(normalised(said * 100))) < 100


# nested


def frames(schema, written, quote='"'):
    """Keys, and the property or item that comes next, of every open container."""
    found = open_frames(compile_schema(schema), written, quote)
    assert found is not None
    return [(frame.keys, frame.list) for frame in found[0]], found[1]


DEEP = {"properties": {"a": {"type": "array", "items": {"properties": {"b": {"const": 1}}}}}}


def test_open_containers_are_told_from_a_values_text():
    assert frames(DEEP, "{") == ([((), False)], "")
    assert frames(DEEP, '{"x": 1, ') == ([(("x",), False)], ", ")
    assert frames(DEEP, '{"x": [1, "2", {"y": ') == (
        [((), False), (("", ""), True), ((), False)],
        '"y": ',
    )
    assert frames(DEEP, '{"x": "},{", "y') == ([(("x",), False)], ', "y')
    assert frames(DEEP, "{x:<|>a,b<|>,y", "<|>") == ([(("x",), False)], ",y")
    assert frames(DEEP, "{'it\\'s': [], 'y") == ([(("it\\'s",), False)], ", 'y")


def test_slots_follow_the_containers():
    found = open_frames(compile_schema(DEEP), '{"a": [{', '"')
    assert found is not None
    assert [item.name for item in found[0][-1].slot.properties] == ["b"]


def test_a_value_that_is_complete_has_no_open_container():
    assert open_frames(FREE, '{"a": [1]}', '"') == ((), "")
    assert open_frames(FREE, "[]\n</par", '"') == ((), "\n</par")


@pytest.mark.parametrize("written", ["[" * 40, "{" * 17, '{"a": "' + "x" * 5000])
def test_what_is_too_deep_or_long_is_not_followed(written):
    assert open_frames(FREE, written, '"') is None


@pytest.mark.parametrize("written", ["{]", "[}", '{"a": }', "{,,,", "[\\", '{"a" "b"', "{:", "[:="])
def test_broken_values_are_followed_somehow(written):
    open_frames(FREE, written, '"')


# order


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_name_and_arguments_change_places_in_an_object(form):
    other = other_order(form)
    if form.envelope == "text" or not form.name_key:
        assert other is None
        return
    call = Call("f", {"a": "x"})
    text = other.render([call])
    assert other_order(other) == form
    assert form.parse(text) == [call] == other.parse(form.render([call]))
    assert (text.index('"a"') < text.index('"f"')) == form.name_first


def test_the_order_shows_once_name_or_arguments_are_there():
    form, other = FORMATS["hermes"], other_order(FORMATS["hermes"])
    text = other.render([Call("f", {"a": "x"})])
    cursor = Cursor(form)
    orders = [
        as_written(form, cursor.advance(cursor.start(), text[:at])).name_first
        for at in range(len(text) - len("\n</tool_call>"))
    ]
    begun = text.index('{"a"') + 1
    assert orders == [True] * begun + [False] * (len(orders) - begun)


# habits


def test_counts_tell_what_was_chosen_and_forget_slowly():
    counts = Counts()
    for choice in "aab":
        counts.add("place", choice)
    made = counts.of("place")
    assert made["a"] > made["b"] == 1.0
    assert counts.of("elsewhere") == {}
    for _ in range(5):
        counts.add("place", "b")
    assert counts.of("place")["b"] > counts.of("place")["a"]


def test_counts_are_bounded_and_the_latest_stays():
    counts = Counts()
    for i in range(PLACES + 10):
        counts.add(i, "x")
    assert not counts.of(9)
    assert counts.of(10)
    for i in range(100):
        counts.add("one", i)
    assert len(counts.of("one")) == CHOICES
    assert 99 in counts.of("one")


def test_counts_round_trip_through_json():
    counts, again = Counts(), Counts()
    counts.add(("tool", "key"), None)
    counts.add("", True)
    again.restore(json.loads(json.dumps(counts.state())))
    assert again.of(("tool", "key")) == {None: 1.0}
    assert again.of("") == {True: 1.0}


def ended(text, form):
    cursor = Cursor(form)
    return cursor.follow(cursor.start(), text)[1]


def test_habits_can_be_read_while_they_are_learned():
    habits, form = Habits(), FORMATS["hermes"]
    call = ended(form.render([Call("f", {"a": 1, "b": 2})]), form)[0]
    broken = []

    def learn():
        for i in range(300):
            habits.learn_call(call, "g", FREE)
            habits.learn_style(FORMATS["hermes" if i % 2 else "llama-3"], form)

    def read():
        try:
            for _ in range(300):
                json.dumps(habits.state())
                list(habits.names.of("").items())
                assert habits.formats is not None
        except RuntimeError as error:  # changed while it was read
            broken.append(error)

    threads = [threading.Thread(target=work) for work in (learn, read, learn, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not broken


def test_whatever_is_learned_makes_habits_older():
    habits, form = Habits(), FORMATS["hermes"]
    ages = [habits.age]
    for learn in (
        lambda: habits.learn_start(None),
        lambda: habits.learn_style(form, form),
        lambda: habits.learn_call(ended(form.render([Call("f", {})]), form)[0], "", FREE),
        lambda: habits.learn_end(),
        lambda: habits.restore(Habits().state()),
    ):
        learn()
        ages.append(habits.age)
    assert ages == sorted(set(ages))


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_formats_are_saved_as_plain_values(form):
    assert format_from(json.loads(json.dumps(format_to(form)))) == form


# toolset

TOOLS = (
    Tool("send_invoice", "Send an invoice.", {"properties": {"amount": {}}}),
    Tool("getUserProfile", "", {"properties": {"userID": {}, "HTTPCode": {}}}),
    Tool("ping"),
)


def test_words_of_names_and_texts_lose_case_and_endings():
    assert words("sendInvoices_toHTTPServer 42") == {"send", "invoic", "http", "server", "42"}
    assert words("The users are booking") == words("user booked") == {"book"}
    assert words("") == words("größe"[:0]) == set()


def test_a_made_up_name_gets_the_slot_of_the_nearest_tool():
    toolset = Toolset(TOOLS)
    assert toolset.slot("invoice_sender") == toolset.slot("send_invoice")
    assert toolset.slot("xyz") == toolset.slot(None) == FREE


def test_made_up_names_are_not_kept_without_bound():
    toolset = Toolset(TOOLS)
    for i in range(5_000):
        assert toolset.slot(f"send_invoice_{i}") == toolset.slot("send_invoice")


def test_words_that_few_tools_share_point_to_a_tool():
    odds = Toolset(TOOLS).mentions("hello", "what is the amount of the invoice?")
    assert odds["send_invoice"] > odds["ping"] == 0.0
    assert set(odds) == {tool.name for tool in TOOLS}


def test_a_tool_that_was_called_is_less_likely_the_next():
    toolset = Toolset(TOOLS)
    asked = "send the invoice"
    called = asked + ' {"name": "send_invoice"}'
    assert (
        toolset.mentions(called, asked)["send_invoice"]
        < (toolset.mentions(asked, asked)["send_invoice"])
    )


def test_equal_tools_are_compiled_once():
    toolsets = Toolsets()
    first = toolsets.of(TOOLS)
    assert toolsets.of(tuple(Tool(t.name, t.description, dict(t.parameters)) for t in TOOLS)) is (
        first
    )
    assert toolsets.of(TOOLS[:2]) is not first
    for i in range(100):
        toolsets.of((Tool(f"t{i}"),))
    assert toolsets.of(TOOLS) is not first, "only the latest are kept"


def test_tools_that_json_cannot_say_have_a_toolset():
    loop = {"type": "object"}
    loop["properties"] = loop
    assert len(Toolsets().of((Tool("f", "", loop), Tool("g", "", {"enum": {1}})))) == 2


# context and guesses


def context(*messages, tools=TOOLS, habits=None):
    request = Request((1,), 9, messages=messages)
    return Context(request, Toolset(tools), habits or Habits(), values=8)


def test_the_conversation_is_what_was_said_but_for_the_system():
    said = context(
        {"role": "system", "content": "secret"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "one"}, {"type": "image_url"}, "two"],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"id": "three"}]},
    )
    assert "secret" not in said.conversation
    assert all(word in said.conversation for word in ("one", "two", "three"))
    assert said.asked == "one\ntwo"


def test_names_are_a_distribution_with_the_likeliest_first():
    names = context({"role": "user", "content": "an invoice"}).names("", "")
    assert next(iter(names)) == "send_invoice"
    assert list(names.values()) == sorted(names.values(), reverse=True)
    assert sum(names.values()) == pytest.approx(1.0, abs=0.1)


def test_a_call_seen_before_makes_its_tool_likelier():
    habits, form = Habits(), FORMATS["hermes"]
    for _ in range(3):
        habits.learn_call(ended(form.render([Call("ping", {})]), form)[0], "", FREE)
    assert context(habits=habits).names("", "")["ping"] > context().names("", "")["ping"]


TEXT = Slot(("string",))


def guesses(said, key, written="", *, slot=TEXT, quote='"', most=8):
    return Guesses(said, Habits(), most).of(slot, "f", key, quote, written, None)


def test_what_the_conversation_calls_by_the_arguments_name_comes_first():
    for said in ("{'token': 'abc'} and 'xyz'", 'token = "abc"; "xyz"', "the token is abc. Hello"):
        assert next(iter(guesses(said, "token"))) == "abc", said


def test_the_look_of_a_value_counts():
    said = "Ann Lee, ann@lee.org, 2024-05-01"
    assert next(iter(guesses(said, "email"))) == "ann@lee.org"
    found = guesses(said, "date")
    assert found["2024-05-01"] > found["Ann Lee"]


def test_only_numbers_are_guessed_for_a_number():
    found = guesses("Room 12 for Ann, 3.5 hours", "x", slot=Slot(("number",)), quote="")
    assert set(found) == {"12", "3.5"}


def test_guesses_are_few_odds_and_begin_with_what_is_written():
    said = " ".join(f"City{i}" for i in range(500))
    for written in ("", "City", "City49"):
        found = guesses(said, "x", written, most=5)
        assert 0 < len(found) <= 5
        assert 0 < sum(found.values()) <= 1
        assert all(text.startswith(written) and text != written for text in found)


def test_guesses_are_escaped_as_the_value_is_quoted():
    assert 'say \\"hi\\"' in guesses("say: 'say \"hi\"'", "say")
    assert "it's" in guesses('name: "it\'s"', "name", quote="")
    assert "it\\'s" in guesses('name: "it\'s"', "name", quote="'")


def test_a_value_does_not_end_inside_an_escape():
    end = Guesses("", Habits(), 8).end
    assert end('"', "ab\\", {}) == 0.0
    assert end('"', "ab", {}) > 0.0
    assert end("", "", {}) == 0.0, "a word has at least a character"


@pytest.mark.parametrize("said", ["a" * 50_000, "A " * 20_000, "\"'" * 20_000, "1.-@" * 10_000])
def test_guesses_take_little_time_on_odd_conversations(said):
    begun = time.perf_counter()
    guesses(said[-12_000:], "x_y", said[-3:])
    assert time.perf_counter() - begun < 0.5


# spelling


def test_spelling_is_kept_by_format_and_bounded():
    form = FORMATS["hermes"]
    assert spelling(form) is spelling(FORMATS["hermes"])
    for i in range(20_000):
        assert spelling(form).keys[False, f"k{i}", "string"] == f'"k{i}": '
    assert len(spelling(form).keys) < 20_000


def test_names_keys_and_values_are_written_as_the_format_writes_them():
    hermes, qwen = spelling(FORMATS["hermes"]), spelling(FORMATS["qwen3-coder"])
    kimi, gemma = spelling(FORMATS["kimi-k3"]), spelling(FORMATS["gemma-4"])
    assert hermes.names['a"b'] == 'a\\"b'
    assert hermes.keys[False, 'a"b', "string"] == '"a\\"b": '
    assert qwen.keys[False, "a", "string"] == "<parameter=a>\n"
    assert qwen.keys[True, "a", "string"] == '"a": '
    assert kimi.keys[False, "a", "integer"] == '<|open|>argument key="a" type="number"<|sep|>'
    assert (qwen.values[False, "true"], qwen.values[True, "true"]) == ("True", "true")
    assert (qwen.values[False, '"a"'], qwen.values[True, '"a"']) == ("a", '"a"')
    assert gemma.values[True, '"a"'] == '<|"|>a<|"|>'
