"""What a model allows: which masks, how deep a draft, or a refusal with its reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import attrs
from transformers import GenerationMixin, PreTrainedModel

from specdec.errors import UnsupportedModel
from specdec.hf.attention import attention_of
from specdec.hf.compat import (
    WAY_OUT,
    asks_for,
    base_model,
    cache_argument,
    forward_parameters,
    mentions,
    plain_layers,
    windows_of,
)
from specdec.hf.masks import MaskPlan

ATTENTION: Final = ("sdpa", "eager")
"""Attention back ends that take an arbitrary additive mask."""

MASKED: Final = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
"""Types of layers whose masks are known for a tree; the names of `config.layer_types`."""

UNBOUNDED: Final = sys.maxsize


@attrs.frozen
class Ability:
    """What a model needs and allows, read once from its configuration.

    Attributes:
        name: The model's class, for messages.
        attention: Its attention back end.
        cache_name: The argument under which forward takes the cache.
        keeps_logits: Whether forward can compute the last rows of logits only.
        layers: Number of cache layers.
        masks: Which masks it takes.
        context: Positions the model was made for; longer prompts are refused.
        table: Rows of an absolute position table; no position may lie beyond it.
        switch: Length at which rotary embeddings change for a whole pass.
        recompute_at: Length at which `generate` computes the whole text anew.
        drifts: Whether rotary embeddings go on changing with every token beyond `switch`.
    """

    name: str
    attention: str
    cache_name: str
    keeps_logits: bool
    layers: int
    masks: MaskPlan
    context: int
    table: int = UNBOUNDED
    switch: int = UNBOUNDED
    recompute_at: int = UNBOUNDED
    drifts: bool = False

    def depth(self, root: int, split: int | None = None) -> int:
        """The most depth of a draft whose root stands at position `root`.

        Args:
            root: Position of the root.
            split: First position of the pass that the draft rides on, where the prompt's head
                goes ahead of it. If rotary embeddings switched between the two, the prompt
                must not be split, so nothing rides.

        Rotary embeddings that depend on the length change for every position of a pass when its
        deepest node crosses the switch, so the draft stops there. Where they drift on, plain
        decoding is the only exact way.
        """
        deepest = self.table - 1
        for border in (self.switch, self.recompute_at):
            if root < border:
                deepest = min(deepest, border - 1)
            elif split is not None and split <= border:
                return 0
        # In the pass at that very length the whole text is computed anew; it is kept plain.
        if root == self.recompute_at or (self.drifts and root >= self.switch):
            return 0
        return max(deepest - root, 0)


def ability(model: PreTrainedModel) -> Ability:
    """What `model` needs and allows.

    Raises:
        UnsupportedModel: If its output cannot be reproduced exactly with draft trees.
    """
    name = type(base_model(model)).__name__
    config = model.config.get_text_config(decoder=True)
    if obstacle := _setting(model, config) or _nature(model, config):
        raise UnsupportedModel(f"{name} {obstacle}")
    parameters = forward_parameters(model)
    table, switch, drifts = _positions(config)
    masks = _masks(model, config, name)  # before the cache, which not every type of layer has
    if forgotten := windows_of(config) - {masks.window, masks.chunk}:
        raise UnsupportedModel(
            f"{name} forgets what stands more than {min(forgotten)} tokens back, though its masks "
            f"show it; {WAY_OUT}"
        )
    return Ability(
        name=name,
        attention=attention_of(config),
        cache_name=cache_argument(parameters, name),
        keeps_logits="logits_to_keep" in parameters,
        layers=plain_layers(config, name),
        masks=masks,
        # Rotations that drift are made for texts beyond the trained length.
        context=UNBOUNDED
        if drifts
        else int(getattr(config, "max_position_embeddings", None) or UNBOUNDED),
        table=table,
        switch=switch,
        recompute_at=_recompute_at(model, config) if switch < UNBOUNDED else UNBOUNDED,
        drifts=drifts,
    )


def _setting(model: PreTrainedModel, config: Any) -> str | None:  # noqa: ANN401
    """What is in the way and can be changed, with the way to change it."""
    if model.training:
        return "is in training mode (dropout); call model.eval() first"
    attention = attention_of(config)
    if attention in ATTENTION or model.config.is_encoder_decoder:
        return None
    return (
        f"uses the attention back end {attention!r}, which takes no tree mask; load it with "
        "attn_implementation='sdpa' (or 'eager'), or call model.set_attn_implementation('sdpa')"
    )


def _nature(model: PreTrainedModel, config: Any) -> str | None:  # noqa: ANN401
    """What is in the way and cannot be changed."""
    adapter = getattr(model, "active_peft_config", None)
    found = {
        "is an encoder-decoder model; only decoder-only models work": (
            model.config.is_encoder_decoder
        ),
        "looks at later tokens too (config.is_decoder is False)": (
            getattr(config, "is_decoder", None) is False and asks_for(model, "is_decoder")
        ),
        "has an adapter with virtual tokens, which take no positions": (
            getattr(adapter, "is_prompt_learning", False)
        ),
        "masks by cache row inside its attention, not by position": (
            bool(getattr(config, "attention_layers", None))  # GPT-Neo
        ),
        "keeps recurrent states, which cannot be rolled back to the accepted tokens": (
            _recurrent(model, config)
        ),
        "takes no position_ids (relative or ALiBi positions), so a tree's nodes cannot be placed": (
            "position_ids" not in forward_parameters(model)
        ),
        "uses ALiBi biases, which do not follow a tree mask": getattr(config, "alibi", False),
    }
    return next((f"{reason}; {WAY_OUT}" for reason, holds in found.items() if holds), None)


def _recurrent(model: PreTrainedModel, config: Any) -> bool:  # noqa: ANN401
    """Hybrid families have members without any recurrent layer, such as Granite 4.0 Micro."""
    kinds = set(getattr(config, "layer_types", None) or ())
    return getattr(base_model(model), "_is_stateful", False) and not (kinds and kinds <= MASKED)


def _masks(model: PreTrainedModel, config: Any, name: str) -> MaskPlan:  # noqa: ANN401
    kinds = set(getattr(config, "layer_types", None) or ())
    strange = sorted(kinds - MASKED)
    if strange:
        raise UnsupportedModel(
            f"{name} has layers of type {', '.join(strange)}, for which no exact tree mask or no "
            f"way back to the accepted tokens is known; {WAY_OUT}"
        )
    window = getattr(config, "sliding_window", None)
    if kinds:
        chunk = getattr(config, "attention_chunk_size", None)
        return MaskPlan(
            window if "sliding_attention" in kinds else None,
            chunk if "chunked_attention" in kinds else None,
            mapped=kinds != {"full_attention"},
        )
    # Some configurations name a window that their model never applies: what counts is whether
    # the modeling module makes sliding masks.
    inner = base_model(model)
    module = sys.modules[type(inner).__module__]
    if window is not None and hasattr(module, "create_sliding_window_causal_mask"):
        return MaskPlan(window)
    return MaskPlan()


def _positions(config: Any) -> tuple[int, int, bool]:  # noqa: ANN401
    """Rows of a position table, length of a rotary switch, and whether rotations drift on."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not rope:
        # Learned positions, or rotations read off a table of fixed length (GPT-J).
        length = getattr(config, "max_position_embeddings", None)
        return (int(length) if length else UNBOUNDED), UNBOUNDED, False
    nested = [part for part in rope.values() if isinstance(part, Mapping)] or [rope]
    switch, drifts = UNBOUNDED, False
    for part in nested:
        kind = part.get("rope_type", part.get("type", "default"))
        if kind == "longrope" or "dynamic" in kind:
            original = (
                part.get("original_max_position_embeddings")
                or getattr(config, "original_max_position_embeddings", None)
                or config.max_position_embeddings
            )
            switch = min(switch, int(original))
            drifts = drifts or "dynamic" in kind
    return UNBOUNDED, switch, drifts


def _recompute_at(model: PreTrainedModel, config: Any) -> int:  # noqa: ANN401
    """Models with long-rope that drop their cache at a length do it in this method."""
    own = type(base_model(model)).prepare_inputs_for_generation
    known = "original_max_position_embeddings"
    if own is GenerationMixin.prepare_inputs_for_generation or not mentions(own, known):
        return UNBOUNDED
    return int(getattr(config, known, None) or UNBOUNDED)
