"""Greedy output equals `model.generate(do_sample=False)`: every family, attention and stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest
import transformers as hf
from models import (
    FAMILIES,
    SWITCH,
    TABLE,
    build,
    junk,
    mixed,
    oracle,
    prompt_of,
    reference,
    tiny,
)

from specdec.compose import Fallback, Merge
from specdec.engine import Engine
from specdec.hf import HFTarget, session
from specdec.interfaces import Drafter


def lookup(truth: Sequence[int]) -> Drafter:
    """The PLD plugin, where it is installed."""
    return pytest.importorskip("specdec_pld").PromptLookup()  # type: ignore[no-any-return]


def recycling(truth: Sequence[int]) -> Drafter:
    """The Token Recycling plugin, where it is installed."""
    return pytest.importorskip("specdec_token_recycling").TokenRecycling()  # type: ignore[no-any-return]


STACKS: dict[str, Callable[[Sequence[int]], Drafter | None]] = {
    "none": lambda truth: None,
    "oracle": oracle,
    "junk": lambda truth: junk(),
    "mixed": mixed,
    "merge": lambda truth: Merge(junk(), mixed(truth), oracle(truth, depth=2)),
    "fallback": lambda truth: Fallback(mixed(truth), junk(nodes=3)),
    "lookup": lookup,
    "recycling": recycling,
    "merge-plugins": lambda truth: Merge(lookup(truth), recycling(truth), mixed(truth)),
}

LENGTHS = {
    # Around the switch the whole pass changes: one token before it, at it, behind it.
    "phi3-longrope": (1, 2, SWITCH - 5, SWITCH - 1, SWITCH, SWITCH + 1, 60),
    "llama-dynamic": (1, 2, SWITCH - 5, SWITCH - 2, SWITCH - 1),
    "gpt2-short": (1, 2, TABLE - 24),
}
TOKENS = 24


@cache
def truth_of(family: str, attention: str, length: int) -> tuple[int, ...]:
    return tuple(reference(tiny(family, attention), prompt_of(length), TOKENS))


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_output_equals_generate(family: str, attention: str, stack: str) -> None:
    model = HFTarget(tiny(family, attention))
    for length in LENGTHS.get(family, (1, 2, 300)):
        truth = truth_of(family, attention, length)
        engine = Engine(model, STACKS[stack](truth), on_error="raise")
        result = engine.generate(model.request(prompt_of(length), max_new_tokens=TOKENS))
        assert result.tokens == truth, f"prompt of {length} tokens"
        assert result.finish == "length"


@pytest.mark.parametrize("family", ["llama", "gemma3-mixed", "gpt2", "phi3-longrope"])
def test_the_oracle_is_accepted(family: str) -> None:
    """Without this, equality of the outputs would say nothing about accepted drafts."""
    model = HFTarget(tiny(family))
    truth = truth_of(family, "sdpa", 2)
    result = Engine(model, oracle(truth), on_error="raise").generate(
        model.request(prompt_of(2), max_new_tokens=TOKENS)
    )
    assert result.mat > 3.0
    assert len(set(truth)) > 4, "a model that repeats itself cannot show a fault"


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_token_limit_cuts_where_generate_does(limit: int) -> None:
    model = HFTarget(tiny("llama"))
    truth = truth_of("llama", "sdpa", 2)
    result = Engine(model, oracle(truth), on_error="raise").generate(
        model.request(prompt_of(2), max_new_tokens=limit)
    )
    assert result.tokens == tuple(reference(tiny("llama"), prompt_of(2), limit))
    assert (len(result.tokens), result.finish) == (limit, "length")


def test_a_limit_of_nothing_emits_nothing_and_makes_no_pass() -> None:
    model = HFTarget(tiny("llama"))
    result = Engine(model, junk(), on_error="raise").generate(
        model.request(prompt_of(5), max_new_tokens=0)
    )
    assert (result.tokens, result.passes, result.finish) == ((), 0, "length")


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma3-mixed", "gpt2"])
@pytest.mark.parametrize("length", [15, 16, 17, 100])
def test_a_prompt_longer_than_the_ride_gives_the_same_output(
    family: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "RIDE", 16)
    model, prompt = HFTarget(tiny(family)), prompt_of(length)
    truth = reference(tiny(family), prompt, 12)
    for drafter in (oracle(truth), junk()):
        result = Engine(model, drafter, on_error="raise").generate(
            model.request(prompt, max_new_tokens=12)
        )
        assert list(result.tokens) == truth


@pytest.mark.parametrize("length", [SWITCH + 6, SWITCH + 9, SWITCH + 17])
def test_a_longrope_prompt_split_across_the_switch_gives_the_same_output(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a prompt beyond the switch is rotated by the long factors, its first part too."""
    monkeypatch.setattr(session, "RIDE", 16)
    model, prompt = HFTarget(tiny("phi3-longrope")), prompt_of(length)
    truth = reference(model.model, prompt, 12)
    result = Engine(model, oracle(truth), on_error="raise").generate(
        model.request(prompt, max_new_tokens=12)
    )
    assert list(result.tokens) == truth


@pytest.mark.parametrize("drafter", [None, junk(), junk(nodes=40)])
def test_a_dynamic_rope_forgets_the_request_before(drafter: Drafter | None) -> None:
    """A long request leaves its frequencies behind; a short prompt resets them in generate()."""
    model, prompt = HFTarget(tiny("llama-dynamic")), prompt_of(SWITCH - 3)
    truth = reference(model.model, prompt, TOKENS)
    engine = Engine(model, drafter, on_error="raise")
    for _ in range(2):
        result = engine.generate(model.request(prompt, max_new_tokens=TOKENS))
        assert list(result.tokens) == truth


def test_the_end_of_a_position_table_finishes_the_request() -> None:
    """Everything that GPT-2's table has room for is emitted, and no pass looks beyond it."""
    model, prompt = HFTarget(tiny("gpt2-short")), prompt_of(TABLE - 9)
    for drafter in (None, junk(nodes=40)):
        result = Engine(model, drafter, on_error="raise").generate(
            model.request(prompt, max_new_tokens=50)
        )
        assert result.finish == "context"
        assert len(result.tokens) in (9, 10)
        assert list(result.tokens) == reference(model.model, prompt, len(result.tokens))


def test_a_draft_near_the_end_of_a_rotary_table_stays_inside_it() -> None:
    """GPT-J's sines are a table too: a draft may not look up a row behind the last."""
    config = hf.GPTJConfig(
        vocab_size=67,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=TABLE,
        rotary_dim=4,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    model, prompt = HFTarget(build(config, attention="eager")), prompt_of(TABLE - 6)
    truth = reference(model.model, prompt, 6)
    stop = next(i for i in range(1, 6) if truth[i] not in truth[:i])
    result = Engine(model, junk(nodes=60), on_error="raise").generate(
        model.request(prompt, max_new_tokens=100, stop_ids=(truth[stop],))
    )
    assert list(result.tokens) == truth[: stop + 1]
