"""A plugin whose hook asks for an argument that the hook does not have."""

from __future__ import annotations

from collections.abc import Callable

from specdec.hookspecs import hookimpl


@hookimpl
def register_drafters(registrar: Callable[[str, object], None]) -> None:
    """Calls `register` by another name."""
