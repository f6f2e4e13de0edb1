"""A plugin with a misspelt hook."""

from __future__ import annotations

from collections.abc import Callable

from specdec.hookspecs import hookimpl


@hookimpl
def register_drafter(register: Callable[[str, object], None]) -> None:
    """Lacks its last letter."""


@hookimpl
def register_call_formats(register: Callable[[str, object], None]) -> None:
    """Spelt well, and dropped with the rest."""
    register("typo-format", {})
