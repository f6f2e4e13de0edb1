"""Proposing: one request's drafts, for a host that decodes by itself and verifies one chain.

Serving engines have their own loop. They tell what was committed, or show it, and take a chain of
tokens for the next pass; most know of no trees, and hand out neither logits nor hidden states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from specdec.acceptance import Acceptance
from specdec.errors import ContractError
from specdec.guard import open_session
from specdec.interfaces import Drafter
from specdec.report import Ledger
from specdec.request import Finish, Request, Result, Step
from specdec.tree import EMPTY, DraftTree, Limit

BREADTH = 4
"""Nodes asked for per token of the chain: the best chain is chosen among others."""

TopIds = Callable[[int, int, int], npt.NDArray[np.int64]]
"""``(first, rows, k)``: (rows, k) most likely next tokens at `rows` positions from `first` on, most
likely first. Position 0 is that of the prompt's first token; the chain's are behind the root's."""


class ChainSession:
    """One request on a host that verifies chains.

    Turns of `propose` and `commit`; either may be skipped. What a drafter raises is handled as
    ``request.on_error`` says, see `specdec.guard`.

    Args:
        drafter: Any drafter or composition. No embedding is known, so a drafter that needs one
            works as far as it can do without.
        request: The request.
        committed: Output so far, when a request is taken up in the middle.
        top_ids: Asked after each pass if the drafter needs the target's most likely tokens;
            without it such a drafter works as far as it can do without them.

    Attributes:
        tokens: Prompt and output so far. Read only.
        chain: What was proposed last and not committed yet; one path.
    """

    def __init__(
        self,
        drafter: Drafter,
        request: Request,
        committed: Sequence[int] = (),
        *,
        top_ids: TopIds | None = None,
    ) -> None:
        self.request = request
        self.tokens: list[int] = [*request.prompt, *committed]
        self.chain = EMPTY
        self._session = open_session(drafter, request, committed)
        self._top_ids = top_ids
        self._ledger = Ledger(request)
        self._emitted = 0
        self._prefilled = False
        if committed:
            self._prefill()

    @property
    def output(self) -> tuple[int, ...]:
        """What was committed so far, without the prompt."""
        return tuple(self.tokens[len(self.request.prompt) :])

    @property
    def report(self) -> Acceptance:
        """How the drafts fared so far, in the passes that were told of."""
        figures = Acceptance.of(self._closed("length"))
        # Counted here, as a pass that was not verified may stand for several, and one that ended
        # inside its draft need not be the last.
        return attrs.evolve(figures, num_emitted_tokens=self._emitted)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong in drafters so far, one line each."""
        return self._session.errors

    def propose(self, depth: int, *, least: float = 0.0) -> tuple[int, ...]:
        """The best chain of at most `depth` tokens.

        Args:
            depth: The most tokens that the host takes.
            least: The chain ends before a token that is accepted with less than this probability,
                by the drafter's own scores.
        """
        self.chain = EMPTY
        if depth > 0:
            tree = self._session.propose(self.tokens, Limit(BREADTH * depth, depth))
            self.chain = _chain(tree, least)
        return self.chain.tokens

    def shorten(self, depth: int) -> tuple[int, ...]:
        """Cut the chain to its first `depth` tokens, for a host that will not verify all of it."""
        if depth < len(self.chain):
            self.chain = self.chain.keep(range(depth))
        return self.chain.tokens

    def commit(self, committed: Sequence[int], accepted: int | None = None) -> Step:
        """Take in what a pass of the host committed.

        Args:
            committed: (at least 1,) new tokens. The last is the target's own, unless a stop ended
                the output inside the chain.
            accepted: How many of them are drafted ones; None where the chain was not verified.

        Raises:
            ContractError: If that many were not drafted, or are not the chain's.
        """
        chain = EMPTY if accepted is None else self.chain
        taken = accepted or 0
        if (
            not committed
            or not 0 <= taken <= len(chain)
            or tuple(committed[:taken]) != chain.tokens[:taken]
        ):
            raise ContractError(
                f"{self.request.id}: committed {tuple(committed)} with {taken} drafted tokens, but "
                f"the draft was {chain.tokens}; committed tokens begin with the accepted ones"
            )
        step = self._step(chain, taken, tuple(committed))
        self.chain = EMPTY
        self.tokens += committed
        self._session.observe(step)
        if not self._prefilled:
            self._prefill()
        self._ledger.book(step, 0.0)
        self._emitted += len(committed) if chain else 0
        return step

    def finish(self, finish: Finish) -> Result:
        """End the request; memories store what is worth it."""
        self._session.finish(self._closed(finish))
        return self._closed(finish)  # with the errors of ending, too

    def _prefill(self) -> None:
        self._prefilled = True
        self._session.prefilled(None)

    def _step(self, chain: DraftTree, taken: int, committed: tuple[int, ...]) -> Step:
        root = len(self.tokens) - 1
        k = self._session.needs.top_k
        top_ids = self._top_ids(root, 1 + len(chain), k) if k and self._top_ids else None
        cached = root if self._prefilled else 0
        return Step(self._ledger.passes, chain, tuple(range(taken)), committed, cached, top_ids)

    def _closed(self, finish: Finish) -> Result:
        return attrs.evolve(self._ledger.close(finish, self.errors), tokens=self.output)


def _chain(tree: DraftTree, least: float) -> DraftTree:
    """The best path of `tree`, up to where its reach falls below `least`."""
    if not tree.tokens:
        return EMPTY
    reach = tree.reach
    return tree.keep(node for node in tree.best_path() if reach[node] >= least)
