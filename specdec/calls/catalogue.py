"""The call formats of known model families, as data."""
# ruff: noqa: RUF001 - DeepSeek's marks have full-width bars

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from specdec.calls import shapes
from specdec.calls.formats import HERMES, Arguments, CallFormat
from specdec.calls.values import Values

_PRETTY: Final = Arguments.json(indent=4, margin=" " * 8)
_QWEN_VALUES: Final = Values(strings="raw", scalars="python")

FORMATS: Final[Mapping[str, CallFormat]] = MappingProxyType(
    {
        form.name: form
        for form in (
            HERMES,
            # Hermes 2 Pro's own habit: its prompt shows the arguments first.
            CallFormat(
                "hermes-arguments-first",
                open='<tool_call>\n{"arguments": ',
                between=', "name": "',
                close='"}\n</tool_call>',
                separator="\n",
                name_first=False,
            ),
            # SmolLM3, and what vLLM's grammar allows for Hermes.
            CallFormat("hermes-tight", '<tool_call>{"name": "', close="}</tool_call>"),
            # The prompts of API-Bank: several objects in one pair of tags.
            CallFormat(
                "api-bank",
                open='{"name": "',
                between='", "parameters": ',
                close="}",
                separator="\n",
                block_open="<tool_call>\n",
                block_close="\n</tool_call>",
                arguments_key="parameters",
            ),
            CallFormat(
                "smollm2",
                open='{"name": "',
                separator=",\n",
                block_open="<tool_call>[\n",
                block_close="\n]</tool_call>",
            ),
            shapes.tagged("nemotron", "<TOOLCALL>[", "]</TOOLCALL>"),
            shapes.tagged("apriel", "<tool_calls>[", "]</tool_calls>"),
            CallFormat(
                "minimax-m1",
                open='{"name": "',
                separator="\n",
                block_open="<tool_calls>\n",
                block_close="\n</tool_calls>",
            ),
            CallFormat(
                "granite-3",
                open='{\n        "name": "',
                between='",\n        "arguments": ',
                close="\n    }",
                separator=",\n    ",
                block_open="<|tool_call|>[\n    ",
                block_close="\n]",
                arguments=_PRETTY,
            ),
            CallFormat("granite-20b", open='<function_call> {"name": "', close="}", separator="\n"),
            shapes.tagged("phi-4", "<|tool_call|>[", "]<|/tool_call|>"),
            shapes.tagged("functools", "functools[", "]"),
            CallFormat(
                "internlm2",
                open='<|action_start|><|plugin|>\n{"name": "',
                close="}<|action_end|>",
            ),
            CallFormat(
                "command-r7b",
                open='{"tool_call_id": "{index}", "tool_name": "',
                between='", "parameters": ',
                close="}",
                separator=",\n    ",
                block_open="<|START_ACTION|>[\n    ",
                block_close="\n]<|END_ACTION|>",
                name_key="tool_name",
                arguments_key="parameters",
            ),
            CallFormat(
                "apertus",
                open='{"',
                between='": ',
                close="}",
                separator=", ",
                block_open="<|tools_prefix|>[",
                block_close="]<|tools_suffix|>",
                name_key="",
            ),
            CallFormat(
                "llama-3",
                open='{"name": "',
                between='", "parameters": ',
                separator="; ",
                arguments_key="parameters",
            ),
            CallFormat(
                "llama-4",
                open='{"name": "',
                between='", "parameters": ',
                arguments_key="parameters",
            ),
            shapes.tagged("xlam", "[", "]"),
            shapes.tagged("mistral-v3", "[TOOL_CALLS][", "]", behind=', "id": "{id}"'),
            shapes.text("mistral-v11", "[TOOL_CALLS]", "[CALL_ID]{id}[ARGS]", ""),
            shapes.text("mistral-v13", "[TOOL_CALLS]", "[ARGS]", ""),
            shapes.text(
                "deepseek-v3",
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                "\n```json\n",
                "\n```<｜tool▁call▁end｜>",
                separator="\n",
                block_open="<｜tool▁calls▁begin｜>",
                block_close="<｜tool▁calls▁end｜>",
            ),
            shapes.text(
                "deepseek-v3.1",
                "<｜tool▁call▁begin｜>",
                "<｜tool▁sep｜>",
                "<｜tool▁call▁end｜>",
                block_open="<｜tool▁calls▁begin｜>",
                block_close="<｜tool▁calls▁end｜>",
            ),
            shapes.text(
                "kimi-k2",
                "<|tool_call_begin|>functions.",
                ":{index}<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
                block_open="<|tool_calls_section_begin|>",
                block_close="<|tool_calls_section_end|>",
            ),
            shapes.text(
                "gpt-oss",
                "<|channel|>commentary to=functions.",
                " <|constrain|>json<|message|>",
                "<|call|>",
                separator="<|start|>assistant",
                several=False,
            ),
            shapes.text("functionary-v3.1", "<function=", ">", "</function>"),
            shapes.text("functionary-v3.2", ">>>", "\n", ""),
            shapes.text(
                "solar",
                "<|tool_call:begin|>{id}<|tool_call:name|>",
                "<|tool_call:args|>",
                "<|tool_call:end|>",
                block_open="<|tool_calls|>",
                block_close="<|calls|>",
            ),
            shapes.text(
                "qwen3-coder",
                "<tool_call>\n<function=",
                ">\n",
                "\n</tool_call>",
                arguments=shapes.parameters(
                    "<parameter=",
                    ">\n",
                    "\n</parameter>\n",
                    close="</function>",
                    values=_QWEN_VALUES,
                ),
                separator="\n",
            ),
            shapes.text(
                "seed-oss",
                "<seed:tool_call>\n<function=",
                ">\n",
                "\n</seed:tool_call>",
                arguments=shapes.parameters(
                    "<parameter=",
                    ">",
                    "</parameter>\n",
                    close="</function>",
                    values=Values(strings="raw", scalars="python", containers="python"),
                ),
                separator="\n",
            ),
            shapes.text(
                "glm-4.5",
                "<tool_call>",
                "\n",
                "</tool_call>",
                separator="\n",
                arguments=shapes.parameters(
                    "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"
                ),
            ),
            shapes.text(
                "glm-4.7",
                "<tool_call>",
                "",
                "</tool_call>",
                arguments=shapes.parameters("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
            ),
            shapes.text(
                "minimax-m2",
                '<invoke name="',
                '">\n',
                "",
                arguments=shapes.parameters(
                    '<parameter name="', '">', "</parameter>\n", close="</invoke>"
                ),
                separator="\n",
                block_open="<minimax:tool_call>\n",
                block_close="\n</minimax:tool_call>",
            ),
            *(
                shapes.text(
                    name,
                    '<｜DSML｜invoke name="',
                    '">\n',
                    "",
                    arguments=shapes.parameters(
                        '<｜DSML｜parameter name="',
                        '" string="{string}">',
                        "</｜DSML｜parameter>\n",
                        close="</｜DSML｜invoke>",
                        empty=empty,
                    ),
                    block_open=f"<｜DSML｜{block}>\n",
                    block_close=f"\n</｜DSML｜{block}>",
                    after_text="\n\n",
                    separator="\n",
                )
                for name, block, empty in (
                    ("deepseek-v3.2", "function_calls", None),
                    ("deepseek-v4", "tool_calls", "\n</｜DSML｜invoke>"),
                )
            ),
            shapes.text(
                "kimi-k3",
                '<|open|>call tool="',
                '" index="{number}"<|sep|>',
                "",
                arguments=shapes.parameters(
                    '<|open|>argument key="',
                    '" type="{type}"<|sep|>',
                    "<|close|>argument<|sep|>",
                    close="<|close|>call<|sep|>",
                ),
                block_open="<|open|>tools<|sep|>",
                block_close="<|close|>tools<|sep|>",
            ),
            *(
                CallFormat(
                    name,
                    open=f"{open}call:",
                    between="",
                    close=close,
                    arguments=Arguments(
                        key_open="",
                        key_close=":",
                        separator=",",
                        values=Values(strings="bare", containers="bare", quote=quote),
                        sort=name == "gemma-4",
                    ),
                    envelope="text",
                )
                for name, open, close, quote in (
                    ("gemma-4", "<|tool_call>", "<tool_call|>", '<|"|>'),
                    (
                        "functiongemma",
                        "<start_function_call>",
                        "<end_function_call>",
                        "<escape>",
                    ),
                )
            ),
            shapes.pythonic("pythonic", "[", "]"),
            shapes.pythonic("lfm2", "<|tool_call_start|>[", "]<|tool_call_end|>"),
            shapes.pythonic("olmo-3", "<function_calls>", "</function_calls>", "\n"),
            CallFormat(
                "react",
                open="Action: ",
                between="\nAction Input: ",
                close="",
                after_text="\n",
                arguments=Arguments.json(indent=2),
                envelope="text",
                several=False,
            ),
        )
    }
)
"""By name. A model's own template says it better where it prints calls: see `induce`."""
