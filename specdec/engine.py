"""The engine: one loop for every drafter.

Decoding is propose, forward, verify, commit, observe. A method is a drafter, never a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from specdec.budget import FixedBudget
from specdec.compose import Fallback
from specdec.errors import ContractError
from specdec.guard import open_session
from specdec.interfaces import Budget, Decision, Drafter, Needs, Verifier
from specdec.report import Clock, Ledger
from specdec.request import Finish, OnError, Phases, Request, Result, Step
from specdec.tree import EMPTY, DraftTree, Limit

if TYPE_CHECKING:
    import torch


class TargetSession(Protocol):
    """One request's view of the target: its cache, its processors, its random numbers."""

    @property
    def kv_length(self) -> int:
        """Tokens whose keys and values are in the cache."""

    @property
    def embedding(self) -> npt.NDArray[np.float32] | None:
        """(H,) hidden state of the last prompt token, once the prompt's pass is done."""

    @property
    def finish(self) -> Finish:
        """Why the request ended, once it did."""

    def depth(self, pending: int) -> int:
        """The most depth a draft may have behind `pending` tokens that are not cached yet."""

    def forward(self, pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
        """(1 + N, V) logits: row 0 follows the last of `pending`, row i + 1 follows node i."""

    def decide(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        """The target's choice; see `specdec.interfaces.Decide`."""

    def commit(self, path: Sequence[int]) -> None:
        """Keep the pending tokens and the nodes of `path` in the cache, drop the other nodes."""

    def top_ids(self, k: int) -> npt.NDArray[np.int64]:
        """(1 + N, k) most likely next tokens of the last pass."""

    def close(self) -> None:
        """Give the cache back. Called once, also after an error."""


class Target(Protocol):
    """The model that decides."""

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Guards the target's forward; several requests may be open at once."""

    def start(self, request: Request, needs: Needs) -> TargetSession:
        """Open a session, or refuse what cannot be decoded exactly before the first token."""


class NoHooks:
    """Observers of an engine that has none."""

    def on_request_start(self, request: Request) -> None:
        """Nothing."""

    def on_step(self, request: Request, step: Step) -> None:
        """Nothing."""

    def on_request_end(self, request: Request, result: Result) -> None:
        """Nothing."""


class Engine:
    """Decodes requests on one target with one drafter. The output is the target's own.

    Args:
        target: The model that decides, such as `specdec.hf.HFTarget`.
        drafter: Any drafter or composition; without one, plain decoding.
        verifier: Decides which drafted tokens stand; the exact one by default.
        budget: Chooses how many nodes a pass carries; 64 by default.
        on_error: What happens when a drafter raises: "plain" goes on without it for that
            request, "raise" is for tests and comparisons.
        hook: Observers, such as ``registry.hook``. An observer that raises ends the request.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None = None,
        *,
        verifier: Verifier | None = None,
        budget: Budget | None = None,
        on_error: OnError = "plain",
        hook: Any = None,  # noqa: ANN401 - pluggy's relay has no static type
    ) -> None:
        if verifier is None:
            from specdec.verify import ExactVerifier  # imports torch

            verifier = ExactVerifier()
        self.target = target
        self.drafter = drafter if drafter is not None else Fallback()
        self.verifier = verifier
        self.budget = budget if budget is not None else FixedBudget(64)
        self.on_error: OnError = on_error
        self.hook = hook if hook is not None else NoHooks()

    def generate(
        self, request: Request, *, each: Callable[[Step], None] = lambda _: None
    ) -> Result:
        """Decode `request` to its end.

        Args:
            request: What to decode.
            each: Called with every step as it is committed.

        Raises:
            RequestError: If the target cannot serve the request.
        """
        # Closed here, so that what interrupts it finds the model ready for the next request.
        with closing(self.stream(request)) as steps:
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    result: Result = end.value
                    return result
                each(step)

    def stream(self, request: Request) -> Generator[Step, None, Result]:
        """Decode `request`, yielding each step as it is committed; returns the result."""
        target, budget, hook = self.target, self.budget, self.hook
        request = attrs.evolve(request, on_error=self.on_error, vocabulary=target.vocabulary)
        clock, ledger = Clock(), Ledger(request)
        draft = open_session(self.drafter, request)
        session = target.start(request, draft.needs)
        try:
            hook.on_request_start(request=request)
            # Invariant: the cache holds all of `tokens` but `pending`; its last token is the root.
            tokens = request.prompt
            pending = tokens[session.kv_length :]
            end = len(tokens) + request.max_new_tokens
            stopped = request.max_new_tokens == 0
            while not stopped:
                cached = session.kv_length
                depth = min(session.depth(len(pending)), end - len(tokens) - 1)
                limit = Limit(budget.limit(cached), depth)
                tree = draft.propose(tokens, limit) if limit else EMPTY
                tree = budget.trim(tree, cached, len(pending))
                drafted = clock.lap()
                with target.lock:
                    logits = session.forward(pending, tree)
                passed = clock.lap()
                verdict = self.verifier.verify(tree, logits, session.decide)
                verified = clock.lap()
                committed = verdict.committed(tree)
                top_ids = session.top_ids(draft.needs.top_k) if draft.needs.top_k else None
                session.commit(verdict.path[: len(committed) - 1])
                phases = Phases(drafted, passed, verified)
                step = Step(ledger.passes, tree, verdict.path, committed, cached, top_ids, phases)
                draft.observe(step)
                if step.index == 0:
                    draft.prefilled(session.embedding)
                budget.record(len(tree), cached, passed)
                hook.on_step(request=request, step=step)
                ledger.book(step, clock.lap())
                tokens, pending = tokens + committed, committed[-1:]
                stopped = verdict.stopped
                if len(tokens) >= end and not stopped:
                    raise ContractError(f"{self.verifier!r} went on after the last token allowed")
                yield step
                clock.lap()  # what the consumer took is not ours
            draft.finish(ledger.close(session.finish, draft.errors))
            result = ledger.close(session.finish, draft.errors, clock.lap())
            hook.on_request_end(request=request, result=result)
            return result
        finally:
            session.close()
