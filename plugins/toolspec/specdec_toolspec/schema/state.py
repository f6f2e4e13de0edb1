"""SchemaState: where an output ends, in every format that it may be written in."""

from __future__ import annotations

from typing import Final

import attrs

from specdec import CallFormat, calls
from specdec_toolspec.schema.context import Context

MAX_SAID: Final = 4_096
"""Characters of the output kept."""


@attrs.frozen
class Track:
    """An output as calls of one format.

    Attributes:
        format: The format.
        at: Where the output ends in it.
        previous: The tool of its last complete call; empty if none.
    """

    format: CallFormat
    at: calls.CallState
    previous: str = ""

    @classmethod
    def begin(cls, form: CallFormat) -> Track:
        """The track of an empty output."""
        return cls(form, calls.Cursor(form).start())

    def follow(self, text: str) -> tuple[Track, tuple[calls.CallState, ...]]:
        """The track after `text`, and the states in which calls ended in it."""
        at, ended = calls.Cursor(self.format).follow(self.at, text)
        previous = ended[-1].name or "" if ended else self.previous
        return Track(self.format, at, previous), ended

    @property
    def quiet(self) -> bool:
        """Whether it has seen no call, nor the beginning of one."""
        return self.at.phase == "text" and not self.at.calls


@attrs.frozen
class SchemaState:
    """Where an output ends.

    Attributes:
        tracks: The output in each format that it may be written in, the likeliest first.
        said: The output's last `MAX_SAID` characters.
        tried: How often a format was looked for in what was said.
        context: What the request brings; the same for all its states.
    """

    tracks: tuple[Track, ...]
    context: Context = attrs.field(eq=False, repr=False)
    said: str = attrs.field(default="", repr=False)
    tried: int = 0
