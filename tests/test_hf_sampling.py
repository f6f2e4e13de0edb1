"""Sampling draws what `generate(do_sample=True)` draws, and processors see each path's prefix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import transformers as hf
from models import FAMILIES, Scripted, build, junk, mixed, oracle, prompt_of, reference, tiny

from specdec.compose import Merge
from specdec.engine import Engine
from specdec.hf import HFTarget
from specdec.interfaces import Drafter, Needs
from specdec.request import Request, Sampling
from specdec.tree import EMPTY

TOKENS = 24
STACKS: dict[str, Callable[[Sequence[int]], Drafter | None]] = {
    "none": lambda truth: None,
    "oracle": lambda truth: oracle(truth, depth=5, wrong=3),
    "junk": lambda truth: junk(nodes=40),
    "mixed": mixed,
    "merge": lambda truth: Merge(junk(), oracle(truth)),
}
SETTINGS = {
    "all": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    "top-k": {"temperature": 1.0, "top_k": 5, "top_p": 1.0},
    "hot": {"temperature": 1.7, "top_k": 0, "top_p": 1.0},
}


def sampled(
    model: hf.PreTrainedModel, prompt: list[int], seed: int, **options: Any
) -> tuple[list[int], torch.Tensor]:
    """generate()'s tokens for a global seed, and the generator's state behind them."""
    torch.manual_seed(seed)
    tokens = reference(model, prompt, TOKENS, do_sample=True, **options)
    return tokens, torch.get_rng_state()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("family", ["llama", "gemma3-mixed", "gpt2"])
def test_one_seed_gives_generates_tokens_and_leaves_its_generator_state(
    family: str, stack: str, setting: str
) -> None:
    model, prompt, options = HFTarget(tiny(family)), prompt_of(9), SETTINGS[setting]
    for seed in range(3):
        truth, state = sampled(model.model, prompt, seed, **options)
        engine = Engine(model, STACKS[stack](truth), on_error="raise")
        request = model.request(prompt, max_new_tokens=TOKENS, sampling=Sampling(**options))
        torch.manual_seed(seed)
        result = engine.generate(request)
        assert list(result.tokens) == truth
        assert torch.equal(torch.get_rng_state(), state)
        if stack == "oracle":
            assert result.mat > 4.0


def test_seeds_matter() -> None:
    """The comparison above is not between constants."""
    prompt = prompt_of(9)
    outputs = {
        tuple(sampled(tiny("llama"), prompt, seed, **SETTINGS["all"])[0]) for seed in range(3)
    }
    assert len(outputs) == 3


def test_a_seed_of_its_own_is_repeatable_and_leaves_the_global_generator_alone() -> None:
    model = HFTarget(tiny("llama"))

    def run(seed: int, drafter: Drafter | None) -> tuple[int, ...]:
        sampling = Sampling(temperature=0.8, top_k=50, top_p=0.9, seed=seed)
        request = model.request(prompt_of(9), max_new_tokens=TOKENS, sampling=sampling)
        return Engine(model, drafter, on_error="raise").generate(request).tokens

    before = torch.get_rng_state()
    first = run(5, None)
    torch.rand(3)  # whatever others draw in between
    after = torch.get_rng_state()
    assert run(5, None) == run(5, junk()) == run(5, mixed(first)) == first
    assert run(6, None) != first
    assert torch.equal(torch.get_rng_state(), after)
    torch.set_rng_state(before)


def test_an_end_id_inside_a_sampled_block_stops_the_draws_too() -> None:
    """The generator stands where generate()'s does: nothing is drawn behind the end."""
    model, prompt, options = HFTarget(tiny("llama")), prompt_of(9), SETTINGS["all"]
    whole, _ = sampled(model.model, prompt, 0, **options)
    end = next(t for i, t in enumerate(whole) if i >= 3 and t not in whole[:i])
    truth, state = sampled(model.model, prompt, 0, eos_token_id=end, **options)
    request = model.request(
        prompt, max_new_tokens=TOKENS, sampling=Sampling(**options), stop_ids=(end,)
    )
    torch.manual_seed(0)
    result = Engine(model, oracle(whole, depth=6), on_error="raise").generate(request)
    assert list(result.tokens) == truth
    assert torch.equal(torch.get_rng_state(), state)


