"""The tokenizer as drafting code sees it. Implemented in `specdec.hf.codec`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class Decoder(Protocol):
    """Turns committed tokens into text as they arrive."""

    @property
    def pending(self) -> bool:
        """True while the tokens seen end inside a character."""

    def push(self, ids: Sequence[int]) -> str:
        """The complete characters that `ids` add; special tokens appear verbatim."""


class TextCodec(Protocol):
    """Text to tokens and back, in context."""

    def encode(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        """The tokens of `text` as a model would write them after the tokens `after`."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens appear verbatim."""

    def decoder(self) -> Decoder:
        """A fresh incremental decoder."""


@runtime_checkable
class BatchCodec(TextCodec, Protocol):
    """A text codec that encodes many texts at once and says what their tokens depend on.

    A codec need not be one; text drafters are faster with one that is.
    """

    def context(self, after: Sequence[int]) -> tuple[int, ...]:
        """The shortest end of `after` behind which every text has the same tokens."""

    def encode_all(self, texts: Sequence[str], after: Sequence[int]) -> list[tuple[int, ...]]:
        """What `encode` gives for each of `texts`."""
