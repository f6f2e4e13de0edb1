"""Prompt lookup decoding (PLD), and the following of predicted outputs, as specdec drafters."""

from __future__ import annotations

from collections.abc import Callable

import specdec
from specdec_pld.drafter import PromptLookup
from specdec_pld.prediction import Prediction

__all__ = ["Prediction", "PromptLookup"]


@specdec.hookimpl
def register_drafters(register: Callable[[str, Callable[..., specdec.Drafter]], None]) -> None:
    """Offer "pld" and "prediction"."""
    register("pld", PromptLookup)
    register("prediction", Prediction)
