"""What a model allows: which masks, how deep a draft, or a refusal with its reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import attrs
from transformers import GenerationMixin, PreTrainedModel

from specdec.errors import UnsupportedModel
from specdec.hf.compat import base_model, cache_argument, forward_parameters, plain_layers
from specdec.hf.masks import MaskPlan

ATTENTION: Final = ("sdpa", "eager")
"""Attention back ends that take an arbitrary additive mask."""

UNBOUNDED: Final = sys.maxsize


@attrs.frozen
class Ability:
    """What a model needs and allows, read once from its configuration.

    Attributes:
        name: The model's class, for messages.
        cache_name: The argument under which forward takes the cache.
        keeps_logits: Whether forward can compute the last rows of logits only.
        layers: Number of cache layers.
        masks: Which masks it takes.
        context: Positions the model was made for; longer prompts are refused.
        table: Rows of an absolute position table; no position may lie beyond it.
        switch: Length at which rotary embeddings change for a whole pass.
        recomputes: Whether `generate` computes the whole prompt anew at `switch`.
        drifts: Whether rotary embeddings go on changing with every token beyond `switch`.
    """

    name: str
    cache_name: str
    keeps_logits: bool
    layers: int
    masks: MaskPlan
    context: int
    table: int = UNBOUNDED
    switch: int = UNBOUNDED
    recomputes: bool = False
    drifts: bool = False

    def depth(self, root: int) -> int:
        """The most depth of a draft whose root stands at position `root`.

        Rotary embeddings that depend on the length change for every position of a pass when its
        deepest node crosses the switch, so the draft stops there. Where they drift on, plain
        decoding is the only exact way.
        """
        deepest = self.table - 1
        if root < self.switch:
            deepest = min(deepest, self.switch - 1)
        elif self.drifts:
            return 0
        return max(deepest - root, 0)


def ability(model: PreTrainedModel) -> Ability:
    """What `model` needs and allows.

    Raises:
        UnsupportedModel: If its output cannot be reproduced exactly with draft trees.
    """
    name = type(base_model(model)).__name__
    if model.training:
        raise UnsupportedModel(f"{name} is in training mode (dropout); call model.eval() first")
    if model.config.is_encoder_decoder:
        raise UnsupportedModel(f"{name} is an encoder-decoder model; only decoder-only models work")
    config = model.config.get_text_config(decoder=True)
    attention = config._attn_implementation
    if attention not in ATTENTION:
        raise UnsupportedModel(
            f"{name} uses the attention back end {attention!r}, which takes no tree mask; load it "
            "with attn_implementation='sdpa' (or 'eager'), or call "
            "model.set_attn_implementation('sdpa')"
        )
    parameters = forward_parameters(model)
    if "position_ids" not in parameters:
        raise UnsupportedModel(
            f"{name} takes no position_ids (relative or ALiBi positions), so a tree's nodes cannot "
            "be placed; decode this model with model.generate()"
        )
    if getattr(config, "alibi", False):
        raise UnsupportedModel(f"{name} uses ALiBi biases, which do not follow a tree mask")
    if getattr(model, "_is_stateful", False):
        raise UnsupportedModel(
            f"{name} keeps recurrent states, which cannot be rolled back to the accepted tokens; "
            "decode this model with model.generate()"
        )
    table, switch, drifts = _positions(model, config)
    return Ability(
        name=name,
        cache_name=cache_argument(parameters),
        keeps_logits="logits_to_keep" in parameters,
        layers=plain_layers(config, name),
        masks=_masks(model, config, name),
        context=int(getattr(config, "max_position_embeddings", None) or UNBOUNDED),
        table=table,
        switch=switch,
        recomputes=switch < UNBOUNDED and not drifts and _recomputes(model),
        drifts=drifts,
    )


def _masks(model: PreTrainedModel, config: Any, name: str) -> MaskPlan:  # noqa: ANN401
    kinds = set(getattr(config, "layer_types", None) or ())
    strange = sorted(kinds - {"full_attention", "sliding_attention"})
    if strange:
        raise UnsupportedModel(
            f"{name} has layers of type {', '.join(strange)}, for which no exact tree mask is "
            "known; decode this model with model.generate()"
        )
    window = getattr(config, "sliding_window", None)
    if kinds:
        return MaskPlan(window, mapped=True) if "sliding_attention" in kinds else MaskPlan()
    # Some configurations name a window that their model never applies: what counts is whether
    # the modeling module makes sliding masks.
    inner = base_model(model)
    module = sys.modules[type(inner).__module__]
    if window is not None and hasattr(module, "create_sliding_window_causal_mask"):
        return MaskPlan(window)
    return MaskPlan()


def _positions(model: PreTrainedModel, config: Any) -> tuple[int, int, bool]:  # noqa: ANN401
    """Rows of a position table, length of a rotary switch, and whether rotations drift on."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not rope:
        absolute = not any("rotary" in part for part, _ in model.named_modules())
        length = getattr(config, "max_position_embeddings", None)
        return (int(length) if absolute and length else UNBOUNDED), UNBOUNDED, False
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


def _recomputes(model: PreTrainedModel) -> bool:
    """Models with long-rope that drop their cache at the switch do it in this method."""
    own = type(base_model(model)).prepare_inputs_for_generation
    return (
        own is not GenerationMixin.prepare_inputs_for_generation
        and "original_max_position_embeddings" in own.__code__.co_consts
    )
