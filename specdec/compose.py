"""Drafters made of drafters, and drafters made of state machines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.calibrate import Calibration, share
from specdec.guard import Guard, open_session
from specdec.interfaces import Continuation, Drafter, DraftSession, Needs, StateMachine
from specdec.request import Request, Result, Step
from specdec.tenants import PerTenant
from specdec.tree import EMPTY, DraftTree, Limit


class Stack(Drafter):
    """Base of the compositions: passes everything on to every drafter in order."""

    def __init__(self, *drafters: Drafter) -> None:
        for drafter in drafters:
            if not isinstance(drafter, Drafter):
                raise TypeError(
                    f"{type(self).__name__} is made of drafters, got {drafter!r}; build a state "
                    "machine into one with MachineDrafter"
                )
        self.drafters = drafters

    @property
    def needs(self) -> Needs:
        """The union of the drafters' needs."""
        return reduce(or_, (drafter.needs for drafter in self.drafters), Needs())

    @property
    def remembers(self) -> bool:
        """Whether any of the drafters does."""
        return any(drafter.remembers for drafter in self.drafters)

    def state(self) -> Mapping[str, Any]:
        """The drafters' states by position."""
        return {str(i): drafter.state() for i, drafter in enumerate(self.drafters)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        for i, drafter in enumerate(self.drafters):
            drafter.restore(state[str(i)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.drafters))})"


class StackSession(DraftSession):
    """Base of the compositions' sessions."""

    def __init__(
        self, drafters: Sequence[Drafter], request: Request, committed: Sequence[int]
    ) -> None:
        self.sessions: tuple[Guard, ...] = tuple(
            open_session(drafter, request, committed) for drafter in drafters
        )

    def prefilled(self, embedding: npt.NDArray[np.float32] | None) -> None:
        """Passed on."""
        for session in self.sessions:
            session.prefilled(embedding)

    def observe(self, step: Step) -> None:
        """Passed on, whoever's tree it was."""
        for session in self.sessions:
            session.observe(step)

    def finish(self, result: Result) -> None:
        """Passed on."""
        for session in self.sessions:
            session.finish(result)

    @property
    def errors(self) -> tuple[str, ...]:
        """Those of all sessions."""
        return tuple(error for session in self.sessions for error in session.errors)


class Fallback(Stack):
    """The first draft that is not empty, in order; without drafters, plain decoding.

    The paper's Algorithm 1 (ToolSpec, arXiv 2604.13519) is this composition.
    """

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """See `Drafter.start`."""
        return _FallbackSession(self.drafters, request, committed)


class _FallbackSession(StackSession):
    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        for session in self.sessions:
            if tree := session.propose(tokens, limit):
                return tree
        return EMPTY


class Merge(Stack):
    """All drafts in one trie, cut to the budget by reach.

    Each source's scores are calibrated by its own acceptance record (`Calibration`), kept per
    tenant and across requests, so a source that promises too much soon loses its nodes to one
    that keeps its word.
    """

    def __init__(self, *drafters: Drafter) -> None:
        super().__init__(*drafters)
        self._records = PerTenant(Calibration)

    @property
    def remembers(self) -> bool:
        """True: acceptance records outlive a request."""
        return True

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """See `Drafter.start`."""
        return _MergeSession(self.drafters, request, committed, self._records[request.tenant])

    def state(self) -> Mapping[str, Any]:
        """The drafters' states, and the acceptance records by tenant."""
        records = {tenant: self._records[tenant].state() for tenant in self._records}
        return {**super().state(), "records": records}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        super().restore(state)
        self._records.clear()
        for tenant, record in state["records"].items():
            self._records[tenant].restore(record)


class _MergeSession(StackSession):
    def __init__(
        self,
        drafters: Sequence[Drafter],
        request: Request,
        committed: Sequence[int],
        record: Calibration,
    ) -> None:
        super().__init__(drafters, request, committed)
        self._record = record

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        trees = [session.propose(tokens, limit) for session in self.sessions]
        return share(DraftTree.merge(trees, weigh=self._record.weigh)).top(limit.nodes)

    def observe(self, step: Step) -> None:
        self._record.observe(step)
        super().observe(step)


