"""StopCut: text as it arrives, without the stop string that ends it."""

from __future__ import annotations

from collections.abc import Sequence


class StopCut:
    """Hands text on up to where a stop string begins; what may become one is held back.

    Args:
        stops: The stop strings.
        before: What stands before the text: a stop string may begin there.
    """

    def __init__(self, stops: Sequence[str], before: str = "") -> None:
        self._stops = stops
        longest = max(map(len, stops), default=0)
        self._held = before[max(len(before) - longest + 1, 0) :]
        self._old = len(self._held)  # characters of it that are not the text's
        self._cut = False

    def push(self, text: str) -> str:
        """What is certain to stand before any stop string."""
        if self._cut:
            return ""
        seen, held = len(self._held), self._held + text
        # A stop string counts when it is complete, so it ends in the new text.
        found = [held.find(stop, max(seen - len(stop) + 1, 0)) for stop in self._stops]
        places = [at for at in found if at >= 0]
        self._cut = bool(places)
        end = min(places) if places else len(held) - self._begun(held)
        certain = held[self._old : end] if end > self._old else ""
        self._held, self._old = held[end:], max(self._old - end, 0)
        return certain

    def _begun(self, text: str) -> int:
        """Characters at the end of `text` that a stop string may begin with."""
        sizes = (
            size
            for stop in self._stops
            for size in range(min(len(stop) - 1, len(text)), 0, -1)
            if text.endswith(stop[:size])
        )
        return max(sizes, default=0)

    def finish(self) -> str:
        """What was held back and came to nothing."""
        rest, self._held = self._held[self._old :], ""
        return "" if self._cut else rest
