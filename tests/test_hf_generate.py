"""`generate(custom_generate=speculate(...))` gives what `generate` gives, whatever it is given."""

from __future__ import annotations

import logging
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers as hf
from families import called
from models import (
    CACHE,
    FAMILIES,
    FORGETS,
    SWITCH,
    VOCABULARY,
    WINDOW,
    build,
    junk,
    mixed,
    oracle,
    prompt_of,
    tiny,
)
from transformers.generation.streamers import BaseStreamer

from specdec.errors import RequestError, UnsupportedModel
from specdec.hf import speculate
from specdec.interfaces import Drafter

TOKENS = 24
PHI3 = "this transformers feeds one token where it drops Phi-3's cache"
STACKS: dict[str, Callable[[Sequence[int]], Drafter]] = {
    "oracle": lambda truth: oracle(truth, depth=5, wrong=3),
    "junk": lambda truth: junk(nodes=30),
    "mixed": mixed,
}


def padded(prompts: Sequence[Sequence[int]], pad: int = 0) -> dict[str, torch.Tensor]:
    """Prompts as a batch, padded on the left."""
    longest = max(map(len, prompts))
    return {
        "input_ids": torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts]),
        "attention_mask": torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts]),
    }


def both(
    model: Any,
    prompts: Sequence[Sequence[int]],
    stack: str = "mixed",
    *,
    seed: int = 0,
    fresh: Callable[[], dict[str, Any]] = dict,
    **options: Any,
) -> tuple[Any, Any, Any]:
    """What `generate` gives with and without drafts, and the speculation.

    Args:
        model: The model.
        prompts: Token ids.
        stack: A name of STACKS.
        seed: Of torch's generator.
        fresh: Makes options that keep state, anew for each call.
        **options: Further options of `generate`.
    """
    options = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0} | options
    batch = padded(prompts)
    torch.manual_seed(seed)
    plain = model.generate(**batch, **options, **fresh())
    state = torch.get_rng_state()
    ids = plain if isinstance(plain, torch.Tensor) else plain.sequences
    truth = ids[0, batch["input_ids"].shape[1] :].tolist()
    speculation = speculate(STACKS[stack](truth), budget=40, on_error="raise")
    torch.manual_seed(seed)
    ours = model.generate(**batch, **options, **fresh(), custom_generate=speculation)
    if len(prompts) == 1:
        assert torch.equal(torch.get_rng_state(), state), "the generator is where generate left it"
    return plain, ours, speculation


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_output_is_generates(family: str, attention: str, stack: str) -> None:
    if family == "phi3-longrope" and FORGETS:
        pytest.skip(PHI3)
    length = 9 if family != "gpt2-short" else 12
    plain, ours, speculation = both(tiny(family, attention), [prompt_of(length)], stack)
    assert torch.equal(plain, ours)
    if stack == "oracle" and family != "llama-dynamic":
        assert speculation.results[0].mat > 2.5


def words() -> list[list[int]]:
    """Pairs of tokens that random text would hold."""
    return [[a, (a * 7 + 3) % VOCABULARY] for a in range(0, VOCABULARY, 2)]


PROCESSORS: dict[str, dict[str, Any]] = {
    "none": {},
    "repetition": {"repetition_penalty": 1.7},
    "no-repeat-ngram": {"no_repeat_ngram_size": 2},
    "encoder-repetition": {"encoder_repetition_penalty": 1.5},
    "encoder-no-repeat": {"encoder_no_repeat_ngram_size": 2},
    "bad-words": {"bad_words_ids": [[3], [5, 8], *words()]},
    "bias": {"sequence_bias": [[[4], 3.0], [[6, 2], -8.0]]},
    "min-length": {"min_length": 20, "eos_token_id": [3, 4, 5, 6, 7, 8]},
    "min-new-tokens": {"min_new_tokens": 9, "eos_token_id": list(range(0, 60, 3))},
    "forced-bos": {"forced_bos_token_id": 3},
    "forced-eos": {"forced_eos_token_id": 5},
    "exponential-decay": {"exponential_decay_length_penalty": (4, 1.4), "eos_token_id": 9},
    "suppress": {"suppress_tokens": list(range(0, 40))},
    "begin-suppress": {"begin_suppress_tokens": list(range(0, 50))},
    "renormalize": {"renormalize_logits": True, "remove_invalid_values": True},
    "watermark": {"watermarking_config": hf.WatermarkingConfig(bias=3.0)},
    "guidance": {"guidance_scale": 1.6},
    "prefix-fn": {
        "prefix_allowed_tokens_fn": lambda row, ids: [
            t for t in range(VOCABULARY) if (t + int(ids[-1]) + row) % 3
        ]
    },
}

WARPERS: dict[str, dict[str, Any]] = {
    "plain": {"top_k": 0},
    "temperature": {"temperature": 0.6, "top_k": 0},
    "top-k": {"top_k": 4},
    "top-p": {"top_k": 0, "top_p": 0.7},
    "min-p": {"top_k": 0, "min_p": 0.1},
    "typical": {"top_k": 0, "typical_p": 0.6},
    "epsilon": {"top_k": 0, "epsilon_cutoff": 0.02},
    "eta": {"top_k": 0, "eta_cutoff": 0.05},
    "all": {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.95},
}
KEEP = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}


