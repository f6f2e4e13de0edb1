"""Cases: requests chosen to hurt, each with the oracle that serves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from specdec.calls.tools import Tool
from specdec.request import Request
from specdec.testing.codec import CharCodec
from specdec.testing.oracle import OracleTarget

TOOLS: Final = (
    Tool(
        "get_weather",
        "The weather in a city.",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1},
                "hourly": {"type": "boolean"},
            },
            "required": ["city", "unit"],
        },
    ),
    Tool(
        "book",
        "Book a table.",
        {
            "type": "object",
            "properties": {
                "where": {"type": "object", "properties": {"name": {"type": "string"}}},
                "guests": {"type": "array", "items": {"type": "string"}},
                "price": {"type": ["number", "null"]},
            },
        },
    ),
    Tool("ping"),
)

QUESTION: Final = "user: how is the weather in s\u00e3o paulo \u26c5?\nassistant: "

CALL: Final = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "s\u00e3o paulo", '
    '"unit": "celsius"}}\n</tool_call>'
)

PROMPTS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "short_period": (1, 2, 3) * 12,
        "no_repeats": tuple(range(40)),
        "one_token_repeated": (5,) * 40,
        "highest_id": (63, 62, 63, 63),
        "two_tokens": (7, 9),
        "one_token": (4,),
    }
)
"""Prompts chosen to hurt, the harshest last."""

LONG: Final = tuple((i * i // 7 + i // 64) % 64 for i in range(4096))


@attrs.frozen
class Case:
    """A request and the target that serves it."""

    name: str
    request: Request
    target: OracleTarget


def case(
    name: str, prompt: Sequence[int], *, tokens: int = 24, tenant: str = "", script: str = ""
) -> Case:
    """A case in which drafters get everything a request may carry, and errors are raised."""
    codec = CharCodec()
    written = codec.encode(script)
    request = Request(
        prompt=prompt,
        max_new_tokens=tokens + len(written),
        codec=codec,
        tools=TOOLS,
        messages=({"role": "user", "content": QUESTION},),
        prediction=script or None,
        tenant=tenant,
        # A composition handles its members' errors by the request's rule; the kit wants to see
        # them, and the same checks that the engine's guard makes.
        on_error="raise",
        vocabulary=CharCodec.vocabulary,
        id=name,
    )
    return Case(name, request, OracleTarget(script=written))


def cases(*, long: bool = False, tenant: str = "") -> Iterator[Case]:
    """A tool call, then the prompts chosen to hurt."""
    yield case("tool_call", CharCodec().encode(QUESTION), tokens=8, tenant=tenant, script=CALL)
    if long:
        yield long_case()
    for name, prompt in PROMPTS.items():
        yield case(name, prompt, tenant=tenant)


def long_case() -> Case:
    """A prompt of 4,096 tokens."""
    return case("long", LONG, tokens=16)
