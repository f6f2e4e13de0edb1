"""The two written forms that the adapter is trained on: prompt and answer as text."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdec_demo_model.bfcl import Example

END = "<|im_end|>"

_PYTHON_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
}
_API_BANK_SYSTEM = """\
You are an assistant in a conversation of several turns and use tools to get things done.

**Available Tools**
These are the tools you can use:
{tools}

**Only generate Tool Calls: name the tool and its parameters.**
**Output Format**
```<tool_call>
{{"name": "Tool name", "parameters": {{"Parameter name": "Parameter content"}}}}
...
</tool_call>
```

**Important Notes**
1. Write at least one tool call between the tags, and one line for each call.
2. A call is a JSON object with the fields "name" and "parameters"; without parameters, the latter \
is an empty object.
3. Take what the tools need from the dialogue records: the user's words, your earlier \
`<tool_call>` and `<response>`, and the tools' results in `<obs>`."""


@attrs.frozen
class Encoded:
    """A training example as tokens.

    Attributes:
        ids: Prompt and answer.
        answer: How many of the ids, at the end, are the answer.
    """

    ids: tuple[int, ...]
    answer: int


def hermes(example: Example, tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """Prompt and answer in the Hermes form, which the chat template writes."""
    prompt = _render(tokenizer, example.messages, example.tools)
    calls = [f"<tool_call>\n{_json(call)}\n</tool_call>" for call in example.calls]
    return prompt, "\n".join(calls) + END


def api_bank(example: Example, tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """Prompt and answer in API-Bank's form: tools as Python literals, arguments as "parameters"."""
    described = [
        f"{number}. Name: {tool['function']['name']}\n"
        f"Description: {tool['function'].get('description', '')}\n"
        f"Parameters: {_parameters(tool['function']['parameters'])}"
        for number, tool in enumerate(example.tools, start=1)
    ]
    said = [message["content"] for message in example.messages if message["role"] != "assistant"]
    turns = "\n".join(f"<user>{text}</user>" for text in said)
    messages = (
        {"role": "system", "content": _API_BANK_SYSTEM.format(tools="\n".join(described))},
        {"role": "user", "content": f"**Dialogue Records History**\n{turns}\n"},
    )
    calls = [_json({"name": c["name"], "parameters": c["arguments"]}) for c in example.calls]
    answer = "<tool_call>\n" + "\n".join(calls) + f"\n</tool_call>{END}"
    return _render(tokenizer, messages, ()), answer


def encode(
    examples: Sequence[Example],
    tokenizer: PreTrainedTokenizerBase,
    *,
    longest: int,
    seed: int = 0,
) -> list[Encoded]:
    """Every other example in the Hermes form, the others in API-Bank's, as tokens.

    The tools of each are put in a random order, or the place would give the right one away.

    Args:
        examples: What to encode, already shuffled.
        tokenizer: The model's, with the chat template of this package.
        longest: Examples with more tokens than this are left out.
        seed: Of the order of the tools.
    """
    order = random.Random(seed)
    encoded = []
    for number, example in enumerate(examples):
        tools = tuple(order.sample(example.tools, len(example.tools)))
        write = api_bank if number % 2 else hermes
        prompt, answer = write(attrs.evolve(example, tools=tools), tokenizer)
        # Apart, as in use: the model answers after a prompt that was encoded without the answer.
        before = tokenizer.encode(prompt, add_special_tokens=False)
        after = tokenizer.encode(answer, add_special_tokens=False)
        if len(before) + len(after) <= longest:
            encoded.append(Encoded((*before, *after), len(after)))
    return encoded


def _render(
    tokenizer: PreTrainedTokenizerBase,
    messages: Sequence[Mapping[str, str]],
    tools: Sequence[Mapping[str, Any]],
) -> str:
    return str(
        tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=[dict(tool) for tool in tools] or None,
            add_generation_prompt=True,
            tokenize=False,
        )
    )


def _parameters(schema: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {
        name: {
            "type": _PYTHON_TYPES.get(inner.get("type", ""), "any"),
            "description": inner.get("description", ""),
        }
        for name, inner in schema.get("properties", {}).items()
    }


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
