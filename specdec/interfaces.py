"""The interfaces that components implement: Drafter, StateMachine, Memory, Verifier, Budget.

Drafting code is free of torch, synchronous, deterministic and bounded in memory. Everything a
drafter may know about a request arrives through `Drafter.start`, `DraftSession.observe` and
`DraftSession.prefilled`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from specdec.request import Request, Result, Step
from specdec.tree import DraftTree, Limit

if TYPE_CHECKING:
    import torch


@attrs.frozen
class Needs:
    """What a drafter wants from the target besides committed tokens.

    Attributes:
        top_k: How many of the target's most likely ids `Step.top_ids` must hold; 0 for none.
        embedding: Whether `DraftSession.prefilled` must be given the prompt's hidden state.
    """

    top_k: int = 0
    embedding: bool = False

    def __attrs_post_init__(self) -> None:
        if type(self.top_k) is not int or self.top_k < 0:
            raise ValueError(f"top_k must be an integer of at least 0, got {self.top_k!r}")

    def __or__(self, other: Needs) -> Needs:
        """The union of two needs."""
        return Needs(max(self.top_k, other.top_k), self.embedding or other.embedding)


class DraftSession(ABC):
    """One request's drafting state.

    The engine calls `propose` and `observe` once per pass, starting with the prompt's own pass,
    then `finish`. Inside a composition `propose` may be skipped; `observe` never is. So:
    **propose must not change what a later propose returns; all progress comes from observe.**
    """

    def prefilled(self, embedding: npt.NDArray[np.float32] | None) -> None:
        """Take in the prompt's embedding; called once, after the prompt's pass was observed.

        A host that rebuilds a session in the middle calls it again, right after `start`.

        Args:
            embedding: (H,) float32, last-layer hidden state of the last prompt token, or None
                when no drafter asked for it or the host has none.
        """

    @abstractmethod
    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        """Tokens that may follow.

        Args:
            tokens: Prompt and output so far; ``tokens[-1]`` is the root. Read only.
            limit: The most nodes and the most depth; both at least 1.

        Returns:
            A tree within `limit`; empty when there is nothing to offer.
        """

    def observe(self, step: Step) -> None:
        """Take in what one pass committed, whether or not this drafter's tree was used."""

    def finish(self, result: Result) -> None:
        """End the request; the place to store an episode. May never be called."""

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong inside this session without ending it, one line each."""
        return ()


class Drafter(ABC):
    """What outlives a request: options, memories, learned tables.

    A drafter cannot make the output wrong, only slow: the verifier decides. Several sessions may
    be open at once against one drafter; nothing may leak between them except what a memory or a
    declared table keeps on purpose, and never across tenants.
    """

    @property
    def needs(self) -> Needs:
        """What the sessions want from the target; compositions return the union."""
        return Needs()

    @property
    def remembers(self) -> bool:
        """Whether proposals may depend on earlier requests."""
        return False

    @abstractmethod
    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """Open a session.

        Args:
            request: The request, prompt included.
            committed: Output so far, when a session is rebuilt in the middle. The session then
                proposes what the original would, given the same drafter state.
        """

    def state(self) -> Mapping[str, Any]:
        """What was learned so far, for saving; plain values and numpy arrays."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned; its inverse."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


State = Hashable
"""A state of a StateMachine: an immutable value, so look-ahead and rollback are free."""


@attrs.frozen
class Continuation:
    """A text that a machine expects next.

    Attributes:
        text: The whole literal, not a piece of it.
        score: P(the output goes on with exactly this text | state), in (0, 1].
        source: Name for accounting.
    """

    text: str
    score: float
    source: str


class StateMachine(ABC):
    """F = (Q, Sigma, delta, q0) over text, as a pure transition function.

    A machine guides, it never constrains: text outside its language leads to a state that
    offers nothing and can recover. States are immutable values.
    """

    @abstractmethod
    def start(self, request: Request) -> State:
        """The state q0 before the first character of the output."""

    @abstractmethod
    def advance(self, state: State, text: str) -> State:
        """The state after `text`. Total: never raises for any text. Changes nothing."""

    @abstractmethod
    def continuations(self, state: State) -> Iterable[Continuation]:
        """Texts the language expects from here, best first. Changes nothing."""

    def learn(self, before: State, text: str, after: State) -> None:
        """Pick up habits (white space, key order) from committed text. Never affects `advance`.

        Called once per committed text, not again when a session is rebuilt. Habits that outlive a
        request belong to its tenant (`specdec.PerTenant`), which a state can carry.
        """

    @property
    def remembers(self) -> bool:
        """Whether what `learn` picked up outlives a request."""
        return False

    def state(self) -> Mapping[str, Any]:
        """What was learned so far, for saving; plain values and numpy arrays."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` returned; its inverse."""


