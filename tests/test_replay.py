"""The replay target: recorded outputs in the engine, alone and on the passes of a tiny model."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from models import VOCABULARY, Scripted, junk, mixed, oracle, prompt_of, tiny, tree_of

from specdec import (
    EMPTY,
    ROOT,
    CostCurve,
    DraftTree,
    Engine,
    FixedBudget,
    MeasuredBudget,
    Needs,
    ReplayTarget,
    Request,
    RequestError,
    Target,
    measure_costs,
    modelled,
    parse,
)
from specdec.hf import HFTarget
from specdec.replay.followers import KEPT, Followers
from specdec.request import Phases, Result
from specdec.testing import CharCodec, OracleTarget

END = VOCABULARY - 1
STACKS = ("fallback", "pld", "token-recycling", "merge(pld, token-recycling)")


def trace(seed: int, length: int = 40) -> tuple[int, ...]:
    """An output with repeats, behind it the end token."""
    return (*prompt_of(length, seed=seed, vocabulary=END), END)


TRACES = {f"call-{seed}": trace(seed) for seed in range(6)}


def request(name: str = "call-0", **fields: Any) -> Request:
    given = {"prompt": prompt_of(20, seed=90), "max_new_tokens": 80, "stop_ids": END, "id": name}
    return Request(**given | fields)


def stack(expression: str) -> Any:
    for name in ("pld", "token_recycling"):
        pytest.importorskip(f"specdec_{name}")
    return parse(expression)


def decode(target: ReplayTarget, drafter: Any = None, name: str = "call-0", **fields: Any) -> Any:
    return Engine(target, drafter, on_error="raise").generate(request(name, **fields))


class Counted(HFTarget):
    """Keeps what was fed in every pass of its sessions."""

    def start(self, request: Request, needs: Needs) -> Any:
        session = super().start(request, needs)
        self.sessions.append(session)
        inner = session.forward

        def forward(pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
            self.fed.append((tuple(pending), tree))
            return inner(pending, tree)

        session.forward = forward
        return session


def counted(family: str = "llama") -> Counted:
    target = Counted(tiny(family), probe=False)
    target.sessions, target.fed = [], []
    return target


# Without a model.


@pytest.mark.parametrize("expression", STACKS)
@pytest.mark.parametrize("budget", [1, 7, 64])
def test_the_output_is_the_trace_with_any_drafter(expression: str, budget: int) -> None:
    target = ReplayTarget(TRACES, VOCABULARY)
    engine = Engine(target, stack(expression), budget=FixedBudget(budget), on_error="raise")
    for name, tokens in TRACES.items():
        result = engine.generate(request(name))
        assert (result.tokens, result.finish) == (tokens, "stop_id")
    if expression == "fallback":
        assert result.passes == len(tokens)
    elif budget > 1:
        assert result.passes < len(tokens)


def test_every_drafted_token_of_the_trace_is_accepted() -> None:
    tokens = TRACES["call-0"]
    result = decode(ReplayTarget(TRACES, VOCABULARY), oracle(tokens, depth=4, wrong=2))
    assert result.tokens == tokens
    assert result.passes == -(-len(tokens) // 5)  # four nodes and a bonus each


@pytest.mark.parametrize("drafter", [junk(), mixed(TRACES["call-0"])])
def test_the_cache_holds_everything_but_the_root(drafter: Scripted) -> None:
    asked = request()
    tokens = len(asked.prompt)
    for step in Engine(ReplayTarget(TRACES, VOCABULARY), drafter).stream(asked):
        assert step.kv_length == (0 if step.index == 0 else tokens - 1)
        tokens += len(step.committed)


def test_what_ends_a_request() -> None:
    target = ReplayTarget({"call-0": (3, 4, 5, 4, 6), "call-1": (9, END, 8, 8)}, VOCABULARY)
    for drafter in (None, oracle((3, 4, 5, 4, 6), wrong=0)):
        ended = decode(target, drafter)  # the recording has no end token: it was cut
        assert (ended.tokens, ended.finish) == ((3, 4, 5, 4, 6), "length")
        ended = decode(target, drafter, stop_ids=6)
        assert (ended.tokens, ended.finish) == ((3, 4, 5, 4, 6), "stop_id")
        ended = decode(target, drafter, stop_ids=4)  # inside a path of the oracle
        assert (ended.tokens, ended.finish) == ((3, 4), "stop_id")
        ended = decode(target, drafter, max_new_tokens=3)
        assert (ended.tokens, ended.finish) == ((3, 4, 5), "length")
        assert decode(target, drafter, max_new_tokens=0).tokens == ()
    ended = decode(target, oracle((9, END, 8, 8), wrong=0), "call-1")
    assert (ended.tokens, ended.finish) == ((9, END), "stop_id")


def test_a_stop_string_ends_a_request() -> None:
    codec = CharCodec()
    written = codec.encode("f(a)\nmore", ())
    target = ReplayTarget({"text": written}, codec.vocabulary)
    asked = Request(written, 50, stop_strings=")\n", codec=codec, id="text")
    result = Engine(target).generate(asked)
    assert (result.tokens, result.finish) == (codec.encode("f(a)\n", ()), "stop_string")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: decode(ReplayTarget(TRACES, VOCABULARY), name="x"), r"'x'; give Request\(id="),
        (lambda: decode(ReplayTarget(TRACES, VOCABULARY), prompt=[1, 99]), "prompt holds token 99"),
        (lambda: ReplayTarget({"a": ()}, 9), "output of 'a' is empty"),
        (lambda: ReplayTarget({"a": (1, 9)}, 9), "output of 'a' holds token 9, outside"),
        (lambda: ReplayTarget({"a": (1, -1)}, 9), "holds token -1"),
        (lambda: ReplayTarget(TRACES, VOCABULARY).pass_seconds(1, 1), "no passes to time"),
        (lambda: measure_costs(ReplayTarget(TRACES, VOCABULARY)), "no passes to time"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_the_way_out(call: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        call()


def test_it_is_a_target_and_says_what_it_is() -> None:
    target: Target = ReplayTarget(TRACES, VOCABULARY)
    assert target.label == "replay of 6 outputs"
    assert target.model is None
    session = target.start(request(), Needs(4, embedding=True))
    with target.lock:
        assert session.forward(request().prompt, EMPTY).shape == (1, 0)
    assert session.embedding is None


# Second choices.


def top_ids(target: ReplayTarget, name: str, written: Sequence[int], tree: DraftTree) -> Any:
    """The top ids of the last step, with `tree` as its draft behind `written` tokens."""
    drafter = Scripted(
        lambda output, limit: tree if output == tuple(written) else EMPTY, Needs(top_k=4)
    )
    decode(target, drafter, name)
    at = sum(len(step.committed) for step in drafter.steps[: len(written)])
    assert at == len(written)
    return drafter.steps[len(written)].top_ids.tolist()


def test_second_choices_are_what_followed_in_this_output_then_in_earlier_ones() -> None:
    outputs = {"call-0": (7, 8, 7, 9), "call-1": (7, 5, 7, 6, 1), "call-2": (7, 4, 7, 3)}
    target = ReplayTarget(outputs, VOCABULARY)
    rows = top_ids(target, "call-1", (7, 5), tree_of([(ROOT, 7), (ROOT, 2), (1, 7)]))
    # The root goes on with 7, its node with 6; off the path 7 was followed by 5, earlier 9 and 8.
    assert rows == [[7, 0, 1, 2], [6, 5, 9, 8], [0, 1, 2, 3], [6, 5, 9, 8]]
    assert top_ids(target, "call-0", (7, 8), tree_of([(ROOT, 7)])) == [[7, 0, 1, 2], [9, 8, 0, 1]]


def test_second_choices_do_not_depend_on_what_ran_before() -> None:
    tree = tree_of([(ROOT, token) for token in sorted(set(TRACES["call-3"]))])
    names = list(TRACES)
    target = ReplayTarget(TRACES, VOCABULARY)
    first = top_ids(target, "call-3", TRACES["call-3"][:5], tree)
    for name in reversed(names):
        decode(target, junk(), name)
    assert top_ids(target, "call-3", TRACES["call-3"][:5], tree) == first
    later = {name: TRACES[name] for name in names if name != "call-5"}
    assert top_ids(ReplayTarget(later, VOCABULARY), "call-3", TRACES["call-3"][:5], tree) == first


def test_no_row_holds_an_id_twice_and_tiny_vocabularies_have_short_rows() -> None:
    drafter = Scripted(junk(vocabulary=5).offer, Needs(top_k=8))
    draw = random.Random(1)
    output = [draw.randrange(5) for _ in range(50)]
    decode(ReplayTarget({"call-0": output}, 5), drafter, prompt=[1, 2], stop_ids=())
    for step in drafter.steps:
        assert step.top_ids.shape == (len(step.tree) + 1, 5)
        assert step.top_ids.dtype == np.int64
        assert all(sorted(row) == [0, 1, 2, 3, 4] for row in step.top_ids.tolist())


def test_followers_are_the_latest_first_and_bounded() -> None:
    followers = Followers([(1, 2, 1, 3, 1, 2), (5, 1), (1, 4)])
    assert [followers.before(place, 1) for place in range(4)] == [(), (2, 3), (2, 3), (4, 2, 3)]
    assert followers.before(9, 6) == ()
    many = [token for other in range(2, 60) for token in (1, other)]
    assert Followers([many]).before(1, 1) == tuple(range(59, 59 - KEPT, -1))


# On the passes of a model.


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma3-mixed", "gpt2"])
@pytest.mark.parametrize("expression", STACKS)
def test_every_pass_runs_on_the_model_and_the_output_is_the_trace(
    family: str, expression: str
) -> None:
    model = counted(family)
    target = ReplayTarget(TRACES, VOCABULARY, model=model)
    result = decode(target, stack(expression))
    assert result.tokens == TRACES["call-0"]
    assert len(model.fed) == result.passes
    assert [len(tree) for _, tree in model.fed] == list(result.nodes)
    assert result.accepted == decode(ReplayTarget(TRACES, VOCABULARY), stack(expression)).accepted


@pytest.mark.parametrize("drafter", [junk(), mixed(TRACES["call-0"])])
def test_the_models_cache_holds_the_trace(drafter: Scripted) -> None:
    model = counted()
    asked = request()
    tokens = asked.prompt
    for step in Engine(ReplayTarget(TRACES, VOCABULARY, model=model), drafter).stream(asked):
        tokens += step.committed
        kept = model.sessions[0]
        assert kept._cached == list(tokens[:-1])
        assert kept._layers[0].length == kept.kv_length == len(tokens) - 1
    assert kept._layers == []  # closed


def test_ids_that_the_model_does_not_know_are_folded_into_its_own() -> None:
    size = 5 * VOCABULARY
    written = tuple(random.Random(2).randrange(size) for _ in range(30))
    target = ReplayTarget({"call-0": written}, size, model=(model := counted()))
    result = decode(target, mixed(written, vocabulary=size), prompt=[size - 1, 3], stop_ids=())
    assert result.tokens == written
    fed = [token for pending, tree in model.fed for token in (*pending, *tree.tokens)]
    assert min(fed) >= 0
    assert max(fed) < VOCABULARY
    assert [len(tree) for _, tree in model.fed] == list(result.nodes)


def test_siblings_that_fold_to_one_id_stay_apart() -> None:
    tree = tree_of([(ROOT, 3), (ROOT, 3 + VOCABULARY), (0, 5), (1, 5)])
    target = ReplayTarget({"call-0": (3, 5, 1)}, 2 * VOCABULARY, model=(model := counted()))
    drafter = Scripted(lambda output, limit: EMPTY if output else tree)
    assert decode(target, drafter).accepted == (2,)
    assert model.fed[0][1].parents == tree.parents


def test_positions_that_the_model_lacks_are_refused() -> None:
    model = HFTarget(tiny("gpt2-short"))
    room = model.longest
    outputs = {"fits": (1,) * 20, "not": (1,) * 21}
    target = ReplayTarget(outputs, VOCABULARY, model=model)
    prompt = prompt_of(room - 19)
    assert decode(target, junk(), "fits", prompt=prompt).tokens == outputs["fits"]
    assert decode(target, None, "not", prompt=prompt, max_new_tokens=20).tokens == outputs["fits"]
    with pytest.raises(RequestError, match=f"take {room + 1} positions, but the model has {room}"):
        decode(target, None, "not", prompt=prompt)


def test_costs_are_those_of_the_model() -> None:
    model = HFTarget(tiny("llama"))
    target = ReplayTarget(TRACES, VOCABULARY, model=model)
    assert target.label == f"replay of 6 outputs on passes of {model.label}"
    assert target.lock is model.lock
    assert target.model is model
    assert target.longest == model.longest
    curve = measure_costs(target, nodes=(0, 3), kv_lengths=(16,), repeats=1)
    assert curve.label == target.label
    engine = Engine(target, stack("pld"), budget=MeasuredBudget(curve))
    assert engine.generate(request()).tokens == TRACES["call-0"]


def test_embeddings_of_a_random_model_are_not_handed_on() -> None:
    drafter = Scripted(lambda output, limit: EMPTY, Needs(embedding=True))
    decode(ReplayTarget(TRACES, VOCABULARY, model=HFTarget(tiny("llama"))), drafter)
    assert drafter.embeddings == [None]


@pytest.mark.parametrize("with_model", [False, True])
def test_requests_open_in_several_threads_do_not_meet(with_model: bool) -> None:
    model = HFTarget(tiny("llama")) if with_model else None
    target = ReplayTarget(TRACES, VOCABULARY, model=model)
    drafter = Scripted(junk().offer, Needs(top_k=4))
    alone = {name: decode(target, drafter, name) for name in TRACES}
    gate = threading.Barrier(len(TRACES))

    def run(name: str) -> Result:
        gate.wait()
        return decode(target, drafter, name)

    with ThreadPoolExecutor(len(TRACES)) as pool:
        together = list(pool.map(run, TRACES))
    for result, (name, known) in zip(together, alone.items(), strict=True):
        assert result.tokens == TRACES[name]
        assert result.accepted == known.accepted


def test_a_stream_closed_early_gives_the_models_cache_back() -> None:
    model = counted()
    stream = Engine(ReplayTarget(TRACES, VOCABULARY, model=model)).stream(request())
    next(stream)
    stream.close()
    assert model.sessions[0]._layers == []


def test_a_replay_accepts_what_the_recorded_target_accepted() -> None:
    """Recording an oracle and replaying it: steps and drafts are the same."""
    target = OracleTarget()
    asked = Request(prompt_of(30, vocabulary=target.vocabulary), 60, id="oracle")
    recorded = Engine(target, stack("pld")).generate(asked)
    replay = ReplayTarget({"oracle": recorded.tokens}, target.vocabulary)
    replayed = Engine(replay, stack("pld")).generate(asked)
    for field in ("tokens", "finish", "accepted", "nodes", "by_source"):
        assert getattr(replayed, field) == getattr(recorded, field)


# Modelled time.

CURVE = CostCurve((0, 10), (0, 100), ((1.0, 2.0), (3.0, 4.0)))
"""A pass costs 1 second, 1/50 for each cached token and 1/10 for each node."""

RUN = Result(
    "r",
    tokens=(1,) * 8,
    finish="length",
    passes=3,
    prompt_tokens=3,
    accepted=(2, 0, 4),
    nodes=(5, 10, 4),
    prompt_phases=Phases(0.5, 0.01, 0.02, 0.03),
    decode_phases=Phases(0.25, 0.04, 0.05, 0.06),
)


def test_modelled_time_is_the_curves_at_each_steps_nodes_and_cache() -> None:
    # Behind a prompt of 20 tokens the steps find 22 and 23 cached tokens.
    forward = (1 + 22 / 50 + 10 / 10) + (1 + 23 / 50 + 4 / 10)
    changed = modelled(RUN, 20, CURVE)
    assert changed.decode_phases.forward == pytest.approx(forward)
    assert attrs.evolve(changed.decode_phases, forward=0.04) == RUN.decode_phases
    assert attrs.evolve(changed, decode_phases=RUN.decode_phases) == RUN


def test_a_prompts_modelled_time_is_what_it_is_given_and_its_riding_draft() -> None:
    prompt = modelled(RUN, 20, CURVE, prompt_seconds=3.0).prompt_phases
    assert prompt == attrs.evolve(RUN.prompt_phases, forward=pytest.approx(3.5))


def test_modelled_steps_find_the_cache_that_the_engine_found() -> None:
    seen: list[int] = []
    asked, drafter = request(), mixed(TRACES["call-0"])
    result = Engine(ReplayTarget(TRACES, VOCABULARY), drafter).generate(
        asked, each=lambda step: seen.append(step.kv_length)
    )
    lengths = CostCurve((0, 1), (1, 1000), ((1.0, 1.0), (1000.0, 1000.0)))
    forward = modelled(result, len(asked.prompt), lengths).decode_phases.forward
    assert forward == pytest.approx(sum(seen[1:]))


def test_a_result_without_passes_has_no_modelled_time() -> None:
    nothing = decode(ReplayTarget(TRACES, VOCABULARY), max_new_tokens=0)
    assert modelled(nothing, 20, CURVE, prompt_seconds=1.0).seconds == nothing.seconds


def test_the_page_about_replay_runs(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("specdec_pld")
    page = Path(__file__).parents[1] / "docs/replay.md"
    alone, on_model = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    names: dict[str, Any] = {}
    exec(alone, names)  # our own documentation
    assert capsys.readouterr().out == "a (3, 4, 5, 6, 9) 2 passes\nb (8, 4, 5, 6, 9) 3 passes\n"
    exec(on_model.replace("qwen2.5-7b", str(tiny_folder)).replace('"cuda"', '"cpu"'), names)
    assert names["target"].start(names["request"], Needs()).kv_length == 0
