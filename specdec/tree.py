"""DraftTree: the tokens proposed for one step, as a forest below the root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import index, lt
from typing import Final, NamedTuple, Self

import attrs
import numpy as np
import numpy.typing as npt

from specdec.errors import ContractError

ROOT: Final = -1
"""Parent index of the nodes that hang directly below the last committed token."""


class Vote(NamedTuple):
    """One source's claim for a node.

    A named tuple rather than an attrs class: a step makes dozens of them, and creating a
    frozen attrs instance costs several times as much.

    Attributes:
        source: Name of the drafter that proposed the node.
        score: That drafter's own estimate of P(node accepted | its parent was), in (0, 1].
    """

    source: str
    score: float


@attrs.frozen
class Limit:
    """What a draft may be.

    Attributes:
        nodes: The most nodes.
        depth: The most tokens on one path (positions left in the model, tokens left in the
            request).
    """

    nodes: int
    depth: int

    def __bool__(self) -> bool:
        """False when nothing may be drafted."""
        return self.nodes > 0 and self.depth > 0


@attrs.frozen
class Layout:
    """What attention needs to know of a tree's shape; shared between trees of equal parents.

    Attributes:
        depths: (N,) int64; 1 for a child of the root.
        ancestors: (N, N) bool; ``ancestors[i, j]`` when node j is node i or above it.
    """

    depths: npt.NDArray[np.int64]
    ancestors: npt.NDArray[np.bool_]


@lru_cache(maxsize=256)
def layout(parents: tuple[int, ...]) -> Layout:
    """Depths and ancestor mask of the tree with these `parents`.

    Cached on the shape: a static tree pays once. Rows are filled in numpy because row-wise
    torch assignments cost some fifteen times as much.
    """
    n = len(parents)
    depths = [0] * n
    ancestors = np.zeros((n, n), dtype=np.bool_)
    for node, parent in enumerate(parents):
        if parent != ROOT:
            ancestors[node] = ancestors[parent]
            depths[node] = depths[parent]
        depths[node] += 1
        ancestors[node, node] = True
    ancestors.setflags(write=False)
    depth_row = np.array(depths, dtype=np.int64)
    depth_row.setflags(write=False)
    return Layout(depth_row, ancestors)


def highest(votes: tuple[Vote, ...]) -> float:
    """The highest raw score of a node's votes."""
    return max(vote.score for vote in votes)


def _ids(tokens: Iterable[int]) -> tuple[int, ...]:
    """Plain ints; numpy's would reach the output, and floats are no ids."""
    try:
        return tuple(map(index, tokens))
    except TypeError as error:
        raise ContractError(f"the tokens of a DraftTree are integers: {error}") from None


