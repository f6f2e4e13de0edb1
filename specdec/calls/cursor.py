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
        return self.follow(state, text)[0]

    def follow(self, state: CallState, text: str) -> tuple[CallState, tuple[CallState, ...]]:
        """The state after `text`, and the states in which calls ended on the way.

        The state of a call that has ended holds all of it: its `raw` text as far as the end of the
        call itself, its name, its keys and values, and its place among the output's `calls`.
        Never raises, changes nothing.
        """
        if not text:
            return state, ()
        walk = Walk(grammar(self.format), state)
        walk.feed(text)
        ended = (passed.state for passed in walk.passed if passed.kind == "end")
        return walk.state(), tuple(call for call in ended if call is not None)
