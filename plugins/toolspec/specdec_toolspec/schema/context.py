"""Context: what a request brings to its schema machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from specdec import CallFormat, Request
from specdec_toolspec.schema.guesses import Guesses
from specdec_toolspec.schema.habits import Habits
from specdec_toolspec.schema.toolset import Toolset

if TYPE_CHECKING:
    from specdec_toolspec.schema.language import Language

TAIL: Final = 1_024
"""Prompt tokens at the end that stand for the conversation where there are no messages."""

LONGEST: Final = 12_000
"""Characters of a conversation that are looked at, the last ones."""

HABIT: Final = 0.5
"""Weight of a call seen before in the log-odds of a tool, per doubling of the count."""

LEAST: Final = 0.03
"""What a tool is worth at least, where they are not too many."""

NAMES: Final = 32
"""Tools offered at once, the likeliest; a tree of 64 nodes holds no more."""


class Context:
    """A request's tools, conversation and habits. Read only.

    Args:
        request: The request.
        toolset: Its tools.
        habits: Those of its tenant.
        values: The most guesses for one value; with 0 there are none.
    """

    def __init__(self, request: Request, toolset: Toolset, habits: Habits, values: int) -> None:
        self.request = request
        self.toolset = toolset
        self.habits = habits
        self.values = values
        self.languages: dict[CallFormat, Language] = {}

    @cached_property
    def conversation(self) -> str:
        """What was said before the output, without what a system message says."""
        request = self.request
        spoken = [m for m in request.messages if m.get("role") != "system"]
        if spoken:
            return "\n".join(map(_said, spoken))[-LONGEST:]
        if request.codec is None:
            return ""
        return request.codec.decode(request.prompt[-TAIL:])[-LONGEST:]

    @cached_property
    def asked(self) -> str:
        """What the user said last; all of the conversation where nobody tells users apart."""
        users = [m for m in self.request.messages if m.get("role") == "user"]
        return _said(users[-1])[-LONGEST:] if users else self.conversation

    @cached_property
    def guesses(self) -> Guesses | None:
        """What values may be; None where nothing is to be guessed."""
        return Guesses(self.conversation, self.habits, self.values) if self.values else None

    @cached_property
    def mentions(self) -> dict[str, float]:
        """Log-odds of tools by what the conversation mentions."""
        return self.toolset.mentions(self.conversation, self.asked)

    def names(self, written: str, previous: str) -> Mapping[str, float]:
        """P(the tool's name | `written` stands where it begins), the likeliest first.

        Args:
            written: What is written from the name on.
            previous: The tool called before in this output; empty if none.
        """
        known = self.toolset.names
        begun = written.lstrip()
        # What is written may go on behind the name.
        fitting = (
            [n for n in known if n.startswith(begun) or begun.startswith(n)] if begun else known
        )
        called = self.habits.names.of("")
        after = self.habits.names.of(previous) if previous else {}
        mentions = self.mentions
        odds = {name: mentions[name] for name in fitting}
        for name in (called.keys() | after.keys()) & odds.keys():
            often = called.get(name, 0.0) + 2.0 * after.get(name, 0.0)
            odds[name] += HABIT * math.log2(1.0 + often)
        best = sorted(odds, key=odds.__getitem__, reverse=True)
        if not best:
            return {}
        top = odds[best[0]]
        whole = sum(math.exp(odds[name] - top) for name in best)
        shares = {name: math.exp(odds[name] - top) / whole for name in best[:NAMES]}
        return {name: max(share, min(LEAST, 0.8 / len(shares))) for name, share in shares.items()}


def content_of(message: Mapping[str, object]) -> str:
    """The text of a message's content, in any of the forms that people give it."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = (part.get("text") if isinstance(part, Mapping) else part for part in parts)
    return "\n".join(str(text) for text in texts if text)


def _said(message: Mapping[str, object]) -> str:
    """The content of a message, and what it called."""
    return "\n".join(str(text) for text in (content_of(message), message.get("tool_calls")) if text)
