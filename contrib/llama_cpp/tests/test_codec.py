"""The codec over a host's tokenizer."""

from __future__ import annotations

import random

import pytest
from specdec_llama_cpp import LlamaCodec

from specdec import BatchCodec

TEXTS = ['": "', "ab", "  x", "caf\u00e9", "\U0001f600", "<tool_call>\n", "<|im_end|>", "", "b"]


@pytest.fixture(params=[False, True], ids=["as it is", "with a space before"])
def codec(request, fake):
    return LlamaCodec(fake(space=request.param))


def test_it_is_a_batch_codec(codec):
    assert isinstance(codec, BatchCodec)


@pytest.mark.parametrize("before", ["", "x", "a", '{"a', " ", "\u00e9", "long text before it all"])
def test_text_encoded_in_context_reads_back_as_itself(codec, before):
    after = list(before.encode())
    found = codec.encode_all(TEXTS, after)
    for text, ids in zip(TEXTS, found, strict=True):
        assert ids == codec.encode(text, after)
        # At the very start, some tokenizers put a space before the whole.
        assert codec.decode(ids).removeprefix("" if before else " ") == text.removeprefix(
            "" if before else " "
        )


def test_special_tokens_are_used_and_shown(codec):
    (call,) = codec.encode("<tool_call>", b"x")
    assert call >= 256
    (end,) = codec.encode("<|im_end|>", b"x")
    assert codec.decode((call, end)) == "<tool_call><|im_end|>"


def test_text_that_would_merge_is_encoded_apart(codec):
    """Behind "a", "b" would be the end of one token "ab"; but the model has written "a"."""
    assert codec.encode("b", b"xa") == (ord("b"),)


def test_the_context_is_a_short_tail_that_shows(codec):
    assert codec.context(b"one") == (ord("e"),)
    assert codec.context(b"x\n ") == tuple(b"x\n ")
    assert codec.context("x\u00e9".encode()) == tuple("\u00e9".encode())
    assert codec.context(()) == ()


def test_characters_come_whole(codec):
    decoder = codec.decoder()
    assert decoder.push(b"ok") == "ok"
    smile = "\U0001f600".encode()
    for byte in smile[:-1]:
        assert decoder.push([byte]) == ""
        assert decoder.pending
    assert decoder.push(smile[-1:]) == "\U0001f600"
    assert not decoder.pending


def test_text_as_it_arrives_is_the_text_of_the_whole(codec):
    draw = random.Random(0)
    for _ in range(300):
        ids = [draw.randrange(262) for _ in range(20)]
        decoder = codec.decoder()
        got = "".join(decoder.push([token]) for token in ids)
        whole = codec.decode(ids)
        assert whole.startswith(got)
        assert decoder.pending or whole == got
