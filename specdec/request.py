"""The records that travel: Request in, Step during, Result out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Literal

import attrs
import numpy as np
import numpy.typing as npt

from specdec.calls.formats import CallFormat
from specdec.calls.tools import Tool
from specdec.errors import RequestError
from specdec.text import TextCodec
from specdec.tree import DraftTree

OnError = Literal["plain", "raise"]
"""What happens when a drafter raises: go on without it for the request, or raise."""

Finish = Literal["length", "stop_id", "stop_string", "context", "criterion"]
"""Why a request ended: token limit, a stop id, a stop string, the model's last position, or one of
the request's own criteria."""

_ids = itertools.count(1)


@attrs.frozen
class Sampling:
    """How tokens are drawn; ``Request.sampling = None`` is greedy.

    Attributes:
        temperature: Divides the logits; at least 1e-6.
        top_k: Keep this many most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of this probability; 1.0 keeps all.
        seed: Seed of a generator of the request's own; None draws from torch's global
            generator, exactly as ``generate(do_sample=True)`` does.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __attrs_post_init__(self) -> None:
        if not 1e-6 <= self.temperature < math.inf:
            raise RequestError(
                f"temperature must be at least 1e-6 and finite, got {self.temperature}; for greedy "
                "decoding leave sampling out"
            )
        for name, value in (("top_k", self.top_k), ("seed", self.seed or 0)):
            if type(value) is not int:
                raise RequestError(f"{name} must be an integer, got {value!r}")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise RequestError(
                f"top_k must be at least 0 and top_p in (0, 1], got {self.top_k} and {self.top_p}"
            )
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise RequestError(f"a seed must be from 0 to 2**63 - 1, got {self.seed}")


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    # One text is a sequence of texts too, of its characters; nobody means that.
    return (values,) if isinstance(values, str) else tuple(values)


def _tools(values: Iterable[Tool]) -> tuple[Tool, ...]:
    return tuple(values)


def _messages(values: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(values)


def _ints(ids: Any) -> tuple[int, ...]:  # noqa: ANN401 - lists, arrays and tensors alike
    try:
        return tuple(index(i) for i in ids)
    except TypeError as error:
        raise RequestError(
            f"token ids must be a flat sequence of integers, got {type(ids).__name__}: {error}"
        ) from None


def _id_set(ids: Any) -> frozenset[int]:  # noqa: ANN401 - one id or several
    return frozenset(_ints((ids,) if isinstance(ids, int) else ids))


def _count(value: Any) -> int:  # noqa: ANN401 - whatever a caller gives
    try:
        return index(value)
    except TypeError:
        raise RequestError(f"max_new_tokens must be an integer, got {value!r}") from None


@attrs.frozen
class Request:
    """One generation asked for.

    Attributes:
        prompt: (P,) token ids; at least one.
        max_new_tokens: The most tokens to emit; 0 is allowed and emits nothing.
        stop_ids: Generation ends after any of these; it is kept in the output.
        stop_strings: Generation ends after the token that completes any of these.
        sampling: How tokens are drawn; None is greedy.
        processors: Logits processors, each ``(ids (1, L), scores (1, V)) -> scores``, applied to
            each path's own prefix, behind those of the model's generation config.
        criteria: Stopping criteria, each ``(ids (1, L), scores) -> bool``, as in transformers;
            asked for every token, with ``None`` for the scores.
        codec: Text to tokens and back; needed by stop strings and by text drafters.
        tools: The functions the model may call.
        messages: The conversation the prompt was rendered from, if known.
        prediction: Text that the output probably repeats, if known.
        call_format: How the model writes calls, if known.
        tenant: Owner of what is learned; memories and tables never cross tenants.
        on_error: What happens when a drafter raises; the engine sets it.
        vocabulary: Number of token ids the target knows, 0 when unknown; the engine sets it.
        id: Name of the request in logs and reports.

    Raises:
        RequestError: If the prompt is empty, the limit negative, a stop string empty, or stop
            strings are given without a codec.
    """

    prompt: tuple[int, ...] = attrs.field(converter=_ints)
    max_new_tokens: int = attrs.field(converter=_count)
    stop_ids: frozenset[int] = attrs.field(default=frozenset(), converter=_id_set)
    stop_strings: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    sampling: Sampling | None = None
    processors: tuple[Any, ...] = attrs.field(default=(), converter=tuple, repr=False)
    criteria: tuple[Any, ...] = attrs.field(default=(), converter=tuple, repr=False)
    codec: TextCodec | None = attrs.field(default=None, eq=False, repr=False)
    tools: tuple[Tool, ...] = attrs.field(default=(), converter=_tools, repr=False)
    messages: tuple[Mapping[str, Any], ...] = attrs.field(
        default=(), converter=_messages, repr=False
    )
    prediction: str | None = None
    call_format: CallFormat | None = attrs.field(default=None, repr=False)
    tenant: str = ""
    on_error: OnError = "plain"
    vocabulary: int = 0
    id: str = attrs.field(factory=lambda: f"request-{next(_ids)}", eq=False)

    def __attrs_post_init__(self) -> None:
        if not self.prompt:
            raise RequestError(
                f"{self.id} has an empty prompt; a model needs at least one token to start from"
            )
        if min(self.prompt) < 0:
            raise RequestError(
                f"{self.id}: the prompt holds token {min(self.prompt)}; ids begin at 0"
            )
        if self.max_new_tokens < 0:
            raise RequestError(
                f"{self.id}: max_new_tokens must be at least 0, got {self.max_new_tokens}"
            )
        for watcher in (*self.processors, *self.criteria):
            if not callable(watcher):
                raise RequestError(
                    f"{self.id}: processors and criteria must be callable, got {watcher!r}"
                )
        if "" in self.stop_strings:
            raise RequestError(f"{self.id}: a stop string is empty; it would stop everything")
        if self.stop_strings and self.codec is None:
            raise RequestError(
                f"{self.id}: stop strings need a codec to turn tokens into text; build the request "
                "with HFTarget.request(...) or pass codec="
            )
        if self.on_error not in ("plain", "raise"):
            raise RequestError(f"on_error must be 'plain' or 'raise', got {self.on_error!r}")


@attrs.frozen
class Phases:
    """Wall-clock seconds of one step, or of a whole request, by phase.

    Attributes:
        draft: Asking the drafter and cutting its tree to the budget; for a prompt's pass also
            opening the sessions.
        forward: The target's pass, masks and cache included.
        verify: Walking the tree: processors, sampling, stops.
        observe: Cache compaction, top ids, and telling drafter and observers.
    """

    draft: float = 0.0
    forward: float = 0.0
    verify: float = 0.0
    observe: float = 0.0

    @property
    def total(self) -> float:
        """Seconds in all."""
        return self.draft + self.forward + self.verify + self.observe

    def __add__(self, other: Phases) -> Phases:
        return Phases(
            self.draft + other.draft,
            self.forward + other.forward,
            self.verify + other.verify,
            self.observe + other.observe,
        )


@attrs.frozen
class Step:
    """What one forward pass committed. Index 0 is the prompt's own pass.

    Attributes:
        index: 0 for the prompt's pass, then counting up.
        tree: The draft that was verified.
        path: Accepted nodes from the root down.
        committed: (at least 1,) new tokens: the path's, then the bonus unless generation ended
            inside the path.
        kv_length: Tokens in the cache before the pass.
        top_ids: (1 + N, k) int64, the target's k most likely next tokens, most likely first;
            row 0 follows the root, row i + 1 follows node i. None unless a drafter needs them.
        phases: Seconds by phase, as far as known when the step is handed on.
    """

    index: int
    tree: DraftTree
    path: tuple[int, ...]
    committed: tuple[int, ...]
    kv_length: int = 0
    top_ids: npt.NDArray[np.int64] | None = attrs.field(default=None, eq=False, repr=False)
    phases: Phases = attrs.field(default=Phases(), eq=False, repr=False)

    @property
    def sources(self) -> tuple[str, ...]:
        """One name per committed token: the drafter it came from, "target" for the bonus."""
        drafted = tuple(self.tree.source(node) for node in self.path)
        return drafted + ("target",) * (len(self.committed) - len(drafted))


@attrs.frozen
class SourceCount:
    """How one source fared: nodes it was booked for, and how many of them were accepted."""

    proposed: int = 0
    accepted: int = 0

    def __add__(self, other: SourceCount) -> SourceCount:
        return SourceCount(self.proposed + other.proposed, self.accepted + other.accepted)


@attrs.frozen
class Result:
    """What came out of one request.

    Attributes:
        request: The request's id.
        tokens: (T,) emitted tokens, prompt not included.
        finish: Why it ended.
        passes: Forward passes, the prompt's included.
        prompt_tokens: Tokens emitted by the prompt's own pass.
        accepted: (passes,) drafted tokens accepted in each pass, the prompt's first.
        nodes: (passes,) drafted nodes verified in each pass.
        by_source: Nodes proposed and accepted by source.
        prompt_phases: Seconds of the prompt's pass.
        decode_phases: Seconds of all later passes.
        errors: What went wrong in drafters, one line each; empty when nothing did.
    """

    request: str
    tokens: tuple[int, ...]
    finish: Finish
    passes: int
    prompt_tokens: int
    accepted: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    by_source: Mapping[str, SourceCount] = attrs.field(factory=dict)
    prompt_phases: Phases = Phases()
    decode_phases: Phases = Phases()
    errors: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Forward passes after the prompt's."""
        return max(self.passes - 1, 0)

    @property
    def mat(self) -> float:
        """Committed tokens per step; NaN without a step."""
        return (len(self.tokens) - self.prompt_tokens) / self.steps if self.steps else float("nan")

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of all passes."""
        return self.prompt_phases.total + self.decode_phases.total
