"""Replies told beforehand: a replay that is spoken to, in tokens cut at random, and its client."""

from __future__ import annotations

import codecs
import random
from collections.abc import Iterable, Sequence
from typing import Any

from models import Scripted

from specdec import DraftTree, Limit, ReplayTarget, Request
from specdec.calls import Call, CallFormat, read_tools

PROMPT, STOP = 0, 1
"""Token ids that hold no text."""


class PieceCodec:
    """Token i is the i-th piece of UTF-8; a character may be in several of them."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = (b"", b"<end>", *pieces)

    @property
    def ids(self) -> tuple[int, ...]:
        """All pieces in order, then the stop id."""
        return (*range(2, len(self.pieces)), STOP)

    def encode(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        return ()

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.pieces[i] for i in ids).decode(errors="replace")

    def decoder(self) -> PieceDecoder:
        return PieceDecoder(self)


class PieceDecoder:
    def __init__(self, codec: PieceCodec) -> None:
        self._pieces = codec.pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def pending(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def push(self, ids: Sequence[int]) -> str:
        return "".join(self._decoder.decode(self._pieces[i]) for i in ids)


class Told(ReplayTarget):
    """Gives the same answer, whatever it is asked."""

    def __init__(
        self,
        codec: Any,
        output: Sequence[int],
        form: CallFormat | None = None,
        *,
        vocabulary: int,
        stop: int = STOP,
    ) -> None:
        super().__init__({"told": output}, vocabulary)
        self.codec = codec
        self._fields = {"max_new_tokens": 9999, "call_format": form, "stop_ids": stop}

    def request(self, prompt: Any = None, *, tools: Iterable[Any] = (), **fields: Any) -> Request:
        fields = self._fields | fields | {"id": "told", "tools": read_tools(tools)}
        return Request((PROMPT,), codec=self.codec, **fields)


def told(pieces: Sequence[bytes], form: CallFormat | None = None) -> Told:
    """A target that writes these pieces, then its stop id."""
    codec = PieceCodec(pieces)
    return Told(codec, codec.ids, form, vocabulary=len(codec.pieces))


def cut(text: str, draw: random.Random, most: int = 12) -> list[bytes]:
    """`text` in random pieces of bytes."""
    data, pieces, at = text.encode(), [], 0
    while at < len(data):
        size = draw.randint(1, most)
        pieces.append(data[at : at + size])
        at += size
    return pieces


def knowing(output: Sequence[int], draw: random.Random) -> Scripted:
    """A drafter that offers a random number of the tokens to come."""
    sizes = [draw.choice((0, 1, 2, 5, 40)) for _ in output]

    def offer(written: tuple[int, ...], limit: Limit) -> DraftTree:
        size = min(sizes[len(written)], limit.nodes, limit.depth)
        return DraftTree.chain(output[len(written) : len(written) + size], source="knows")

    return Scripted(offer)


def collected(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """A stream put together as clients of OpenAI's do: index by index, text to text."""
    message: dict[str, Any] = {"content": "", "tool_calls": [], "usage": None, "reason": None}
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["role"] = delta.get("role", message.get("role"))
            message["content"] += delta.get("content") or ""
            message["reason"] = choice["finish_reason"] or message["reason"]
            for piece in delta.get("tool_calls", ()):
                calls = message["tool_calls"]
                if piece["index"] == len(calls):
                    calls.append({"id": piece["id"], "type": piece["type"], "name": "", "text": ""})
                call = calls[piece["index"]]
                call["name"] += piece["function"].get("name", "")
                call["text"] += piece["function"].get("arguments", "")
        message["usage"] = chunk.get("usage") or message["usage"]
    return message


CALLS = (
    Call(
        "write_file",
        {
            "path": "a/b.py",
            "text": 'def f(x):\n\treturn "é😀" + x  # {"a": [1]} </x> \\ ok',
            "mode": 3,
        },
    ),
    Call("set", {"on": True, "level": 2.5, "tags": ["a", "b, c"], "more": {"k": None, "n": "1"}}),
    Call("ping", {}),
)

TOOLS = read_tools(
    [
        {
            "name": "write_file",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "text": {"type": "string"},
                    "mode": {"type": "integer"},
                },
            },
        },
        {
            "name": "set",
            "parameters": {
                "type": "object",
                "properties": {
                    "on": {"type": "boolean"},
                    "level": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "more": {"type": "object"},
                },
            },
        },
        {"name": "ping", "parameters": {"type": "object", "properties": {}}},
    ]
)