def prompt_for(name: str) -> list[int]:
    """A prompt behind which a processor of PROCESSORS does something."""
    return prompt_of(1) if name == "forced-bos" else prompt_of(9)


def same_records(model: Any, plain: Any, ours: Any) -> None:
    """Ids, scores, logits and log-probabilities agree; shapes and types too."""
    assert type(plain) is type(ours)
    assert torch.equal(plain.sequences, ours.sequences)
    for name in ("scores", "logits"):
        theirs, own = getattr(plain, name), getattr(ours, name)
        assert len(theirs) == len(own)
        for a, b in zip(theirs, own, strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    lists = [
        model.compute_transition_scores(o.sequences, o.scores, normalize_logits=True)
        for o in (plain, ours)
    ]
    torch.testing.assert_close(*lists, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampled"])
def test_every_processor_of_generate_counts(name: str, sample: bool) -> None:
    model = tiny("llama")
    for stack in STACKS:
        plain, ours, _ = both(
            model, [prompt_for(name)], stack, do_sample=sample, **PROCESSORS[name], **KEEP
        )
        same_records(model, plain, ours)


def test_the_processors_above_change_the_output() -> None:
    """Otherwise the comparison would prove nothing; the others change scores only."""
    silent = []
    for name, options in PROCESSORS.items():
        usual = both(tiny("llama"), [prompt_for(name)], **KEEP)[0]
        found = both(tiny("llama"), [prompt_for(name)], **options, **KEEP)[0]
        same = torch.equal(usual.sequences, found.sequences) and all(
            torch.equal(a, b) for a, b in zip(usual.scores, found.scores, strict=True)
        )
        if same:
            silent.append(name)
    assert silent == ["none"]


@pytest.mark.parametrize("warper", WARPERS)
@pytest.mark.parametrize("processor", ["none", "repetition", "bad-words", "exponential-decay"])
def test_a_seed_gives_generates_tokens_whatever_warps_and_processes(
    warper: str, processor: str
) -> None:
    model = tiny("gemma3-mixed")
    options = WARPERS[warper] | PROCESSORS[processor] | KEEP
    for seed in range(2):
        plain, ours, _ = both(model, [prompt_of(9)], seed=seed, do_sample=True, **options)
        same_records(model, plain, ours)


class Counting(hf.LogitsProcessor):
    """A caller's own processor, with a state."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        scores[:, (self.calls * 5) % VOCABULARY] += 4.0  # in place: allowed, so it must work
        return scores


@pytest.mark.parametrize("sample", [False, True])
def test_a_processor_of_the_caller_is_called_once_per_token(sample: bool) -> None:
    made: list[Counting] = []

    def fresh() -> dict[str, Any]:
        made.append(Counting())
        return {"logits_processor": hf.LogitsProcessorList([made[-1]])}

    plain, ours, _ = both(
        tiny("llama"), [prompt_of(9)], "oracle", fresh=fresh, do_sample=sample, **KEEP
    )
    same_records(tiny("llama"), plain, ours)
    assert made[0].calls == made[1].calls == TOKENS


class Grammar(hf.LogitsProcessor):
    """A matcher as engines have them: it moves on by one token per call and cannot go back."""

    def __init__(self) -> None:
        self.taken: list[int] | None = None
        self.state = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        ids = input_ids[0].tolist()
        if self.taken is not None:
            assert ids[:-1] == self.taken, "a token was rejected, skipped or shown twice"
            assert self.state == 0 or ids[-1] % 4 == self.state, "a forbidden token was taken"
        self.taken = ids
        self.state = (self.state + 1) % 4
        allowed = torch.arange(VOCABULARY) % 4 == self.state
        return scores.masked_fill(~allowed, -torch.inf)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("sample", [False, True])
def test_a_grammar_that_moves_on_with_every_call_sees_committed_tokens_only(
    sample: bool, stack: str
) -> None:
    def fresh() -> dict[str, Any]:
        return {"logits_processor": hf.LogitsProcessorList([Grammar()])}

    plain, ours, _ = both(
        tiny("llama"), [prompt_of(9)], stack, fresh=fresh, do_sample=sample, **KEEP
    )
    same_records(tiny("llama"), plain, ours)
    assert [token % 4 for token in ours.sequences[0, 9:13].tolist()] == [1, 2, 3, 0]


# Stops


@pytest.mark.parametrize("stack", STACKS)
def test_an_end_id_ends_it_where_it_ends_generate(stack: str) -> None:
    model, prompt = tiny("llama"), prompt_of(9)
    whole = both(model, [prompt])[0][0, 9:].tolist()
    for end in {whole[3], whole[7], whole[11]}:
        plain, ours, speculation = both(model, [prompt], stack, eos_token_id=[end, 66])
        assert torch.equal(plain, ours)
        assert speculation.results[0].finish == "stop_id"


class After(hf.StoppingCriteria):
    """Ends a row behind a token of a set; keeps what it was shown."""

    def __init__(self, ends: set[int], *, as_bool: bool = False) -> None:
        self.ends = ends
        self.as_bool = as_bool
        self.shown: list[tuple[list[int], int | None]] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> Any:
        self.shown.append((input_ids[0].tolist(), None if scores is None else len(scores)))
        done = torch.tensor([int(row[-1]) in self.ends for row in input_ids])
        return bool(done[0]) if self.as_bool else done


@pytest.mark.parametrize("as_bool", [False, True])
@pytest.mark.parametrize("keep", [{}, KEEP])
def test_a_criterion_of_the_caller_sees_every_token_and_ends_it_there(
    keep: dict[str, Any], as_bool: bool
) -> None:
    model, prompt = tiny("llama"), prompt_of(9)
    whole = both(model, [prompt])[0][0, 9:].tolist()
    for stack in STACKS:
        made: list[After] = []

        def fresh(made: list[After] = made) -> dict[str, Any]:
            made.append(After({whole[13]}, as_bool=as_bool))
            return {"stopping_criteria": hf.StoppingCriteriaList([made[-1]])}

        plain, ours, speculation = both(model, [prompt], stack, fresh=fresh, **keep)
        if keep:
            same_records(model, plain, ours)
        else:
            assert torch.equal(plain, ours)
        assert made[0].shown == made[1].shown
        assert speculation.results[0].finish == "criterion"


def test_time_runs_out_as_in_generate() -> None:
    plain, ours, speculation = both(tiny("llama"), [prompt_of(9)], max_time=1e-9)
    assert torch.equal(plain, ours)
    assert ours.shape[1] == 10, "one token is always written"
    assert speculation.results[0].finish == "criterion"


@cache
def reader() -> hf.PreTrainedTokenizerFast:
    """A tokenizer of one letter or digit per id."""
    letters = [chr(code) for code in range(48, 48 + VOCABULARY)]
    raw = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(letters)}, []))
    raw.decoder = tokenizers.decoders.Fuse()
    return hf.PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="0")


def test_stop_strings_end_it_where_they_end_generate() -> None:
    model, prompt, tokenizer = tiny("llama"), prompt_of(9), reader()
    ids = torch.tensor([prompt])
    call: dict[str, Any] = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": TOKENS,
        "do_sample": False,
        "pad_token_id": 0,
    }
    whole = model.generate(**call)[0, 9:].tolist()
    text = tokenizer.decode(whole)
    for stop in (text[4:6], text[9:12], [text[15:17], "never"]):
        plain = model.generate(**call, stop_strings=stop, tokenizer=tokenizer)
        for stack in STACKS.values():
            speculation = speculate(stack(whole), tokenizer=tokenizer, budget=40, on_error="raise")
            ours = model.generate(
                **call, stop_strings=stop, tokenizer=tokenizer, custom_generate=speculation
            )
            assert torch.equal(plain, ours)
            assert ours.shape[1] < 9 + TOKENS
    with pytest.raises(RequestError, match=r"speculate\(tokenizer=\.\.\.\)"):
        model.generate(**call, stop_strings="x", custom_generate=speculate(junk(), budget=8))


# Streaming


class Recorder(BaseStreamer):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.puts: list[tuple[int, ...]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.ended = 0

    def put(self, value: torch.Tensor) -> None:
        self.puts.append(tuple(value.flatten().tolist()))
        self.shapes.append(tuple(value.shape))

    def end(self) -> None:
        self.ended += 1


@pytest.mark.parametrize("stack", STACKS)
def test_a_streamer_gets_what_generate_gives_it(stack: str) -> None:
    made: list[Recorder] = []

    def fresh() -> dict[str, Any]:
        made.append(Recorder())
        return {"streamer": made[-1]}

    both(tiny("llama"), [prompt_of(9)], stack, fresh=fresh)
    plain, ours = made
    assert (plain.puts, plain.shapes, plain.ended) == (ours.puts, ours.shapes, ours.ended)
    assert len(ours.puts) == 1 + TOKENS, "the prompt, then token by token"


def test_a_text_streamer_in_a_thread_prints_the_same_text() -> None:
    model, prompt, tokenizer = tiny("llama"), prompt_of(9), reader()
    texts = []
    for custom in (None, speculate(junk(), budget=16)):
        streamer = hf.TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=60)
        ids = torch.tensor([prompt])
        call = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pad_token_id": 0}
        thread = threading.Thread(
            target=model.generate,
            kwargs=call
            | {"max_new_tokens": TOKENS, "do_sample": False, "streamer": streamer}
            | {"custom_generate": custom},
        )
        thread.start()
        texts.append("".join(streamer))
        thread.join()
    assert texts[0] == texts[1]
    assert len(texts[0]) == TOKENS


# Batches


PROMPTS = [prompt_of(9), prompt_of(14, seed=1), prompt_of(4, seed=2), prompt_of(14, seed=3)]


@pytest.mark.parametrize("family", ["llama", "gemma3-mixed", "mistral-window", "gpt2", "qwen3"])
def test_a_padded_batch_is_generates_batch(family: str) -> None:
    plain, ours, speculation = both(tiny(family), PROMPTS)
    assert torch.equal(plain, ours)
    assert len(speculation.results) == len(PROMPTS)


@pytest.mark.parametrize("name", PROCESSORS)
def test_processors_see_each_row_of_a_batch_in_its_place(name: str) -> None:
    model = tiny("llama")
    plain, ours, _ = both(model, PROMPTS, **{"eos_token_id": 66} | PROCESSORS[name])
    assert torch.equal(plain, ours)


def test_rows_that_end_early_are_filled_with_the_padding_id() -> None:
    model = tiny("llama")
    alone = [both(model, [prompt])[0][0, len(prompt) :].tolist() for prompt in PROMPTS]
    ends = [alone[0][3], alone[1][9]]
    plain, ours, speculation = both(model, PROMPTS, eos_token_id=ends, pad_token_id=2)
    assert torch.equal(plain, ours)
    assert len({len(result.tokens) for result in speculation.results}) > 1


def test_scores_of_a_batch_are_generates_as_long_as_a_row_lives() -> None:
    model = tiny("llama")
    first = both(model, [PROMPTS[0]])[0][0, len(PROMPTS[0]) :].tolist()
    plain, ours, speculation = both(model, PROMPTS, eos_token_id=first[5], **KEEP)
    assert torch.equal(plain.sequences, ours.sequences)
    lengths = [len(result.tokens) for result in speculation.results]
    assert min(lengths) < max(lengths) == len(ours.scores)
    for name in ("scores", "logits"):
        for at, (theirs, own) in enumerate(
            zip(getattr(plain, name), getattr(ours, name), strict=True)
        ):
            alive = [row for row, length in enumerate(lengths) if at < length]
            torch.testing.assert_close(theirs[alive], own[alive], rtol=1e-5, atol=1e-5)
            ended = [row for row in range(len(lengths)) if row not in alive]
            assert not own[ended].any()


def test_several_sequences_per_prompt_are_drawn_from_the_same_distribution() -> None:
    """Rows are drawn one after another: not seed-equal, so the first tokens are counted."""
    model, prompt, rows = tiny("llama"), prompt_of(6), 1500
    ids = torch.tensor([prompt])
    call: dict[str, Any] = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 2,
        "do_sample": True,
        "top_k": 4,
        "pad_token_id": 0,
        "num_return_sequences": rows,
    }
    torch.manual_seed(0)
    ours = model.generate(**call, custom_generate=speculate(junk(nodes=60), budget=60))
    assert ours.shape == (rows, 8)
    with torch.no_grad():
        first = model(input_ids=ids).logits[0, -1].float().topk(4)
    expected = torch.softmax(first.values, 0)
    counts = torch.stack([(ours[:, 6] == token).sum() for token in first.indices])
    assert int(counts.sum()) == rows
    chi = float(((counts - rows * expected) ** 2 / (rows * expected)).sum())
    assert chi < 16.3, "chi-square with 3 degrees of freedom, p = 0.001"


# Caches


def dynamic(model: Any) -> hf.DynamicCache:
    return hf.DynamicCache(config=model.config)


def same_caches(one: hf.DynamicCache, other: hf.DynamicCache) -> None:
    assert one.get_seq_length() == other.get_seq_length()
    assert len(one.layers) == len(other.layers)
    for a, b in zip(one.layers, other.layers, strict=True):
        assert type(a) is type(b)
        assert not b.keys.is_inference()
        torch.testing.assert_close(a.keys, b.keys, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(a.values, b.values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize(
    "family", ["llama", "gemma3-mixed", "mistral-window", "gpt2", "phi3-longrope"]
)
def test_a_cache_handed_in_is_continued_and_given_back(family: str, stack: str) -> None:
    """Three turns with one cache, each behind a new message longer than the window."""
    if family == "phi3-longrope" and FORGETS:
        pytest.skip(PHI3)
    model = tiny(family)
    caches = {"plain": dynamic(model), "ours": dynamic(model)}
    texts = {"plain": prompt_of(9), "ours": prompt_of(9)}
    for turn in range(3):
        outputs = {}
        for name in ("plain", "ours"):
            ids = torch.tensor([texts[name]])
            options: dict[str, Any] = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0}
            if name == "ours":
                truth = outputs["plain"].sequences[0, ids.shape[1] :].tolist()
                options["custom_generate"] = speculate(STACKS[stack](truth), budget=40)
            outputs[name] = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                **{CACHE: caches[name]},
                return_dict_in_generate=True,
                **options,
            )
            held, caches[name] = caches[name], getattr(outputs[name], CACHE)
            # transformers drops the cache at the switch of a long-rope and goes on with its own
            assert caches[name] is held or (family == "phi3-longrope" and name == "plain")
            texts[name] = [*outputs[name].sequences[0].tolist(), *prompt_of(WINDOW + 2, seed=turn)]
        assert texts["plain"] == texts["ours"]
        same_caches(caches["plain"], caches["ours"])


def test_a_cache_made_by_generate_is_given_out_and_can_be_continued() -> None:
    model = tiny("llama")
    plain, ours, _ = both(model, [prompt_of(9)], return_dict_in_generate=True)
    same_caches(getattr(plain, CACHE), getattr(ours, CACHE))
    ids = torch.cat([ours.sequences, torch.tensor([[3, 4]])], dim=1)
    follow = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 6, "do_sample": False}
    again = [
        model.generate(ids, **{CACHE: getattr(o, CACHE)}, **follow, pad_token_id=0)
        for o in (plain, ours)
    ]
    assert torch.equal(*again)


@pytest.mark.parametrize("family", ["llama", "gemma3-mixed"])
def test_a_static_cache_asked_for_by_name_changes_nothing(family: str) -> None:
    """Generation configs of Gemma ask for one."""
    model = tiny(family)
    plain, ours, _ = both(model, [prompt_of(9)], cache_implementation="static", **KEEP)
    same_records(model, plain, ours)
    assert getattr(ours, CACHE).get_seq_length() == 9 + TOKENS - 1
    assert torch.equal(
        *both(model, PROMPTS, cache_implementation="static", return_dict_in_generate=False)[:2]
    )


def test_a_static_cache_handed_in_is_refused_by_name() -> None:
    held = hf.StaticCache(config=tiny("llama").config, max_cache_len=40)
    refused("StaticLayer", [prompt_of(9)], **{CACHE: held})


def test_nothing_of_a_cache_changes_when_the_call_fails() -> None:
    model, held = tiny("llama"), dynamic(tiny("llama"))
    ids = torch.tensor([prompt_of(9)])
    with torch.no_grad():
        model(input_ids=ids[:, :5], use_cache=True, **{CACHE: held})
    before = held.layers[0].keys.clone()

    def fails(row: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            **{CACHE: held},
            logits_processor=hf.LogitsProcessorList([fails]),
            custom_generate=speculate(junk(), budget=8),
            max_new_tokens=4,
            pad_token_id=0,
        )
    assert held.get_seq_length() == 5
    assert torch.equal(held.layers[0].keys, before)


def refused(match: str, prompts: Sequence[Sequence[int]] = ((1, 2, 3),), **options: Any) -> None:
    """The call is refused before the drafter is asked and before the first token."""
    asked: list[object] = []
    drafter = junk()
    start = drafter.start
    drafter.start = lambda *a, **k: asked.append(a) or start(*a, **k)  # type: ignore[method-assign]
    call = padded(prompts) | {"max_new_tokens": 4, "pad_token_id": 0} | options
    with pytest.raises(RequestError, match=match):
        tiny("llama").generate(**call, custom_generate=speculate(drafter, budget=8))
    assert not asked


def test_what_drafts_cannot_give_is_refused_by_name() -> None:
    refused("num_beams asks for beam search", num_beams=3)
    refused("num_beams asks for beam sample", num_beams=2, do_sample=True)
    refused("penalty_alpha", penalty_alpha=0.6, top_k=4)
    refused("prompt_lookup_num_tokens", prompt_lookup_num_tokens=3)
    refused("assistant_model", assistant_model=tiny("qwen2"))
    refused("dola_layers", dola_layers="high")
    refused("output_attentions", return_dict_in_generate=True, output_attentions=True)
    refused("output_hidden_states", return_dict_in_generate=True, output_hidden_states=True)
    refused("prefill_chunk_size", prefill_chunk_size=2)
    refused("synced_gpus", synced_gpus=True)
    refused("streamer works for one sequence, got 2", [[1], [2]], streamer=Recorder())
    refused("offloaded", cache_implementation="offloaded")
    refused("the prompt has 3000 tokens", [[1] * 3000])


def test_inputs_that_are_not_plain_text_are_refused_by_name() -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    right = torch.tensor([[1, 1, 0, 0]])
    refused("pad prompts on the left", input_ids=ids, attention_mask=right)
    refused("pad prompts on the left", input_ids=ids, attention_mask=torch.tensor([[1, 0, 1, 1]]))
    refused("position_ids", input_ids=ids, position_ids=ids + 3, attention_mask=ids * 0 + 1)
    refused("token_type_ids|inputs_embeds", inputs_embeds=torch.zeros(1, 3, 32).double())


def test_a_cache_that_cannot_be_continued_is_refused_by_name() -> None:
    model = tiny("llama")
    held = dynamic(model)
    ids = torch.tensor([prompt_of(9)])
    with torch.no_grad():
        model(input_ids=ids, use_cache=True, **{CACHE: held})
    refused("holds 9 tokens and the prompt has 9", [prompt_of(9)], **{CACHE: held})
    # Only what is new, with a mask for the whole: drafts need the text.
    refused(
        "give all of its tokens",
        input_ids=torch.tensor([[3, 4]]),
        attention_mask=torch.ones((1, 11), dtype=torch.long),
        **{CACHE: held},
    )
    refused("one sequence", [prompt_of(12), prompt_of(12)], **{CACHE: held})


def test_a_batch_whose_rows_generate_would_write_beyond_their_end_is_refused() -> None:
    refused(
        "goes on writing behind the end",
        [[1, 2], [3, 4]],
        stopping_criteria=hf.StoppingCriteriaList([After({1})]),
    )


@pytest.mark.parametrize("family", ["phi3-longrope", "llama-dynamic"])
def test_padding_where_rotations_change_in_the_middle_is_refused(family: str) -> None:
    """generate changes them for a whole batch, and counts padding in some models."""
    model = tiny(family)
    short = [prompt_of(9), prompt_of(4, seed=2)]
    plain, ours, _ = both(model, short, max_new_tokens=SWITCH - 9)
    assert torch.equal(plain, ours)
    for prompts in (short, [prompt_of(9)]):
        batch = padded([*prompts, [1] * 12])
        call = {name: rows[: len(prompts)] for name, rows in batch.items()}
        with pytest.raises(RequestError, match=f"change at {SWITCH} tokens"):
            model.generate(
                **call,
                max_new_tokens=SWITCH,
                pad_token_id=0,
                custom_generate=speculate(junk(), budget=8),
            )


def test_the_shortest_of_several_limits_counts() -> None:
    def fresh() -> dict[str, Any]:
        criteria = [hf.MaxLengthCriteria(25), hf.MaxLengthCriteria(14)]
        return {"stopping_criteria": hf.StoppingCriteriaList(criteria)}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, ours, _ = both(tiny("llama"), [prompt_of(9)], "oracle", fresh=fresh)
    assert torch.equal(plain, ours)
    assert ours.shape[1] == 14


def test_a_batch_gives_each_row_processors_and_criteria_of_its_own() -> None:
    """What keeps a state must not go on in the next row where it ended in the one before."""

    class Sixth(hf.StoppingCriteria):
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            self.calls += 1
            return torch.full((input_ids.shape[0],), self.calls == 6)

    def fresh() -> dict[str, Any]:
        return {
            "logits_processor": hf.LogitsProcessorList([Counting()]),
            "stopping_criteria": hf.StoppingCriteriaList([Sixth()]),
        }

    plain, ours, _ = both(tiny("llama"), PROMPTS, fresh=fresh, eos_token_id=66, **KEEP)
    same_records(tiny("llama"), plain, ours)


def test_a_criterion_that_cannot_be_copied_sees_all_rows() -> None:
    class Cancel(hf.StoppingCriteria):
        def __init__(self) -> None:
            self.event = threading.Event()
            self.calls = 0

        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            self.calls += 1
            return torch.full((input_ids.shape[0],), self.event.is_set())

    cancel = Cancel()
    tiny("llama").generate(
        **padded(PROMPTS),
        max_new_tokens=4,
        eos_token_id=66,
        pad_token_id=0,
        stopping_criteria=hf.StoppingCriteriaList([cancel]),
        custom_generate=speculate(junk(), budget=8),
    )
    assert cancel.calls == 4 * len(PROMPTS)


@pytest.mark.parametrize("odd", [[False], None, "no"])
def test_a_criterion_that_says_neither_yes_nor_no_is_an_error_as_in_generate(odd: Any) -> None:
    def fresh() -> dict[str, Any]:
        return {"stopping_criteria": hf.StoppingCriteriaList([lambda ids, scores: odd])}

    for custom in (None, speculate(junk(), budget=8)):
        with pytest.raises(TypeError):
            tiny("llama").generate(
                **padded([prompt_of(9)]),
                **fresh(),
                max_new_tokens=4,
                pad_token_id=0,
                custom_generate=custom,
            )


def test_a_streamer_hears_of_a_token_before_the_next_is_chosen() -> None:
    """A criterion may look at what was streamed."""

    def fresh() -> dict[str, Any]:
        streamer = Recorder()

        def enough(ids: torch.Tensor, scores: Any) -> torch.Tensor:
            return torch.tensor([len(streamer.puts) > 6])

        return {"streamer": streamer, "stopping_criteria": hf.StoppingCriteriaList([enough])}

    plain, ours, _ = both(tiny("llama"), [prompt_of(9)], "oracle", fresh=fresh)
    assert torch.equal(plain, ours)
    assert ours.shape[1] < 9 + TOKENS


def test_processors_may_differentiate_and_keep_what_they_saw() -> None:
    kept: list[torch.Tensor] = []

    def gradient(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        kept.append(scores)
        with torch.enable_grad():
            leaf = scores.detach().clone().requires_grad_()
            (slope,) = torch.autograd.grad((leaf**2 * scores).sum(), leaf)
        return scores + 0.1 * slope

    def fresh() -> dict[str, Any]:
        return {"logits_processor": hf.LogitsProcessorList([gradient])}

    plain, ours, _ = both(tiny("llama"), [prompt_of(9)], fresh=fresh, **KEEP)
    same_records(tiny("llama"), plain, ours)
    kept[-1].mul_(2.0)
    weight = torch.ones(1, requires_grad=True)
    (kept[-1] * weight).sum().backward()


def test_ids_of_any_width_give_the_same_output() -> None:
    ids = torch.tensor([prompt_of(9)], dtype=torch.int32)
    call: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 4}
    call |= {"pad_token_id": 0, "do_sample": False}
    plain = tiny("llama").generate(ids, **call)
    ours = tiny("llama").generate(ids, **call, custom_generate=speculate(junk(), budget=8))
    assert (plain.dtype, plain.tolist()) == (ours.dtype, ours.tolist())


@pytest.mark.parametrize("pad", [1, 7])
@pytest.mark.parametrize("order", ["ours then plain", "plain then ours", "ours then ours"])
@pytest.mark.parametrize("family", ["llama", "gemma3-mixed", "gpt2"])
def test_a_padded_prompt_and_its_cache_go_on(family: str, order: str, pad: int) -> None:
    """Rows of padding are in generate's cache too."""
    model = tiny(family)

    def turns(names: list[str]) -> list[int]:
        ids = torch.tensor([[0] * pad + prompt_of(9)])
        mask = (torch.arange(pad + 9) >= pad).long()[None]
        held = dynamic(model)
        for turn, name in enumerate(names):
            custom = speculate(junk(), budget=8) if name == "ours" else None
            out = model.generate(
                ids,
                attention_mask=mask,
                **{CACHE: held},
                max_new_tokens=5,
                do_sample=False,
                pad_token_id=0,
                custom_generate=custom,
            )
            assert held.get_seq_length() == out.shape[1] - 1
            ids = torch.cat([out, torch.tensor([prompt_of(3 + turn, seed=turn)])], dim=1)
            grown = torch.ones((1, ids.shape[1] - mask.shape[1]), dtype=torch.long)
            mask = torch.cat([mask, grown], dim=1)
        return ids[0].tolist()

    assert turns(order.split(" then ")) == turns(["plain", "plain"])


def test_a_cache_in_another_dtype_is_continued() -> None:
    model, outputs = tiny("llama"), []
    ids = torch.tensor([prompt_of(12)])
    for custom in (None, speculate(junk(), budget=8, on_error="raise")):
        held = dynamic(model)
        with torch.no_grad():
            model(input_ids=ids[:, :7], use_cache=True, **{CACHE: held})
        for layer in held.layers:
            layer.keys, layer.values = layer.keys.float(), layer.values.float()
        call: dict[str, Any] = {"attention_mask": torch.ones_like(ids), CACHE: held}
        call |= {"max_new_tokens": 8, "pad_token_id": 0, "do_sample": False}
        outputs.append(model.generate(ids, **call, custom_generate=custom))
    assert torch.equal(*outputs)


def test_caches_of_other_kinds_are_refused_by_name() -> None:
    recording = dynamic(tiny("gemma3-mixed"))
    for layer in recording.layers:
        if hasattr(layer, "activate_past_recording"):
            layer.activate_past_recording()
    refused("activate_past_recording", [prompt_of(9)], **{CACHE: recording})
    if hasattr(dynamic(tiny("llama")), "_is_user_defined") or hf.__version__ > "5.17":
        refused("one sequence", [prompt_of(9)] * 2, **{CACHE: dynamic(tiny("llama"))})
    refused("holds no token", input_ids=torch.zeros((1, 0), dtype=torch.long))


# Models


def test_a_model_that_cannot_be_exact_is_refused_or_left_to_transformers_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = called("Mamba").configuration()
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.tensor([prompt_of(9)])
    call: dict[str, Any] = {"input_ids": ids, "max_new_tokens": 8, "pad_token_id": 0}
    with pytest.raises(UnsupportedModel, match="MambaForCausalLM"):
        model.generate(**call, custom_generate=speculate(junk(), budget=8))
    left = speculate(junk(), budget=8, unsupported="plain")
    with caplog.at_level(logging.WARNING, logger="specdec"):
        for seed in range(2):
            torch.manual_seed(seed)
            plain = model.generate(**call, do_sample=True)
            torch.manual_seed(seed)
            streamer = Recorder()
            ours = model.generate(**call, do_sample=True, custom_generate=left, streamer=streamer)
            assert torch.equal(plain, ours)
            assert len(streamer.puts) == 9
    assert len([r for r in caplog.records if "MambaForCausalLM" in r.message]) == 1
    assert left.results == ()


def test_other_methods_are_refused_even_where_models_are_left_to_transformers() -> None:
    speculation = speculate(junk(), budget=8, unsupported="plain")
    options: dict[str, Any] = {"max_new_tokens": 4, "pad_token_id": 0}
    with pytest.raises(RequestError, match="num_beams"):
        tiny("llama").generate(
            torch.tensor([[1, 2]]), num_beams=2, custom_generate=speculation, **options
        )


def test_the_generation_config_of_the_model_and_of_a_file_count(tmp_path: Path) -> None:
    model = build(FAMILIES["llama"]())
    own = hf.GenerationConfig(
        max_new_tokens=15, do_sample=True, temperature=0.9, top_k=7, repetition_penalty=1.3,
        pad_token_id=0, eos_token_id=[5, 6],
    )  # fmt: skip
    own.save_pretrained(tmp_path)
    model.generation_config = hf.GenerationConfig.from_pretrained(tmp_path)
    file = hf.GenerationConfig(max_new_tokens=11, bad_words_ids=[[3]], pad_token_id=0)
    file.save_pretrained(tmp_path / "other")
    ids = torch.tensor([prompt_of(9)])
    for options in (
        {},
        {"generation_config": hf.GenerationConfig.from_pretrained(tmp_path / "other")},
    ):
        outputs = []
        for custom in (None, speculate(junk(), budget=16, on_error="raise")):
            torch.manual_seed(3)
            outputs.append(
                model.generate(
                    ids, attention_mask=torch.ones_like(ids), custom_generate=custom, **options
                )
            )
        assert torch.equal(*outputs)


def test_adapters_work_through_peft_and_virtual_tokens_are_refused() -> None:
    peft = pytest.importorskip("peft")
    lora = peft.get_peft_model(
        build(FAMILIES["llama"]()),
        peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False),
    )
    plain, ours, speculation = both(lora.to(torch.float64).eval(), [prompt_of(9)], "oracle")
    assert torch.equal(plain, ours)
    assert speculation.results[0].mat > 2.5
    with lora.disable_adapter():
        bare, without, _ = both(lora, [prompt_of(9)], "junk")
        assert torch.equal(bare, without)
    assert not torch.equal(bare, plain)
    tuned = peft.get_peft_model(
        build(FAMILIES["llama"]()),
        peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    )
    ids = torch.tensor([prompt_of(9)])
    with pytest.raises(UnsupportedModel, match="virtual tokens"):
        tuned.to(torch.float64).eval().generate(
            input_ids=ids, max_new_tokens=4, custom_generate=speculate(junk(), budget=8)
        )


def test_a_model_that_changes_between_calls_is_looked_at_again() -> None:
    model = build(FAMILIES["llama"]())
    ids = torch.tensor([prompt_of(9)])
    call: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 12}
    call |= {"pad_token_id": 0, "do_sample": False}
    speculation = speculate(junk(), budget=16, on_error="raise")
    for attention in ("sdpa", "eager", "sdpa"):
        model.set_attn_implementation(attention)
        plain = model.generate(ids, **call)
        assert torch.equal(plain, model.generate(ids, **call, custom_generate=speculation))
    model.train()
    with pytest.raises(UnsupportedModel, match=r"model\.eval\(\)"):
        model.generate(ids, **call, custom_generate=speculation)


