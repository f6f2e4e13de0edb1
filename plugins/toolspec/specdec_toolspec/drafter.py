"""RetrievalDrafter: what followed the same tokens in the outputs of similar requests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from specdec import (
    EMPTY,
    Drafter,
    DraftSession,
    DraftTree,
    Episode,
    Limit,
    Memory,
    Needs,
    Request,
    Result,
    Step,
)
from specdec_toolspec.acceptance import holds_call
from specdec_toolspec.continuations import OPENING, SOURCE, Match, ranked, tree_of
from specdec_toolspec.memory import EpisodeMemory
from specdec_toolspec.text import Text, Tier

Accept = Callable[[Request, Result], bool]
"""Whether what came out of a request is worth remembering."""

PLACES: Final = 4
"""Matches taken from one text, the last ones; a text that repeats itself is one witness."""

LONGEST: Final = 4096
"""Tokens of a recalled text that are searched. A memory of another kind may hold longer ones."""


class RetrievalDrafter(Drafter):
    """Retrieval of earlier outputs (ToolSpec, Xia et al., arXiv 2604.13519, Algorithm 1).

    Behind the prompt, the outputs of the `k` most similar earlier requests are recalled. At
    every step the last tokens of the output are looked up in each of them on its own, and what
    followed there is drafted: continuations ranked by how many matches agree on them, then by
    how similar their request was, then by how late in the text they stand.

    When a request ends, its output is stored if `accept` says so, and the episodes whose tokens
    were accepted are credited to the memory.

    Args:
        memory: Where outputs are kept; an `EpisodeMemory` of its own by default.
        k: Episodes recalled.
        match: Lengths of a match, in tokens; the longest that is found anywhere counts.
        lengths: The most tokens of the best continuation, the second best, and so on.
        context: Whether prompt and output are searched too, as the least similar text.
        from_start: Whether to draft before `match` can find anything: all of a recalled output
            while nothing is written, what follows where one begins like the output, and behind
            shorter matches. While the prompt itself is computed, and no embedding is known, the
            memory is asked by tokens. Off in the paper.
        shortest: The shortest match with `from_start`, in tokens.
        store: Whether outputs are stored; without it the memory only serves.
        accept: Which outputs are stored; by default those that ended by themselves and hold a
            tool call that parses (`holds_call`).
    """

    def __init__(
        self,
        *,
        memory: Memory | None = None,
        k: int = 10,
        match: Sequence[int] = (7, 6, 5),
        lengths: Sequence[int] = (32, 16, 8, 8),
        context: bool = True,
        from_start: bool = False,
        shortest: int = 1,
        store: bool = True,
        accept: Accept = holds_call,
    ) -> None:
        if memory is not None and not isinstance(memory, Memory):
            raise TypeError(f"memory must be a Memory, got {memory!r}")
        if k < 0:
            raise ValueError(f"k must be at least 0 episodes, got {k}")
        for name, values in (("match", match), ("lengths", lengths)):
            if not values or min(values) < 1:
                raise ValueError(f"{name} must be one or more lengths of at least 1, got {values}")
        if not callable(accept):
            raise TypeError(f"accept must be a function of request and result, got {accept!r}")
        self.memory = memory if memory is not None else EpisodeMemory()
        self.k = k
        self.match: Tier = tuple(sorted(set(match), reverse=True))
        self.lengths = tuple(lengths)
        self.context = context
        self.from_start = from_start
        if from_start and not 1 <= shortest <= self.match[-1]:
            raise ValueError(
                f"shortest must be from 1 to the shortest match, {self.match[-1]}, got {shortest}"
            )
        self.shortest = shortest
        self.store = store
        self.accept = accept

    @property
    def tiers(self) -> tuple[Tier, ...]:
        """Lengths of match by falling trust; a tier is tried when those before found nothing."""
        shorter = tuple(range(self.match[-1] - 1, self.shortest - 1, -1))
        return (self.match, shorter) if self.from_start and shorter else (self.match,)

    @property
    def needs(self) -> Needs:
        """The prompt's embedding; without one the memory goes by tokens."""
        return Needs(embedding=True)

    @property
    def remembers(self) -> bool:
        """True: what is recalled comes from earlier requests."""
        return True

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        return _RetrievalSession(self, request, committed)

    def state(self) -> Mapping[str, Any]:
        """The memory's file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory"
            self.memory.save(path)
            return {"memory": path.read_bytes()}

    def restore(self, state: Mapping[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory"
            path.write_bytes(state["memory"])
            self.memory.load(path)

    def __repr__(self) -> str:
        return f"RetrievalDrafter(k={self.k}, match={self.match}, from_start={self.from_start})"


class _RetrievalSession(DraftSession):
    def __init__(
        self, drafter: RetrievalDrafter, request: Request, committed: Sequence[int]
    ) -> None:
        self._drafter = drafter
        self._request = request
        self._output = list(committed)
        self._tiers = drafter.tiers
        self._context = Text(self._tiers if drafter.context else ())
        self._context.extend((*request.prompt, *committed))
        self._embedding: npt.NDArray[np.float32] | None = None
        self._episodes: list[Episode] = []
        self._texts: list[Text] = []
        self._credits: dict[Episode, int] = {}  # accepted tokens
        if drafter.from_start:
            self._recall()

    def prefilled(self, embedding: npt.NDArray[np.float32] | None) -> None:
        if embedding is not None:
            # The host may use its array again.
            self._embedding = np.array(embedding, dtype=np.float32)
        if embedding is not None or not self._drafter.from_start:
            self._recall()

    def _recall(self) -> None:
        request, k = self._request, self._drafter.k
        query = Episode(request.prompt, (), self._embedding, tenant=request.tenant)
        found = self._drafter.memory.recall(query, k) if k else []
        # An id that the target does not know tells of another tokenizer: no use here.
        most = request.vocabulary or float("inf")
        self._episodes = [e for e in found if e.output and max(e.output) < most]
        self._texts = [Text(self._tiers, e.output[:LONGEST]) for e in self._episodes]

    def _matches(self) -> list[Match]:
        """Where the output goes on, closest text first; all matches are of one tier."""
        output, shortest = self._output, self._drafter.match[-1]
        texts = [*self._texts, self._context] if self._drafter.context else self._texts
        for tier in self._tiers:
            found = [text.find(output, tier) for text in texts]
            longest = max((length for length, _ in found), default=0)
            if longest:
                return [
                    Match(text.tokens, at, longest)
                    for text, (length, places) in zip(texts, found, strict=True)
                    if length == longest
                    for at in places[:PLACES]
                ]
            n = len(output)
            if self._drafter.from_start and n < shortest:
                begun = [t.tokens for t in self._texts if len(t) > n and t.tokens[:n] == output]
                if begun:
                    return [Match(tokens, n, n + OPENING) for tokens in begun]
        return []

    def propose(
        self,
        tokens: Sequence[int],  # noqa: ARG002 - what was observed
        limit: Limit,
    ) -> DraftTree:
        matches = self._matches()
        if not matches:
            return EMPTY
        lengths = self._drafter.lengths
        return tree_of(
            ranked(matches, lengths), most=len(lengths), length=matches[0].length, limit=limit
        )

    def observe(self, step: Step) -> None:
        if step.path:
            self._book(step)
        self._output += step.committed
        self._context.extend(step.committed)

    def _book(self, step: Step) -> None:
        """Note which episodes the accepted nodes came from; nothing before it has changed."""
        ours = 0
        for node in step.path:
            if all(vote.source != SOURCE for vote in step.tree.votes[node]):
                break
            ours += 1
        accepted = list(step.committed[:ours])
        if not accepted:
            return
        matches = self._matches()
        for episode, text in zip(self._episodes, self._texts, strict=True):
            led = (_common(match, accepted) for match in matches if match.tokens is text.tokens)
            if tokens := max(led, default=0):
                self._credits[episode] = self._credits.get(episode, 0) + tokens

    def finish(self, result: Result) -> None:
        drafter, request, memory = self._drafter, self._request, self._drafter.memory
        for episode, tokens in self._credits.items():
            memory.credit(episode, tokens)
        if not drafter.store or not drafter.accept(request, result):
            return
        output = result.tokens
        if result.finish == "stop_id" and output and output[-1] in request.stop_ids:
            output = output[:-1]
        if output:
            text = request.codec.decode(output) if request.codec is not None else None
            memory.store(Episode(request.prompt, output, self._embedding, text, request.tenant))


def _common(match: Match, accepted: Sequence[int]) -> int:
    """How many of the accepted tokens follow the match."""
    text = match.tokens[match.at : match.at + len(accepted)]
    for i, (mine, theirs) in enumerate(zip(text, accepted, strict=False)):
        if mine != theirs:
            return i
    return min(len(text), len(accepted))