class MachineDrafter(Drafter):
    """Turns the text continuations of any StateMachine into tokens in context.

    Args:
        machine: The machine to follow.
        most: The most continuations encoded per proposal, best first; encoding is the cost.
    """

    def __init__(self, machine: StateMachine, *, most: int = 32) -> None:
        if not isinstance(machine, StateMachine):
            raise TypeError(f"MachineDrafter follows a StateMachine, got {machine!r}")
        if most < 1:
            raise ValueError(f"most must be at least 1 continuation, got {most}")
        self.machine = machine
        self.most = most

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """A session; without a codec in the request it never offers anything."""
        return _MachineSession(self, request, committed)

    @property
    def remembers(self) -> bool:
        """Whether the machine does."""
        return self.machine.remembers

    def state(self) -> Mapping[str, Any]:
        """What the machine learned."""
        return self.machine.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.machine.restore(state)

    def __repr__(self) -> str:
        return f"MachineDrafter({self.machine!r})"


class _MachineSession(DraftSession):
    def __init__(self, drafter: MachineDrafter, request: Request, committed: Sequence[int]) -> None:
        self._machine = drafter.machine
        self._most = drafter.most
        self._codec = request.codec
        self._decoder = request.codec.decoder() if request.codec else None
        self._state = self._machine.start(request)
        self._cache: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        # What was committed before a rebuild has been learned already.
        self._follow(committed)

    def _follow(self, tokens: Sequence[int]) -> str:
        text = self._decoder.push(tokens) if self._decoder is not None else ""
        if text:
            self._state = self._machine.advance(self._state, text)
        return text

    def observe(self, step: Step) -> None:
        before = self._state
        if text := self._follow(step.committed):
            self._machine.learn(before, text, self._state)

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        # Inside a multi-byte character no text can follow: its missing bytes come first.
        if self._codec is None or self._decoder is None or self._decoder.pending:
            return EMPTY
        ranked = sorted(self._machine.continuations(self._state), key=lambda c: -c.score)
        ranked = [c for c in ranked if c.text][: min(self._most, limit.nodes)]
        sequences = [self._encode(c.text, tokens) for c in ranked]
        return _by_mass(ranked, sequences, limit)

    def _encode(self, text: str, tokens: Sequence[int]) -> tuple[int, ...]:
        tail = tuple(tokens[-8:])
        if (text, tail) not in self._cache:
            if len(self._cache) >= 4096:
                self._cache.clear()
            assert self._codec is not None
            self._cache[text, tail] = self._codec.encode(text, tail)
        return self._cache[text, tail]


def _by_mass(
    continuations: Sequence[Continuation], sequences: Sequence[Sequence[int]], limit: Limit
) -> DraftTree:
    """The trie of `sequences` in which a node's score is its share of its parent's mass.

    A continuation's score is the probability of its whole text; the mass of a node is the sum
    over the continuations that pass through it. The last token of a text may merge with what
    follows it, so half of the mass that ends there is doubted.
    """
    # A trie of integers: the mass of a node and its children by token. Node 0 is the root.
    mass = [max(1.0, math.fsum(c.score for c in continuations))]
    children: list[dict[int, int]] = [{}]
    ways: list[list[int]] = []
    for continuation, sequence in zip(continuations, sequences, strict=True):
        node, way = 0, [0]
        for depth, token in enumerate(sequence[: limit.depth], start=1):
            below = children[node].get(token)
            if below is None:
                below = children[node][token] = len(mass)
                mass.append(0.0)
                children.append({})
            last = depth == len(sequence) > 1
            mass[below] += continuation.score * (0.5 if last else 1.0)
            node = below
            way.append(node)
        ways.append(way)
    trees = [
        DraftTree.from_sequences(
            [sequence],
            source=continuation.source,
            limit=limit,
            scores=[[min(1.0, mass[b] / mass[a]) for a, b in pairwise(way)]],
        )
        for continuation, sequence, way in zip(continuations, sequences, ways, strict=True)
        if sequence
    ]
    return DraftTree.merge(trees).top(limit.nodes)
