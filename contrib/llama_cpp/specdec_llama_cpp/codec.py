"""LlamaCodec: the tokenizer of a GGUF file as drafting code sees it."""

from __future__ import annotations

import codecs
import ctypes
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from specdec.text import boundary
from specdec_llama_cpp.host import Host

LONG: Final = 1024
"""Bytes of the longest piece that is read; the longest known are runs of 128 spaces."""

PIECES: Final = 65_536
"""Token ids whose bytes are remembered."""


class LlamaCodec:
    """Text to tokens and back with a host's own tokenizer; see `specdec.BatchCodec`.

    Tokens are bytes here: `llama.cpp` says which ones each token stands for, so where a text
    begins and whether a character is whole is known, not guessed.

    Args:
        llm: A `llama_cpp.Llama`; one with ``vocab_only=True`` will do.
    """

    def __init__(self, llm: Host) -> None:
        self._llm = llm
        self.piece = lru_cache(PIECES)(self._piece)

    def _piece(self, token: int) -> bytes:
        # Llama.detokenize gives nothing for a token of more than 32 bytes (0.3.36).
        return self._llm.detokenize([token], special=True) or _long_piece(self._llm, token)

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The bytes of `ids`; special tokens appear verbatim."""
        return b"".join(map(self.piece, ids))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens appear verbatim."""
        return self.bytes_of(ids).decode("utf-8", "replace")

    def context(self, after: Sequence[int]) -> tuple[int, ...]:
        """The shortest end of `after` behind which every text has the same tokens."""
        return boundary(after, self.decode)

    def encode(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        """The tokens of `text` as the model would write them after the tokens `after`."""
        return self.encode_all((text,), after)[0]

    def encode_all(self, texts: Sequence[str], after: Sequence[int]) -> list[tuple[int, ...]]:
        """What `encode` gives for each of `texts`."""
        before = self.bytes_of(self.context(after))
        return [self._encode(_bytes(text), before) for text in texts]

    def _encode(self, text: bytes, before: bytes) -> tuple[int, ...]:
        """The tokens behind the boundary; where one would span it, behind a neutral character."""
        for lead in (before, b"\n", b"."):
            if lead and (found := self._behind(lead, text)) is not None:
                return found
        return tuple(self._llm.tokenize(text, add_bos=False, special=True))

    def _behind(self, lead: bytes, text: bytes) -> tuple[int, ...] | None:
        """The tokens of `text` behind `lead`; None where a token spans the boundary."""
        ids = self._llm.tokenize(lead + text, add_bos=False, special=True)
        ends = list(accumulate(len(self.piece(token)) for token in ids))
        # Counted from the end: SentencePiece tokenizers put a space before the whole.
        boundary = (ends[-1] if ends else 0) - len(text)
        if not text:
            return ()
        return tuple(ids[ends.index(boundary) + 1 :]) if boundary in ends else None

    def decoder(self) -> LlamaDecoder:
        """A fresh incremental decoder."""
        return LlamaDecoder(self)


class LlamaDecoder:
    """Committed tokens to text, complete characters only; see `specdec.Decoder`."""

    def __init__(self, codec: LlamaCodec) -> None:
        self._codec = codec
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def pending(self) -> bool:
        """True while the tokens seen end inside a character."""
        return bool(self._utf8.getstate()[0])

    def push(self, ids: Sequence[int]) -> str:
        """The complete characters that `ids` add."""
        return self._utf8.decode(self._codec.bytes_of(ids))


def _bytes(text: str) -> bytes:
    # Half a surrogate pair has no UTF-8 bytes; models never write one.
    return text.encode("utf-8", "replace")


def _long_piece(llm: Host, token: int) -> bytes:
    """The bytes of a token, straight from llama.cpp; nothing where there is none."""
    llama_cpp: Any = sys.modules.get("llama_cpp")  # whoever has a Llama has imported it
    if llama_cpp is None or not isinstance(llm, llama_cpp.Llama):
        return b""
    vocabulary = llama_cpp.llama_model_get_vocab(llm.model)
    buffer = ctypes.create_string_buffer(LONG)
    length = llama_cpp.llama_token_to_piece(vocabulary, token, buffer, LONG, 0, True)
    return buffer.raw[: max(length, 0)]
