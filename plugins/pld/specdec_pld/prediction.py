"""Prediction: follows a text that the output is known to repeat, changed here and there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from specdec import EMPTY, Drafter, DraftSession, DraftTree, Limit, Request, Step

SOURCE: Final = "prediction"

BEGINNING: Final = 4
"""Tokens that the start of an output is trusted like: a prediction is meant to be right."""

ASTRAY: Final = 0.3
"""P(the prediction goes on where the output left it), while nothing tells where that is."""


def score(matched: int) -> float:
    """First guess at P(token accepted) when the `matched` tokens before it were as predicted."""
    return matched / (matched + 1)


class Prediction(Drafter):
    """Follows `Request.prediction` (OpenAI's "Predicted Outputs"): a file to edit, a form to fill.

    While the output is as predicted, what the prediction goes on with is the draft. Where the
    output departs, its last tokens are looked up in the rest of the prediction: the longest match
    counts, and of equal ones the nearest. Where there is none, the draft goes on where the output
    departed, as it does behind an insertion. Nothing is drafted without a prediction or a codec.

    Args:
        ngram: The longest n-gram to look up, in tokens. Once one of this length is found, the
            output is back in the prediction, and earlier parts are left behind.
        length: The most tokens to draft while the output is as predicted.
        careful: The most tokens to draft while it is not.
    """

    def __init__(self, *, ngram: int = 4, length: int = 64, careful: int = 8) -> None:
        for name, value in (("ngram", ngram), ("length", length), ("careful", careful)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1 token, got {value}")
        self.ngram = ngram
        self.length = length
        self.careful = careful

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """A session that has followed `committed`."""
        text: tuple[int, ...] = ()
        if request.prediction and request.codec is not None:
            text = tuple(request.codec.encode(request.prediction, request.prompt))
        # An id that the target does not know tells of another tokenizer.
        if request.vocabulary and any(token >= request.vocabulary for token in text):
            text = ()
        session = _PredictionSession(self, text)
        session.follow(committed)
        return session

    def __repr__(self) -> str:
        return f"Prediction(ngram={self.ngram}, length={self.length})"


class _PredictionSession(DraftSession):
    def __init__(self, options: Prediction, text: tuple[int, ...]) -> None:
        self._options = options
        self._text = text
        self._at = 0  # the output has come this far in the text for sure
        self._next = 0  # where it probably goes on
        self._matched = BEGINNING  # tokens before there that the output ends with; 0 if astray
        self._recent: tuple[int, ...] = ()
        # The places behind each n-gram, rising.
        self._behind: dict[tuple[int, ...], list[int]] = {}
        for end in range(1, len(text) + 1):
            for size in range(1, min(options.ngram, end) + 1):
                self._behind.setdefault(text[end - size : end], []).append(end)

    def follow(self, tokens: Sequence[int]) -> None:
        """Take in more of the output."""
        for token in tokens if self._text else ():
            self._recent = (*self._recent, token)[-self._options.ngram :]
            if self._matched and self._text[self._next : self._next + 1] == (token,):
                self._next += 1
                self._matched += 1
            else:
                self._next, self._matched = self._found()
            if self._matched >= self._options.ngram:
                self._at = self._next

    def _found(self) -> tuple[int, int]:
        """Where the last tokens stand ahead, and how many of them; astray if none does."""
        for size in range(len(self._recent), 0, -1):
            places = self._behind.get(self._recent[-size:], [])
            # Behind the first token that was not as predicted: before it, there is no news.
            nearest = bisect_left(places, self._at + 1)
            if nearest < len(places):
                return places[nearest], size
        return self._at, 0

    def observe(self, step: Step) -> None:
        self.follow(step.committed)

    def propose(
        self,
        tokens: Sequence[int],  # noqa: ARG002 - what was observed
        limit: Limit,
    ) -> DraftTree:
        options = self._options
        sure = self._matched >= options.ngram
        most = min(options.length if sure else options.careful, limit.nodes, limit.depth)
        ahead = self._text[self._next : self._next + most]
        if not ahead:
            return EMPTY
        first = score(self._matched) if self._matched else ASTRAY
        # Each accepted token makes the next one surer.
        scores = [first, *(score(self._matched + depth) for depth in range(1, len(ahead)))]
        return DraftTree.from_sequences(
            [ahead], source=SOURCE, limit=Limit(len(ahead), len(ahead)), scores=[scores]
        )
