"""A reply as it is written: the same events, calls and text, however many tokens a pass writes."""

import json
import random
from itertools import pairwise

import pytest
from spoken import CALLS, TOOLS, Told, collected, cut, knowing, told

from specdec import Done, DraftTree, LanguageModel, Registry
from specdec.calls import FORMATS, ArgumentDelta, Call, CallEnd, CallFormat, CallStart, TextDelta
from specdec.lm.stops import StopCut

HERMES = FORMATS["hermes"]
EMPTY = Registry(None)


def model(target: Told, drafter=None) -> LanguageModel:
    return LanguageModel(target, drafter, budget=64, on_error="raise", registry=EMPTY)


def whole(target: Told) -> LanguageModel:
    """All of the reply in the prompt's own pass."""
    from models import Scripted

    output = target.codec.ids

    def offer(written, limit):
        return DraftTree.chain(output[len(written) :][: min(limit.nodes, limit.depth)], source="x")

    return model(target, Scripted(offer))


def text_of(form: CallFormat) -> str:
    calls = CALLS if form.several else CALLS[:1]
    return "Sure, é.\n" + form.after_text.lstrip("\n") + form.render(calls)


def test_a_stream_is_what_chat_gives_piece_by_piece():
    target = told(cut(text_of(HERMES), random.Random(1)), HERMES)
    lm = model(target, knowing(target.codec.ids, random.Random(2)))
    *events, done = lm.stream([{"role": "user", "content": "x"}], tools=TOOLS)
    reply = lm.chat([{"role": "user", "content": "x"}], tools=TOOLS)
    assert isinstance(done, Done)
    assert done.reply.tool_calls == reply.tool_calls == CALLS
    assert done.reply.text == reply.text == "Sure, é."
    assert done.reply.raw == reply.raw == text_of(HERMES)
    assert done.reply.tokens == reply.tokens == target.codec.ids
    assert reply.finish_reason == "tool_calls"
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert said == reply.text
    ended = [event.call for event in events if isinstance(event, CallEnd)]
    assert [call.id for call in ended] == [call.id for call in reply.tool_calls]
    assert len({call.id for call in ended}) == 3
    assert all(len(call.id) == 9 and call.id.isalnum() for call in ended)


def test_one_pass_that_writes_everything_yields_every_event_in_order():
    target = told([bytes([byte]) for byte in text_of(HERMES).encode()], HERMES)
    lm = whole(target)
    lm = LanguageModel(target, lm.drafter, budget=4096, on_error="raise", registry=EMPTY)
    events = list(lm.stream("x", tools=TOOLS))
    assert events[-1].reply.result.passes == 1
    assert events == list(model(target).stream("x", tools=TOOLS))[:-1] + events[-1:]
    # As many deltas as tokens, not one per pass.
    path = [e.text for e in events if isinstance(e, ArgumentDelta) and e.key == "path"]
    assert path == list('"a/b.py"')
    order = [type(event) for event in events if not isinstance(event, ArgumentDelta)]
    changes = [kind for kind, after in pairwise([*order, None]) if kind is not after]
    assert changes == [TextDelta, *[CallStart, CallEnd] * 3, Done]


@pytest.mark.parametrize("name", ["hermes", "mistral-v13", "pythonic", "qwen3-coder", "kimi-k2"])
def test_a_client_gets_the_same_calls_with_and_without_speculation(name):
    form, draw = FORMATS[name], random.Random(name)
    text = text_of(form)
    expected = [(call.name, dict(call.arguments)) for call in CALLS]
    for _ in range(500):
        target = told(cut(text, draw), form)
        seen = []
        for lm in (model(target), model(target, knowing(target.codec.ids, draw))):
            message = collected(lm.chunks("x", tools=TOOLS))
            calls = [(call["name"], json.loads(call["text"])) for call in message["tool_calls"]]
            assert calls == expected
            assert message["role"] == "assistant"
            assert message["reason"] == "tool_calls"
            assert message["usage"]["completion_tokens"] == len(target.codec.ids)
            seen.append([message["content"], [call["id"] for call in message["tool_calls"]]])
        assert seen[0] == seen[1]


