"""holds_call: outputs worth remembering."""

import time

import pytest
from specdec_toolspec import holds_call

from specdec import Call, CallFormat, Request, Result, Tool


class PlainCodec:
    """A character is its code point."""

    def decode(self, ids):
        return "".join(map(chr, ids))


def judged(text, finish="stop_id", codec=PlainCodec()):  # noqa: B008 - it has no state
    tokens = tuple(map(ord, text))
    return holds_call(Request((1,), 9, codec=codec), Result("r", tokens, finish, 1, 1))


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
        '{"name": "f", "parameters": {}}',
        'Sure.\n```json\n[{"name": "f", "arguments": {}}]\n```',
        '{"arguments": {}, "name": "f"} and more {',
        '{"type": "function", "function": {"name": "f", "arguments": {}}}',
        '{broken {"name": "f", "arguments": {"deep": {"er": [1]}}}',
    ],
)
def test_a_call_anywhere_counts(text):
    assert judged(text)
    assert judged(text, "stop_string")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no call here",
        '{"name": "f"}',
        '{"name": 3, "arguments": {}}',
        '{"name": "f", "arguments": "x"}',
        '{"name": "f", "arguments": {"a": ',
        "{'name': 'f', 'arguments': {}}",
    ],
)
def test_anything_else_does_not(text):
    assert not judged(text)


def test_an_output_that_was_cut_is_not_kept():
    call = '{"name": "f", "arguments": {}}'
    assert not judged(call, "length")
    assert not judged(call, "context")
    assert not judged(call, codec=None)


@pytest.mark.parametrize("text", ["{" * 100_000, '{"a":' * 20_000, "[{" * 50_000])
def test_hostile_text_is_judged_soon(text):
    begun = time.perf_counter()
    assert not judged(text)
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize(
    "text", ["[f(a=1)]", '[TOOL_CALLS]f[ARGS]{"a": 1}', "<tool_call>\n<function=f>\n</function>"]
)
def test_a_call_without_a_json_name_counts_where_the_tool_is_known(text):
    result = Result("r", tuple(map(ord, text)), "stop_id", 1, 1)

    def accepted(**known):
        return holds_call(Request((1,), 9, codec=PlainCodec(), **known), result)

    assert accepted(tools=(Tool("f"),))
    assert not accepted(tools=(Tool("g"),))
    assert not accepted()


def test_a_call_in_the_requests_own_format_counts():
    form = CallFormat("own", "CALL ", " WITH ", " END", envelope="text")
    text = form.render([Call("f", {"a": 1})])
    result = Result("r", tuple(map(ord, text)), "stop_id", 1, 1)
    assert holds_call(Request((1,), 9, codec=PlainCodec(), call_format=form), result)
    assert not holds_call(Request((1,), 9, codec=PlainCodec()), result)