@attrs.frozen
class DraftTree:
    """Tokens proposed for one step, as a forest below the root.

    A chain is a tree in which every node has one child. The empty tree is a valid proposal
    and means "nothing to offer". Instances compare and hash by value and hold tuples, so
    drafting code needs no tensors.

    Attributes:
        tokens: (N,) token id of each node.
        parents: (N,) index of each node's parent, or ROOT. Parents come first:
            ``parents[i] < i``; siblings carry different tokens.
        scores: (N,) estimated P(node accepted | its parent was), in (0, 1].
        votes: (N,) every source that proposed the node, with its own raw score.

    Raises:
        ContractError: If the columns differ in length, a parent does not come first, two
            siblings carry the same token, or a score lies outside (0, 1].
    """

    tokens: tuple[int, ...] = attrs.field(default=(), converter=_ids)
    parents: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    votes: tuple[tuple[Vote, ...], ...] = ()

    def __attrs_post_init__(self) -> None:
        n = len(self.tokens)
        if not n == len(self.parents) == len(self.scores) == len(self.votes):
            raise ContractError(
                "a DraftTree needs one token, parent, score and vote tuple per node, got "
                f"{n}, {len(self.parents)}, {len(self.scores)} and {len(self.votes)}"
            )
        if not n:
            return
        if not all(map(lt, self.parents, range(n))) or min(self.parents) < ROOT:
            raise ContractError(
                f"parents must come before their children (ROOT is {ROOT}), got {self.parents}"
            )
        if len(set(zip(self.parents, self.tokens, strict=True))) != n:
            raise ContractError("two siblings of a DraftTree carry the same token; merge them")
        if not all(0.0 < score <= 1.0 for score in self.scores):
            raise ContractError(f"scores must lie in (0, 1], got {self.scores}")
        if not all(self.votes):
            raise ContractError("every node of a DraftTree needs at least one vote")

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[Sequence[int]],
        *,
        source: str,
        limit: Limit,
        scores: Iterable[float | Sequence[float]] = (),
    ) -> Self:
        """The trie of `sequences`: equal prefixes become one node.

        Args:
            sequences: Token sequences below the root, best first. Each is cut at
                ``limit.depth``; building stops at ``limit.nodes`` nodes.
            source: The drafter's name, recorded in every vote.
            limit: The most nodes and the most depth.
            scores: One entry per sequence: a score for each of its tokens, or one number for
                all of them. A shared node keeps the highest. Missing entries count as 1.0.

        Returns:
            A tree of at most ``limit.nodes`` nodes.
        """
        tokens: list[int] = []
        parents: list[int] = []
        values: list[float] = []
        place_of: dict[tuple[int, int], int] = {}
        rest = iter(scores)
        for sequence in sequences:
            score = next(rest, 1.0)
            flat = score if isinstance(score, float | int) else None
            parent = ROOT
            for depth, token in enumerate(sequence[: limit.depth]):
                value = flat if flat is not None else score[depth]  # type: ignore[index]
                node = place_of.get((parent, token))
                if node is None:
                    if len(tokens) >= limit.nodes:
                        break
                    node = place_of[parent, token] = len(tokens)
                    tokens.append(token)
                    parents.append(parent)
                    values.append(value)
                elif value > values[node]:
                    values[node] = value
                parent = node
        return cls(
            tuple(tokens),
            tuple(parents),
            tuple(values),
            tuple((Vote(source, value),) for value in values),
        )

    @classmethod
    def chain(cls, tokens: Iterable[int], *, source: str, score: float = 1.0) -> Self:
        """One path: each token the only child of the one before."""
        row = tuple(tokens)
        n = len(row)
        return cls(row, tuple(range(-1, n - 1)), (score,) * n, ((Vote(source, score),),) * n)

    @classmethod
    def merge(
        cls,
        trees: Iterable[DraftTree],
        *,
        weigh: Callable[[tuple[Vote, ...]], float] = highest,
    ) -> DraftTree:
        """One tree with every path of `trees`; a node that several offer keeps all their votes.

        Args:
            trees: The trees to unite; the order only breaks ties.
            weigh: The score of a node from its votes; by default the highest raw score.
        """
        tokens: list[int] = []
        parents: list[int] = []
        votes: list[tuple[Vote, ...]] = []
        place_of: dict[tuple[int, int], int] = {}
        for tree in trees:
            place: list[int] = []
            for token, parent, given in zip(tree.tokens, tree.parents, tree.votes, strict=True):
                above = ROOT if parent == ROOT else place[parent]
                node = place_of.get((above, token))
                if node is None:
                    node = place_of[above, token] = len(tokens)
                    tokens.append(token)
                    parents.append(above)
                    votes.append(given)
                else:
                    votes[node] += given
                place.append(node)
        return cls(tuple(tokens), tuple(parents), tuple(map(weigh, votes)), tuple(votes))

    @property
    def reach(self) -> tuple[float, ...]:
        """(N,) product of scores from the root; their sum is the expected accepted tokens."""
        reach: list[float] = []
        for parent, score in zip(self.parents, self.scores, strict=True):
            reach.append(score if parent == ROOT else score * reach[parent])
        return tuple(reach)

    @property
    def depths(self) -> npt.NDArray[np.int64]:
        """(N,) depth of each node; 1 for a child of the root. Read-only."""
        return layout(self.parents).depths

    @property
    def ancestors(self) -> npt.NDArray[np.bool_]:
        """(N, N) bool; row i marks node i and every node above it. Read-only."""
        return layout(self.parents).ancestors

    def by_reach(self) -> list[int]:
        """Node indices by falling reach; every prefix of the list is closed under ancestors."""
        reach = self.reach
        # The sort is stable and a child never reaches further than its parent, which comes
        # first: so no node is listed before its parent.
        return sorted(range(len(self.tokens)), key=lambda node: -reach[node])

    def keep(self, nodes: Iterable[int]) -> DraftTree:
        """The tree of these nodes, in their old order.

        Raises:
            ContractError: If a node is kept without its parent.
        """
        kept = sorted(nodes)
        place = {ROOT: ROOT} | {node: i for i, node in enumerate(kept)}
        try:
            parents = tuple(place[self.parents[node]] for node in kept)
        except KeyError as missing:
            raise ContractError(f"node {missing.args[0]} has a kept child but is dropped") from None
        return DraftTree(
            tuple(self.tokens[node] for node in kept),
            parents,
            tuple(self.scores[node] for node in kept),
            tuple(self.votes[node] for node in kept),
        )

    def top(self, nodes: int) -> DraftTree:
        """The `nodes` nodes of the greatest reach; always closed under ancestors."""
        if len(self.tokens) <= nodes:
            return self
        return self.keep(self.by_reach()[: max(nodes, 0)])

    def best_path(self) -> tuple[int, ...]:
        """The path of the greatest expected accepted length, as node indices from the root down.

        For hosts that verify one chain only.
        """
        reach = self.reach
        total = list(reach)
        best = ROOT
        for node, parent in enumerate(self.parents):
            if parent != ROOT:
                total[node] += total[parent]
            if best == ROOT or total[node] > total[best]:
                best = node
        return self.path_to(best)

    def path_to(self, node: int) -> tuple[int, ...]:
        """Node indices from a child of the root down to `node`; empty for ROOT."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))

    def source(self, node: int) -> str:
        """The source a node is booked to: its highest vote, the earliest of equals."""
        return max(self.votes[node], key=lambda vote: vote.score).source

    def to_padded(self, rows: int, root: int) -> tuple[list[int], npt.NDArray[np.bool_]]:
        """Exactly `rows` rows with the root as row 0, for hosts with fixed-size trees.

        Args:
            rows: Number of rows wanted; at least ``len(self) + 1``.
            root: Token id of the root.

        Returns:
            (rows,) token ids, padded with 0, and the (rows, rows) ancestor-or-self mask, in
            which a padding row sees the root and itself.

        Raises:
            ContractError: If the tree does not fit.
        """
        n = len(self.tokens)
        if n + 1 > rows:
            raise ContractError(f"a tree of {n} nodes and its root do not fit into {rows} rows")
        mask = np.eye(rows, dtype=np.bool_)
        mask[:, 0] = True
        mask[1 : n + 1, 1 : n + 1] = self.ancestors
        return [root, *self.tokens, *([0] * (rows - n - 1))], mask


EMPTY: Final = DraftTree()
"""The draft that offers nothing."""
