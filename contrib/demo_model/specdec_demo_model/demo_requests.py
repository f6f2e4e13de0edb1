"""Short tool-calling requests, such as one person's assistant gets in a day."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from specdec_demo_model.paths import REQUESTS_FILE


@attrs.frozen
class DemoRequest:
    """One request.

    Attributes:
        id: Its name, unique among the requests.
        messages: The conversation so far, as chat templates take it.
        tools: The tools on offer, in OpenAI's form.
        expected: Name of the tool that the message asks for.
    """

    id: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    expected: str


def requests() -> list[DemoRequest]:
    """The demo requests, in the order of the day; all of them share one set of tools."""
    data = json.loads(REQUESTS_FILE.read_text(encoding="utf-8"))
    tools = tuple(data["tools"])
    return [
        DemoRequest(
            id=entry["id"],
            messages=({"role": "user", "content": entry["user"]},),
            tools=tools,
            expected=entry["expected"],
        )
        for entry in data["requests"]
    ]


REQUESTS: tuple[DemoRequest, ...] = tuple(requests())
"""The demo requests, ready made."""
