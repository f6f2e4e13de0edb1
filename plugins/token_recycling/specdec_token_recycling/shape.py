"""The static tree of Token Recycling, as data."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import attrs

from specdec import ROOT, DraftTree, Vote

CHILDREN: Final = (
    (8,),
    (8, 4, 3, 2, 1, 1, 1, 1),
    (8, 3, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0),
    (5, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0),
    (3, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0),
    (2, 0, 0, 1, 0, 0, 0, 0),
)
"""The published tree (arXiv 2408.08696, the authors' version 2.2.2): 80 nodes on six levels.

Entry i of row d is the number of children of the i-th node at depth d, breadth first; a node's
children are its best successors from rank 0 on. The root is the only node of row 0.
"""

SCORES: Final = (0.5, 0.115, 0.038, 0.012, 0.01, 0.008, 0.006, 0.005)
"""P(node accepted | its parent was) by rank among a token's successors.

Measured with ``python -m bench.ranks``, 20 API-Bank requests of the demo model, bfloat16.
"""

SOURCE: Final = "token-recycling"


@attrs.frozen
class Shape:
    """A static tree, its columns ready for a DraftTree.

    Attributes:
        parents: (N,) index of each node's parent, or ROOT.
        ranks: (N,) rank of the node among its parent's successors.
        scores: (N,) score by rank.
        votes: (N,) one vote each.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    scores: tuple[float, ...]
    votes: tuple[tuple[Vote, ...], ...]


def published() -> Shape:
    """The paper's tree of 80 nodes."""
    parents: list[int] = []
    ranks: list[int] = []
    level = [ROOT]
    for counts in CHILDREN:
        below: list[int] = []
        for parent, count in zip(level, counts, strict=True):
            for rank in range(count):
                below.append(len(parents))
                parents.append(parent)
                ranks.append(rank)
        level = below
    return _shape(parents, ranks)


def _shape(parents: list[int], ranks: list[int]) -> Shape:
    scores = tuple(SCORES[rank] for rank in ranks)
    votes = tuple((Vote(SOURCE, score),) for score in scores)
    return Shape(tuple(parents), tuple(ranks), scores, votes)


@lru_cache(maxsize=1024)
def cut(nodes: int, depth: int, top_k: int) -> Shape:
    """The part of the published tree within a budget, a depth and a number of successors.

    The nodes of the greatest reach are kept.
    """
    full = published()
    # A tree whose tokens are the ranks: siblings differ, so every tree operation applies.
    tree = DraftTree(full.ranks, full.parents, full.scores, full.votes)
    deep = tree.depths
    allowed: list[int] = []
    for node, parent in enumerate(full.parents):
        inside = parent == ROOT or parent in allowed
        if inside and full.ranks[node] < top_k and deep[node] <= depth:
            allowed.append(node)
    kept = tree.keep(allowed).top(nodes)
    return _shape(list(kept.parents), list(kept.tokens))
