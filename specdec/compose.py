"""Drafters made of drafters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec.calibrate import Calibration, share
from specdec.guard import Guard, open_session
from specdec.interfaces import Drafter, DraftSession, Needs
from specdec.request import Request, Result, Step
from specdec.tenants import PerTenant
from specdec.tree import EMPTY, ROOT, DraftTree, Limit


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


class RecordedStack(Stack):
    """Base of the compositions that judge drafters by their acceptance records."""

    def __init__(self, *drafters: Drafter) -> None:
        super().__init__(*drafters)
        self._records = PerTenant(Calibration)

    def state(self) -> Mapping[str, Any]:
        """The drafters' states, and the acceptance records by tenant."""
        return {**super().state(), "records": self._records.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        super().restore(state)
        self._records.restore(state["records"])


class Fallback(RecordedStack):
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


class _FallbackSession(StackSession):
    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        for session in self.sessions:
            if tree := session.propose(tokens, limit):
                return tree
        return EMPTY


class Merge(RecordedStack):
    """All drafts in one trie, cut to the budget by reach.

    Each source's scores are calibrated by its own acceptance record (`Calibration`), kept per
    tenant and across requests, so a source that promises too much soon loses its nodes to one
    that keeps its word.
    """

    @property
    def remembers(self) -> bool:
        """True: acceptance records outlive a request."""
        return True

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """See `Drafter.start`."""
        return _MergeSession(self.drafters, request, committed, self._records[request.tenant])


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
