"""End-of-sequence ids and stop strings end a request where `generate` ends it."""

from __future__ import annotations

from functools import cache

import pytest
import tokenizers
import transformers as hf
from models import FAMILIES, build, junk, mixed, oracle, prompt_of, reference, tiny

from specdec.engine import Engine
from specdec.hf import HFTarget

TOKENS = 24


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gpt2"])
@pytest.mark.parametrize("place", range(8))
def test_an_end_id_inside_an_accepted_block_ends_the_request(family: str, place: int) -> None:
    model, prompt = HFTarget(tiny(family)), prompt_of(9)
    truth = reference(model.model, prompt, TOKENS)
    end = truth[place]
    expected = reference(model.model, prompt, TOKENS, eos_token_id=end)
    for drafter in (None, oracle(truth, depth=6), mixed(truth)):
        engine = Engine(model, drafter, on_error="raise")
        result = engine.generate(
            model.request(prompt, max_new_tokens=TOKENS, stop_ids=(end, 10**6))
        )
        assert list(result.tokens) == expected
        assert result.finish == "stop_id"


def test_an_end_id_on_a_node_keeps_it_and_drops_the_bonus() -> None:
    model, prompt = HFTarget(tiny("llama")), prompt_of(9)
    truth = reference(model.model, prompt, TOKENS)
    end = next(t for i, t in enumerate(truth) if i >= 2 and t not in truth[:i])
    place = truth.index(end)
    steps = list(
        Engine(model, oracle(truth, depth=place + 2), on_error="raise").stream(
            model.request(prompt, max_new_tokens=TOKENS, stop_ids=(end,))
        )
    )
    assert steps[-1].committed[-1] == end
    assert len(steps[-1].path) == len(steps[-1].committed)
    assert "target" not in steps[-1].sources


def test_end_ids_come_from_the_generation_config() -> None:
    model = build(FAMILIES["llama"](), seed=3)
    prompt = prompt_of(9)
    truth = reference(model, prompt, TOKENS)
    for ends in (truth[4], [truth[6], truth[4]]):
        model.generation_config.eos_token_id = ends
        target = HFTarget(model)
        result = Engine(target, junk()).generate(target.request(prompt, max_new_tokens=TOKENS))
        assert list(result.tokens) == reference(model, prompt, TOKENS)
        assert result.finish == "stop_id"


SENTENCES = [
    'the weather in Paris is {"city": "Paris", "unit": "celsius"} today',
    "a caf\u00e9 na\u00efve r\u00e9sum\u00e9 \U0001f600\U0001f680 \u4f60\u597d\u4e16\u754c",
    "call the tool and then stop. The end. No more, no less; and so on.",
]


@cache
def small() -> HFTarget:
    """A random model over a byte-level BPE that really merges."""
    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<end>"],
    )
    raw.train_from_iterator(SENTENCES, trainer)
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=raw)
    config = FAMILIES["llama"]()
    config.vocab_size = len(tokenizer)
    return HFTarget(build(config, seed=1), tokenizer)


def texts(tokens: list[int]) -> list[str]:
    codec = small().codec
    assert codec is not None
    return [codec.decode([token]) for token in tokens]


def stop_strings_of(tokens: list[int]) -> list[str]:
    """Texts that end inside a token, at its end, and across two or three tokens."""
    pieces = texts(tokens)
    found = []
    for i in range(1, len(pieces) - 2):
        joined = pieces[i] + pieces[i + 1] + pieces[i + 2]
        if joined.isascii() and len(pieces[i]) > 1:
            found += [pieces[i], pieces[i][:1], joined, pieces[i][-1] + pieces[i + 1][:1]]
    return found


@pytest.mark.parametrize("seed", [0, 3, 5, 6])
def test_a_stop_string_ends_the_request_where_generate_ends_it(seed: int) -> None:
    target = small()
    prompt = prompt_of(9, seed=seed, vocabulary=target.vocabulary)
    truth = reference(target.model, prompt, TOKENS)
    stops = stop_strings_of(truth)
    assert stops, "the random text of this seed has no place to stop at"
    for stop in stops[:8]:
        expected = reference(
            target.model, prompt, TOKENS, stop_strings=[stop], tokenizer=target.tokenizer
        )
        for drafter in (None, oracle(truth, depth=6, vocabulary=target.vocabulary)):
            request = target.request(prompt, max_new_tokens=TOKENS, stop_strings=[stop])
            result = Engine(target, drafter, on_error="raise").generate(request)
            assert list(result.tokens) == expected, repr(stop)
            assert result.finish == "stop_string"


def test_the_prompt_counts_towards_a_stop_string_as_in_generate() -> None:
    """The last character of the prompt and the first of the output may be a stop string."""
    target = small()
    for seed in range(40):
        prompt = prompt_of(9, seed=seed, vocabulary=target.vocabulary)
        truth = reference(target.model, prompt, TOKENS)
        last, first = texts([prompt[-1], truth[0]])
        if (last + first).isascii() and last and first:
            break
    stop = last[-1] + first[0]
    expected = reference(
        target.model, prompt, TOKENS, stop_strings=[stop], tokenizer=target.tokenizer
    )
    request = target.request(prompt, max_new_tokens=TOKENS, stop_strings=[stop])
    assert list(Engine(target).generate(request).tokens) == expected


def test_a_stop_string_that_never_comes_changes_nothing() -> None:
    target = small()
    prompt = prompt_of(9, vocabulary=target.vocabulary)
    request = target.request(prompt, max_new_tokens=TOKENS, stop_strings=["never, never"])
    result = Engine(target, junk(vocabulary=target.vocabulary)).generate(request)
    assert list(result.tokens) == reference(target.model, prompt, TOKENS)
    assert result.finish == "length"
