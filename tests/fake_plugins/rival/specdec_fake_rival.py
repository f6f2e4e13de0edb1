"""A sound plugin whose entry point has the same name as that of specdec-fake-good."""

from __future__ import annotations

from collections.abc import Callable

from specdec.hookspecs import hookimpl


@hookimpl
def register_drafters(register: Callable[[str, object], None]) -> None:
    """Register a drafter that must not be found."""
    register("rival-echo", dict)
