"""Messages: a conversation in OpenAI's form, made into what chat templates take."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from specdec.errors import RequestError


def readable(messages: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The messages, with the arguments of earlier calls as objects.

    OpenAI's clients keep them as JSON text, which most chat templates would print as a string.

    Raises:
        RequestError: If they are no list of messages.
    """
    if isinstance(messages, str | bytes | Mapping):
        raise RequestError(
            f"messages must be a list of messages, got {type(messages).__name__}; write "
            '[{"role": "user", "content": "..."}], or use generate() for a plain text'
        )
    read = tuple(messages)
    for number, message in enumerate(read, start=1):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestError(f"message {number} must be an object with a 'role', got {message!r}")
    return tuple(map(_message, read))


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list | tuple):
        return message
    return {**message, "tool_calls": [_call(call) for call in calls]}


def _call(call: Any) -> Any:  # noqa: ANN401 - whatever a client sends; templates judge it
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:  # a call that broke off
        return call
    return {**call, "function": {**function, "arguments": arguments}}
