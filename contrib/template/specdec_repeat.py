"""A drafter that proposes the last token again: the smallest complete plugin."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import specdec


class RepeatLast(specdec.Drafter):
    """Drafts the last token again.

    Args:
        length: How many times.
    """

    def __init__(self, *, length: int = 4) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1 token, got {length}")
        self.length = length

    def start(self, request: specdec.Request, committed: Sequence[int] = ()) -> RepeatSession:  # noqa: ARG002
        """A session; it needs to know nothing."""
        return RepeatSession(self.length)

    def __repr__(self) -> str:
        return f"RepeatLast(length={self.length})"


class RepeatSession(specdec.DraftSession):
    """One request."""

    def __init__(self, length: int) -> None:
        self._length = length

    def propose(self, tokens: Sequence[int], limit: specdec.Limit) -> specdec.DraftTree:
        """The last token, again."""
        length = min(self._length, limit.nodes, limit.depth)
        return specdec.DraftTree.chain([tokens[-1]] * length, source="repeat", score=0.1)


@specdec.hookimpl
def register_drafters(register: Callable[[str, Callable[..., specdec.Drafter]], None]) -> None:
    """Offer "repeat"."""
    register("repeat", RepeatLast)
