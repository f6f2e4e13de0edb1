"""SAM-Decoding (suffix automata) as a specdec drafter, and the stack of it and another."""

from __future__ import annotations

from collections.abc import Callable

import specdec
from specdec_samd.automaton import SuffixAutomaton
from specdec_samd.corpus import CorpusError
from specdec_samd.drafter import Context, SuffixDrafter
from specdec_samd.stack import SamDecoding

__all__ = ["Context", "CorpusError", "SamDecoding", "SuffixAutomaton", "SuffixDrafter"]


@specdec.hookimpl
def register_drafters(register: Callable[[str, Callable[..., specdec.Drafter]], None]) -> None:
    """Offer "samd" and its part, "sam"; "context" is for its option `static`."""
    register("samd", SamDecoding)
    register("sam", SuffixDrafter)
    register("context", Context)