def test_threads_share_one_speculation() -> None:
    model = tiny("llama")
    prompts = [prompt_of(6 + i, seed=i) for i in range(8)]
    plain = [both(model, [prompt])[0] for prompt in prompts]
    speculation = speculate(junk(), budget=16, on_error="raise")
    found: dict[int, torch.Tensor] = {}

    def run(i: int) -> None:
        ids = torch.tensor([prompts[i]])
        found[i] = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=TOKENS,
            do_sample=False,
            pad_token_id=0,
            custom_generate=speculation,
        )

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(plain[i], found[i]) for i in range(len(prompts)))


def test_the_example_in_the_documentation_runs(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("specdec_toolspec")
    page = (Path(__file__).parents[1] / "docs/generate.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(code) == 1
    model = hf.AutoModelForCausalLM.from_pretrained(tiny_folder).eval()
    model.generation_config.pad_token_id = 0
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder)
    exec(code[0], {"model": model, "tokenizer": tokenizer})
    assert "tokens per pass" in capsys.readouterr().out


def test_a_prediction_is_one_more_source() -> None:
    pytest.importorskip("specdec_pld")
    model, prompt, tokenizer = tiny("llama"), prompt_of(9), reader()
    plain, _, speculation = both(model, [prompt], "junk")
    ids = torch.tensor([prompt])
    speculation = speculate(junk(), tokenizer=tokenizer, budget=40, on_error="raise")
    text = tokenizer.decode(plain[0, 9:])
    ours = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=TOKENS,
        do_sample=False,
        pad_token_id=0,
        custom_generate=speculation,
        prediction=text,
    )
    assert torch.equal(plain, ours)
    assert speculation.results[0].passes < TOKENS / 3
    assert speculation.report.by_source["prediction"].accepted > TOKENS / 2
    assert speculation.report.num_spec_steps == len(speculation.results[0].nodes)


def test_options_of_a_call_reach_the_drafter() -> None:
    seen: list[Any] = []

    class Looks(type(junk())):  # type: ignore[misc]
        def start(self, request: Any, committed: Sequence[int] = ()) -> Any:
            seen.append(request)
            return super().start(request, committed)

    drafter = Looks(junk().offer)
    tool = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    ids = torch.tensor([prompt_of(9)])
    call: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 3}
    speculation = speculate(drafter, budget=8, tools=[tool])
    model = tiny("llama")
    model.generate(ids, **call, pad_token_id=0, custom_generate=speculation)
    model.generate(
        ids,
        **call,
        pad_token_id=0,
        custom_generate=speculation,
        tools=[tool | {"name": "g"}],
        prediction="abc",
        tenant="mine",
    )
    assert [[t.name for t in r.tools] for r in seen] == [["f"], ["g"]]
    assert (seen[0].prediction, seen[0].tenant) == (None, "")
    assert (seen[1].prediction, seen[1].tenant) == ("abc", "mine")
    assert seen[0].id != seen[1].id
