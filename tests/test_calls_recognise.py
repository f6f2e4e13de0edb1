"""Formats told from the first call that a model writes."""

import json

import pytest

from specdec.calls import FORMATS, HERMES, Call, recognise
from specdec.calls.recognise import recognise_among

CALLS = [
    Call("get_weather", {"city": "Oslo", "days": 3, "on": True, "opts": {"a": [1, "x"]}}),
    Call("now", {}),
]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_format_is_told_from_what_it_writes(form):
    calls = CALLS if form.several else CALLS[:1]
    text = f"Sure.{form.after_text or chr(10)}{form.render(calls)}"
    found = recognise(text)
    assert found is not None
    assert found.render(calls) in text
    assert found.parse(text) == form.parse(text)


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
@pytest.mark.parametrize("indent", [None, 2, 4])
def test_white_space_is_told_too(indent, separators):
    arguments = json.dumps(CALLS[0].arguments, indent=indent, separators=separators)
    if indent:
        arguments = json.dumps(CALLS[0].arguments, indent=indent)
    name = f'{{"name"{separators[1]}"get_weather"{separators[0]}"arguments"{separators[1]}'
    if indent:
        name = '{"name": "get_weather", "arguments": '
    text = f"<tool_call>\n{name}{arguments}}}\n</tool_call>"
    found = recognise(text, [HERMES])
    assert found is not None
    assert found.render(CALLS[:1]) == text


def test_a_preferred_format_comes_first():
    assert recognise(HERMES.render(CALLS), [FORMATS["llama-4"], HERMES]) == HERMES
    odd = '{"name": "now", "parameters": {}}'
    assert recognise(odd, [FORMATS["llama-3"]]) == FORMATS["llama-3"]


@pytest.mark.parametrize("text", ["", "It rains.", '{"city": "Oslo"}', "<tool_call>", "[a](b)"])
def test_text_without_a_call_has_no_format(text):
    assert recognise(text) is None


def test_only_the_formats_in_question_are_read():
    text = HERMES.render(CALLS)
    assert recognise_among(text, [FORMATS["nemotron"], HERMES]) == HERMES
    assert recognise_among(text, [FORMATS["nemotron"]]) is None
