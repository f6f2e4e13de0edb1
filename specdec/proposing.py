"""Proposing: one request's drafts, for a host that decodes by itself and verifies one chain.

Serving engines have their own loop. They tell what was committed, or show it, and take a chain of
tokens for the next pass; most know of no trees, logits or hidden states.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from specdec.errors import ContractError
from specdec.guard import open_session
from specdec.interfaces import Drafter
from specdec.report import Ledger
from specdec.request import Finish, Request, Result, Step
from specdec.tree import EMPTY, DraftTree, Limit

BREADTH = 4
"""Nodes asked for per token of the chain: the best chain is chosen among others."""


class ChainSession:
    """One request on a host that verifies chains.

    Turns of `propose` and `commit`; either may be skipped. What a drafter raises is handled as
    ``request.on_error`` says, see `specdec.guard`.

    Args:
        drafter: Any drafter or composition. Nothing but committed tokens is known, so a drafter
            that needs logits or embeddings works as far as it can do without.
        request: The request.
        committed: Output so far, when a request is taken up in the middle.

    Attributes:
        tokens: Prompt and output so far. Read only.
        chain: What was proposed last and not committed yet; one path.
    """

    def __init__(self, drafter: Drafter, request: Request, committed: Sequence[int] = ()) -> None:
        self.request = request
        self.tokens: list[int] = [*request.prompt, *committed]
        self.chain = EMPTY
        self._session = open_session(drafter, request, committed)
        self._ledger = Ledger(request)
        self._prefilled = False
        if committed:
            self._prefill()

    def _prefill(self) -> None:
        self._prefilled = True
        self._session.prefilled(None)

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

    def commit(self, committed: Sequence[int], accepted: int | None = None) -> Step:
        """Take in what a pass of the host committed.

        Args:
            committed: (at least 1,) new tokens.
            accepted: How many of them are drafted ones; None where the chain was not verified.

        Raises:
            ContractError: If that many were not drafted, or are not the chain's.
        """
        chain = EMPTY if accepted is None else self.chain
        taken = accepted or 0
        if not committed or tuple(committed[:taken]) != chain.tokens[:taken]:
            raise ContractError(
                f"{self.request.id}: committed {tuple(committed)} with {taken} drafted tokens, but "
                f"the draft was {chain.tokens}; committed tokens begin with the accepted ones"
            )
        path = tuple(range(min(taken, len(committed))))
        step = Step(self._ledger.passes, chain, path, tuple(committed), len(self.tokens) - 1)
        self.chain = EMPTY
        self.tokens += committed
        self._session.observe(step)
        if not self._prefilled:
            self._prefill()
        self._ledger.book(step, 0.0)
        return step

    def finish(self, finish: Finish) -> Result:
        """End the request; memories store what is worth it."""
        output = tuple(self.tokens[len(self.request.prompt) :])
        result = attrs.evolve(self._ledger.close(finish, self._session.errors), tokens=output)
        self._session.finish(result)
        return result


def _chain(tree: DraftTree, least: float) -> DraftTree:
    """The best path of `tree`, up to where its reach falls below `least`."""
    if not tree.tokens:
        return EMPTY
    reach = tree.reach
    return tree.keep(node for node in tree.best_path() if reach[node] >= least)
