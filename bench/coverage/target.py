"""ReferenceTarget: writes a known output, whatever is drafted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec import EMPTY, ROOT, DraftTree, Needs, Request
from specdec.interfaces import Decision
from specdec.request import Finish


class ReferenceTarget:
    """A target without a model; see `specdec.engine.Target`.

    Args:
        output: (T,) the tokens that are written, whatever the request; the last one ends it.
        vocabulary: Number of token ids.
    """

    def __init__(self, output: Sequence[int], vocabulary: int) -> None:
        self.output = output
        self.vocabulary = vocabulary
        self.lock: AbstractContextManager[Any] = nullcontext()

    def start(self, request: Request, needs: Needs) -> ReferenceSession:
        """See `specdec.engine.Target.start`."""
        return ReferenceSession(request.prompt, self.output)


class ReferenceSession:
    """One output as it is written; see `specdec.engine.TargetSession`."""

    embedding: npt.NDArray[np.float32] | None = None
    finish: Finish = "stop_id"

    def __init__(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self._output = output
        self._written = 0
        self._before = 0  # tokens written before the pass
        self._root = prompt[-1]
        self._tree = EMPTY
        self._cached = 0
        self._fed = 0
        # The tokens that followed a token in the output, the latest first.
        self._followers: dict[int, list[int]] = {}

    @property
    def kv_length(self) -> int:
        """Tokens in the imagined cache."""
        return self._cached

    def depth(self, pending: int) -> int:
        """There is always room; the request's own limit counts."""
        return sys.maxsize

    def forward(self, pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
        """(1 + N, 0) logits: there are none, and `decide` needs none."""
        self._root, self._tree = pending[-1], tree
        self._before, self._fed = self._written, self._cached + len(pending)
        return torch.empty(len(tree) + 1, 0)

    def decide(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        """The next token of the output."""
        token = self._output[self._written]
        above = path_tokens[-1] if path_tokens else self._root
        followers = self._followers.setdefault(above, [])
        if token in followers:
            followers.remove(token)
        followers.insert(0, token)
        self._written += 1
        return Decision(token, stop=self._written == len(self._output))

    def commit(self, path: Sequence[int]) -> None:
        """Count what the cache would hold."""
        self._cached = self._fed + len(path)

    def top_ids(self, k: int) -> npt.NDArray[np.int64]:
        """(1 + N, k) ids: where the output goes on, else what has followed the token before.

        The rest of a row is filled with small ids, as no row of a target holds an id twice.
        """
        first: dict[int, list[int]] = {}
        node, tree = ROOT, self._tree
        places = enumerate(zip(tree.parents, tree.tokens, strict=True))
        children = {place: child for child, place in places}
        for token in self._output[self._before : self._written]:
            first[node] = [token]
            node = children.get((node, token), len(tree))
        rows = []
        for node, token in enumerate((self._root, *tree.tokens), start=ROOT):
            known = (*first.get(node, ()), *self._followers.get(token, ()), *range(2 * k))
            rows.append(list(dict.fromkeys(known))[:k])
        return np.array(rows, dtype=np.int64)

    def close(self) -> None:
        """Nothing is held."""
