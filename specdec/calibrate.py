"""Calibration: what a source's scores are worth, learned from what was accepted."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from specdec.request import Step
from specdec.tree import ROOT, DraftTree, Vote

PRIOR: Final = 4.0
"""Weight of a raw score, in observed nodes. A source is believed until it has a record."""

WINDOW: Final = 512.0
"""Evidence per bucket is halved beyond this many nodes, so a changed workload is noticed."""


@lru_cache(maxsize=4096)
def _bucket(score: float) -> int:
    """Scores whose log-odds round to the same integer share a record; 1.0 has its own."""
    if score >= 1.0:
        return 8
    return max(-7, min(7, round(math.log(score / (1.0 - score)))))


class Calibration:
    """Acceptance record of each source by score.

    A node was *visited* when its parent was committed and the target made a choice there. Every
    vote on a visited node is evidence, not only that of the source the node is booked to: two
    sources that agree both learn. The estimate for a vote is the mean of a beta posterior whose
    prior sits at the raw score with the weight of `PRIOR` nodes.

    Safe to use from several threads: records are replaced, never changed while they are read.
    """

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], tuple[float, float]] = {}  # visited, accepted
        self._lock = threading.Lock()

    def estimate(self, vote: Vote) -> float:
        """P(node accepted | its parent was) for one vote."""
        record = self._records.get((vote.source, _bucket(vote.score)))
        if record is None:
            return vote.score
        visited, accepted = record
        # A source that never failed keeps a little doubt, one that always failed a little hope:
        # scores stay inside (0, 1].
        return (PRIOR * vote.score + accepted) / (PRIOR + visited)

    def weigh(self, votes: tuple[Vote, ...]) -> float:
        """The score of a node from its votes: the best supported one."""
        if len(votes) == 1:
            return self.estimate(votes[0])
        return max(map(self.estimate, votes))

    def observe(self, step: Step) -> None:
        """Book every vote on every visited node as accepted or not."""
        tree = step.tree
        if not tree.tokens:
            return
        accepted = set(step.path)
        # Where generation ended on a node of the path, the target chose nothing below it.
        chosen = step.path if len(step.committed) > len(step.path) else step.path[:-1]
        visited = {ROOT, *chosen}
        with self._lock:
            for node, parent in enumerate(tree.parents):
                if parent in visited:
                    for vote in tree.votes[node]:
                        self._book(vote, node in accepted)

    def _book(self, vote: Vote, accepted: bool) -> None:
        key = vote.source, _bucket(vote.score)
        visited, held = self._records.get(key, (0.0, 0.0))
        visited, held = visited + 1.0, held + accepted
        if visited > WINDOW:
            visited, held = visited / 2, held / 2
        self._records[key] = visited, held

    def state(self) -> Mapping[str, Any]:
        """The records, as plain values."""
        with self._lock:
            records = tuple(self._records.items())
        return {f"{source}\t{bucket}": list(record) for (source, bucket), record in records}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        records = {}
        for key, (visited, accepted) in state.items():
            source, _, bucket = key.rpartition("\t")
            records[source, int(bucket)] = float(visited), float(accepted)
        with self._lock:
            self._records = records


def share(tree: DraftTree) -> DraftTree:
    """The same tree with the scores of siblings scaled to sum to at most 1.

    The target accepts one child of a node at most, so sources that disagree share its odds.
    """
    sums: dict[int, float] = {}
    for parent, score in zip(tree.parents, tree.scores, strict=True):
        sums[parent] = sums.get(parent, 0.0) + score
    if max(sums.values(), default=0.0) <= 1.0:
        return tree
    scores = tuple(
        score / max(sums[parent], 1.0)
        for parent, score in zip(tree.parents, tree.scores, strict=True)
    )
    return DraftTree(tree.tokens, tree.parents, scores, tree.votes)
