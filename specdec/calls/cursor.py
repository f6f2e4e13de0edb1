"""Cursor: follows text in one call format, from state to state."""

from __future__ import annotations

import attrs

from specdec.calls.formats import CallFormat
from specdec.calls.grammar import grammar
from specdec.calls.state import CallState
from specdec.calls.walk import Walk


@attrs.frozen
class Cursor:
    """Follows a model's output through the calls of one format.

    A pure function from state and text to state: total on any text, and states are equal after
    equal text, however it was cut.

    Attributes:
        format: How the calls are written.
    """

    format: CallFormat

    def start(self) -> CallState:
        """The state before the first character of the output."""
        return CallState()

    def advance(self, state: CallState, text: str) -> CallState:
        """The state after `text`. Never raises, changes nothing."""
        if not text:
            return state
        walk = Walk(grammar(self.format), state)
        walk.feed(text)
        return walk.state()
