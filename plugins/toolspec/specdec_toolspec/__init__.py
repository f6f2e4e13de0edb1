"""ToolSpec for specdec: schema machine, retrieval, a memory of episodes, and the stack of them."""

from __future__ import annotations

from collections.abc import Callable

import specdec
from specdec_toolspec.acceptance import holds_call
from specdec_toolspec.container import MemoryFileError
from specdec_toolspec.drafter import RetrievalDrafter
from specdec_toolspec.memory import EpisodeMemory
from specdec_toolspec.schema import SchemaMachine
from specdec_toolspec.stack import SchemaDrafter, ToolSpec

__all__ = [
    "EpisodeMemory",
    "MemoryFileError",
    "RetrievalDrafter",
    "SchemaDrafter",
    "SchemaMachine",
    "ToolSpec",
    "holds_call",
]


@specdec.hookimpl
def register_drafters(register: Callable[[str, Callable[..., specdec.Drafter]], None]) -> None:
    """Offer "toolspec" and its parts, "retrieval" and "schema"."""
    register("toolspec", ToolSpec)
    register("retrieval", RetrievalDrafter)
    register("schema", SchemaDrafter)


@specdec.hookimpl
def register_state_machines(
    register: Callable[[str, Callable[..., specdec.StateMachine]], None],
) -> None:
    """Offer "schema"."""
    register("schema", SchemaMachine)


@specdec.hookimpl
def register_memories(register: Callable[[str, Callable[..., specdec.Memory]], None]) -> None:
    """Offer "episodes"."""
    register("episodes", EpisodeMemory)
