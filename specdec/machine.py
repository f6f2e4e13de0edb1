"""MachineDrafter: text that a state machine expects, as drafts of tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from specdec.interfaces import Continuation, Drafter, DraftSession, StateMachine
from specdec.request import Request, Step
from specdec.text import CONTEXT, BatchCodec, TextCodec
from specdec.tree import EMPTY, ROOT, DraftTree, Limit, Vote

DOUBT: Final = 0.02
"""P(the last token of a text is another, as it merges with what follows).

On samples of `python -m bench.coverage` with `schema`, 0.02 covers 0.1 % more structure than 0.25,
in fewer passes.
"""

KEPT: Final = 16_384
"""Texts whose tokens a machine drafter remembers."""


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
        tail = tuple(after[-CONTEXT:])  # unless the codec says that fewer will do
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
