"""Reply: what a model answered, its calls read and its drafts accounted for."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any, Final, Literal

import attrs

from specdec.acceptance import Acceptance
from specdec.calls.formats import Call
from specdec.lm.arguments import to_json
from specdec.request import Result

FinishReason = Literal["stop", "length", "tool_calls"]
"""Why a reply ended, in OpenAI's words."""

_SALT: Final = secrets.token_bytes(16)


def call_id(reply: str, index: int) -> str:
    """An id for a call that its model gave none: nine letters and digits, as Mistral wants them.

    Args:
        reply: The reply's id; the same in another process gives another id.
        index: The call's place in the reply.
    """
    return hashlib.blake2b(f"{index} {reply}".encode(), key=_SALT).hexdigest()[:9]


@attrs.frozen
class Reply:
    """What a model answered.

    Attributes:
        text: What it said outside of calls. A stop string and what follows it are left out, as are
            special tokens.
        raw: All that it wrote, calls as they are written, up to what ended it.
        tool_calls: The calls that are complete and can be read, in order; each has an id.
        result: Tokens, passes, times; why it ended in the engine's own words.
        prompt_tokens: Tokens of the prompt.
    """

    text: str
    raw: str
    tool_calls: tuple[Call, ...]
    result: Result
    prompt_tokens: int

    @property
    def id(self) -> str:
        """The request's id."""
        return self.result.request

    @property
    def tokens(self) -> tuple[int, ...]:
        """(T,) tokens written, what ended the reply included."""
        return self.result.tokens

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended: "length" where a limit cut it, whatever was called before."""
        if self.result.finish in ("length", "context"):
            return "length"
        return "tool_calls" if self.tool_calls else "stop"

    @property
    def report(self) -> Acceptance:
        """How its drafts fared."""
        return Acceptance.of(self.result)

    def to_message(self) -> dict[str, Any]:
        """The assistant's message for the next turn, as chat templates of transformers take it.

        OpenAI's form, but for the arguments, which are objects: most templates would print the
        JSON text that OpenAI has there as a string.
        """
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = [_call(call, dict(call.arguments)) for call in self.tool_calls]
        return message

    def to_openai(self, *, model: str = "specdec") -> dict[str, Any]:
        """The reply as an OpenAI ``chat.completion``, with vLLM's metrics.

        Args:
            model: The model's name.
        """
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["content"] = self.text or None
            message["tool_calls"] = [
                _call(call, to_json(dict(call.arguments))) for call in self.tool_calls
            ]
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason}],
            "usage": self.usage(),
            "metrics": self.metrics(),
        }

    def usage(self) -> dict[str, int]:
        """Tokens of prompt and reply, in OpenAI's words."""
        written = len(self.tokens)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": self.prompt_tokens + written,
        }

    def metrics(self) -> dict[str, Any]:
        """How its drafts fared, as vLLM puts it into a response."""
        return {"speculative_decoding": self.report.to_json()}


@attrs.frozen
class Done:
    """The last event of a stream.

    Attributes:
        reply: All of it.
    """

    reply: Reply


def _call(call: Call, arguments: object) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
