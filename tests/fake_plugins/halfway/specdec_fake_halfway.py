"""A plugin that registers a drafter and an observer, then fails."""

from __future__ import annotations

from collections.abc import Callable

from specdec.hookspecs import hookimpl

calls: list[str] = []


@hookimpl
def register_drafters(register: Callable[[str, object], None]) -> None:
    """Works."""
    register("half", dict)


@hookimpl
def register_memories(register: Callable[[str, object], None]) -> None:
    """Registers one memory and fails before the next."""
    register("half-shelf", dict)
    raise RuntimeError("the disk is gone")


@hookimpl
def on_step() -> None:
    """Must never be called."""
    calls.append("on_step")
