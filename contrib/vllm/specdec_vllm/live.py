"""Live requests, found again by the content of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from specdec.proposing import ChainSession

Tokens = npt.NDArray[np.int32]

TAIL: Final = 16
"""Tokens at the end of a request that, with its length, nearly always tell it from others."""

MISSED: Final = 64
"""The most tokens that a request may have got in calls that the engine left out."""


class Live:
    """A request that is being drafted for.

    Args:
        session: Its drafts.

    Attributes:
        idle: Calls since its row was last there.
    """

    def __init__(self, session: ChainSession) -> None:
        self.session = session
        self.idle = 0
        self._buffer = np.array(session.tokens, dtype=np.int32)
        self._length = len(self._buffer)

    @property
    def prompt(self) -> int:
        """Length of its prompt."""
        return len(self.session.request.prompt)

    @property
    def content(self) -> Tokens:
        """(L,) its prompt and output so far."""
        return self._buffer[: self._length]

    @property
    def key(self) -> tuple[int, bytes]:
        """What it is looked up by."""
        return key_of(self.content)

    def extend(self, tokens: Tokens) -> None:
        """Take in new tokens."""
        end = self._length + len(tokens)
        if end > len(self._buffer):
            grown = np.empty(max(end, 2 * len(self._buffer)), dtype=np.int32)
            grown[: self._length] = self.content
            self._buffer = grown
        self._buffer[self._length : end] = tokens
        self._length = end


def key_of(content: Tokens) -> tuple[int, bytes]:
    """Length and end of a content."""
    return len(content), content[-TAIL:].tobytes()


class LiveRequests:
    """The requests that are drafted for, those whose rows were there last and some more.

    Engines move rows, leave a request out for some calls, and never say when one is gone. So a
    request is known by its whole content. One that stays away for `patience` calls is given up,
    and so is the one that was away longest where more than `spare` are.

    Args:
        patience: Calls that a request may be away.
        spare: The most requests that are away.
        stop_ids: Ids that end an output.
    """

    def __init__(self, *, patience: int, spare: int, stop_ids: frozenset[int]) -> None:
        self._patience = patience
        self._spare = spare
        self._stop_ids = np.array(sorted(stop_ids), dtype=np.int64)
        self._by_key: dict[tuple[int, bytes], list[Live]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def __iter__(self) -> Iterator[Live]:
        for group in self._by_key.values():
            yield from group

    def put(self, live: Live) -> None:
        """Keep `live`; it was there in this call."""
        live.idle = 0
        self._by_key.setdefault(live.key, []).append(live)

    def take(self, content: Tokens) -> Live | None:
        """The request of exactly this content. Of several the first: they are equal."""
        for live in self._by_key.get(key_of(content), ()):
            if np.array_equal(live.content, content):
                return self._taken(live)
        return None

    def take_behind(self, content: Tokens) -> Live | None:
        """The request that `content` goes on from, after calls that were left out."""
        before = [live for live in self if self._leads(live, content)]
        return self._taken(max(before, key=lambda live: len(live.content))) if before else None

    def take_beyond(self, content: Tokens) -> Live | None:
        """A request whose output went on behind `content`, and was taken back."""
        return next((self._taken(live) for live in self if _begins(live, content)), None)

    def age(self) -> list[Live]:
        """One call has passed; returns the requests that are given up, by now taken out."""
        away: list[Live] = []
        for live in self:
            live.idle += 1
            if live.idle > 1:
                away.append(live)
        away.sort(key=lambda live: -live.idle)
        late = sum(live.idle > self._patience for live in away)
        return [self._taken(live) for live in away[: max(late, len(away) - self._spare)]]

    def clear(self) -> None:
        """Forget all of them."""
        self._by_key.clear()

    def _taken(self, live: Live) -> Live:
        group = self._by_key[live.key]
        group.remove(live)
        if not group:
            del self._by_key[live.key]
        return live

    def _leads(self, live: Live, content: Tokens) -> bool:
        begun = live.content
        gap = content[len(begun) :]
        return (
            0 < len(gap) <= MISSED
            and np.array_equal(content[: len(begun)][-TAIL:], begun[-TAIL:])
            and np.array_equal(content[: len(begun)], begun)
            # Behind a stop the conversation goes on in another request.
            and not np.isin(gap, self._stop_ids).any()
        )


def _begins(live: Live, content: Tokens) -> bool:
    """Whether `content` is the prompt of `live` and a part of its output, at least one token."""
    size = len(content)
    return live.prompt < size < len(live.content) and np.array_equal(content, live.content[:size])


def rows_of(
    sampled: Iterable[list[int]], lengths: npt.NDArray[np.integer], tokens: npt.NDArray[np.integer]
) -> Iterator[tuple[Tokens, int]]:
    """Each row's content, and how many of its tokens are new.

    Args:
        sampled: New tokens by row; none where a prompt is not computed to its end.
        lengths: (rows,) tokens in each row.
        tokens: (rows, width) the rows.
    """
    for i, new in enumerate(sampled):
        yield tokens[i, : int(lengths[i])].astype(np.int32, copy=False), len(new)
