"""Any specdec drafter in vLLM, through its custom_class hook: ``specdec_vllm.Proposer``."""

from __future__ import annotations

from specdec_vllm.proposer import Proposer
from specdec_vllm.settings import DEFAULT_DRAFTER, Settings

__all__ = ["DEFAULT_DRAFTER", "Proposer", "Settings"]
