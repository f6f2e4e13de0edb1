"""HFCodec on real tokenizers: text in context, and text as it arrives."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers as hf

from specdec import BatchCodec
from specdec.hf import HFCodec
from specdec.testing import CharCodec
from specdec.text import CONTEXT

SHARED = Path(os.environ.get("SPECDEC_SHARED", Path(__file__).parents[2] / "shared"))
NAMES = ["qwen2_5", "llama3_1", "mistral_nemo"]
ALL = [*NAMES, pytest.param("smollm2", marks=pytest.mark.real_model)]


@cache
def codec(name: str) -> HFCodec:
    if name == "smollm2":
        demo = pytest.importorskip("specdec_demo_model", reason="pip install -e contrib/demo_model")
        try:
            return HFCodec(demo.load()[1])
        except demo.MissingWeights as missing:
            pytest.skip(str(missing))
    file = SHARED / "tokenizers" / name / "tokenizer.json"
    if not file.exists():
        pytest.skip(f"needs {file}; set SPECDEC_SHARED to the folder with tokenizers/")
    return HFCodec(hf.PreTrainedTokenizerFast(tokenizer_file=str(file)))


def ids_of(name: str, text: str) -> list[int]:
    return codec(name).tokenizer(text, add_special_tokens=False)["input_ids"]  # type: ignore[return-value]


TEXTS = [
    '{"name": "get_weather", "arguments": {"city": "Paris"}}', "}}", '", "unit": "celsius"', '"',
    ": ", " word", "word", "  two", "\n\n", "\n  indented", "\t", "  ", "a", "ing", "12345",
    " 12345", "na\u00efve caf\u00e9", "\U0001f600", "\U0001f469\u200d\U0001f469\u200d\U0001f467 x",
    "\u4f60\u597d\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f", "\u9f98\u9f9c\u9c7b",
    "\U0002071c", "'s", "\u2019s", "<tool_call>\n",
    "</tool_call>", "<|im_end|>", "[TOOL_CALLS]", "<|python_tag|>", '\\"escaped\\" \\u00e9',
]  # fmt: skip
BEFORE = [
    "Hello", "Hello ", "The city is", '{"a": ', "\n", "x\n\n", "foo bar ", "123", "\u4f60",
    "\U0001f600", "\u00e9", "<tool_call>", "  ", "\t", '"', '{"name": "', "don", "e",
    "The end.\n   ", "a long text before, longer than what is encoded along, and then some",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_text_encoded_in_context_reads_back_as_itself(name: str) -> None:
    one = codec(name)
    for before in BEFORE:
        after = ids_of(name, before)
        for text in TEXTS:
            found = one.encode(text, after)
            assert one.decode([*after, *found]) == one.decode(after) + text, (before, text)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_in_context_are_those_of_the_whole_where_the_boundary_is_clean(name: str) -> None:
    one, clean = codec(name), 0
    for before in BEFORE:
        after = ids_of(name, before)
        for text in TEXTS:
            whole = ids_of(name, before + text)
            if whole[: len(after)] == after:
                clean += 1
                assert list(one.encode(text, after)) == whole[len(after) :], (before, text)
    assert clean > 300


@pytest.mark.parametrize("name", NAMES)
def test_no_text_is_no_token(name: str) -> None:
    assert codec(name).encode("", ids_of(name, "Hello")) == ()
    assert codec(name).encode("", ()) == ()


@pytest.mark.parametrize("name", NAMES)
def test_at_the_very_start_text_is_encoded_alone(name: str) -> None:
    for text in TEXTS:
        assert list(codec(name).encode(text, ())) == ids_of(name, text)


@pytest.mark.parametrize("name", NAMES)
def test_text_behind_half_a_character_still_reads_back(name: str) -> None:
    """The last tokens begin or end inside an emoji; the codec may not fail on that."""
    one = codec(name)
    emoji = ids_of(name, "\U0001f9ff\U0001fae0" * 6)
    for cut in range(1, len(emoji)):
        found = one.encode(' {"a": 1}', emoji[:cut])
        assert one.decode(found) == ' {"a": 1}'


@pytest.mark.parametrize("name", ["qwen2_5"])
def test_added_tokens_are_used_where_they_exist(name: str) -> None:
    vocabulary = codec(name).tokenizer.get_vocab()
    found = codec(name).encode("<tool_call>\n", ids_of(name, "Sure."))
    assert found[0] == vocabulary["<tool_call>"]
    assert codec(name).decode(found) == "<tool_call>\n"


@pytest.mark.parametrize("name", NAMES)
def test_pending_is_true_inside_a_character_only(name: str) -> None:
    ids = ids_of(name, "\U0001fae0")
    assert len(ids) > 1, "this emoji must take several tokens"
    decoder = codec(name).decoder()
    assert decoder.push(ids_of(name, "ok")) == "ok"
    assert not decoder.pending
    for token in ids[:-1]:
        assert decoder.push([token]) == ""
        assert decoder.pending
    assert decoder.push(ids[-1:]) == "\U0001fae0"
    assert not decoder.pending


RANGES = [
    *range(32, 127), *range(0x4E00, 0x9FFF, 37), *range(0x1F300, 0x1F640),
    *range(0x20000, 0x20100), *range(0x3040, 0x30FF), *range(0xAC00, 0xD7A3, 91),
    *range(0x400, 0x4FF), *range(0x900, 0x97F), 9, 10, 0x200D, 0xFE0F,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_text_as_it_arrives_is_the_text_of_the_whole(name: str) -> None:
    one, draw = codec(name), random.Random(0)
    texts = TEXTS + ["".join(chr(draw.choice(RANGES)) for _ in range(8)) for _ in range(600)]
    for text in texts:
        ids, decoder, got = ids_of(name, text), one.decoder(), ""
        while ids:
            step = draw.randint(1, 3)
            got += decoder.push(ids[:step])
            ids = ids[step:]
        assert got == one.decode(ids_of(name, text))
        assert not decoder.pending


def test_characters_that_share_a_token_are_not_lost() -> None:
    """Llama 3 has a token that ends one character and begins the next, in this text."""
    text = "\U0001f60c\u30d8\u30ea\U0001f460\ud0a7\U0001f329"
    ids = ids_of("llama3_1", text)
    decoder = codec("llama3_1").decoder()
    assert "".join(decoder.push([token]) for token in ids) == text


@pytest.mark.parametrize("name", NAMES)
def test_a_replacement_character_in_the_text_is_a_character(name: str) -> None:
    """U+FFFD may be what the model writes; what follows it must not be lost."""
    text = "a\ufffd\U0001f3e6\u30bc\u55ce b"
    decoder = codec(name).decoder()
    assert "".join(decoder.push([token]) for token in ids_of(name, text)) == text


def test_broken_bytes_never_hold_the_text_back_for_good() -> None:
    """Random tokens print as much as the whole does, bar an unfinished end."""
    one, draw = codec("qwen2_5"), random.Random(1)
    for _ in range(300):
        ids = [draw.randrange(150_000) for _ in range(10)]
        decoder = one.decoder()
        got = "".join(decoder.push([token]) for token in ids)
        assert one.decode(ids).startswith(got.rstrip("\ufffd"))


@cache
def metaspace() -> HFCodec:
    """A small SentencePiece-like tokenizer with byte fallback, as Llama 2's is."""
    raw = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    raw.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("\u2581", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    specials = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"])
    raw.train_from_iterator(['{"name": "get weather", "city": "Paris"} and more words'], trainer)
    raw.add_tokens(specials)
    return HFCodec(hf.PreTrainedTokenizerFast(tokenizer_object=raw))


def test_a_tokenizer_that_strips_the_first_space_streams_its_own_text() -> None:
    one = metaspace()
    ids = one.tokenizer('and more words {"city": "Paris"}', add_special_tokens=False)["input_ids"]
    decoder = one.decoder()
    assert "".join(decoder.push([token]) for token in ids) == one.decode(ids)


def test_a_tokenizer_that_strips_the_first_space_encodes_in_context() -> None:
    one = metaspace()
    after = one.tokenizer("and more", add_special_tokens=False)["input_ids"]
    for text in (" words", ' {"city"', "words", '": "'):
        found = one.encode(text, after)
        assert one.decode([*after, *found]) == "and more" + text


def plainly(one: HFCodec, text: str, after: list[int]) -> tuple[int, ...]:
    """The tokens of `text`, through transformers and behind all of the context."""
    for lead in (one.decode(after[-CONTEXT:]), "\n", ".", ""):
        encoded = one.tokenizer(lead + text, add_special_tokens=False, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]
        for i, (start, _) in enumerate(offsets):
            if start >= len(lead):
                if i == 0 or offsets[i - 1][1] <= len(lead):
                    return tuple(encoded["input_ids"][i:])
                break
    return ()


def tails(name: str, count: int) -> list[list[int]]:
    """Tokens that text may follow, some of which end inside a character."""
    draw, found = random.Random(name), []
    for _ in range(count):
        text = draw.choice(BEFORE) + "".join(chr(draw.choice(RANGES)) for _ in range(5))
        ids = ids_of(name, text if draw.random() < 0.7 else draw.choice(BEFORE))
        found.append(ids[: draw.randint(1, len(ids))])
    return found


@pytest.mark.parametrize("name", ALL)
def test_many_texts_at_once_have_the_tokens_that_each_has_alone(name: str) -> None:
    one, draw = codec(name), random.Random(2)
    for after in tails(name, 150):
        texts = draw.sample(TEXTS, 8)
        texts += ["".join(chr(draw.choice(RANGES)) for _ in range(6)), "", texts[0]]
        found = one.encode_all(texts, after)
        assert found == [plainly(one, text, after) for text in texts], (after, texts)
        assert found == [one.encode(text, after) for text in texts]
    assert one.encode_all([], [1]) == []


@pytest.mark.parametrize("name", ALL)
def test_the_context_is_a_short_tail_behind_which_nothing_changes(name: str) -> None:
    one, lengths = codec(name), []
    for after in tails(name, 300):
        context = one.context(after)
        lengths.append(len(context))
        assert context == tuple(after[-len(context) :])
        assert one.context(context) == context
        for text in ("'s", "word", " 12", "\n  ", '", "'):
            assert one.encode(text, context) == plainly(one, text, after), (after, text)
    assert max(lengths) <= CONTEXT
    assert one.context(()) == ()


@pytest.mark.parametrize("name", ALL)
def test_the_context_holds_a_whole_character_that_shows(name: str) -> None:
    one = codec(name)
    call = ids_of(name, '<tool_call>\n{"name": "')
    assert one.context(call) == tuple(call[-1:]), "one token is enough in the usual case"
    emoji = ids_of(name, "a\U0001fae0")[1:]
    assert len(one.context([*call, *emoji])) == len(emoji) > 1
    space = ids_of(name, "x\n\t\n")
    assert one.decode(one.context([*call, *space])).strip()


@pytest.mark.parametrize("name", ALL)
def test_options_of_other_callers_do_not_reach_the_codec(name: str) -> None:
    one, after = codec(name), ids_of(name, "Sure.")
    text = "A text of quite a few tokens, <|im_end|> and </s> among them."
    expected = one.encode(text, after)
    one.tokenizer(text, truncation=True, max_length=2)
    assert one.encode(text, after) == expected
    one.tokenizer(text, split_special_tokens=True)
    assert one.encode(text, after) == expected
    one.tokenizer.backend_tokenizer.enable_padding(length=50)
    assert one.encode(text, after) == expected


def test_the_context_is_decoded_once_for_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    one, seen = metaspace(), []
    decode = one.decode

    def count(ids: Sequence[int]) -> str:
        seen.append(ids)
        return decode(ids)

    after = one.tokenizer("and more", add_special_tokens=False)["input_ids"]
    monkeypatch.setattr(one, "decode", count)
    one.encode_all(["words"], after)
    alone = len(seen)
    one.encode_all(["words", " words", '"'] * 10, after)
    assert len(seen) == 2 * alone


class Slow:
    """A tokenizer without a fast half."""

    is_fast = False

    def __init__(self, inner: Any) -> None:
        self.decode = inner.decode
        self.inner = inner

    def __call__(self, text: str, add_special_tokens: bool) -> Any:
        return self.inner(text, add_special_tokens=add_special_tokens)


def test_a_slow_tokenizer_encodes_in_context_too() -> None:
    fast = metaspace()
    slow = HFCodec(Slow(fast.tokenizer))  # type: ignore[arg-type]
    after = fast.tokenizer("and more", add_special_tokens=False)["input_ids"]
    texts = [" words", ' {"city"', "words", '": "', ""]
    found = slow.encode_all(texts, after)
    for text, ids in zip(texts, found, strict=True):
        assert slow.decode([*after, *ids]) == "and more" + text
        assert ids == slow.encode(text, after)


def test_a_batch_codec_is_what_it_says() -> None:
    assert isinstance(metaspace(), BatchCodec)
    assert not isinstance(CharCodec(), BatchCodec)
