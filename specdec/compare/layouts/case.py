"""Case: a request and, where it is known, the answer to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from specdec.calls import Call, Tool


@attrs.frozen
class Case:
    """One request and its answer.

    Attributes:
        id: Its name, unique in what was read; turns of one record are numbered behind a slash.
        messages: (M,) the conversation before the answer, M >= 1, in OpenAI's form: arguments of
            earlier calls as objects, content as text.
        tools: (T,) the tools on offer.
        calls: (C,) the calls that answer it, in order; empty when unknown.
        output: A recorded answer's text, verbatim; None when there is none.
        benchmark: The benchmark it belongs to, or an empty string.
        split: The part of the benchmark, or an empty string.
        extra: Whatever else an evaluation needs.
    """

    id: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Tool, ...] = ()
    calls: tuple[Call, ...] = ()
    output: str | None = None
    benchmark: str = ""
    split: str = ""
    extra: Mapping[str, Any] = attrs.field(factory=dict)
