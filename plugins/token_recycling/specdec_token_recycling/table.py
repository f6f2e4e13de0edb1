"""SuccessorTable: what followed each token last."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

UNKNOWN: Final = -1
"""Stands where no successor is known."""


class SuccessorTable:
    """The matrix M of the paper: each token's last seen `top_k` successors, most likely first.

    Safe to use from several threads.

    Args:
        top_k: Successors kept per token.
    """

    def __init__(self, top_k: int) -> None:
        self._rows: npt.NDArray[np.int32] = np.full((0, top_k), UNKNOWN, np.int32)
        self._followed: npt.NDArray[np.int32] = np.full(0, UNKNOWN, np.int32)
        self._lock = threading.Lock()

    def put(self, tokens: Sequence[int], successors: npt.NDArray[np.int64]) -> None:
        """Replace the rows of some tokens; of equal tokens the last wins.

        The token that `follow` was told of last stays in a row: as its first where it is that, else
        as its second.

        Args:
            tokens: (n,) token ids.
            successors: (n, k) ids, most likely first. In a composition k is what the most
                demanding drafter asked for, so it may exceed `top_k`; a vocabulary smaller than
                `top_k` makes it less.
        """
        ids = np.asarray(tokens)
        with self._lock:
            self._grow(int(ids.max()))
            width = min(self._rows.shape[1], successors.shape[1])
            self._rows[ids, :width] = _keeping(successors[:, :width], self._followed[ids])

    def follow(self, output: Sequence[int]) -> None:
        """Note what an output went on with behind each token.

        Args:
            output: (n,) tokens in a row.
        """
        with self._lock:
            self._grow(max(output[:-1], default=0))
            for token, successor in pairwise(output):
                self._followed[token] = successor

    def fill(self, text: Sequence[int]) -> None:
        """Give tokens of which nothing is known what follows them in a text, in its order.

        Args:
            text: (n,) tokens in a row.
        """
        ids = np.asarray(text)
        with self._lock:
            self._grow(int(ids.max()))
            found: dict[int, list[int]] = {}
            for at in np.flatnonzero(self._rows[ids[:-1], 0] == UNKNOWN).tolist():
                row = found.setdefault(text[at], [])
                if len(row) < self._rows.shape[1] and text[at + 1] not in row:
                    row.append(text[at + 1])
            for token, row in found.items():
                self._rows[token, : len(row)] = row

    def get(self, token: int) -> list[int]:
        """The successors of `token`, UNKNOWN where none was seen."""
        with self._lock:  # a row that is half replaced could hold a token twice
            if token >= len(self._rows):
                return [UNKNOWN] * self._rows.shape[1]
            row: list[int] = self._rows[token].tolist()
            return row

    def state(self) -> Mapping[str, Any]:
        """Copies of the rows and of what followed last."""
        with self._lock:
            return {"rows": self._rows.copy(), "followed": self._followed.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`.

        Raises:
            ValueError: If the rows are those of a table with another `top_k`.
        """
        rows = np.array(state["rows"], dtype=np.int32)
        if rows.ndim != 2 or rows.shape[1] != self._rows.shape[1]:
            raise ValueError(
                f"a table of {self._rows.shape[1]} successors per token cannot take rows of shape "
                f"{rows.shape}; restore it with the top_k it was saved with"
            )
        with self._lock:
            self._rows = rows
            self._followed = np.array(state["followed"], dtype=np.int32)

    def _grow(self, highest: int) -> None:
        """Make room for a token id."""
        if highest >= len(self._rows):
            # Doubling keeps growth cheap; the vocabulary bounds it (1.7 MB for 49,152 ids).
            more = max(2 * len(self._rows), highest + 1) - len(self._rows)
            # The rows last: interrupted in between, the next call finds them short and goes on.
            self._followed = np.pad(self._followed, (0, more), constant_values=UNKNOWN)
            self._rows = np.pad(self._rows, ((0, more), (0, 0)), constant_values=UNKNOWN)


def _keeping(rows: npt.NDArray[np.int64], kept: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """The rows, each with one id moved or put into its second place, unless it is the first.

    Args:
        rows: (n, k) ids, no row with one twice.
        kept: (n,) the ids, UNKNOWN for none.
    """
    width = rows.shape[1]
    held = rows == kept[:, None]
    # Where it stood, or the last place, whose id drops out for it.
    place = np.where(held.any(1), held.argmax(1), width - 1)
    place = np.where(kept == UNKNOWN, 0, place)
    column = np.arange(width)
    moved = (column >= 2) & (column <= place[:, None])
    second = (column == 1) & (place[:, None] >= 1)
    changed = np.where(moved, np.roll(rows, 1, axis=1), rows)
    return np.where(second, kept[:, None], changed)
