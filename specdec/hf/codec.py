"""HFCodec: a transformers tokenizer as drafting code sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from transformers import PreTrainedTokenizerBase

INCOMPLETE: Final = "\ufffd"
"""What a tokenizer prints for bytes that are not a whole character (yet)."""

CONTEXT: Final = 8
"""Committed tokens that text is encoded behind; a pre-token seldom spans more."""

LONGEST: Final = 4
"""Bytes of the longest UTF-8 character: more tokens than that never complete one."""


class HFCodec:
    """Text to tokens and back with a transformers tokenizer.

    Args:
        tokenizer: Any tokenizer; fast ones give exact boundaries.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.replacement: list[int] = tokenizer(INCOMPLETE, add_special_tokens=False)["input_ids"]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens appear verbatim."""
        text = self.tokenizer.decode(
            list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text

    def encode(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        """The tokens of `text` as the model would write them after the tokens `after`.

        The whole is encoded behind the last tokens already written, and the part behind the
        boundary is taken. Where the tokenizer would merge across the boundary, the model has
        already written otherwise; then `text` is encoded behind a neutral character.
        """
        for lead in (self.decode(after[-CONTEXT:]), "\n", ".", ""):
            found = self._behind(lead, text)
            if found is not None:
                return found
        return ()

    def _behind(self, lead: str, text: str) -> tuple[int, ...] | None:
        encoded: Any = self.tokenizer(
            lead + text, add_special_tokens=False, return_offsets_mapping=self.tokenizer.is_fast
        )
        ids: list[int] = encoded["input_ids"]
        if not self.tokenizer.is_fast:
            before = self.tokenizer(lead, add_special_tokens=False)["input_ids"]
            return tuple(ids[len(before) :]) if ids[: len(before)] == before else None
        for i, (start, _) in enumerate(encoded["offset_mapping"]):
            if start >= len(lead):
                clean = i == 0 or encoded["offset_mapping"][i - 1][1] <= len(lead)
                return tuple(ids[i:]) if clean else None
        return None

    def decoder(self) -> HFDecoder:
        """A fresh incremental decoder."""
        return HFDecoder(self)


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