@attrs.frozen
class Episode:
    """What a memory keeps of one request.

    Attributes:
        prompt: (P,) token ids.
        output: (T,) token ids.
        embedding: (H,) float32 key, or None where the host has none.
        text: The output's text, if known.
        tenant: Whose episode it is; no other tenant ever sees it.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    embedding: npt.NDArray[np.float32] | None = attrs.field(default=None, eq=False, repr=False)
    text: str | None = None
    tenant: str = ""


class Memory(ABC):
    """Episodes kept across requests. Bounded: `store` may drop the least recently useful."""

    @abstractmethod
    def store(self, episode: Episode) -> None:
        """Keep `episode`."""

    @abstractmethod
    def recall(self, query: Episode, k: int) -> list[Episode]:
        """At most `k` episodes of the query's tenant, closest first. Does not change the memory."""

    def credit(self, episode: Episode, tokens: int) -> None:
        """Note that `episode` led to `tokens` accepted tokens: it is worth keeping."""

    @abstractmethod
    def forget(self, tenant: str | None = None) -> None:
        """Drop everything of one tenant, or of all."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of episodes kept."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write everything to `path` atomically."""

    @abstractmethod
    def load(self, path: Path) -> None:
        """Replace the contents by what `save` wrote; on any error the old contents stay."""


@attrs.frozen
class Decision:
    """The target's own choice of one token.

    Attributes:
        token: The token id.
        stop: Whether generation ends with this token.
    """

    token: int
    stop: bool


Decide = Callable[[Sequence[int], "torch.Tensor"], Decision]
"""``decide(path_tokens, row)``: processors, sampling, random numbers and stops in one place.

`path_tokens` are the tokens committed so far in this step, `row` the (V,) logits that follow
them. It is asked exactly once per visited node, in order, and every token it returns is
committed.
"""


@attrs.frozen
class Verdict:
    """What stands of a draft.

    Attributes:
        path: Accepted nodes, each a child of the one before, starting below the root.
        bonus: The target's own next token, which no node carried; None when generation ended
            on a node of the path.
        stopped: Whether generation ends here.
    """

    path: tuple[int, ...]
    bonus: int | None
    stopped: bool

    def committed(self, tree: DraftTree) -> tuple[int, ...]:
        """The tokens that a step over `tree` commits: the path's, then the bonus."""
        path = tuple(tree.tokens[node] for node in self.path)
        return path if self.bonus is None else (*path, self.bonus)


class Verifier(ABC):
    """Decides which drafted tokens stand."""

    @abstractmethod
    def verify(self, tree: DraftTree, logits: torch.Tensor, decide: Decide) -> Verdict:
        """Walk down the tree as far as the target agrees.

        Args:
            tree: N nodes.
            logits: (1 + N, V), any float dtype, on the target's device. Row 0 follows the root,
                row i + 1 follows node i.
            decide: The target's choice for one row.
        """


class Budget(ABC):
    """Chooses how many drafted nodes a pass may carry."""

    @abstractmethod
    def limit(self, kv_length: int) -> int:
        """The most nodes worth asking a drafter for, with `kv_length` tokens in the cache."""

    def trim(self, tree: DraftTree, kv_length: int, pending: int = 1) -> DraftTree:  # noqa: ARG002
        """The part of `tree` worth verifying; closed under ancestors.

        Args:
            tree: The draft.
            kv_length: Tokens in the cache.
            pending: Tokens that the pass computes anyway; more than 1 for a prompt's own pass.
        """
        return tree.top(self.limit(kv_length))

    def record(self, nodes: int, kv_length: int, seconds: float) -> None:
        """Take in what a pass of the root and `nodes` nodes cost, in seconds."""
