"""Tools from Python functions, and call formats from chat templates, through transformers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import get_json_schema

from specdec.calls.formats import CallFormat
from specdec.calls.induce import induce
from specdec.calls.tools import Tool, read_tools
from specdec.calls.turns import assistant_turn
from specdec.errors import RequestError

_NOTHING: Final = {"type": "object", "properties": {}, "required": []}


def function_tool(function: Callable[..., Any]) -> Tool:
    """The tool that a Python function is.

    Args:
        function: Typed, with a Google-style docstring that describes every argument.

    Raises:
        RequestError: If its signature or docstring does not say enough.
    """
    try:
        schema = get_json_schema(function)
    except Exception as error:  # transformers raises several kinds of its own
        name = getattr(function, "__name__", repr(function))
        raise RequestError(f"function {name} cannot be read as a tool: {error}") from error
    return Tool.from_mapping(schema)


def read_any_tools(
    tools: Iterable[Tool | Mapping[str, Any] | Callable[..., Any]],
) -> tuple[Tool, ...]:
    """Tools from tools, mappings and Python functions alike.

    Raises:
        RequestError: If an entry is malformed or two tools share a name.
    """
    return read_tools(
        entry if isinstance(entry, Tool | Mapping) or not callable(entry) else function_tool(entry)
        for entry in tools
    )


def tokenizer_format(
    tokenizer: PreTrainedTokenizerBase,
    tools: Iterable[Tool] = (),
    *,
    level: int = logging.WARNING,
) -> CallFormat | None:
    """The format in which a tokenizer's chat template prints calls.

    Args:
        tokenizer: Its chat template is asked for a handful of short conversations.
        tools: Tools to render them with; one of our own where there is none.
        level: Level of the log line that says why there is none.

    Returns:
        The format, or None, with one warning that says why.
    """
    known = [tool.to_openai() for tool in tools] or [
        Tool("probe", "A probe.", _NOTHING).to_openai()
    ]

    def apply(messages: list[dict[str, Any]], add_generation_prompt: bool) -> str:
        def print_with(tools: list[Any] | None) -> str:
            text = tokenizer.apply_chat_template(
                messages,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
            )
            assert isinstance(text, str)
            return text

        try:
            return print_with(known)
        except Exception:  # some templates cannot print tools, but print calls all the same
            return print_with(None)

    return induce(assistant_turn(apply), level=level)
