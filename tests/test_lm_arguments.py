"""Arguments as JSON while they are written: always a beginning of what they turn out to be."""

import json
import random

import pytest
from spoken import CALLS, TOOLS, PieceCodec, collected, cut

from specdec import Request, Result
from specdec.calls import FORMATS, CallFormat, compile_tool
from specdec.lm.arguments import ArgumentWriter, to_json
from specdec.lm.openai import chunks
from specdec.lm.prefix import JsonPrefix
from specdec.lm.reply import Done
from specdec.lm.transcript import Reading, Transcript

SLOT = compile_tool(TOOLS[0])

VALUES = (
    "12",
    "-0.5e+3",
    "true",
    "null",
    '""',
    '"a\\"b\\\\\\u00e9é \\n"',
    "[]",
    "{}",
    '[1, "a", [true, {}], null]',
    ' { "a" : [ 1 , 2 ] , "b":{"c":"d"} }',
)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_handed_out_as_it_is_written_and_can_always_be_closed(value):
    prefix, out = JsonPrefix(), ""
    for character in value:
        out += prefix.push(character)
        if out:
            json.loads(out + prefix.closer)
    out += prefix.finish()
    assert out == value
    assert prefix.complete


@pytest.mark.parametrize(
    ("value", "certain"),
    [
        ("'a'", ""),
        ("True", ""),
        ("01", ""),
        ("[1, 2,]", "[1, 2"),
        ("{'a': 1}", "{"),
        ('{"a" 1}', "{"),
        ('"a\\x41"', '"a'),
        ('"a\nb"', '"a'),
        ('["a"}', '["a"'),
        ("1 2", "1"),
    ],
)
def test_nothing_is_handed_out_of_what_is_no_json(value, certain):
    prefix = JsonPrefix()
    assert "".join(map(prefix.push, value)) + prefix.finish() == certain
    assert not prefix.complete


def written(form, deltas, arguments, slot=SLOT):
    writer = ArgumentWriter(form, slot)
    parts = [writer.push(key, text) for key, text in deltas]
    return [*parts, writer.finish(arguments)]


def test_json_strings_come_as_they_are_written():
    parts = written(FORMATS["hermes"], [("path", '"a'), ("path", 'b"')], {"path": "ab"})
    assert parts == ['{"path": "a', 'b"', "}"]


def test_raw_strings_come_at_once_where_the_schema_allows_strings_alone():
    deltas = [("path", 'a"'), ("path", "b"), ("mode", "3")]
    parts = written(FORMATS["qwen3-coder"], deltas, {"path": 'a"b', "mode": 3})
    assert parts == ['{"path": "a\\"', "b", '"', ', "mode": 3}']


def test_python_values_come_when_they_are_complete():
    deltas = [("path", "'a"), ("path", "b'"), ("mode", "None")]
    parts = written(FORMATS["pythonic"], deltas, {"path": "ab", "mode": None})
    assert parts == ["", "", '{"path": "ab"', ', "mode": null}']


def test_without_a_format_or_with_types_in_the_text_all_comes_at_the_end():
    for form in (None, FORMATS["kimi-k3"]):
        parts = written(form, [("path", "a"), ("mode", "3")], {"path": "a", "mode": 3})
        assert parts == ["", "", '{"path": "a", "mode": 3}']


def test_what_is_no_json_is_read_at_its_end():
    deltas = [("path", "'it"), ("path", "'"), ("mode", "True")]
    parts = written(FORMATS["hermes"], deltas, {"path": "it", "mode": True})
    assert parts == ["", "", '{"path": "it"', ', "mode": true}']


def test_what_turns_out_otherwise_is_said_again():
    """Of two equal keys the last one counts."""
    form = FORMATS["hermes"]
    # Python's escapes are read, but their beginning looked like JSON and was handed out.
    parts = written(form, [("path", '"a '), ("path", '\\x41"')], {"path": "a A"})
    assert parts == ['{"path": "a ', "", 'A"}']
    for deltas, arguments in (
        ([("path", '"a"'), ("mode", "1"), ("path", '"b"')], {"path": "b", "mode": 1}),
        ([("path", '["a\\'), ("path", "x41'\"]")], {"path": ["aA'"]}),
        ([("mode", "1")], {"path": "", "mode": 1}),
        ([("path", "nonsense"), ("mode", "1")], {"path": "what", "mode": 2}),
    ):
        assert json.loads("".join(written(form, deltas, arguments))) == arguments


def test_half_a_surrogate_pair_can_be_sent():
    text = "".join(written(None, [], {"path": "\ud83d"}))
    assert json.loads(text.encode()) == {"path": "\ud83d"}


SLIPS = ("'", '"', "\\", "\n", ",", "}", "{", "]", ":", "é", "True", "<", "\\x41", '"a": 1, ')


def slipped(text: str, draw: random.Random) -> str:
    """The text with one to three slips of a model."""
    for _ in range(draw.randint(1, 3)):
        at, kind = draw.randrange(len(text)), draw.randrange(5)
        if kind < 2:
            text = text[:at] + draw.choice(SLIPS) + text[at:]
        elif kind < 4:
            text = text[:at] + text[at + draw.randint(1, 4) :]
        else:
            text = text.replace('"', "'", draw.randint(1, 6))
    return text


def streamed(text: str, form: CallFormat, draw: random.Random):
    """The reply that is written so, and what a client makes of its stream."""
    codec = PieceCodec(cut(text, draw))
    request = Request((0,), 99, stop_ids=1, codec=codec, call_format=form, tools=TOOLS, id="q")
    transcript = Transcript(request, codec, Reading(form, TOOLS), {})
    events = [event for token in codec.ids for event in transcript.push(token)]
    events += transcript.finish()
    reply = transcript.reply(Result("q", codec.ids, "stop_id", 1, 1))
    return reply, collected(chunks([*events, Done(reply)], id="q", form=form, tools=TOOLS))


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize("name", FORMATS)
def test_a_client_reads_whatever_was_read_and_nothing_else(name):
    form, draw = FORMATS[name], random.Random(name)
    calls = CALLS if form.several else CALLS[:1]
    for _ in range(25):
        text = slipped("Sure.\n" + form.after_text.lstrip("\n") + form.render(calls), draw)
        reply, message = streamed(text, form, draw)
        read = []
        for call in message["tool_calls"]:
            try:
                read.append((call["id"], call["name"], json.loads(call["text"])))
            except ValueError:  # it broke off, or could not be read
                continue
        wanted = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
        assert to_json(read) == to_json(wanted) or read == wanted, text
        assert message["content"] == reply.text
