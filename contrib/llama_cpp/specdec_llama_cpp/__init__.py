"""Any specdec drafter as the draft model of llama-cpp-python."""

from __future__ import annotations

from specdec_llama_cpp.codec import LlamaCodec
from specdec_llama_cpp.draft import SpecdecDraft
from specdec_llama_cpp.host import Host

__all__ = ["Host", "LlamaCodec", "SpecdecDraft"]
