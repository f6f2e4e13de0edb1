"""Acceptance: which outputs are worth remembering."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from specdec import Request, Result, calls

MOST: Final = 256
"""Braces at which an object may begin that are tried: a text of nothing else costs no more."""

_ARGUMENTS: Final = ("arguments", "parameters")
_DECODER: Final = json.JSONDecoder()


def holds_call(request: Request, result: Result) -> bool:
    """Whether an output came to its own end and holds a tool call that parses.

    A call is one in the request's call format; a JSON object with a text under ``name`` and an
    object under ``arguments`` or ``parameters``, anywhere in the text, in tags, a fence, a list,
    another object, or bare; or one of the request's tools called in any known format. An output
    cut by the token limit or the model's last position is not worth repeating, and without a codec
    nothing is known of the text.
    """
    if request.codec is None or result.finish not in ("stop_id", "stop_string"):
        return False
    text, form = request.codec.decode(result.tokens), request.call_format
    if form is not None and form.parse(text, request.tools):
        return True
    return any(map(_is_call, _objects(text))) or _calls_a_tool(request, text)


def _calls_a_tool(request: Request, text: str) -> bool:
    """Whether a tool of the request is called, in whatever format."""
    names = {tool.name for tool in request.tools if tool.name in text}
    form = calls.recognise(text) if names else None
    return form is not None and any(call.name in names for call in form.parse(text, request.tools))


def _objects(text: str) -> Iterator[Any]:
    """The JSON objects in `text`, those inside others too."""
    at = -1
    for _ in range(MOST):
        at = text.find("{", at + 1)
        if at < 0:
            return
        try:
            yield _DECODER.raw_decode(text, at)[0]
        except (json.JSONDecodeError, RecursionError):
            continue


def _is_call(value: Any) -> bool:  # noqa: ANN401 - whatever JSON holds
    return isinstance(value.get("name"), str) and any(
        isinstance(value.get(key), dict) for key in _ARGUMENTS
    )
