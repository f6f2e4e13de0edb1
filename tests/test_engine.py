"""The engine's loop, counted by hand on a target that counts."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from models import Scripted, tree_of
from transformers import LogitsProcessorList

from specdec.budget import FixedBudget
from specdec.compose import Fallback, Merge
from specdec.engine import Engine
from specdec.errors import ContractError, RequestError
from specdec.hf.decide import Decider
from specdec.hf.seat import Seat
from specdec.interfaces import Decision, Drafter, DraftSession, Needs
from specdec.request import Request, SourceCount, Step
from specdec.tree import EMPTY, ROOT, DraftTree, Limit, Vote

VOCABULARY = 10


class CountingTarget:
    """Writes 1 after 0, 2 after 1 and so on, 0 after 9; and checks the engine's invariants."""

    vocabulary = VOCABULARY

    def __init__(self, room: int = 10**6) -> None:
        self.lock = threading.RLock()
        self.room = room
        self.opened = self.closed = 0

    def start(self, request: Request, needs: Needs) -> CountingSession:
        if max(request.prompt) >= VOCABULARY:
            raise RequestError("no such token")
        self.opened += 1
        return CountingSession(self, request, needs)


class CountingSession:
    def __init__(self, target: CountingTarget, request: Request, needs: Needs) -> None:
        self._target = target
        self._cache: list[int] = []
        self._fed: tuple[list[int], DraftTree] = ([], EMPTY)
        self._decider = Decider(request, Seat(LogitsProcessorList()), target.room)
        self.embedding = np.ones(3, dtype=np.float32) if needs.embedding else None
        self._open = True

    @property
    def kv_length(self) -> int:
        return len(self._cache)

    @property
    def finish(self) -> Any:
        return self._decider.stops.finish

    def depth(self, pending: int) -> int:
        return self._target.room

    def forward(self, pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
        assert self._open
        text = [*self._cache, *pending]
        assert all(b == (a + 1) % VOCABULARY for a, b in itertools.pairwise(text)), text
        self._fed = (list(pending), tree)
        last = torch.tensor([pending[-1], *tree.tokens])
        return torch.nn.functional.one_hot((last + 1) % VOCABULARY, VOCABULARY).float()

    def decide(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        return self._decider(path_tokens, row)

    def commit(self, path: Sequence[int]) -> None:
        pending, tree = self._fed
        self._cache += pending + [tree.tokens[node] for node in path]

    def top_ids(self, k: int) -> Any:
        return np.full((1 + len(self._fed[1]), k), 7)

    def close(self) -> None:
        assert self._open, "closed twice"
        self._open = False
        self._target.closed += 1


def by_length(trees: dict[int, DraftTree], needs: Needs | None = None) -> Scripted:
    """Proposes by the length of the output so far; nothing elsewhere."""
    return Scripted(lambda output, limit: trees.get(len(output), EMPTY), needs)


def engine(drafter: Drafter | None, **options: Any) -> Engine:
    return Engine(CountingTarget(), drafter, **{"on_error": "raise"} | options)


# Output after prompt (0,): 1 2 3 4 5 6 7 8 9 0 ...
# Pass 0 drafts 1 2 9, keeps 1 2, bonus 3. Pass 1 drafts two branches, keeps the second (4 5),
# bonus 6. Pass 2 has no draft: 7. Pass 3 drafts rubbish: 8. The limit is 8 tokens.
HAND = {
    0: tree_of([(ROOT, 1), (0, 2), (1, 9)], "a"),
    3: DraftTree.merge([tree_of([(ROOT, 8), (0, 8)], "a"), tree_of([(ROOT, 4), (0, 5)], "b")]),
    7: tree_of([(ROOT, 3)], "b"),
}


def test_steps_hold_what_was_drafted_accepted_and_committed() -> None:
    # The last draft is cut away: only one token is left, so no draft may follow the root.
    steps = list(engine(by_length(HAND)).stream(Request((0,), 8)))
    assert [(s.index, s.path, s.committed, s.kv_length) for s in steps] == [
        (0, (0, 1), (1, 2, 3), 0),
        (1, (2, 3), (4, 5, 6), 3),
        (2, (), (7,), 6),
        (3, (), (8,), 7),
    ]
    assert [s.sources for s in steps] == [
        ("a", "a", "target"),
        ("b", "b", "target"),
        ("target",),
        ("target",),
    ]
    assert steps[3].tree == EMPTY


def test_counting_follows_the_one_rule() -> None:
    result = engine(by_length(HAND)).generate(Request((0,), 9))
    assert result.tokens == (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert (result.passes, result.steps, result.prompt_tokens) == (5, 4, 3)
    assert result.mat == (9 - 3) / 4
    assert result.accepted == (2, 2, 0, 0, 0)
    assert result.nodes == (3, 4, 0, 1, 0)
    assert result.by_source == {"a": SourceCount(5, 2), "b": SourceCount(3, 2)}
    assert result.finish == "length"
    assert result.seconds > 0


def test_a_stop_inside_the_path_cuts_tokens_counts_and_bonus_alike() -> None:
    drafter = by_length({0: tree_of([(ROOT, 1), (0, 2), (1, 3), (2, 4)])})
    steps = list(engine(drafter).stream(Request((0,), 50, stop_ids={3})))
    assert [s.committed for s in steps] == [(1, 2, 3)]
    assert steps[0].path == (0, 1, 2)
    result = engine(drafter).generate(Request((0,), 50, stop_ids={3}))
    assert (result.tokens, result.finish, result.accepted) == ((1, 2, 3), "stop_id", (3,))
    assert result.mat != result.mat, "NaN: there was no step after the prompt's pass"


def test_the_context_ends_a_request() -> None:
    target = CountingTarget(room=3)
    result = Engine(target).generate(Request((0,), 50))
    assert (result.tokens, result.finish) == ((1, 2, 3), "context")


def test_a_limit_of_nothing_makes_no_pass() -> None:
    target = CountingTarget()
    result = Engine(target).generate(Request((0,), 0))
    assert (result.tokens, result.passes, result.steps) == ((), 0, 0)
    assert target.closed == target.opened == 1


def test_no_draft_is_deeper_than_what_the_limit_and_the_bonus_leave() -> None:
    asked: list[Limit] = []

    def offer(output: tuple[int, ...], limit: Limit) -> DraftTree:
        asked.append(limit)
        return EMPTY

    engine(Scripted(offer), budget=FixedBudget(5)).generate(Request((0,), 4))
    assert asked == [Limit(5, 3), Limit(5, 2), Limit(5, 1)]


def test_a_budget_of_nothing_never_asks() -> None:
    def offer(output: tuple[int, ...], limit: Limit) -> DraftTree:
        raise AssertionError("asked")

    result = engine(Scripted(offer), budget=FixedBudget(0)).generate(Request((0,), 3))
    assert result.tokens == (1, 2, 3)


def test_needs_are_served_and_prefilled_comes_once_after_the_prompts_step() -> None:
    seen: list[str] = []

    class Watcher(Scripted):
        def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
            inner = super().start(request, committed)
            honest, observed = inner.prefilled, inner.observe
            inner.prefilled = lambda e: (seen.append("prefilled"), honest(e))[1]  # type: ignore[method-assign]
            inner.observe = lambda s: (seen.append("observe"), observed(s))[1]  # type: ignore[method-assign]
            return inner

    drafter = Watcher(lambda output, limit: HAND.get(len(output), EMPTY), Needs(2, True))
    engine(drafter).generate(Request((0,), 7))
    assert seen == ["observe", "prefilled", "observe", "observe"]
    assert drafter.embeddings[0].tolist() == [1.0, 1.0, 1.0]
    assert [step.top_ids.shape for step in drafter.steps] == [(4, 2), (5, 2), (1, 2)]


def test_without_needs_nothing_is_served() -> None:
    drafter = by_length({})
    engine(drafter).generate(Request((0,), 2))
    assert drafter.embeddings == [None]
    assert [step.top_ids for step in drafter.steps] == [None, None]


class Fails(Drafter):
    """Raises in one method, and drafts the truth otherwise."""

    def __init__(self, verb: str) -> None:
        self.verb = verb

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        if self.verb == "start":
            raise RuntimeError("broken start")
        return _FailsSession(self.verb)


class _FailsSession(DraftSession):
    def __init__(self, verb: str) -> None:
        self._verb = verb

    def _maybe(self, verb: str) -> None:
        if verb == self._verb:
            raise RuntimeError(f"broken {verb}")

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        self._maybe("propose")
        return tree_of([(ROOT, (tokens[-1] + 1) % VOCABULARY)], "fails")

    def observe(self, step: Step) -> None:
        self._maybe("observe")

    def prefilled(self, embedding: Any) -> None:
        self._maybe("prefilled")

    def finish(self, result: Any) -> None:
        self._maybe("finish")


VERBS = ["start", "propose", "observe", "prefilled", "finish"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_drafter_that_raises_is_left_out_under_plain(verb: str) -> None:
    target = CountingTarget()
    result = Engine(target, Fails(verb), on_error="plain").generate(Request((0,), 8))
    assert result.tokens == (1, 2, 3, 4, 5, 6, 7, 8)
    if verb != "finish":  # the result was made before
        assert [f"broken {verb}" in error for error in result.errors] == [True]
        assert "Fails" in result.errors[0]
    assert target.closed == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_drafter_that_raises_raises_under_raise(verb: str) -> None:
    target = CountingTarget()
    with pytest.raises(RuntimeError, match=f"broken {verb}"):
        Engine(target, Fails(verb), on_error="raise").generate(Request((0,), 8))
    assert target.closed == target.opened


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("stack", [Fallback, Merge])
def test_neighbours_of_a_drafter_that_raises_go_on(
    stack: Callable[..., Drafter], verb: str
) -> None:
    good = by_length({i: tree_of([(ROOT, (i + 1) % VOCABULARY)], "good") for i in range(20)})
    both = stack(Fails(verb), good)
    result = Engine(CountingTarget(), both, on_error="plain").generate(Request((0,), 12))
    assert result.tokens == tuple((i + 1) % VOCABULARY for i in range(12))
    assert result.passes == 6
    assert len(result.errors) == 1


BREACHES = {
    "nodes": (DraftTree.chain(range(1, 7), source="x"), "6 nodes for a budget of 5"),
    "depth": (
        DraftTree.chain([1, 2, 3, 4], source="x"),
        "a path of 4 tokens where (at most )?3 may follow",
    ),
    "high": (DraftTree.chain([VOCABULARY], source="x"), "token 10, outside"),
    "low": (DraftTree.chain([-3], source="x"), "token -3, outside"),
    "type": ([1, 2], "proposed a list; expected a DraftTree"),
    "votes": (DraftTree((1,), (ROOT,), (0.9,), ("x",)), "a node with 'x'; expected Vote"),
    "source": (DraftTree((1,), (ROOT,), (0.9,), ((Vote(["x"], 0.9),),)), "expected Vote"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_of_contract_is_named_or_left_out(breach: str) -> None:
    tree, message = BREACHES[breach]
    drafter = Scripted(lambda output, limit: tree)  # type: ignore[arg-type,return-value]
    with pytest.raises(ContractError, match=message):
        engine(drafter, budget=FixedBudget(5)).generate(Request((0,), 4))
    plain = engine(drafter, budget=FixedBudget(5), on_error="plain").generate(Request((0,), 4))
    assert plain.tokens == (1, 2, 3, 4)
    assert len(plain.errors) == 1
    assert plain.nodes == (0, 0, 0, 0)


@pytest.mark.parametrize("needs", [None, 3, "top"])
def test_a_drafter_with_odd_needs_is_left_out(needs: object) -> None:
    class Odd(Scripted):
        @property
        def needs(self) -> Needs:
            return needs  # type: ignore[return-value]

    drafter = Odd(lambda output, limit: EMPTY)
    with pytest.raises(ContractError, match="expected Needs"):
        engine(drafter).generate(Request((0,), 4))
    plain = engine(drafter, on_error="plain").generate(Request((0,), 4))
    assert plain.tokens == (1, 2, 3, 4)
    assert len(plain.errors) == 1


@pytest.mark.parametrize("top_k", [-1, 2.5, "3", None])
def test_needs_are_counts(top_k: object) -> None:
    with pytest.raises(ValueError, match="top_k must be an integer of at least 0"):
        Needs(top_k)  # type: ignore[arg-type]


def test_a_drafter_that_starts_no_session_is_named() -> None:
    class Odd(Drafter):
        def start(self, request: Request, committed: Sequence[int] = ()) -> Any:
            return "a session"

    with pytest.raises(ContractError, match="started a str; expected a DraftSession"):
        engine(Odd()).generate(Request((0,), 4))


def test_a_stream_closed_early_gives_the_session_back() -> None:
    target = CountingTarget()
    running = Engine(target, by_length(HAND)).stream(Request((0,), 8))
    next(running)
    assert target.closed == 0
    running.close()
    assert target.closed == 1
    assert Engine(target).generate(Request((0,), 2)).tokens == (1, 2)


class RaisingHook:
    """An observer that raises in one of its methods."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.seen: list[str] = []

    def __getattr__(self, verb: str) -> Callable[..., None]:
        def hook(**_: Any) -> None:
            self.seen.append(verb)
            if verb == self.verb:
                raise OSError(f"no room for {verb}")

        return hook


@pytest.mark.parametrize("verb", ["on_request_start", "on_step", "on_request_end"])
def test_an_observer_that_raises_ends_the_request_and_frees_the_target(verb: str) -> None:
    target = CountingTarget()
    with pytest.raises(OSError, match=verb):
        Engine(target, hook=RaisingHook(verb)).generate(Request((0,), 3))
    assert target.closed == target.opened == 1
    assert target.lock.acquire(blocking=False), "the lock is free"
    assert Engine(target).generate(Request((0,), 2)).tokens == (1, 2)


def test_observers_see_start_steps_and_end_in_order() -> None:
    hook = RaisingHook("never")
    engine(None, hook=hook).generate(Request((0,), 3))
    assert hook.seen == ["on_request_start", "on_step", "on_step", "on_step", "on_request_end"]


def test_a_refused_request_opens_nothing() -> None:
    target = CountingTarget()
    with pytest.raises(RequestError, match="no such token"):
        Engine(target).generate(Request((99,), 3))
    assert target.opened == 0


def test_generate_and_stream_agree() -> None:
    steps = list(engine(by_length(HAND)).stream(Request((0,), 9)))
    result = engine(by_length(HAND)).generate(Request((0,), 9))
    assert result.tokens == tuple(token for step in steps for token in step.committed)
