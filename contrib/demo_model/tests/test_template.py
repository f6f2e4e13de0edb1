from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from specdec_demo_model.paths import CHAT_TEMPLATE
from transformers import PreTrainedTokenizerFast

Render = Callable[..., str]

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Wetter für eine Stadt.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
USER = {"role": "user", "content": "Weather in Oslo and Rome?"}


def call(city: str, *, wrapped: bool = True, as_text: bool = False) -> dict[str, Any]:
    arguments = {"city": city}
    inner = {"name": "get_weather", "arguments": json.dumps(arguments) if as_text else arguments}
    return {"id": city, "type": "function", "function": inner} if wrapped else inner


@pytest.fixture
def render(tokenizer: PreTrainedTokenizerFast) -> Render:
    def render(
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        prompt: bool = False,
    ) -> str:
        return str(
            tokenizer.apply_chat_template(
                list(messages), tools=tools, add_generation_prompt=prompt, tokenize=False
            )
        )

    return render


def test_plain_turns(render: Render) -> None:
    messages = [USER, {"role": "assistant", "content": "Cold."}]
    assert render(messages) == (
        "<|im_start|>user\nWeather in Oslo and Rome?<|im_end|>\n"
        "<|im_start|>assistant\nCold.<|im_end|>\n"
    )


def test_a_system_message_without_tools(render: Render) -> None:
    text = render([{"role": "system", "content": "Be brief."}, USER], prompt=True)
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_tools_stand_in_the_system_turn_one_on_a_line(render: Render) -> None:
    other = {"type": "function", "function": {"name": "other", "parameters": {}}}
    text = render([USER], [TOOL, other], prompt=True)
    block = text.split("<tools>\n")[1].split("\n</tools>")[0]
    assert [json.loads(line) for line in block.split("\n")] == [TOOL, other]
    assert "für" in block
    assert text.startswith("<|im_start|>system\nYou are a helpful assistant.\n\n# Tools")
    assert text.count("<|im_start|>system") == 1


def test_a_system_message_goes_before_the_tools(render: Render) -> None:
    text = render([{"role": "system", "content": "Be brief."}, USER], [TOOL])
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    assert text.count("Be brief.") == 1


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("as_text", [True, False])
def test_several_calls(render: Render, wrapped: bool, as_text: bool) -> None:
    calls = [call(city, wrapped=wrapped, as_text=as_text) for city in ("Oslo", "Rome")]
    text = render([USER, {"role": "assistant", "content": None, "tool_calls": calls}], [TOOL])
    assert text.endswith(
        "<|im_start|>assistant\n"
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
        "<|im_end|>\n"
    )


def test_words_before_a_call(render: Render) -> None:
    text = render([USER, {"role": "assistant", "content": "Sure.", "tool_calls": [call("Oslo")]}])
    assert "<|im_start|>assistant\nSure.\n<tool_call>\n" in text


def test_neighbouring_results_share_a_user_turn(render: Render) -> None:
    results = [{"role": "tool", "content": "3"}, {"role": "tool", "content": {"degrees": 21}}]
    asked = {"role": "assistant", "content": "", "tool_calls": [call("Oslo"), call("Rome")]}
    text = render([USER, asked, *results], [TOOL], prompt=True)
    assert text.endswith(
        "<|im_start|>user\n"
        "<tool_response>\n3\n</tool_response>\n"
        '<tool_response>\n{"degrees": 21}\n</tool_response><|im_end|>\n'
        "<|im_start|>assistant\n"
    )


def test_separate_results_have_turns_of_their_own(render: Render) -> None:
    asked = {"role": "assistant", "content": "", "tool_calls": [call("Oslo")]}
    result = {"role": "tool", "content": "3"}
    text = render([USER, asked, result, asked, result], [TOOL])
    assert text.count("<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n") == 2


def test_a_generated_call_rerenders_to_the_same_text(render: Render) -> None:
    prompt = render([USER], [TOOL], prompt=True)
    turn = {"role": "assistant", "content": "", "tool_calls": [call("Oslo")]}
    written = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert render([USER, turn], [TOOL]) == prompt + written + "<|im_end|>\n"


def test_the_template_is_within_the_package() -> None:
    assert CHAT_TEMPLATE.is_file()
