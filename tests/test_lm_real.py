"""The demo model, spoken to: a call, its result, and the answer's next turn."""

import json

import pytest

from specdec import Done, load

pytestmark = pytest.mark.real_model

demo = pytest.importorskip("specdec_demo_model", reason="pip install -e contrib/demo_model")


@pytest.fixture(scope="module")
def lm():
    try:
        return load("demo", dtype="float32", device="cpu", budget=32, on_error="raise")
    except demo.MissingWeights as missing:
        pytest.skip(str(missing))


def test_a_conversation_with_a_tool(lm):
    pytest.importorskip("specdec_toolspec")
    asked = demo.requests()[0]
    options = {"tools": asked.tools, "max_new_tokens": 80}
    plain = lm.chat(asked.messages, drafter=None, **options)
    *_, done = lm.stream(asked.messages, **options)
    reply = done.reply
    assert isinstance(done, Done)
    assert reply.tokens == plain.tokens
    assert reply.result.passes < plain.result.passes / 2
    assert reply.finish_reason == "tool_calls"
    assert reply.tool_calls == plain.tool_calls
    names = {tool["function"]["name"] for tool in asked.tools}
    assert {call.name for call in reply.tool_calls} <= names
    # Every call is in what the model wrote, and nothing of it is in the text.
    assert all(call.name in reply.raw and call.name not in reply.text for call in reply.tool_calls)
    assert reply.report.mean_acceptance_length > 3

    results = [
        {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": json.dumps("done")}
        for call in reply.tool_calls
    ]
    turn = [*asked.messages, reply.to_message(), *results]
    printed = lm.target.codec.decode(lm.target.request(messages=turn, **options).prompt)
    assert reply.raw.strip() in printed
    short = options | {"max_new_tokens": 4}
    second = lm.chat(turn, **short)
    assert len(second.tokens) == 4
    openai = [*asked.messages, reply.to_openai()["choices"][0]["message"], *results]
    assert lm.chat(openai, **short).tokens == second.tokens
