"""Outcome: what one arm made of one request; and how outcomes travel through JSON."""

from __future__ import annotations

from typing import Any, Final

import attrs
import cattrs

from specdec.request import Result


@attrs.frozen
class Outcome:
    """What one arm of a comparison made of one request.

    Attributes:
        arm: The arm's key.
        case: Place of the request among those compared.
        request: The request's id.
        prompt: Tokens of its prompt; 0 where none could be made.
        result: What came out; None when it failed.
        error: Why it failed; None when it did not.
        warming: Whether it only warmed the arm up and does not count.
    """

    arm: str
    case: int
    request: str
    prompt: int
    result: Result | None = None
    error: str | None = None
    warming: bool = False


_CONVERTER: Final = cattrs.Converter(forbid_extra_keys=True)


def outcome_to(outcome: Outcome) -> dict[str, Any]:
    """The outcome as plain values for JSON."""
    plain: dict[str, Any] = _CONVERTER.unstructure(outcome)
    return plain


def outcome_from(data: Any) -> Outcome:  # noqa: ANN401 - whatever JSON holds
    """The inverse of `outcome_to`.

    Raises:
        ValueError: If `data` is not what `outcome_to` made.
    """
    try:
        return _CONVERTER.structure(data, Outcome)
    except cattrs.BaseValidationError as error:
        raise ValueError("; ".join(cattrs.transform_error(error))) from error
