"""transformers: the target, its cache and its text codec."""

from specdec.hf.codec import HFCodec
from specdec.hf.generation import Speculation, speculate
from specdec.hf.target import HFTarget

__all__ = ["HFCodec", "HFTarget", "Speculation", "speculate"]
