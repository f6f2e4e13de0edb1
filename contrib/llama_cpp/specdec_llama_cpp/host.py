"""Host: what is used of a `llama_cpp.Llama`, so that nothing here imports llama_cpp."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from specdec import SpecdecError


class Host(Protocol):
    """A `llama_cpp.Llama`.

    Attributes:
        draft_model: What it asks for drafts.
        input_ids: (L,) its own buffer of token ids, as long as its context.
        scores: (R, V) logits by position; R is the context's length, or `n_batch` where neither
            the context nor `logits_all` made it longer.
    """

    draft_model: Any
    input_ids: npt.NDArray[np.intc]
    scores: npt.NDArray[np.single]

    def n_ctx(self) -> int:
        """Positions of the context."""

    def n_vocab(self) -> int:
        """Number of token ids."""

    def token_eos(self) -> int:
        """The end-of-sequence id; -1 where the model has none."""

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Token ids of a text; with `special`, texts of special tokens become those tokens."""

    def detokenize(
        self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False
    ) -> bytes:
        """The bytes of token ids; with `special`, special tokens are printed."""


def positions(llm: Host) -> int:
    """Positions that the host can fill; llama.cpp rounds its own count up past the buffers."""
    return min(llm.n_ctx(), len(llm.input_ids))


def check_host(llm: Host, draft: object) -> None:
    """Refuse a host that `draft` cannot serve.

    Raises:
        SpecdecError: If the host asks something else for drafts, or would fail on long prompts.
    """
    if llm.draft_model is not draft:
        raise SpecdecError(
            f"this Llama drafts with {llm.draft_model!r}, not with {draft!r}; build it with "
            "Llama(..., draft_model=model) and then call model.attach(llm)"
        )
    rows, needed = len(llm.scores), positions(llm)
    if rows < needed:
        raise SpecdecError(
            f"this Llama keeps logits of {rows} positions for a context of {needed}, and with a "
            'draft model it fails on longer prompts ("could not broadcast input array"); build '
            "it with logits_all=True, or with n_batch of at least n_ctx"
        )


def top_ids(llm: Host, first: int, rows: int, k: int) -> npt.NDArray[np.int64]:
    """(rows, k) most likely next tokens at the positions from `first` on, most likely first."""
    logits = llm.scores[first : first + rows]
    k = min(k, logits.shape[1])
    best = np.argpartition(logits, -k, axis=1)[:, -k:]
    order = np.argsort(-np.take_along_axis(logits, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1).astype(np.int64)
