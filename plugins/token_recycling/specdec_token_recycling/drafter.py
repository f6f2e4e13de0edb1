"""TokenRecycling: a tree of each token's last seen successors."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec import (
    ROOT,
    Drafter,
    DraftSession,
    DraftTree,
    Limit,
    Needs,
    PerTenant,
    Request,
    Step,
    Vote,
)
from specdec_token_recycling.shape import SCORES, Shape, cut


class SuccessorTable:
    """The matrix M of the paper: each token's last seen `top_k` successors, most likely first.

    Args:
        top_k: Successors kept per token.
    """

    def __init__(self, top_k: int) -> None:
        self._rows: npt.NDArray[np.int32] = np.full((0, top_k), -1, dtype=np.int32)
        self._lock = threading.Lock()

    def put(self, tokens: Sequence[int], successors: npt.NDArray[np.int64]) -> None:
        """Replace the rows of some tokens; of equal tokens the last wins.

        Args:
            tokens: (n,) token ids.
            successors: (n, k) ids, most likely first. In a composition k is what the most
                demanding drafter asked for, so it may exceed `top_k`; a vocabulary smaller than
                `top_k` makes it less.
        """
        highest = max(tokens)
        with self._lock:  # requests may be open in several threads
            if highest >= len(self._rows):
                # Doubling keeps growth cheap; the vocabulary bounds it (1.5 MB for 49,152 ids).
                size = max(2 * len(self._rows), highest + 1)
                rows = np.full((size, self._rows.shape[1]), -1, np.int32)
                rows[: len(self._rows)] = self._rows
                self._rows = rows
            width = min(self._rows.shape[1], successors.shape[1])
            self._rows[list(tokens), :width] = successors[:, :width]

    def get(self, token: int) -> list[int]:
        """The successors of `token`, -1 where none was seen."""
        rows = self._rows
        if token >= len(rows):
            return [-1] * rows.shape[1]
        row: list[int] = rows[token].tolist()
        return row

    def state(self) -> npt.NDArray[np.int32]:
        """A copy of the rows."""
        return self._rows.copy()

    def restore(self, rows: npt.NDArray[np.int32]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: If the rows are those of a table with another `top_k`.
        """
        if rows.ndim != 2 or rows.shape[1] != self._rows.shape[1]:
            raise ValueError(
                f"a table of {self._rows.shape[1]} successors per token cannot take rows of shape "
                f"{rows.shape}; restore it with the top_k it was saved with"
            )
        with self._lock:
            self._rows = np.array(rows, dtype=np.int32)


class TokenRecycling(Drafter):
    """Token Recycling (Luo et al., arXiv 2408.08696).

    The target's most likely next tokens, computed for every verified node anyway, are kept as
    that token's successors; the draft is a static tree filled breadth first from them, starting
    at the root. The table outlives requests, one per tenant.

    Args:
        top_k: Successors kept per token; 8 in the paper.
        nodes: The most nodes of the tree; 80 in the paper.
    """

    def __init__(self, *, top_k: int = 8, nodes: int = 80) -> None:
        if not 1 <= top_k <= len(SCORES):
            raise ValueError(f"top_k must be from 1 to {len(SCORES)}, got {top_k}")
        if nodes < 1:
            raise ValueError(f"nodes must be at least 1, got {nodes}")
        self.top_k = top_k
        self.nodes = nodes
        self._tables = PerTenant(lambda: SuccessorTable(top_k))

    @property
    def needs(self) -> Needs:
        """The target's most likely ids after every node."""
        return Needs(top_k=self.top_k)

    @property
    def remembers(self) -> bool:
        """True: the table outlives a request."""
        return True

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """A session on the tenant's table."""
        root = committed[-1] if committed else request.prompt[-1]
        return _RecyclingSession(self, self._tables[request.tenant], root)

    def state(self) -> Mapping[str, Any]:
        """The tables by tenant."""
        return {tenant: self._tables[tenant].state() for tenant in self._tables}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self._tables.clear()
        for tenant, rows in state.items():
            self._tables[tenant].restore(rows)

    def __repr__(self) -> str:
        return f"TokenRecycling(top_k={self.top_k}, nodes={self.nodes})"


class _RecyclingSession(DraftSession):
    def __init__(self, options: TokenRecycling, table: SuccessorTable, root: int) -> None:
        self._options = options
        self._table = table
        self._root = root

    def observe(self, step: Step) -> None:
        if step.top_ids is not None:
            tokens = (self._root, *step.tree.tokens)
            # A token may stand at several nodes. Rows on the accepted path saw the true context,
            # so they are written last.
            order = [*range(len(tokens)), 0, *(node + 1 for node in step.path)]
            self._table.put([tokens[i] for i in order], step.top_ids[order])
        self._root = step.committed[-1]

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        nodes = min(self._options.nodes, limit.nodes)
        return fill(cut(nodes, limit.depth, self._options.top_k), self._table, tokens[-1])


def fill(shape: Shape, table: SuccessorTable, root: int) -> DraftTree:
    """`shape` with tokens from `table`, breadth first from `root`, without unknown successors."""
    rows: dict[int, list[int]] = {ROOT: table.get(root)}
    kept: list[tuple[int, int, float, tuple[Vote, ...]]] = []
    place = {ROOT: ROOT}
    columns = zip(shape.parents, shape.ranks, shape.scores, shape.votes, strict=True)
    tokens: list[int] = []
    for node, (parent, rank, score, vote) in enumerate(columns):
        above = place.get(parent)
        if above is None:
            continue
        if above not in rows:
            rows[above] = table.get(tokens[above])
        token = rows[above][rank]
        if token < 0:
            continue
        place[node] = len(tokens)
        tokens.append(token)
        kept.append((above, token, score, vote))
    return DraftTree(
        tuple(tokens),
        tuple(row[0] for row in kept),
        tuple(row[2] for row in kept),
        tuple(row[3] for row in kept),
    )
