"""Context: what a request brings to its schema machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Final

from specdec import Request
from specdec_toolspec.schema.habits import Habits
from specdec_toolspec.schema.toolset import Toolset

TAIL: Final = 1_024
"""Prompt tokens at the end that stand for the conversation where there are no messages."""

LONGEST: Final = 12_000
"""Characters of a conversation that are looked at, the last ones."""

HABIT: Final = 0.5
"""Weight of a call seen before in the log-odds of a tool, per doubling of the count."""

LEAST: Final = 0.03
"""What a tool is worth at least, where they are not too many."""

NAMES: Final = 64
"""Tools offered at once, the likeliest; a tree of 64 nodes holds no more."""


class Context:
    """A request's tools, conversation and habits. Read only.

    Args:
        request: The request.
        toolset: Its tools.
        habits: Those of its tenant.
    """

    def __init__(self, request: Request, toolset: Toolset, habits: Habits) -> None:
        self.request = request
        self.toolset = toolset
        self.habits = habits

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
        odds = {
            name: self.mentions.get(name, 0.0)
            + HABIT * math.log2(1.0 + called.get(name, 0.0) + 2.0 * after.get(name, 0.0))
            for name in fitting
        }
        best = sorted(odds, key=lambda name: -odds[name])
        if not best:
            return {}
        top = odds[best[0]]
        whole = sum(math.exp(odds[name] - top) for name in best)
        shares = {name: math.exp(odds[name] - top) / whole for name in best[:NAMES]}
        return {name: max(share, min(LEAST, 0.8 / len(shares))) for name, share in shares.items()}


def _said(message: Mapping[str, object]) -> str:
    """The text of a message, in any of the forms that people give it."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    calls = message.get("tool_calls")
    return "\n".join(str(text) for text in (*texts, calls) if text)
