"""Stops: when a request ends, judged token by token."""

from __future__ import annotations

from specdec.request import Finish, Request


class Stops:
    """Follows the emitted tokens of one request and says which one ends it.

    Stop ids come first, then stop strings, then the limit: a token that is all three counts as
    the first.

    Args:
        request: The request; with stop strings it has a codec.
        room: The most tokens that the target's positions allow.

    Attributes:
        emitted: Tokens followed so far.
        finish: Why generation ended, once it did.
    """

    def __init__(self, request: Request, room: int) -> None:
        self._ids = request.stop_ids
        self._texts = request.stop_strings
        self._most = min(request.max_new_tokens, room)
        self._limit: Finish = "length" if request.max_new_tokens <= room else "context"
        self._longest = max(map(len, self._texts), default=0)
        self._decoder = request.codec.decoder() if request.codec and self._texts else None
        self._tail = ""
        self.emitted = 0
        self.finish: Finish = "length"
        if self._decoder is not None:
            # A stop string may begin in the prompt. A token holds at least one byte, and four
            # bytes make any character.
            self._keep(self._decoder.push(request.prompt[-4 * self._longest :]))

    def _keep(self, text: str) -> None:
        """Keep the text that a stop string may have begun in."""
        self._tail = text[max(len(text) - self._longest + 1, 0) :]

    def ends(self, token: int) -> bool:
        """Whether generation ends with `token`, the next one emitted."""
        self.emitted += 1
        if token in self._ids:
            self.finish = "stop_id"
            return True
        if self._decoder is not None:
            # A stop string counts with the token that completes it; what stood before that token
            # has been searched already.
            text, old = self._tail + self._decoder.push([token]), len(self._tail)
            if any(text.find(stop, max(old - len(stop) + 1, 0)) >= 0 for stop in self._texts):
                self.finish = "stop_string"
                return True
            self._keep(text)
        if self.emitted >= self._most:
            self.finish = self._limit
            return True
        return False
