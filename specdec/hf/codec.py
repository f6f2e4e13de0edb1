"""HFCodec: a transformers tokenizer as drafting code sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from transformers import PreTrainedTokenizerBase

from specdec.text import INCOMPLETE, boundary

LONGEST: Final = 4
"""Bytes of the longest UTF-8 character: more tokens than that never complete one."""


class HFCodec:
    """Text to tokens and back with a transformers tokenizer.

    Args:
        tokenizer: Any tokenizer; fast ones give exact boundaries.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.replacement = self._ids(INCOMPLETE)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens appear verbatim."""
        text = self.tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def context(self, after: Sequence[int]) -> tuple[int, ...]:
        """The shortest end of `after` behind which every text has the same tokens."""
        return boundary(after, self.decode)

    def encode(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        """The tokens of `text` as the model would write them after the tokens `after`.

        The whole is encoded behind the last tokens already written, and the part behind the
        boundary is taken. Where the tokenizer would merge across the boundary, the model has
        already written otherwise; then `text` is encoded behind a neutral character.
        """
        return self.encode_all((text,), after)[0]

    def encode_all(self, texts: Sequence[str], after: Sequence[int]) -> list[tuple[int, ...]]:
        """What `encode` gives for each of `texts`, in one go."""
        found: dict[int, tuple[int, ...]] = {}
        for lead in (self.decode(self.context(after)), "\n", ".", ""):
            left = [i for i in range(len(texts)) if i not in found]
            if not left:
                break
            behind = self._behind(lead, [texts[i] for i in left])
            found |= {i: ids for i, ids in zip(left, behind, strict=True) if ids is not None}
        return [found.get(i, ()) for i in range(len(texts))]

    def _behind(self, lead: str, texts: Sequence[str]) -> list[tuple[int, ...] | None]:
        """The tokens of each text behind `lead`; None where they merge with its own."""
        if self.tokenizer.is_fast:
            encodings = self._backend().encode_batch(
                [lead + text for text in texts], add_special_tokens=False
            )
            return [_from(len(lead), encoding) for encoding in encodings]
        before = self._ids(lead)
        wholes = (self._ids(lead + text) for text in texts)
        return [
            tuple(ids[len(before) :]) if ids[: len(before)] == before else None for ids in wholes
        ]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _backend(self) -> Any:  # noqa: ANN401 - a tokenizers.Tokenizer, which has no types
        """The tokenizer without transformers' own half of the time around each call."""
        backend: Any = self.tokenizer.backend_tokenizer
        # Another caller's options stay on it until transformers' next call takes them back.
        special = self.tokenizer.split_special_tokens
        if backend.truncation or backend.padding or backend.encode_special_tokens != special:
            self._ids("")
        return backend

    def decoder(self) -> HFDecoder:
        """A fresh incremental decoder."""
        return HFDecoder(self)


def _from(start: int, encoding: Any) -> tuple[int, ...] | None:  # noqa: ANN401 - a tokenizers.Encoding
    """The tokens of the characters from `start` on; None where one begins before them."""
    before = 0
    for i, (first, end) in enumerate(encoding.offsets):
        if first >= start:
            return tuple(encoding.ids[i:]) if before <= start else None
        before = end
    return None


class HFDecoder:
    """Committed tokens to text, complete characters only."""

    def __init__(self, codec: HFCodec) -> None:
        self._codec = codec
        # A tokenizer may print a token differently at the start of a text, so each new piece is
        # read off behind the piece before it.
        self._before: list[int] = []
        self._known = ""
        self._open: list[int] = []
        # One token may end a character and begin the next. What is whole is said at once, so the
        # number of characters said and the place of the unfinished one are kept.
        self._said = 0
        self._since = 0

    @property
    def pending(self) -> bool:
        """True while the tokens seen end inside a character."""
        return bool(self._open)

    def push(self, ids: Sequence[int]) -> str:
        """The complete characters that `ids` add."""
        return "".join(self._push(token) for token in ids)

    def _push(self, token: int) -> str:
        self._open.append(token)
        text = self._codec.decode(self._before + self._open)[len(self._known) :]
        if self._unfinished(text):
            whole = text.rstrip(INCOMPLETE)[self._said :]
            # A broken character before the unfinished one may still change: wait for it.
            if not whole or INCOMPLETE in whole:
                return ""
            self._said += len(whole)
            self._since = len(self._open) - 1
            return whole
        fresh = text[self._said :]
        self._before, self._open = self._open, []
        self._known = self._codec.decode(self._before)
        self._said = self._since = 0
        return fresh

    def _unfinished(self, text: str) -> bool:
        """Whether `text` ends inside a character that the next tokens can complete."""
        literal = self._codec.replacement
        return (
            text.endswith(INCOMPLETE)
            and self._open[-len(literal) :] != literal
            and len(self._open) - self._since < LONGEST
        )
