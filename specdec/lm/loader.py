"""load: a language model from a folder, a transformers model, or a target."""

from __future__ import annotations

from os import PathLike
from typing import Any, Literal

from specdec.errors import RequestError
from specdec.interfaces import Budget, Drafter
from specdec.lm.model import LanguageModel, SpokenTarget
from specdec.registry import Registry
from specdec.request import OnError


def load(
    model: Any,  # noqa: ANN401 - a path, a model or a target
    tokenizer: Any = None,  # noqa: ANN401 - a transformers tokenizer
    *,
    drafter: str | Drafter | None = "toolspec",
    budget: Literal["measured"] | int | Budget = "measured",
    dtype: str = "auto",
    device: str | None = None,
    on_error: OnError = "plain",
    registry: Registry | None = None,
    prediction_drafter: str = "prediction",
) -> LanguageModel:
    """A model to talk to, decoded speculatively: the same output, sooner.

    Args:
        model: A folder with config.json, weights and tokenizer; "demo" for the demo model; a
            transformers model; or a target, such as `specdec.hf.HFTarget`.
        tokenizer: The tokenizer of a transformers model.
        drafter: Expression of a stack, or a drafter; None decodes plainly.
        budget: Nodes per pass: a number, a budget, or "measured" for as many as pay. What passes
            cost is then measured once, when the first request comes; it takes some seconds.
        dtype: What a folder is loaded in: "auto" for what it was saved in, or "float32",
            "bfloat16", "float16".
        device: Where a folder is loaded to, such as "cpu" or "cuda:0"; CUDA where there is one.
        on_error: What happens when a drafter raises: "plain" goes on without it, "raise" raises.
        registry: Where names of drafters are looked up; that of the installed plugins by default.
        prediction_drafter: Expression of the drafter that follows ``prediction=``.

    Raises:
        RequestError: If there is no model that loads, or options do not go together.
        UnsupportedModel: If the model's output could not be reproduced exactly.
        ExpressionError: If the stack's expression cannot be read or built.
    """
    path = isinstance(model, str | PathLike)
    if not path and (dtype != "auto" or device is not None):
        raise RequestError("dtype and device are for a folder; this model is loaded already")
    if isinstance(model, SpokenTarget):
        if tokenizer is not None:
            raise RequestError("a target has its tokenizer already; leave tokenizer out")
        target = model
    else:
        from specdec.hf import loading  # imports transformers

        target = (
            loading.load(str(model), dtype, device, tokenizer)
            if path
            else loading.wrap(model, tokenizer)
        )
    return LanguageModel(
        target,
        drafter,
        budget=budget,
        on_error=on_error,
        registry=registry,
        prediction_drafter=prediction_drafter,
    )
