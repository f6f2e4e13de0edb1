"""What `generate` was given, read once: taken, or refused by name before the first token."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import torch
from transformers import DynamicCache, EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList
from transformers.generation.configuration_utils import GenerationMode
from transformers.generation.streamers import BaseStreamer

from specdec.errors import RequestError
from specdec.hf.generation.cache import check_cache
from specdec.hf.generation.caller import CACHE_NAMES
from specdec.hf.limits import Ability

MODES: Final = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)

OTHER_METHODS: Final = (
    "assistant_early_exit",
    "constraints",
    "dola_layers",
    "force_words_ids",
    "num_beams",
    "penalty_alpha",
    "prompt_lookup_num_tokens",
    "use_mtp",
)
"""Arguments that choose another way of decoding."""

UNDERSTOOD: Final = frozenset(
    {*CACHE_NAMES, "attention_mask", "cache_position", "logits_to_keep", "position_ids"}
    # Whether keys and values are cached changes no output; here they always are.
    | {"use_cache"}
)
"""Arguments for the model that are read, or say nothing new."""


@attrs.frozen(eq=False)
class Given:
    """One call of `generate`.

    Attributes:
        input_ids: (B, P) prompts with their padding.
        prompts: B prompts without it.
        paddings: B times the ids in front of the prompt.
        max_new_tokens: The most tokens per row.
        stop_ids: What ends a row.
        criteria: What else may end a row.
        pad: What fills rows that end before the longest.
        streamer: Where tokens go as they come.
        samples: Whether tokens are drawn, or the best one taken.
        cache: What the caller gets to keep of keys and values.
        scores: Whether the scores of every token are asked for.
        logits: Whether the logits of every token are asked for.
        record: Whether the answer is transformers' output record, or ids alone.
    """

    input_ids: torch.Tensor
    prompts: tuple[tuple[int, ...], ...]
    paddings: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    stop_ids: frozenset[int]
    criteria: tuple[Callable[..., Any], ...]
    pad: int
    streamer: BaseStreamer | None
    samples: bool
    cache: Any
    scores: bool
    logits: bool
    record: bool


def read_given(
    input_ids: torch.Tensor,
    criteria: StoppingCriteriaList,
    config: Any,  # noqa: ANN401 - transformers' configs are untyped
    arguments: Mapping[str, Any],
    streamer: BaseStreamer | None,
) -> Given:
    """Read what `generate` was given.

    Args:
        input_ids: (B, P) prompts.
        criteria: Prepared stopping criteria.
        config: Prepared generation config.
        arguments: What goes to the model's forward.
        streamer: Where tokens go as they come.

    Raises:
        RequestError: If an argument asks for what drafts cannot give.
    """
    present = {name: value for name, value in arguments.items() if not _nothing(value)}
    _check_arguments(config, present)
    rows, length = input_ids.shape
    if not length:
        raise RequestError("input_ids holds no token; a model needs at least one to start from")
    if streamer is not None and rows > 1:
        raise RequestError(
            f"streamer works for one sequence, got {rows}: they are decoded one after another"
        )
    ids = input_ids.tolist()
    starts = _starts(input_ids, config, present)
    _check_positions(present.get("position_ids"), starts, length)
    limits, ends, others = _split(criteria)
    if rows > 1 and others and not ends:
        raise RequestError(
            "without eos_token_id, generate goes on writing behind the end of a sequence as long "
            "as others of its batch are not done; give eos_token_id, or one sequence"
        )
    pad = getattr(config, "_pad_token_tensor", None)
    record = bool(config.return_dict_in_generate)
    return Given(
        input_ids=input_ids,
        prompts=tuple(tuple(row[at:]) for row, at in zip(ids, starts, strict=True)),
        paddings=tuple(tuple(row[:at]) for row, at in zip(ids, starts, strict=True)),
        # generate always writes one token
        max_new_tokens=max(min(limits, default=sys.maxsize) - length, 1),
        stop_ids=ends,
        criteria=others,
        pad=0 if pad is None else int(pad),
        streamer=streamer,
        samples=bool(config.do_sample),
        cache=_cache(config, present, rows, length),
        scores=record and bool(config.output_scores),
        logits=record and bool(config.output_logits),
        record=record,
    )


def _nothing(value: object) -> bool:
    """Whether an argument says nothing; some models are given the empty outputs of no images."""
    return value is None or (isinstance(value, Mapping) and not value)


def check_method(config: Any, assistant: Any = None) -> None:  # noqa: ANN401
    """Refuse other ways of decoding than greedy decoding and sampling.

    Args:
        config: Prepared generation config.
        assistant: The draft model that `generate` was given.

    Raises:
        RequestError: If another one was asked for, with the arguments that did.
    """
    mode = config.get_generation_mode(assistant)
    if mode not in MODES:
        named = [name for name in OTHER_METHODS if _chooses(getattr(config, name, None))]
        named += ["assistant_model"] if assistant is not None else []
        raise RequestError(
            f"{' and '.join(named)} asks for {mode.value.replace('_', ' ')}; drafts are verified "
            f"for greedy decoding and sampling only, so leave {'it' if len(named) == 1 else 'them'}"
            " out, or custom_generate"
        )


def _chooses(value: object) -> bool:
    """Whether an argument of `OTHER_METHODS` has a value that counts."""
    return value not in (None, False, 0, 1, 0.0)


def check_rotations(able: Ability, given: Given) -> None:
    """Refuse padding where rotations would change in the middle of it.

    Long-rope and dynamic NTK look at the longest row of a batch, and some models at the padding
    too, so `generate` switches all rows with the first one that is long enough.

    Raises:
        RequestError: If a padded prompt or a batch may cross the switch.
    """
    length = given.input_ids.shape[1]
    padded = len(given.prompts) > 1 or any(given.paddings)
    if padded and length + given.max_new_tokens > min(able.switch, able.recompute_at):
        raise RequestError(
            f"the rotations of {able.name} change at {able.switch} tokens, for a whole batch and "
            f"its padding, and {length} with up to {given.max_new_tokens} new ones would cross "
            "that; give one sequence without padding"
        )


def _check_arguments(config: Any, present: Mapping[str, Any]) -> None:  # noqa: ANN401
    refused = sorted(set(present) - UNDERSTOOD)
    if refused:
        raise RequestError(
            f"{', '.join(refused)} would be passed to the model's forward, and drafts are only "
            "known to be exact for text given as input_ids; leave it out, or custom_generate"
        )
    if config.return_dict_in_generate:
        for name in ("output_attentions", "output_hidden_states"):
            if getattr(config, name):
                raise RequestError(
                    f"{name} describes passes of one token each, which do not take place here; "
                    "leave it out, or custom_generate"
                )
    if config.prefill_chunk_size is not None:
        raise RequestError(
            "prefill_chunk_size cuts the prompt's pass, which carries the first draft here; leave "
            "it out, or custom_generate"
        )


def _starts(
    input_ids: torch.Tensor,
    config: Any,  # noqa: ANN401
    present: Mapping[str, Any],
) -> list[int]:
    """Where each row's prompt begins, behind its padding."""
    rows, length = input_ids.shape
    mask = present.get("attention_mask")
    # Current transformers drop a mask of ones and keep its length in the config.
    known = getattr(config, "_mask_length", length) if mask is None else mask.shape[1]
    if known != length:
        raise RequestError(
            f"attention_mask is for {known} tokens and input_ids has {length}: drafts look at the "
            "whole text, so give all of its tokens as input_ids along with the cache"
        )
    if mask is None:
        return [0] * rows
    counts = mask.ne(0).sum(dim=1)
    behind = torch.arange(length, device=mask.device) >= (length - counts)[:, None]
    if not torch.equal(mask.ne(0), behind) or int(counts.min()) == 0:
        raise RequestError(
            "attention_mask must be zeros followed by at least one 1 in every row: pad prompts on "
            "the left (tokenizer.padding_side = 'left')"
        )
    return [length - int(count) for count in counts]


