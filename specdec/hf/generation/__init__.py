"""Speculation inside ``model.generate``."""

from specdec.hf.generation.speculation import Speculation, speculate

__all__ = ["Speculation", "speculate"]
