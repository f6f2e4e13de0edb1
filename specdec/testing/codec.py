"""CharCodec: text as the oracle's 64 token ids, for text drafters without a tokenizer."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Final

CHARACTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789 \n{}[]\":,._-<>/=()\\'"
"""The characters that have an id of their own, in the order of their ids."""

DIGITS: Final = len(CHARACTERS)
"""Id of the octal digit 0; the digits 1 to 7 follow it and end the vocabulary."""

BAD: Final = "\ufffd"
"""What is read where the ids spell no character."""

_IDS: Final = {character: i for i, character in enumerate(CHARACTERS)}


class CharCodec:
    """Text to tokens and back; see `specdec.text.TextCodec`.

    Each of the 56 most useful characters is one id. Any other is spelt as its UTF-8 bytes, three
    octal digits each: ``é`` takes six ids, an emoji twelve, and behind all of them but the last
    a decoder is `pending`. Texts never merge across a boundary.
    """

    vocabulary: Final = DIGITS + 8

    def encode(
        self,
        text: str,
        after: Sequence[int] = (),  # noqa: ARG002 - characters never merge
    ) -> tuple[int, ...]:
        """The ids of `text`; what stands before it makes no difference."""
        ids: list[int] = []
        for character in text:
            if character in _IDS:
                ids.append(_IDS[character])
                continue
            # Half a surrogate pair has no UTF-8 bytes; it is written as a question mark.
            for byte in character.encode("utf-8", "replace"):
                ids += [DIGITS + (byte >> 6), DIGITS + (byte >> 3 & 7), DIGITS + (byte & 7)]
        return tuple(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; an unfinished character at the end is shown as U+FFFD."""
        decoder = CharDecoder()
        return decoder.push(ids) + decoder.flush()

    def decoder(self) -> CharDecoder:
        """A fresh incremental decoder."""
        return CharDecoder()


class CharDecoder:
    """Ids to text as they arrive; see `specdec.text.Decoder`."""

    def __init__(self) -> None:
        self._digits: list[int] = []
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def pending(self) -> bool:
        """True while the ids seen end inside a character."""
        return bool(self._digits or self._bytes.getstate()[0])

    def push(self, ids: Sequence[int]) -> str:
        """The complete characters that `ids` add.

        Raises:
            ValueError: If an id is not one of the 64.
        """
        return "".join(map(self._push, ids))

    def _push(self, token: int) -> str:
        if not 0 <= token < DIGITS + 8:
            raise ValueError(f"token {token} is outside the codec's vocabulary of {DIGITS + 8}")
        if token < DIGITS:
            return self.flush() + CHARACTERS[token]
        self._digits.append(token - DIGITS)
        if len(self._digits) < 3:
            return ""
        high, middle, low = self._digits
        self._digits.clear()
        if high > 3:  # more than a byte holds
            return self.flush() + BAD
        return self._bytes.decode(bytes([high << 6 | middle << 3 | low]))

    def flush(self) -> str:
        """U+FFFD for an unfinished character, which is given up; nothing otherwise."""
        lost = BAD if self._digits else ""
        self._digits.clear()
        return self._bytes.decode(b"", final=True) + lost
