"""Recordings of requests on the oracle, to be replayed to one session after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from specdec.compose import Fallback
from specdec.engine import Engine
from specdec.interfaces import Drafter, DraftSession, Needs
from specdec.request import Request, Result, Step
from specdec.testing.cases import Case, cases
from specdec.testing.checks import fail_unless
from specdec.testing.oracle import OracleTarget
from specdec.tree import EMPTY, DraftTree, Limit

ROOMY: Final = Limit(64, 16)
"""The limit of drafts that are compared."""

TOP_K: Final = 8
"""Columns of `Step.top_ids` for drafters that ask for fewer, as a neighbour may need them."""


class Neighbour(Drafter):
    """A drafter that stands beside the one under test: it knows the answer, in part.

    Now and then it offers nothing; else one to three right tokens, a wrong one behind them and
    a wrong one beside them.
    """

    def __init__(self, target: OracleTarget) -> None:
        self.target = target

    def start(
        self,
        request: Request,
        committed: Sequence[int] = (),  # noqa: ARG002 - read off `tokens`
    ) -> DraftSession:
        """See `Drafter.start`."""
        return _NeighbourSession(self.target, request.prompt)


class _NeighbourSession(DraftSession):
    def __init__(self, target: OracleTarget, prompt: tuple[int, ...]) -> None:
        self._target = target
        self._prompt = prompt

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        if len(tokens) % 5 == 0:
            return EMPTY
        output = list(tokens[len(self._prompt) :])
        first = len(output)
        for _ in range(len(tokens) % 3 + 1):
            output.append(self._target.following(self._prompt, output))
        size = self._target.vocabulary
        wrong = (self._target.following(self._prompt, output) + 1) % size
        right = output[first:]
        beside = (right[0] + 2) % size
        return DraftTree.from_sequences(
            [[*right, wrong], [beside]], source="neighbour", limit=limit, scores=[0.8, 0.2]
        )


class Generous(Drafter):
    """The same drafter, given more than it asked for, as beside a neighbour that needs it."""

    def __init__(self, drafter: Drafter, top_k: int) -> None:
        self._drafter = drafter
        self._more = Needs(top_k, embedding=True)

    @property
    def needs(self) -> Needs:
        """The drafter's own, and more."""
        return self._drafter.needs | self._more

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """The drafter's own session."""
        return self._drafter.start(request, committed)


@attrs.frozen
class Recording:
    """One request, step by step.

    Attributes:
        request: The request.
        steps: All of its steps, with `top_ids`.
        embedding: The prompt's embedding.
        result: What came out.
    """

    request: Request
    steps: tuple[Step, ...]
    embedding: npt.NDArray[np.float32]
    result: Result

    def committed(self, steps: int) -> tuple[int, ...]:
        """The output of the first `steps` steps."""
        return tuple(token for step in self.steps[:steps] for token in step.committed)

    def tokens(self, steps: int) -> tuple[int, ...]:
        """Prompt and output of the first `steps` steps."""
        return self.request.prompt + self.committed(steps)

    def checkpoints(self) -> tuple[int, ...]:
        """Numbers of steps at which a look is worth it: early ones, a middle one, the last."""
        last = len(self.steps) - 1
        return tuple(sorted({n for n in (0, 1, 2, 3, last // 2, last) if 0 <= n <= last}))

    def asked_by(self, tenant: str) -> Request:
        """The request, had `tenant` made it."""
        return attrs.evolve(self.request, tenant=tenant)

    def bare(self) -> Recording:
        """The same without `top_ids`."""
        steps = tuple(attrs.evolve(step, top_ids=None) for step in self.steps)
        return attrs.evolve(self, steps=steps)


def record(given: Case, drafter: Drafter, top_k: int = TOP_K) -> Recording:
    """The engine's steps with `drafter`, and `top_k` ids at least."""
    engine = Engine(given.target, Generous(drafter, top_k), on_error="raise")
    stream = engine.stream(given.request)
    steps = []
    while True:
        try:
            steps.append(next(stream))
        except StopIteration as end:
            embedding = given.target.embedding(given.request.prompt)
            return Recording(given.request, tuple(steps), embedding, end.value)


@lru_cache(maxsize=64)
def _recorded(name: str, top_k: int, *, plain: bool) -> Recording:
    given = next(given for given in cases(long=True) if given.name == name)
    return record(given, Fallback() if plain else Neighbour(given.target), top_k)


def recordings(
    top_k: int = TOP_K, *, long: bool = False, plain: bool = False
) -> Iterator[Recording]:
    """Every case, decoded with the neighbour's drafts, or with none at all if `plain`.

    They are made once. Their steps hold `top_k` ids, or `TOP_K` if that is more.
    """
    for given in cases(long=long):
        yield _recorded(given.name, max(TOP_K, top_k), plain=plain)


def tell(session: DraftSession, recording: Recording, first: int, last: int) -> None:
    """Let the session observe the steps from `first` up to, not including, `last`."""
    for step in recording.steps[first:last]:
        session.observe(step)
        if step.index == 0:
            session.prefilled(recording.embedding)


def ask(session: DraftSession, recording: Recording, steps: int, limit: Limit = ROOMY) -> DraftTree:
    """The session's draft behind the first `steps` steps."""
    return session.propose(recording.tokens(steps), limit)


def play(session: DraftSession, recording: Recording) -> list[DraftTree]:
    """The session's draft before each step; it observes all but the last."""
    drafts = []
    for step in range(len(recording.steps)):
        drafts.append(ask(session, recording, step))
        if step + 1 < len(recording.steps):
            tell(session, recording, step, step + 1)
    return drafts


def complete(session: DraftSession, recording: Recording) -> list[DraftTree]:
    """Likewise, with the last step observed and the session finished."""
    drafts = play(session, recording)
    tell(session, recording, len(recording.steps) - 1, len(recording.steps))
    session.finish(recording.result)
    return drafts


def same(
    first: list[DraftTree], second: list[DraftTree], recording: Recording, difference: str
) -> None:
    """Fail with `difference` unless the drafts before each step are the same."""
    for step, (one, two) in enumerate(zip(first, second, strict=True)):
        fail_unless(one == two, f"{difference}: after {step} steps of {recording.request.id!r}")
