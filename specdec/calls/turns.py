"""Turns: what a chat template prints for the assistant."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from specdec.calls.cuts import common
from specdec.calls.formats import Call

Render = Callable[[Sequence[Call], str | None], str]
"""``render(calls, content)``: the assistant's turn with these calls behind this text."""

Apply = Callable[[list[dict[str, Any]], bool], str]
"""``apply(messages, add_generation_prompt)``: a conversation as the chat template prints it."""


def assistant_turn(apply: Apply) -> Render:
    """What a chat template prints for the assistant's turn.

    Args:
        apply: Prints a conversation in the OpenAI form, which ends in the assistant's turn or,
            when asked for the generation prompt, in the user's.
    """
    asked: list[dict[str, Any]] = [{"role": "user", "content": "Please help."}]

    def render(calls: Sequence[Call], content: str | None) -> str:
        error: Exception | None = None
        # Most templates want arguments as objects, some as text.
        for text in (False, True):
            turn: dict[str, Any] = {"role": "assistant", "content": content or ""}
            if calls:
                turn["tool_calls"] = [_message(call, as_text=text) for call in calls]
            try:
                whole = apply([*asked, turn], False)
                break
            except Exception as failure:
                error = failure
        else:
            assert error is not None
            raise error
        # What opens the turn is kept: the generation prompt may hold more than that, a thought for
        # example. Some templates print the turn before in another way once it is answered.
        return whole[len(common(apply(asked, False), whole)) :]

    return render


def _message(call: Call, *, as_text: bool) -> dict[str, Any]:
    arguments = dict(call.arguments)
    return {
        "id": call.id,
        "type": "function",
        "function": {
            "name": call.name,
            "arguments": json.dumps(arguments, ensure_ascii=False) if as_text else arguments,
        },
    }