def _check_positions(positions: torch.Tensor | None, starts: list[int], length: int) -> None:
    if positions is None:
        return
    usual = torch.arange(length)[None] - torch.tensor(starts)[:, None]
    given = positions[..., -length:].cpu()
    if given.shape[-1] != length or not bool(((given == usual) | (usual < 0)).all()):
        raise RequestError(
            "position_ids other than 0, 1, 2, ... are not known to be exact with drafts; leave "
            "them out, or custom_generate"
        )


def _split(
    criteria: StoppingCriteriaList,
) -> tuple[list[int], frozenset[int], tuple[Callable[..., Any], ...]]:
    """Limits of length, stop ids, and the criteria that are neither."""
    limits: list[int] = []
    ends: set[int] = set()
    others: list[Callable[..., Any]] = []
    for criterion in criteria:
        # Not isinstance: a subclass may decide otherwise.
        if type(criterion) is EosTokenCriteria:
            ends.update(criterion.eos_token_id.tolist())
        elif type(criterion) is MaxLengthCriteria:
            limits.append(criterion.max_length)
        else:
            others.append(criterion)
    return limits, frozenset(ends), tuple(others)


def _cache(
    config: Any,  # noqa: ANN401
    present: Mapping[str, Any],
    rows: int,
    length: int,
) -> Any:  # noqa: ANN401
    """The cache that is taken over and given back; None where nobody would see it."""
    cache = next((present[name] for name in CACHE_NAMES if name in present), None)
    if cache is None:
        return None
    record = bool(config.return_dict_in_generate)
    if _static(config.cache_implementation):
        # One that `generate` made for speed; what it would hold is the same in any other.
        return DynamicCache() if record and rows == 1 else None
    check_cache(cache, length)
    held = int(cache.get_seq_length())
    if rows > 1:
        if held or getattr(cache, "_is_user_defined", False):
            raise RequestError(
                f"a cache works for one sequence, got {rows}, which are decoded one after another; "
                "leave it out"
            )
        return None
    # Where transformers does not say whose cache it is, it may be the caller's.
    return cache if held or record or getattr(cache, "_is_user_defined", True) else None


def _static(implementation: str | None) -> bool:
    """Whether `generate` was asked for a cache of fixed size: several names, some of them old."""
    return implementation is not None and not any(
        word in implementation for word in ("dynamic", "offloaded", "quantized")
    )
