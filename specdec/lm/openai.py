"""The OpenAI streaming shape: events turned into ``chat.completion.chunk`` objects."""

from __future__ import annotations

import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Any

from specdec.calls import (
    FREE,
    ArgumentDelta,
    CallEnd,
    CallFormat,
    CallStart,
    Event,
    TextDelta,
    Tool,
    compile_tool,
)
from specdec.lm.arguments import ArgumentWriter, to_json
from specdec.lm.reply import Done, Reply, call_id


def chunks(
    events: Iterable[Event | Done],
    *,
    model: str = "specdec",
    id: str | None = None,
    form: CallFormat | None = None,
    tools: Sequence[Tool] = (),
) -> Iterator[dict[str, Any]]:
    """A stream as a client of OpenAI's expects it.

    The role comes first, then content and calls as they are written, then the finish reason, then
    a chunk without choices with usage and vLLM's metrics. Of a call, index, id and name come first;
    the fragments of its arguments, put together, are JSON that equals `Call.arguments`.

    A call that breaks off, or that cannot be read, keeps its fragments as they are: they are no
    JSON, so no client can take it for whole. Where a format writes ids, or the name behind the
    arguments, a call comes in one piece at its end, as those may; so does every call without
    `form`.

    Args:
        events: What `LanguageModel.stream` yields. Closed with this stream.
        model: The model's name.
        id: Id of the completion; give the request's, for calls to have the ids of `Done.reply`.
        form: How the model writes calls.
        tools: The tools it may call.
    """
    head = {
        "id": id or f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
    }
    calls = _Calls(str(head["id"]), form, tools)

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {**head, "choices": [choice]}

    with closing(events) if isinstance(events, Generator) else nullcontext():
        yield chunk({"role": "assistant", "content": ""})
        for event in events:
            if isinstance(event, TextDelta):
                yield chunk({"content": event.text})
            elif isinstance(event, Done):
                yield chunk({}, event.reply.finish_reason)
                yield {**head, "choices": [], **_accounts(event.reply)}
            else:
                yield from (chunk({"tool_calls": [delta]}) for delta in calls.take(event))


def _streams(form: CallFormat) -> bool:
    """Whether a call's id and name are known before its arguments are written."""
    return form.name_first and "{id}" not in form.open + form.between + form.close


def _accounts(reply: Reply) -> dict[str, Any]:
    return {"usage": reply.usage(), "metrics": reply.metrics()}


class _Calls:
    """Call events turned into OpenAI's deltas."""

    def __init__(self, id: str, form: CallFormat | None, tools: Sequence[Tool]) -> None:
        self._form = form if form is not None and _streams(form) else None
        self._id = id
        self._slots = {tool.name: compile_tool(tool) for tool in tools}
        self._sent = 0  # calls that were begun
        self._writer: ArgumentWriter | None = None

    def take(self, event: CallStart | ArgumentDelta | CallEnd) -> Iterator[dict[str, Any]]:
        """The deltas of one event."""
        if isinstance(event, CallEnd):
            yield from self._end(event)
        elif self._form is None:
            return
        elif isinstance(event, CallStart):
            self._writer = ArgumentWriter(self._form, self._slots.get(event.name, FREE))
            yield self._start(call_id(self._id, event.index), event.name)
        elif self._writer is not None:
            yield from self._fragment(self._writer.push(event.key, event.text))

    def _start(self, id: str, name: str) -> dict[str, Any]:
        self._sent += 1
        function = {"name": name, "arguments": ""}
        return {"index": self._sent - 1, "id": id, "type": "function", "function": function}

    def _end(self, event: CallEnd) -> Iterator[dict[str, Any]]:
        call, writer, self._writer = event.call, self._writer, None
        if call is None:
            return
        if writer is None:
            yield self._start(call.id or call_id(self._id, event.index), call.name)
            yield from self._fragment(to_json(dict(call.arguments)))
        else:
            yield from self._fragment(writer.finish(call.arguments))

    def _fragment(self, text: str) -> Iterator[dict[str, Any]]:
        if text:
            yield {"index": self._sent - 1, "function": {"arguments": text}}
