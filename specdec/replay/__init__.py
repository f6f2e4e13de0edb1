"""Replay: recorded outputs in place of a model's choices, to measure drafters on traces."""

from specdec.replay.cost import modelled
from specdec.replay.target import ReplayTarget, TimedTarget

__all__ = ["ReplayTarget", "TimedTarget", "modelled"]
