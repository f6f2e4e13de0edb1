"""Drafters made of drafters, and drafters made of state machines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from specdec.calibrate import Calibration, share
from specdec.guard import Guard, open_session
from specdec.interfaces import Continuation, Drafter, DraftSession, Needs, StateMachine
from specdec.request import Request, Result, Step
from specdec.tenants import PerTenant
from specdec.text import BatchCodec, TextCodec
from specdec.tree import EMPTY, ROOT, DraftTree, Limit, Vote

CONTEXT: Final = 8
"""Committed tokens that text is encoded behind, unless the codec says that fewer will do."""

DOUBT: Final = 0.02
"""P(the last token of a text is another, as it merges with what follows).

On samples of `python -m bench.coverage` with `schema`, 0.02 covers 0.1 % more structure than 0.25,
in fewer passes.
"""

KEPT: Final = 16_384
"""Texts whose tokens a machine drafter remembers."""


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

    Args:
        *drafters: In the order in which they are asked.
        sure: A draft ends the search if the target's next token is in it with at least this
            probability, by the drafters' scores and acceptance records (see `Merge`); one that is
            less sure shares the pass with those of the drafters behind it. 0 is Algorithm 1.
    """

    def __init__(self, *drafters: Drafter, sure: float = 0.0) -> None:
        super().__init__(*drafters)
        if not 0.0 <= sure <= 1.0:
            raise ValueError(f"sure must be a probability, got {sure}")
        self.sure = sure
        self._records = Records()

    @property
    def remembers(self) -> bool:
        """Whether any of the drafters does; with `sure`, acceptance records are kept too."""
        return self.sure > 0.0 or super().remembers

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """See `Drafter.start`."""
        if self.sure == 0.0:
            return _FallbackSession(self.drafters, request, committed)
        record = self._records[request.tenant]
        return _MergeSession(self.drafters, request, committed, record, sure=self.sure)

    def state(self) -> Mapping[str, Any]:
        """The drafters' states, and the acceptance records by tenant."""
        return {**super().state(), "records": self._records.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        super().restore(state)
        self._records.restore(state["records"])


class _FallbackSession(StackSession):
    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        for session in self.sessions:
            if tree := session.propose(tokens, limit):
                return tree
        return EMPTY


class Records(PerTenant[Calibration]):
    """The acceptance records of a composition, by tenant."""

    def __init__(self) -> None:
        super().__init__(Calibration)

    def state(self) -> Mapping[str, Any]:
        """The records, as plain values."""
        return {tenant: self[tenant].state() for tenant in self}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self.clear()
        for tenant, record in state.items():
            self[tenant].restore(record)


class Merge(Stack):
    """All drafts in one trie, cut to the budget by reach.

    Each source's scores are calibrated by its own acceptance record (`Calibration`), kept per
    tenant and across requests, so a source that promises too much soon loses its nodes to one
    that keeps its word.
    """

    def __init__(self, *drafters: Drafter) -> None:
        super().__init__(*drafters)
        self._records = Records()

    @property
    def remembers(self) -> bool:
        """True: acceptance records outlive a request."""
        return True

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """See `Drafter.start`."""
        return _MergeSession(self.drafters, request, committed, self._records[request.tenant])

    def state(self) -> Mapping[str, Any]:
        """The drafters' states, and the acceptance records by tenant."""
        return {**super().state(), "records": self._records.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        super().restore(state)
        self._records.restore(state["records"])


class _MergeSession(StackSession):
    def __init__(
        self,
        drafters: Sequence[Drafter],
        request: Request,
        committed: Sequence[int],
        record: Calibration,
        sure: float = 2.0,
    ) -> None:
        super().__init__(drafters, request, committed)
        self._record = record
        self._sure = sure

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        trees: list[DraftTree] = []
        for session in self.sessions:
            tree = session.propose(tokens, limit)
            trees.append(tree)
            if self._hit(tree) >= self._sure:
                break
        return share(DraftTree.merge(trees, weigh=self._record.weigh)).top(limit.nodes)

    def _hit(self, tree: DraftTree) -> float:
        """P(the target's next token is in `tree`), as far as the records tell."""
        if self._sure > 1.0:
            return 0.0  # nothing is that sure
        below = (v for v, parent in zip(tree.votes, tree.parents, strict=True) if parent == ROOT)
        return min(sum(map(self._record.weigh, below)), 1.0)

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
        self._encoder: _Encoder | None = None

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """A session; without a codec in the request it never offers anything."""
        return _MachineSession(self, request, committed)

    def encoder(self, codec: TextCodec) -> _Encoder:
        """The encoder of the sessions with `codec`; that of the codec asked for last is kept."""
        encoder = self._encoder
        if encoder is None or encoder.codec is not codec:
            encoder = self._encoder = _Encoder(codec)
        return encoder

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


class _Encoder:
    """Texts to tokens in context, remembered across requests.

    What is remembered depends on codec, text and context alone, so tenants may share it. Safe to
    use from many threads: entries are only ever added, or all dropped.
    """

    def __init__(self, codec: TextCodec) -> None:
        self.codec = codec
        self._batch = codec if isinstance(codec, BatchCodec) else None
        self._known: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}

    def encode(self, texts: Sequence[str], after: Sequence[int]) -> list[tuple[int, ...]]:
        """The tokens of each text after the tokens `after`."""
        tail = tuple(after[-CONTEXT:])
        context = self._batch.context(tail) if self._batch is not None else tail
        found = {text: self._known.get((text, context)) for text in texts}
        if new := [text for text, tokens in found.items() if tokens is None]:
            fresh = dict(zip(new, self._encode(new, context), strict=True))
            if len(self._known) + len(fresh) > KEPT:
                self._known.clear()
            self._known.update({(text, context): tokens for text, tokens in fresh.items()})
            found |= fresh
        return [found[text] or () for text in texts]

    def _encode(self, texts: Sequence[str], after: tuple[int, ...]) -> list[tuple[int, ...]]:
        if self._batch is not None:
            return self._batch.encode_all(texts, after)
        return [self.codec.encode(text, after) for text in texts]


class _MachineSession(DraftSession):
    def __init__(self, drafter: MachineDrafter, request: Request, committed: Sequence[int]) -> None:
        self._machine = drafter.machine
        self._most = drafter.most
        self._encoder = drafter.encoder(request.codec) if request.codec else None
        self._decoder = request.codec.decoder() if request.codec else None
        self._state = self._machine.start(request)
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
        if self._encoder is None or self._decoder is None or self._decoder.pending:
            return EMPTY
        ranked = sorted(self._machine.continuations(self._state), key=lambda c: -c.score)
        ranked = [c for c in ranked if c.text][: min(self._most, limit.nodes)]
        if not ranked:
            return EMPTY
        sequences = self._encoder.encode([c.text for c in ranked], tokens)
        return _by_mass(ranked, sequences, limit)


def _by_mass(
    continuations: Sequence[Continuation], sequences: Sequence[Sequence[int]], limit: Limit
) -> DraftTree:
    """The trie of `sequences` in which a node's score is its share of its parent's mass.

    A continuation's score is the probability of its whole text; the mass of a node is the sum
    over the continuations that pass through it. The last token of a text may merge with what
    follows it, so a part of the mass that ends there, `DOUBT`, is doubted.
    """
    tokens: list[int] = []
    parents: list[int] = []
    mass: list[float] = []
    sources: list[tuple[str, ...]] = []
    place_of: dict[tuple[int, int], int] = {}
    for continuation, sequence in zip(continuations, sequences, strict=True):
        share, source = continuation.score, (continuation.source,)
        parent = ROOT
        for token in sequence[: limit.depth]:
            node = place_of.get((parent, token))
            if node is None:
                node = place_of[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
                mass.append(share)
                sources.append(source)
            else:
                mass[node] += share
                if source[0] not in sources[node]:
                    sources[node] += source
            parent = node
        if 1 < len(sequence) <= limit.depth:
            mass[parent] -= DOUBT * share
    # Behind the last node stands the root, which ROOT, being -1, finds.
    mass.append(max(1.0, math.fsum(continuation.score for continuation in continuations)))
    scores = [min(1.0, mass[node] / mass[parent]) for node, parent in enumerate(parents)]
    # Cut before it is built: most of the cost of a tree is its votes.
    kept = _furthest(parents, scores, limit.nodes)
    place = {ROOT: ROOT} | {node: i for i, node in enumerate(kept)}
    return DraftTree(
        tuple(tokens[node] for node in kept),
        tuple(place[parents[node]] for node in kept),
        tuple(scores[node] for node in kept),
        tuple(tuple(Vote(source, scores[node]) for source in sources[node]) for node in kept),
    )


def _furthest(parents: Sequence[int], scores: Sequence[float], nodes: int) -> list[int]:
    """The `nodes` nodes of the greatest reach, in order; see `DraftTree.top`."""
    reach: list[float] = []
    for parent, score in zip(parents, scores, strict=True):
        reach.append(score if parent == ROOT else score * reach[parent])
    return sorted(sorted(range(len(reach)), key=lambda node: -reach[node])[:nodes])
