"""Call formats as plain values, for saving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from specdec import CallFormat, calls


def format_to(form: CallFormat) -> dict[str, Any]:
    """A format as plain values."""
    return attrs.asdict(form)


def format_from(data: Mapping[str, Any]) -> CallFormat:
    """The inverse of `format_to`.

    Raises:
        TypeError: If a field is unknown.
    """
    given = dict(data)
    arguments = dict(given.pop("arguments"))
    values = calls.Values(**arguments.pop("values"))
    return CallFormat(arguments=calls.Arguments(values=values, **arguments), **given)
