"""Options of one request, as callers give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from specdec.calls.formats import CallFormat
from specdec.errors import RequestError, did_you_mean
from specdec.interfaces import Drafter
from specdec.request import Sampling


class Options(TypedDict, total=False):
    """What may be said about one request; all of it may be left out.

    Attributes:
        max_new_tokens: The most tokens to write.
        temperature: 0 or None is greedy, whatever else is said about sampling.
        top_k: Sample from this many tokens; 0 for all.
        top_p: Sample from this much probability.
        seed: Seed of the request's own random numbers.
        stop: A text that ends the reply, or several. It is no part of `Reply.text`.
        drafter: Another stack: an expression, built once and kept with what it learns, or a
            drafter. None and "none" decode plainly, also with a prediction.
        prediction: Text that the reply probably repeats, such as the file that is to be edited.
        tenant: Owner of what is learned; nothing crosses tenants.
        processors: Logits processors; see `Request.processors`.
        criteria: Stopping criteria; see `Request.criteria`.
        call_format: How the model writes calls, where its chat template does not say.
        id: Name of the request in logs and reports, and of its reply.
    """

    max_new_tokens: int
    temperature: float | None
    top_k: int
    top_p: float
    seed: int | None
    stop: str | Sequence[str]
    drafter: str | Drafter | None
    prediction: str | None
    tenant: str
    processors: Sequence[Any]
    criteria: Sequence[Any]
    call_format: CallFormat
    id: str


NAMES = tuple(Options.__annotations__)

SAMPLING = ("top_k", "top_p", "seed")
"""Options that say nothing without a temperature."""

PASSED_ON = (
    "max_new_tokens",
    "prediction",
    "tenant",
    "processors",
    "criteria",
    "call_format",
    "id",
)
"""Options that a request has under the same name."""


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What a target's ``request`` is given for these options.

    Raises:
        RequestError: If an option is unknown, or its value is of no use.
    """
    for name in options:
        if name not in NAMES:
            raise RequestError(
                f"no option {name!r}{did_you_mean(name, NAMES)}; options are: {', '.join(NAMES)}"
            )
    fields = {name: options[name] for name in PASSED_ON if name in options}
    fields["sampling"] = _sampling(options)
    fields["stop_strings"] = _texts(options.get("stop", ()))
    prediction = options.get("prediction")
    if not isinstance(prediction, str | None):
        raise RequestError(
            f"prediction must be the text that is expected, got {type(prediction).__name__}"
        )
    for name, text in (("prediction", prediction), *(("stop", t) for t in fields["stop_strings"])):
        check_text(name, text or "")
    return fields


def check_text(name: str, text: str) -> None:
    """Refuse text that no tokenizer takes.

    Raises:
        RequestError: If it holds half a surrogate pair.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{name} holds half a character at {error.start} ({text[error.start]!r}), which is no "
            "valid text"
        ) from None


def _sampling(options: Mapping[str, Any]) -> Sampling | None:
    given = [name for name in SAMPLING if options.get(name) is not None]
    if "temperature" not in options and given:
        raise RequestError(f"{', '.join(given)}: for sampling only; give temperature too")
    temperature = options.get("temperature")
    if not temperature:
        return None
    if not isinstance(temperature, int | float) or temperature < 0:
        raise RequestError(f"temperature must be a number of at least 0, got {temperature!r}")
    return Sampling(temperature, **{name: options[name] for name in given})


def _texts(stop: object) -> tuple[str, ...]:
    texts = (stop,) if isinstance(stop, str) else stop
    if texts is None:  # as in OpenAI's requests
        return ()
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"stop must be a text or a list of texts, got {stop!r}")
    return tuple(texts)
