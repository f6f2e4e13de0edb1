"""Transcript: committed tokens of one request turned into events, and in the end into a reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from specdec.calls import (
    HERMES,
    Call,
    CallEnd,
    CallFormat,
    CallParser,
    Event,
    TextDelta,
    Tool,
    shown_formats,
    tools_in_prompt,
)
from specdec.lm.reply import Reply, call_id
from specdec.lm.stops import StopCut
from specdec.request import Request, Result
from specdec.text import TextCodec

NEAR = 4
"""Prompt tokens that any character takes at most: a stop string may begin in the prompt."""


@attrs.frozen
class Reading:
    """How a request's output is read.

    Attributes:
        form: How calls are written in it; None where there are none to look for.
        tools: The tools that may be called.
    """

    form: CallFormat | None
    tools: tuple[Tool, ...] = ()

    @classmethod
    def of(cls, request: Request, codec: TextCodec) -> Reading:
        """How to read the output of `request`.

        Calls are looked for where the request has tools, or its prompt tells of some. The format
        is the request's, or with tools of the prompt's own the one that it shows.
        """
        prompt = _said(request, codec)
        tools = request.tools or tools_in_prompt(prompt)
        if not tools:
            return cls(None)
        own = request.call_format
        if own is None or not request.tools:
            own = next(iter(shown_formats(prompt)), own)
        return cls(own or HERMES, tuple(tools))

    def marks(self) -> str:
        """All literals that calls are written with, in one text."""
        return "" if self.form is None else "\0".join(_literals(attrs.asdict(self.form)))


class Transcript:
    """Follows what is written in answer to one request.

    Args:
        request: The request.
        codec: Its codec.
        reading: How its output is read.
        special: Special tokens by id. Where they are no part of how calls are written, they are no
            text either.
    """

    def __init__(
        self, request: Request, codec: TextCodec, reading: Reading, special: dict[int, str]
    ) -> None:
        self._request = request
        self._codec = codec
        self._decoder = codec.decoder()
        self._parser = CallParser(reading.form, reading.tools) if reading.form else None
        marks = reading.marks()
        self._silent = {token for token, text in special.items() if text not in marks}
        self._stops = StopCut(request.stop_strings, _end(request, codec))
        self._text: list[str] = []
        self._calls: list[Call] = []

    def push(self, token: int) -> Iterator[Event]:
        """What one more token adds."""
        if token in self._request.stop_ids:
            return
        text = self._decoder.push((token,))
        if token not in self._silent:
            yield from self._read(self._stops.push(text))

    def finish(self) -> Iterator[Event]:
        """What was held back, now that the output has ended."""
        yield from self._read(self._stops.finish())
        if self._parser is not None:
            yield from map(self._noted, self._parser.finish())

    def reply(self, result: Result) -> Reply:
        """All of it; after `finish`."""
        return Reply(
            "".join(self._text),
            self._raw(result),
            tuple(self._calls),
            result,
            len(self._request.prompt),
        )

    def _read(self, text: str) -> Iterable[Event]:
        if not text:
            return ()
        events = [TextDelta(text)] if self._parser is None else self._parser.push(text)
        return map(self._noted, events)

    def _noted(self, event: Event) -> Event:
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, CallEnd) and event.call is not None:
            name = event.call.id or call_id(self._request.id, event.index)
            call = attrs.evolve(event.call, id=name)
            self._calls.append(call)
            return attrs.evolve(event, call=call)
        return event

    def _raw(self, result: Result) -> str:
        tokens = result.tokens
        if tokens and tokens[-1] in self._request.stop_ids:
            tokens = tokens[:-1]
        cut = StopCut(self._request.stop_strings, _end(self._request, self._codec))
        return cut.push(self._codec.decode(tokens)) + cut.finish()


def _said(request: Request, codec: TextCodec) -> str:
    """What the prompt says, as text."""
    if not request.messages:
        return codec.decode(request.prompt)
    contents = (message.get("content") for message in request.messages)
    return "\n".join(content for content in contents if isinstance(content, str))


def _end(request: Request, codec: TextCodec) -> str:
    """The end of the prompt that a stop string may begin in."""
    longest = max(map(len, request.stop_strings), default=0)
    return codec.decode(request.prompt[-NEAR * longest :]) if longest else ""


def _literals(fields: Any) -> Iterator[str]:  # noqa: ANN401 - a record's fields, to any depth
    for value in fields.values():
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _literals(value)
