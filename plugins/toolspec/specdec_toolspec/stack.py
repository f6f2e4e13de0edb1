"""ToolSpec: retrieval, else the schema, else a general drafter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

from specdec_token_recycling import TokenRecycling

from specdec import Drafter, Fallback, MachineDrafter, Memory
from specdec_toolspec.acceptance import holds_call
from specdec_toolspec.drafter import Accept, RetrievalDrafter
from specdec_toolspec.schema import SchemaMachine

Mode = Literal["paper"]

MODES: Final[tuple[str, ...]] = get_args(Mode)


class SchemaDrafter(MachineDrafter):
    """The schema machine as a drafter.

    Args:
        values: See `SchemaMachine`.
        most: See `SchemaMachine`.
        formats: See `SchemaMachine`.
        least: See `SchemaMachine`.
    """

    def __init__(
        self,
        *,
        values: int = 5,
        most: int = 32,
        formats: Sequence[str] = (),
        least: float = 0.05,
    ) -> None:
        machine = SchemaMachine(values=values, most=most, formats=formats, least=least)
        super().__init__(machine, most=most)


class ToolSpec(Fallback):
    """ToolSpec (Xia et al., arXiv 2604.13519): its Algorithm 1, step by step.

    What followed the last output tokens in the outputs of similar requests, and earlier in this
    one; where nothing did, what the schema machine expects; where it expects nothing, the draft of
    a general drafter, Token Recycling as in the paper.

    Args:
        mode: "paper", Algorithm 1.
        retrieval: Whether to retrieve; a drafter takes the place of the one built here.
        schema: Whether to follow the tools' schemas; a drafter takes the place of the one built
            here.
        fallback: The general drafter; a new `TokenRecycling` by default.
        memory: Where outputs are kept; a new `EpisodeMemory` by default.
        k: Episodes recalled; this and what follows as in `RetrievalDrafter`.
        match: Lengths of a match, in tokens.
        lengths: The most tokens of the best continuation, the second best, and so on.
        context: Whether prompt and output are searched too.
        from_start: Whether to retrieve before `match` can find anything; off in the paper.
        store: Whether outputs are stored.
        accept: Which outputs are stored.
        values: Guesses for a value that may be anything; this and what follows as in
            `SchemaMachine`. With 0, as in the paper, such values are the general drafter's.
        most: The most texts that the schema machine offers.
        formats: Further call formats, by name.
        top_k: Successors kept per token; this and what follows as in `TokenRecycling`.
        nodes: The most nodes of its tree.

    Attributes:
        memory: Where outputs are kept; None without retrieval, or with a drafter given for it.
    """

    def __init__(
        self,
        *,
        mode: Mode = "paper",
        retrieval: bool | Drafter = True,
        schema: bool | Drafter = True,
        fallback: Drafter | None = None,
        memory: Memory | None = None,
        k: int = 10,
        match: Sequence[int] = (7, 6, 5),
        lengths: Sequence[int] = (32, 16, 8, 8),
        context: bool = True,
        from_start: bool = False,
        store: bool = True,
        accept: Accept = holds_call,
        values: int = 5,
        most: int = 32,
        formats: Sequence[str] = (),
        top_k: int = 8,
        nodes: int = 80,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(map(repr, MODES))}, got {mode!r}")
        for name, part in (("retrieval", retrieval), ("schema", schema)):
            if not isinstance(part, bool | Drafter):
                raise TypeError(f"{name} must be true, false or a drafter, got {part!r}")
        if memory is not None and retrieval is not True:
            raise ValueError("a memory is for the retrieval built here; give it to yours instead")
        if retrieval is True:
            retrieval = RetrievalDrafter(
                memory=memory,
                k=k,
                match=match,
                lengths=lengths,
                context=context,
                from_start=from_start,
                store=store,
                accept=accept,
            )
        if schema is True:
            schema = SchemaDrafter(values=values, most=most, formats=formats)
        if fallback is None:
            fallback = TokenRecycling(top_k=top_k, nodes=nodes)
        chosen = [part for part in (retrieval, schema) if isinstance(part, Drafter)]
        super().__init__(*chosen, fallback)
        self.memory = retrieval.memory if isinstance(retrieval, RetrievalDrafter) else None
