"""NoModel: stands where the model would, in a replay without one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec.errors import RequestError
from specdec.interfaces import Decision, Needs
from specdec.request import Finish, Request
from specdec.tree import DraftTree


class NoModel:
    """A target whose passes take no time and whose cache is only counted."""

    label = "no model"
    longest = sys.maxsize

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.lock: AbstractContextManager[Any] = nullcontext()

    def start(self, request: Request, needs: Needs) -> NoPasses:  # noqa: ARG002
        """See `specdec.engine.Target.start`."""
        return NoPasses()

    def pass_seconds(self, nodes: int, kv_length: int) -> float:  # noqa: ARG002
        """There is nothing to time."""
        raise RequestError(
            "a replay without a model has no passes to time; give ReplayTarget(..., model=...) one"
        )


class NoPasses:
    """See `specdec.engine.TargetSession`."""

    embedding: npt.NDArray[np.float32] | None = None
    finish: Finish = "length"

    def __init__(self) -> None:
        self.kv_length = 0
        self._fed = 0

    def depth(self, pending: int) -> int:  # noqa: ARG002
        """There is always room."""
        return sys.maxsize

    def forward(self, pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
        """(1 + N, 0) logits."""
        self._fed = self.kv_length + len(pending)
        return torch.empty(len(tree) + 1, 0)

    def decide(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:  # noqa: ARG002
        """No choice."""
        return Decision(0, stop=False)

    def commit(self, path: Sequence[int]) -> None:
        """Count what the cache would hold."""
        self.kv_length = self._fed + len(path)

    def top_ids(self, k: int) -> npt.NDArray[np.int64]:  # noqa: ARG002
        """None."""
        return np.empty((0, 0), dtype=np.int64)

    def close(self) -> None:
        """Nothing is held."""
