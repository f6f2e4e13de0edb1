"""Token Recycling (TR) as a specdec drafter."""

from __future__ import annotations

from collections.abc import Callable

import specdec
from specdec_token_recycling.drafter import TokenRecycling

__all__ = ["TokenRecycling"]


@specdec.hookimpl
def register_drafters(register: Callable[[str, Callable[..., specdec.Drafter]], None]) -> None:
    """Offer "token-recycling"."""
    register("token-recycling", TokenRecycling)
