"""The conformance kit, on this plugin."""

from specdec_pld import PromptLookup
from specdec_toolspec import (
    EpisodeMemory,
    RetrievalDrafter,
    SchemaDrafter,
    SchemaMachine,
    ToolSpec,
)

from specdec.calls import FORMATS, Call
from specdec.testing import drafter_checks, machine_checks, memory_checks

CALLS = (
    Call("get_weather", {"city": "oslo", "unit": "celsius", "days": 3, "hourly": True}),
    Call("book", {"where": {"name": "la paz"}, "guests": ["eve", "bob"], "price": None}),
    Call("ping", {}),
)
"""Calls of the kit's tools."""


def anything(request, result):
    """The kit's requests end at their limit and would not be stored otherwise."""
    return True


@drafter_checks(
    RetrievalDrafter,
    lambda: RetrievalDrafter(accept=anything),
    lambda: RetrievalDrafter(accept=anything, from_start=True),
    lambda: RetrievalDrafter(accept=anything, match=(3, 2), context=False, k=3),
    lambda: RetrievalDrafter(accept=anything, memory=EpisodeMemory(entries=2), from_start=True),
    lambda: RetrievalDrafter(store=False),
    SchemaDrafter,
    lambda: SchemaDrafter(values=0, formats=("pythonic", "qwen3-coder"), most=4, least=0.0),
    ToolSpec,
    lambda: ToolSpec(accept=anything, from_start=True),
    lambda: ToolSpec(retrieval=False, values=0, fallback=PromptLookup()),
)
def test_drafter(check):
    check()


@memory_checks(
    EpisodeMemory,
    lambda: EpisodeMemory(entries=8),
    lambda: EpisodeMemory(entries=100, tokens=9000),
)
def test_memory(check):
    check()


@machine_checks(
    SchemaMachine,
    lambda: SchemaMachine(values=0),
    lambda: SchemaMachine(formats=("pythonic", "glm-4.5", "gemma-4")),
    texts=[
        FORMATS[name].render(CALLS) for name in ("hermes-arguments-first", "kimi-k2", "glm-4.5")
    ],
)
def test_machine(check):
    check()
