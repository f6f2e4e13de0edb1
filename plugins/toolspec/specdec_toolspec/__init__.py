"""ToolSpec's parts for specdec: a memory of episodes and a drafter that retrieves from it."""

from __future__ import annotations

from collections.abc import Callable

import specdec
from specdec_toolspec.acceptance import holds_call
from specdec_toolspec.container import MemoryFileError
from specdec_toolspec.drafter import RetrievalDrafter
from specdec_toolspec.memory import EpisodeMemory

__all__ = ["EpisodeMemory", "MemoryFileError", "RetrievalDrafter", "holds_call"]


@specdec.hookimpl
def register_drafters(register: Callable[[str, Callable[..., specdec.Drafter]], None]) -> None:
    """Offer "retrieval"."""
    register("retrieval", RetrievalDrafter)


@specdec.hookimpl
def register_memories(register: Callable[[str, Callable[..., specdec.Memory]], None]) -> None:
    """Offer "episodes"."""
    register("episodes", EpisodeMemory)
