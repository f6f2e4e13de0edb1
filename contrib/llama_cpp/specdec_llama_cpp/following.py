"""Following: one request, read off the ids that the host shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from specdec import EMPTY, Acceptance, Drafter, Limit, Request, Result, Step
from specdec.guard import open_session
from specdec.report import Ledger, parting
from specdec.request import Finish

TopIds = Callable[[int, int, int], npt.NDArray[np.int64]]
"""``(first, rows, k)``: the most likely next tokens at `rows` positions from `first` on."""


class Following:
    """One request's session, kept in step with a host that says nothing but ids.

    Args:
        drafter: The stack.
        request: The request; its prompt is all that stood there before the first token written.
        top_ids: The target's most likely tokens, for drafters that need them.
    """

    def __init__(self, drafter: Drafter, request: Request, top_ids: TopIds) -> None:
        self._session = open_session(drafter, request)
        self._ledger = Ledger(request)
        self._top_ids = top_ids
        self._tokens = request.prompt
        self._seen = np.array(request.prompt, dtype=np.intc)
        self._tree = EMPTY
        self._prompt = len(request.prompt)

    @property
    def output(self) -> tuple[int, ...]:
        """What is known of the output."""
        return self._tokens[self._prompt :]

    def take(self, ids: npt.NDArray[np.intc]) -> bool:
        """Observe the pass that `ids` show, if one pass can have led to them.

        Args:
            ids: Prompt and output so far, in memory of our own.

        Returns:
            False if they belong to another request, or to this one after a cut or a shift.
        """
        known = len(self._seen)
        fresh = tuple(ids[known:].tolist())
        # One pass commits a part of the draft and one token more; a new prompt that begins with
        # all that was said before brings more than that, or other tokens.
        drafted = self._tree.tokens
        if not 0 < len(fresh) <= len(drafted) + 1 or fresh[:-1] != drafted[: len(fresh) - 1]:
            return False
        if not np.array_equal(ids[:known], self._seen):
            return False
        self._observe(fresh, accepted=len(fresh) - 1)
        self._seen = ids
        return True

    def propose(self, limit: Limit, least: float) -> tuple[int, ...]:
        """The most promising chain of tokens, up to the first that is less likely than `least`."""
        tree = self._session.propose(self._tokens, limit) if limit else EMPTY
        reach = tree.reach
        # What is observed later must be what was verified: the chain, not the tree it is from.
        self._tree = tree.keep(node for node in tree.best_path() if reach[node] >= least)
        return self._tree.tokens

    def finish(self, rest: Sequence[int], ended: bool) -> Result:
        """End the request.

        Args:
            rest: What the last pass wrote, which the host never shows.
            ended: Whether the model came to an end of its own.
        """
        accepted = parting(rest, self._tree.tokens)
        whole = accepted >= len(rest) - 1
        if rest and whole:
            self._observe(tuple(rest), accepted)
        result = self._closed("stop_id" if ended and whole else "length")
        self._session.finish(result)
        return result

    @property
    def report(self) -> Acceptance:
        """How the drafts fared so far."""
        return Acceptance.of(self._closed("length"))

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong in drafters, one line each."""
        return self._session.errors

    def _closed(self, finish: Finish) -> Result:
        return self._ledger.close(finish, self._session.errors)

    def _observe(self, committed: tuple[int, ...], accepted: int) -> None:
        index, cached = self._ledger.passes, len(self._tokens) - 1
        path = tuple(range(accepted))
        k = self._session.needs.top_k
        top_ids = self._top_ids(cached, 1 + len(self._tree), k) if k else None
        step = Step(index, self._tree, path, committed, cached if index else 0, top_ids)
        self._session.observe(step)
        if index == 0:
            self._session.prefilled(None)  # llama.cpp keeps no hidden states of generating models
        self._ledger.book(step, 0.0)
        self._tokens += committed
        self._tree = EMPTY
