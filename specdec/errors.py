"""The errors users meet, each with its cause and the way out in the message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SpecdecError(Exception):
    """Base of every error that specdec raises on purpose."""


class ContractError(SpecdecError):
    """A component broke the contract of its interface; the message names it and the breach."""


class PluginError(SpecdecError):
    """A plugin cannot be loaded or registers something unusable."""


class UnknownName(SpecdecError, LookupError):
    """No component of that name is registered, or several are."""


class ExpressionError(SpecdecError, ValueError):
    """A stack expression cannot be read or its options do not fit the component."""


class RequestError(SpecdecError, ValueError):
    """A request cannot be served as it stands: empty prompt, too long, malformed tools."""


class UnsupportedModel(SpecdecError):
    """The target cannot be decoded speculatively with identical output, and why."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'pld'?``, or an empty string when nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
