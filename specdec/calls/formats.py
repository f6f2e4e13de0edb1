"""CallFormat: how a model writes tool calls, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

_DECODER = json.JSONDecoder()


@attrs.frozen
class Call:
    """One invocation of a tool, as the model wrote it.

    Attributes:
        name: The tool's name.
        arguments: Its arguments.
    """

    name: str
    arguments: Mapping[str, Any]


@attrs.frozen
class CallFormat:
    """How calls are written: one JSON object each, between two markers.

    Attributes:
        name: Name of the format.
        open: What stands before a call; it also announces one.
        close: What stands behind a call.
        separator: What stands between two calls.
        name_key: Key of the tool's name.
        arguments_key: Key of the arguments object.
    """

    name: str
    open: str
    close: str
    separator: str
    name_key: str = "name"
    arguments_key: str = "arguments"

    def render(self, calls: list[Call]) -> str:
        """The text of `calls`, with the white space of Python's JSON encoder."""
        return self.separator.join(
            self.open
            + json.dumps(
                {self.name_key: call.name, self.arguments_key: dict(call.arguments)},
                ensure_ascii=False,
            )
            + self.close
            for call in calls
        )

    def parse(self, text: str) -> list[Call]:
        """The complete, well-formed calls in `text`, in order; everything else is passed over."""
        calls: list[Call] = []
        marker = self.open.strip()
        at = text.find(marker)
        while at >= 0:
            start = text.find("{", at + len(marker))
            # Only white space may stand between the marker and its object.
            if start >= 0 and not text[at + len(marker) : start].strip():
                try:
                    data, _ = _DECODER.raw_decode(text, start)
                except json.JSONDecodeError:
                    data = None
                if isinstance(data, dict) and isinstance(data.get(self.name_key), str):
                    arguments = data.get(self.arguments_key, {})
                    if isinstance(arguments, dict):
                        calls.append(Call(data[self.name_key], arguments))
            at = text.find(marker, at + len(marker))
        return calls


HERMES = CallFormat(
    name="hermes",
    open="<tool_call>\n",
    close="\n</tool_call>",
    separator="\n",
)
"""Qwen 2.5 and 3, Hermes 2 and 3, Granite 4 and the demo model."""
