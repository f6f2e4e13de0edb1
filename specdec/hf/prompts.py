"""Prompts: conversations as a model's chat template prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from specdec.calls.tools import Tool
from specdec.errors import RequestError

Tokenizer = PreTrainedTokenizerBase
"""Any tokenizer of transformers."""


def encode_prompt(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool],
    name: str,
) -> list[int]:
    """The tokens of a conversation up to where the assistant's turn begins.

    Args:
        tokenizer: Its chat template is used.
        messages: The conversation in the OpenAI form.
        tools: What the template is given as the functions on offer.
        name: Whose template it is, for messages.

    Raises:
        RequestError: If the chat template refuses the messages.
    """
    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=[tool.to_openai() for tool in tools] or None,
            add_generation_prompt=True,
            tokenize=False,
        )
    except Exception as error:  # a template may raise anything
        raise RequestError(
            f"the chat template of {name} cannot render these messages: {error}"
        ) from error
    assert isinstance(text, str)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
