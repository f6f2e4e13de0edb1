"""SAM-Decoding: the suffix drafter, else an auxiliary one."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from specdec_token_recycling import TokenRecycling

from specdec import Drafter, Fallback, Memory
from specdec_samd.drafter import SuffixDrafter


class SamDecoding(Fallback):
    """SAM-Decoding (Hu et al., arXiv 2411.10666): suffix automata, else an auxiliary drafter.

    Where the longest match in prompt, output and static text is shorter than `threshold`, the
    auxiliary drafter drafts, Token Recycling as in the paper.

    Args:
        length: The most tokens to draft; this and what follows as in `SuffixDrafter`.
        threshold: The shortest match to draft from, in tokens.
        bias: How many tokens less a match in the static text counts.
        scale: Tokens to draft per token of the match.
        static: The static text: the path of a corpus, a memory, or None.
        store: Whether outputs are stored in a memory given as `static`.
        auxiliary: The auxiliary drafter; None for none.
    """

    def __init__(
        self,
        *,
        length: int = 40,
        threshold: int = 5,
        bias: int = 5,
        scale: float | None = 4.0,
        static: str | Path | Memory | Drafter | None = None,
        store: bool = True,
        auxiliary: Drafter | Literal["token-recycling"] | None = "token-recycling",
    ) -> None:
        if auxiliary == "token-recycling":
            auxiliary = TokenRecycling()
        if not isinstance(auxiliary, Drafter | None):
            raise TypeError(f"auxiliary must be a drafter or none, got {auxiliary!r}")
        self.suffix = SuffixDrafter(
            length=length, threshold=threshold, bias=bias, scale=scale, static=static, store=store
        )
        super().__init__(self.suffix, *(() if auxiliary is None else (auxiliary,)))
