"""Batch: drafts for the rows of one pass."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from specdec import EMPTY, Drafter, Step, paying
from specdec.proposing import ChainSession
from specdec.report import parting
from specdec_vllm.live import Live, LiveRequests, Tokens, rows_of
from specdec_vllm.reading import Reader

PATIENCE: Final = 256
"""Calls that a request may be away: preempted, or waiting for its turn."""

SPARE: Final = 64
"""Requests that may be away at once and still be taken up where they were."""

log = logging.getLogger("vllm.specdec_vllm")
_warned: set[str] = set()


@attrs.frozen
class Row:
    """One request in one call.

    Attributes:
        content: (L,) prompt and output, the new tokens included.
        new: How many of them are new; 0 while the prompt is being computed.
    """

    content: Tokens
    new: int

    @property
    def before(self) -> Tokens:
        """The content without the new tokens."""
        return self.content[: len(self.content) - self.new]

    @property
    def sampled(self) -> Tokens:
        """The new tokens."""
        return self.content[len(self.content) - self.new :]


class Batch:
    """Drafts for batches of requests that are known by their tokens alone.

    Nothing here raises for what a drafter, a prompt or a row may hold.

    Args:
        drafter: The stack.
        reader: Makes requests of prompts.
        drafts: The most tokens drafted for one request.
        length: The most tokens of prompt and output.
        overhead: What a pass costs before its first token, in tokens; see `specdec.paying`.
        book: Is told of every step.

    Attributes:
        live: The requests that are drafted for.
        ended: Requests that have come to their end so far.
    """

    def __init__(
        self,
        drafter: Drafter,
        reader: Reader,
        *,
        drafts: int,
        length: int,
        overhead: float,
        book: Callable[[Step], None] = lambda _: None,
    ) -> None:
        self._drafter = drafter
        self._reader = reader
        self._drafts = drafts
        self._length = length
        self._overhead = overhead
        self._book = book
        self.ended = 0
        self.live = LiveRequests(patience=PATIENCE, spare=SPARE, stop_ids=reader.stop_ids)

    def propose(
        self,
        sampled: Sequence[list[int]],
        lengths: npt.NDArray[np.integer[Any]],
        tokens: npt.NDArray[np.integer[Any]],
    ) -> list[list[int]]:
        """Drafts by row; see `rows_of` for the arguments."""
        rows = [Row(content, new) for content, new in rows_of(sampled, lengths, tokens)]
        # Exact matches first: what is left over is then free for the others.
        found = [self.live.take(row.before) for row in rows]
        drafting: dict[int, Live] = {}
        for i, (row, live) in enumerate(zip(rows, found, strict=True)):
            if row.new:
                _quietly(partial(self._draft, i, row, live, drafting))
            elif live is not None:
                # A prompt is being computed, and known: the request was put off in the middle.
                self.live.put(live)
        for gone in self.live.age():
            _quietly(partial(gone.session.finish, "length"))
        return self._cut(rows, drafting)

    def _cut(self, rows: Sequence[Row], drafting: Mapping[int, Live]) -> list[list[int]]:
        """The drafts by row, as far as they pay in one pass with the others."""
        # A row whose drafter failed decodes on, too; one that has ended takes no part.
        stop_ids = self._reader.stop_ids
        decoding = [
            i for i, row in enumerate(rows) if row.new and stop_ids.isdisjoint(row.sampled.tolist())
        ]
        chains = [drafting[i].session.chain if i in drafting else EMPTY for i in decoding]
        drafts: list[list[int]] = [[] for _ in rows]
        for i, chain in zip(decoding, paying(chains, self._overhead), strict=True):
            if i in drafting:
                drafts[i] = list(drafting[i].session.shorten(len(chain)))
        return drafts

    def _draft(self, i: int, row: Row, live: Live | None, drafting: dict[int, Live]) -> None:
        """Draft for row `i`; whatever goes wrong in here leaves the request out."""
        committed, stopped = self._up_to_stop(row.sampled.tolist())
        live = live or self._caught_up(row.before)
        if live is not None:
            self._observe(live, committed, row)
        elif stopped:
            return
        else:
            live = self._opened(row)
        if stopped:
            self.ended += 1
            live.session.finish("stop_id")
            return
        live.session.propose(min(self._drafts, self._length - len(row.content) - 1))
        self.live.put(live)
        drafting[i] = live

    def _caught_up(self, content: Tokens) -> Live | None:
        """The request that `content` goes on from, told of what it missed."""
        live = self.live.take_behind(content)
        if live is not None:
            missed = content[len(live.content) :]
            live.session.commit(missed.tolist())
            live.extend(missed)
        return live

    def _observe(self, live: Live, committed: list[int], row: Row) -> None:
        """Tell a session what a pass committed."""
        # The last new token is the target's own, unless a stop cut it off.
        accepted = parting(live.session.chain.tokens, committed[: row.new - 1])
        self._book(live.session.commit(committed, accepted))
        live.extend(row.sampled)

    def _opened(self, row: Row) -> Live:
        """A request that was not there before, or is taken up again."""
        old = self.live.take_beyond(row.before)
        prompt = old.prompt if old is not None else len(row.before)
        request = self._reader.request(row.content[:prompt].tolist(), max(self._length - prompt, 0))
        between = row.before[prompt:].tolist()
        session = ChainSession(self._drafter, request, between)
        session.commit(row.sampled.tolist())
        return Live(session)

    def _up_to_stop(self, tokens: list[int]) -> tuple[list[int], bool]:
        """The tokens up to the first that ends an output, and whether one does."""
        for i, token in enumerate(tokens):
            if token in self._reader.stop_ids:
                return tokens[: i + 1], True
        return tokens, False


def _quietly(work: Callable[[], object]) -> None:
    """Do `work`; the engine goes on without a draft where it fails."""
    try:
        work()
    except Exception as error:
        kind = type(error).__name__
        if kind not in _warned:
            _warned.add(kind)
            log.warning(
                "specdec drafts nothing for a request: %s: %s (further errors of this kind are "
                "not logged)",
                kind,
                error,
                exc_info=True,
            )