class Recorder:
    """A processor that remembers every prefix it sees and favours tokens seen seldom."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.seen.append(ids[0].tolist())
        counts = torch.bincount(ids[0], minlength=scores.shape[-1]).to(scores)
        return scores - 0.7 * counts


PROCESSORS: dict[str, Callable[[], list[Any]]] = {
    "repetition": lambda: [hf.RepetitionPenaltyLogitsProcessor(1.8)],
    "n-gram": lambda: [hf.NoRepeatNGramLogitsProcessor(2)],
    "recorder": lambda: [Recorder()],
    "all": lambda: [
        hf.RepetitionPenaltyLogitsProcessor(1.3),
        hf.NoRepeatNGramLogitsProcessor(3),
        Recorder(),
    ],
}


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.8, top_k=20, top_p=0.9)])
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("processors", PROCESSORS)
def test_processors_see_each_paths_own_prefix(
    processors: str, stack: str, sampling: Sampling | None
) -> None:
    model, prompt, options = HFTarget(tiny("llama")), prompt_of(9), {}
    if sampling is not None:
        options = {"do_sample": True, "temperature": 0.8, "top_k": 20, "top_p": 0.9}
    made = PROCESSORS[processors]()
    torch.manual_seed(4)
    truth = reference(
        model.model, prompt, TOKENS, logits_processor=hf.LogitsProcessorList(made), **options
    )
    assert truth != reference(model.model, prompt, TOKENS), "these processors change nothing"
    made = PROCESSORS[processors]()
    request = model.request(prompt, max_new_tokens=TOKENS, processors=made, sampling=sampling)
    torch.manual_seed(4)
    result = Engine(model, STACKS[stack](truth), on_error="raise").generate(request)
    assert list(result.tokens) == truth
    if isinstance(made[-1], Recorder):
        assert made[-1].seen == [prompt + truth[:i] for i in range(TOKENS)]


class InPlace:
    """A processor that writes into the scores it is given, as many do."""

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, 3] = 1e9
        return scores


def test_a_processor_that_writes_in_place_leaves_the_top_ids_alone() -> None:
    """`Step.top_ids` are the target's, not the processor's, in float32 as in float64."""
    model = HFTarget(build(FAMILIES["llama"]()).to(torch.float32))
    watcher = Scripted(lambda output, limit: EMPTY, Needs(top_k=3))
    request = model.request(prompt_of(9), max_new_tokens=4, processors=[InPlace()])
    result = Engine(model, watcher, on_error="raise").generate(request)
    assert result.tokens == (3, 3, 3, 3)
    plain = model.model(input_ids=torch.tensor([prompt_of(9)])).logits[0, -1]
    assert watcher.steps[0].top_ids[0].tolist() == plain.topk(3).indices.tolist()


def test_a_limit_far_beyond_the_output_costs_no_memory() -> None:
    """ "Until it stops" may be said with a huge limit, with processors too."""
    model = HFTarget(tiny("llama"))
    request = model.request(
        prompt_of(9), max_new_tokens=10**11, processors=[Recorder()], stop_ids=range(67)
    )
    result = Engine(model, junk(), on_error="raise").generate(request)
    assert (len(result.tokens), result.finish) == (1, "stop_id")


@pytest.mark.parametrize(
    "config",
    [{"min_p": 0.3}, {"typical_p": 0.5}, {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}],
    ids=lambda config: next(iter(config)),
)
def test_what_the_generation_config_asks_for_is_applied_as_in_generate(
    config: dict[str, Any],
) -> None:
    """Also for a request that was not made by the target."""
    from specdec.hf import baseline

    model = build(FAMILIES["llama"]())
    for name, value in config.items():
        setattr(model.generation_config, name, value)
    ours = HFTarget(model)
    sampled = Sampling(temperature=0.9, top_k=40, top_p=0.95)
    for sampling in (None, sampled):
        request = Request(prompt_of(9), 20, sampling=sampling)
        torch.manual_seed(3)
        truth = baseline.generate(ours, request).tokens
        torch.manual_seed(3)
        assert Engine(ours, junk(), on_error="raise").generate(request).tokens == truth


def test_a_forced_last_token_is_forced() -> None:
    from specdec.hf import baseline

    model = build(FAMILIES["llama"]())
    model.generation_config.forced_eos_token_id = 5
    ours, request = HFTarget(model), Request(prompt_of(9), 12)
    truth = baseline.generate(ours, request).tokens
    assert truth[-1] == 5
    assert Engine(ours, junk(), on_error="raise").generate(request).tokens == truth
