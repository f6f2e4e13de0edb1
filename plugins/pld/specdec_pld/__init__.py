"""Prompt lookup decoding (PLD) as a specdec drafter."""

from __future__ import annotations

from collections.abc import Callable

import specdec
from specdec_pld.drafter import PromptLookup

__all__ = ["PromptLookup"]


@specdec.hookimpl
def register_drafters(register: Callable[[str, Callable[..., specdec.Drafter]], None]) -> None:
    """Offer "pld"."""
    register("pld", PromptLookup)