@pytest.mark.parametrize("name", FORMATS)
def test_chunks_are_right_in_every_format(name):
    form, draw = FORMATS[name], random.Random(name)
    expected = form.parse(text_of(form), TOOLS)
    target = told(cut(text_of(form), draw), form)
    lm = model(target, knowing(target.codec.ids, draw))
    message = collected(lm.chunks("x", tools=TOOLS))
    calls = [(call["name"], json.loads(call["text"])) for call in message["tool_calls"]]
    assert calls == [(call.name, call.arguments) for call in expected]
    reply = lm.chat([{"role": "user", "content": "x"}], tools=TOOLS)
    assert [call["id"] for call in message["tool_calls"]] == [c.id for c in reply.tool_calls]
    assert message["content"] == reply.text


def test_a_format_with_ids_keeps_the_models_own():
    form = FORMATS["mistral-v11"]
    target = told(cut(form.render(CALLS), random.Random(1)), form)
    message = collected(model(target).chunks("x", tools=TOOLS))
    assert [call["id"] for call in message["tool_calls"]] == ["000000001", "000000002", "000000003"]


def test_a_call_that_breaks_off_is_no_call():
    text = HERMES.render(CALLS[:2])[:-60]
    for end, reason in ((1, "length"), (0, "tool_calls")):
        target = told(cut(text, random.Random(1)), HERMES)
        most = len(target.codec.ids) - end
        options = {"tools": TOOLS, "max_new_tokens": most}
        message = collected(model(target).chunks("x", **options))
        assert message["reason"] == reason
        first, second = message["tool_calls"]
        assert json.loads(first["text"]) == CALLS[0].arguments
        with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
            json.loads(second["text"])
        reply = model(target).chat([{"role": "user", "content": "x"}], **options)
        assert reply.tool_calls == CALLS[:1]
        assert len(reply.to_openai()["choices"][0]["message"]["tool_calls"]) == 1


def test_without_tools_nothing_is_taken_for_a_call():
    text = HERMES.render(CALLS[2:])
    target = told(cut(text, random.Random(1)), HERMES)
    reply = model(target).generate("x")
    assert (reply.text, reply.raw, reply.tool_calls) == (text, text, ())
    assert reply.finish_reason == "stop"
    # A prompt may document tools itself, and show another format than the template's.
    known = json.dumps(TOOLS[2].to_openai())
    target = told(cut(text, random.Random(1)), FORMATS["llama-3"])
    said = f"Tools: {known}\nAnswer with {HERMES.render([Call('f', {})])}"
    assert model(target).chat([{"role": "user", "content": said}]).tool_calls == CALLS[2:]


def test_characters_come_whole():
    text = "é😀日本"
    target = told([bytes([byte]) for byte in text.encode()])
    for lm in (model(target), whole(target)):
        *events, done = lm.stream("x")
        assert [event.text for event in events] == list(text)
        assert done.reply.text == done.reply.raw == text


def test_a_stop_string_ends_the_text_and_is_not_in_it():
    pieces = [b"One. T", b"wo. EN", b"D and", b" more"]
    for lm in (model(told(pieces)), whole(told(pieces))):
        *events, done = lm.stream("x", stop="END")
        assert [event.text for event in events] == ["One. T", "wo. "]
        assert done.reply.text == done.reply.raw == "One. Two. "
        assert done.reply.tokens == (2, 3, 4)
        assert done.reply.finish_reason == "stop"
        # One that only began is text after all.
        assert lm.generate("x", stop=["ENDE", "never"]).text == "One. Two. END and more"
        assert "".join(e.text for e in [*lm.stream("x", stop="morel")][:-1]).endswith("more")


def test_stop_strings_are_cut_however_the_text_comes():
    text, stops = "ab<en>ab<end>cd", ("<end>", "xy")
    for seed in range(50):
        pieces = [piece.decode() for piece in cut(text, random.Random(seed), 4)]
        stop = StopCut(stops)
        assert "".join(map(stop.push, pieces)) + stop.finish() == "ab<en>ab"
    begun = StopCut(("\n\n",), before="a\n")
    assert begun.push("\nb") + begun.finish() == ""
    over = StopCut(("\n\n",), before="a\n\n")
    assert over.push("b\n") + over.finish() == "b\n"


def test_special_tokens_are_no_text_unless_calls_are_written_with_them():
    class Tokenizer:
        all_special_ids = (3, 4)

    for form, text in ((None, "ab"), (CallFormat("x", open='<s>{"name": "'), "a<s>b")):
        target = told([b"a", b"<s>", b"<pad>", b"b"], form)
        target.tokenizer = Tokenizer()
        reply = model(target).chat([{"role": "user", "content": "x"}], tools=TOOLS)
        assert reply.text == text
        assert reply.raw == "a<s><pad>b"
