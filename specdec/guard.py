"""Guard: the one place where a drafter's contract is checked and its errors are handled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from specdec.errors import ContractError
from specdec.interfaces import Drafter, DraftSession, Needs
from specdec.request import Request, Result, Step
from specdec.tree import EMPTY, DraftTree, Limit, Vote

log = logging.getLogger("specdec")
_warned: set[str] = set()


def open_session(drafter: Drafter, request: Request, committed: Sequence[int] = ()) -> Guard:
    """A checked session of `drafter`; compositions open their children with it too.

    Under ``request.on_error == "plain"`` a drafter that raises is counted in `Guard.errors`,
    warned about once per process, and not asked again for this request; its neighbours in a
    composition go on. Under ``"raise"`` its error is raised.
    """
    return Guard(drafter, request, committed)


class Guard(DraftSession):
    """A session that keeps its contract or is left out.

    Attributes:
        needs: What the drafter wants from the target; nothing when it cannot say.
    """

    def __init__(self, drafter: Drafter, request: Request, committed: Sequence[int]) -> None:
        self._drafter = drafter
        self._request = request
        self._errors: list[str] = []
        self._session: DraftSession | None = None
        self.needs = Needs()
        self._attempt("needs", self._ask_needs)
        if not self._errors:
            self._attempt("start", lambda: self._open(committed))

    def _ask_needs(self) -> None:
        needs = self._drafter.needs
        if not isinstance(needs, Needs):
            raise ContractError(f"{self._name()} needs a {type(needs).__name__}; expected Needs")
        self.needs = needs

    def _open(self, committed: Sequence[int]) -> None:
        session = self._drafter.start(self._request, committed)
        if not isinstance(session, DraftSession):
            raise ContractError(
                f"{self._name()} started a {type(session).__name__}; expected a DraftSession"
            )
        self._session = session

    def _attempt(self, verb: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            if self._request.on_error == "raise":
                raise
            self._errors += self._inner_errors()
            self._session = None
            self._errors.append(f"{self._name()}.{verb}: {type(error).__name__}: {error}")
            kind = f"{type(self._drafter).__qualname__}.{verb}: {type(error).__name__}"
            if kind not in _warned:
                _warned.add(kind)
                log.warning(
                    "%s; %s goes on without this drafter (further errors of this kind are only "
                    "counted)",
                    self._errors[-1],
                    self._request.id,
                )

    def prefilled(self, embedding: npt.NDArray[np.float32] | None) -> None:
        """See `DraftSession.prefilled`."""
        if session := self._session:
            self._attempt("prefilled", lambda: session.prefilled(embedding))

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        """The session's proposal if it keeps to `limit` and the vocabulary."""
        found = EMPTY

        def ask() -> None:
            nonlocal found
            if self._session is not None:
                found = self._checked(self._session.propose(tokens, limit), limit)

        self._attempt("propose", ask)
        return found

    def _checked(self, tree: DraftTree, limit: Limit) -> DraftTree:
        if type(tree) is not DraftTree:  # a subclass may do anything
            raise ContractError(
                f"{self._name()} proposed a {type(tree).__name__}; expected a DraftTree"
            )
        if not tree.tokens:
            return tree
        if len(tree) > limit.nodes:
            raise ContractError(
                f"{self._name()} proposed {len(tree)} nodes for a budget of {limit.nodes}"
            )
        depth = int(tree.depths.max())
        if depth > limit.depth:
            raise ContractError(
                f"{self._name()} proposed a path of {depth} tokens where at most {limit.depth} "
                "may follow"
            )
        for vote in chain.from_iterable(tree.votes):
            if type(vote) is not Vote or type(vote.source) is not str or not 0 < vote.score <= 1:
                raise ContractError(
                    f"{self._name()} proposed a node with {vote!r}; expected Vote(source, score) "
                    "with a text and a score in (0, 1]"
                )
        low, high = min(tree.tokens), max(tree.tokens)
        if low < 0 or (self._request.vocabulary and high >= self._request.vocabulary):
            raise ContractError(
                f"{self._name()} proposed token {low if low < 0 else high}, outside the "
                f"target's vocabulary of {self._request.vocabulary}"
            )
        return tree

    def observe(self, step: Step) -> None:
        """See `DraftSession.observe`."""
        if session := self._session:
            self._attempt("observe", lambda: session.observe(step))

    def finish(self, result: Result) -> None:
        """See `DraftSession.finish`."""
        if session := self._session:
            self._attempt("finish", lambda: session.finish(result))

    @property
    def errors(self) -> tuple[str, ...]:
        """Errors of this session and of the sessions inside it."""
        return (*self._errors, *self._inner_errors())

    def _inner_errors(self) -> tuple[str, ...]:
        try:
            return tuple(self._session.errors) if self._session else ()
        except Exception as error:
            if self._request.on_error == "raise":
                raise
            return (f"{self._name()}.errors: {type(error).__name__}: {error}",)

    def _name(self) -> str:
        """The drafter's own words for itself, if it finds any."""
        try:
            return repr(self._drafter)
        except Exception:
            return type(self._drafter).__qualname__
