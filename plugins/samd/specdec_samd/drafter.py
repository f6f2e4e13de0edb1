"""SuffixDrafter: what followed the longest suffix of prompt and output that occurred before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import attrs

from specdec import EMPTY, Drafter, DraftSession, DraftTree, Limit, Memory, Request, Result, Step
from specdec_samd.automaton import ROOT_STATE, SuffixAutomaton
from specdec_samd.corpus import HIGHEST, Corpus, FileCorpus
from specdec_samd.episodes import MemoryCorpus

SOURCE: Final = "samd"

DOUBT: Final = 2
"""Pseudo-counts of "another token follows" in `score`: half is believed of a match of 2 tokens."""

CONTEXT: Final = "context"
"""The request's own prompt as the static text; see `SuffixDrafter`."""


def score(length: int) -> float:
    """First guess at P(token accepted) behind a match of `length` tokens.

    Every token of the match is counted as one success of what it was matched with, and `DOUBT`
    failures are added: 0.71 for 5 tokens, 0.95 for 40. Along a draft the match grows by a token
    per accepted node, so later nodes are surer, given that their parents were accepted.
    """
    return length / (length + DOUBT)


class SuffixDrafter(Drafter):
    """The suffix automata of SAM-Decoding (Hu et al., arXiv 2411.10666, section 3).

    The longest suffix of prompt and output that occurred before, in them or in a static text, is
    found in O(1) per token at any context length; what followed it there is the draft.

    A match in the static text counts `bias` tokens less. The longer of the two is drafted from if
    it counts at least `threshold`, prompt and output of equals.

    Args:
        length: The most tokens to draft.
        threshold: The shortest match to draft from, in tokens.
        bias: How many tokens less a match in a static text counts.
        scale: Tokens to draft per token of the match, for `length` as an upper bound; None drafts
            `length` tokens behind any match.
        static: The static text. A path: a corpus file, see `FileCorpus`; a Memory: outputs of
            earlier requests of the tenant, see `MemoryCorpus`. None, and "context" or a `Context`
            alike: no more than prompt and output. An automaton of the prompt alone would never be
            drafted from: what matches in the prompt matches in prompt and output at least as far,
            where it counts `bias` tokens more.
        store: Whether outputs are stored in a memory given as `static`.

    Raises:
        ValueError: If an option is out of range.
        TypeError: If `static` is something else.
    """

    def __init__(
        self,
        *,
        length: int = 40,
        threshold: int = 5,
        bias: int = 5,
        scale: float | None = 4.0,
        static: str | Path | Memory | Drafter | None = None,
        store: bool = True,
    ) -> None:
        for name, value, least in (
            ("length", length, 1),
            ("threshold", threshold, 1),
            ("bias", bias, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least} tokens, got {value}")
        if scale is not None and not scale > 0:
            raise ValueError(f"scale must be more than 0 tokens or none, got {scale}")
        if isinstance(static, str) and not static:
            raise ValueError("static must be the path of a corpus, got an empty text")
        self.length = length
        self.threshold = threshold
        self.bias = bias
        self.scale = scale
        self.static = static
        self.corpus = _corpus(static, store=store)

    @property
    def remembers(self) -> bool:
        """Whether the static text is made of earlier requests."""
        return self.corpus is not None and self.corpus.remembers

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """A session that has indexed the prompt and `committed`.

        Raises:
            CorpusError: If the corpus file cannot be read.
        """
        return _SuffixSession(self, request, committed)

    def state(self) -> Mapping[str, Any]:
        """What the memory holds."""
        return self.corpus.state() if self.corpus is not None else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        if self.corpus is not None:
            self.corpus.restore(state)

    def span(self, matched: int) -> int:
        """How many tokens to draft behind a match that counts `matched` tokens."""
        return self.length if self.scale is None else min(self.length, int(self.scale * matched))

    def __repr__(self) -> str:
        static = f", static={self.corpus!r}" if self.corpus is not None else ""
        return f"{type(self).__name__}(length={self.length}, threshold={self.threshold}{static})"


class Context(SuffixDrafter):
    """The suffix drafter on prompt and output alone, for ``static=context``.

    Args:
        length: See `SuffixDrafter`; so are the others.
        threshold: The shortest match.
        scale: Tokens to draft per token of the match.
    """

    def __init__(self, *, length: int = 40, threshold: int = 5, scale: float | None = 4.0) -> None:
        super().__init__(length=length, threshold=threshold, scale=scale)


def _corpus(static: str | Path | Memory | Drafter | None, *, store: bool) -> Corpus | None:
    if static is None or static == CONTEXT or isinstance(static, Context):
        return None
    if isinstance(static, str | Path):
        return FileCorpus(Path(static))
    if isinstance(static, Memory):
        return MemoryCorpus(static, store=store)
    raise TypeError(
        f"static must be the path of a corpus, a memory, {CONTEXT!r} or none, got {static!r}"
    )


@attrs.define
class _Match:
    """Where the longest match in a static text stands."""

    automaton: SuffixAutomaton
    state: int = ROOT_STATE
    length: int = 0

    def follow(self, tokens: Sequence[int]) -> None:
        self.state, self.length = self.automaton.follow(self.state, self.length, tokens)


class _SuffixSession(DraftSession):
    def __init__(self, drafter: SuffixDrafter, request: Request, committed: Sequence[int]) -> None:
        self._drafter = drafter
        self._request = request
        automata = drafter.corpus.automata(request) if drafter.corpus is not None else ()
        # The newest first: of equal matches the first counts.
        self._matches = [_Match(automaton) for automaton in reversed(automata)]
        self._context = SuffixAutomaton()
        self._extend((*request.prompt, *committed))

    def _extend(self, tokens: Sequence[int]) -> None:
        self._context.extend(tokens)
        for match in self._matches:
            match.follow(tokens)

    def observe(self, step: Step) -> None:
        self._extend(step.committed)

    def propose(
        self,
        tokens: Sequence[int],  # noqa: ARG002 - what was observed
        limit: Limit,
    ) -> DraftTree:
        drafter = self._drafter
        most = min(limit.nodes, limit.depth)
        state, length = self._context.repeated()
        static = max(self._matches, key=lambda match: match.length, default=None)
        counted = static.length - drafter.bias if static is not None else 0
        if static is not None and counted > length and counted >= drafter.threshold:
            found = static.automaton.behind(static.state, min(drafter.span(counted), most))
            if known := self._known(found):
                return _chain(known, counted)
        if length < drafter.threshold:
            return EMPTY
        return _chain(self._context.onward(state, min(drafter.span(length), most)), length)

    def _known(self, tokens: Sequence[int]) -> Sequence[int]:
        """Up to the first token that the target does not know: that one is another tokenizer's."""
        most = self._request.vocabulary or HIGHEST + 1
        return tuple(takewhile(lambda token: token < most, tokens))

    def finish(self, result: Result) -> None:
        if self._drafter.corpus is not None:
            self._drafter.corpus.learn(self._request, result)


def _chain(tokens: Sequence[int], matched: int) -> DraftTree:
    """One path; the match is `matched` tokens long at the root and grows along it."""
    scores = [score(matched + depth) for depth in range(len(tokens))]
    limit = Limit(len(tokens), len(tokens))
    return DraftTree.from_sequences([tokens], source=SOURCE, limit=limit, scores=[scores])
