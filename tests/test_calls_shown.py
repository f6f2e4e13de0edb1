"""Formats that a prompt shows, by a call, an example or a description."""

import json
import os
import random
import time
from functools import cache
from pathlib import Path

import attrs
import pytest

from specdec.calls import FORMATS, HERMES, Arguments, Call, CallFormat, induce, shown_formats

SHARED = Path(os.environ.get("SPECDEC_SHARED", Path(__file__).parents[2] / "shared")) / "data"
TEMPLATES = sorted((SHARED / "chat_templates").glob("*.jinja"))
SILENT = {
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "LFM2-8B-A1B",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "deepseek-ai-DeepSeek-V3.1",
    "google-gemma-4-31B-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "llama-cpp-deepseek-r1",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2",
    "openai-gpt-oss-120b",
    "unsloth-mistral-Devstral-Small-2507",
}
"""Templates whose prompts say nothing, or only in words, of how calls are written."""

CALLS = [Call("get_weather", {"city": "Oslo", "days": 3}), Call("now", {})]
CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "Which."}}}
FUNCTION = {"name": "get_weather", "description": "The weather.", "parameters": CITY}
TOOLS = [
    {"type": "function", "function": FUNCTION},
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The time.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]


def mark(form):
    return (form.block_open + form.open).strip()


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_an_earlier_call_shows_its_format(form):
    calls = CALLS if form.several else CALLS[:1]
    text = f"user: Hi.\nassistant: Sure.{form.after_text or chr(10)}{form.render(calls)}\nuser: So?"
    first = shown_formats(text)[0]
    assert first.render(calls) == form.render(calls)
    assert first.parse(text) == form.parse(text)


@pytest.mark.parametrize("name", ["nemotron", "qwen3-coder", "xlam", "lfm2"])
def test_what_stands_inside_a_call_is_no_call_of_its_own(name):
    assert shown_formats(FORMATS[name].render(CALLS)) == (FORMATS[name],)


@pytest.mark.parametrize("name", ["deepseek-v3.1", "kimi-k2", "minimax-m2"])
def test_a_call_without_what_stands_before_the_first_is_seen(name):
    assert shown_formats(FORMATS[name].render_call(CALLS[0]))[0] == FORMATS[name]


DESCRIBED = {
    "qwen2.5": (
        "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
        "hermes",
    ),
    "hermes-2-pro": (
        "within <tool_call></tool_call> XML tags as follows:\n<tool_call>\n"
        '{"arguments": <args-dict>, "name": <function-name>}\n</tool_call>',
        "hermes-arguments-first",
    ),
    "llama-3.1": (
        'Respond in the format {"name": function name, "parameters": dictionary of argument name '
        "and its value}. Do not use variables.",
        "llama-3",
    ),
    "llama-3.1-functions": (
        "<{start_tag}={function_name}>{parameters}{end_tag}\nwhere\n\nstart_tag => `<function`\n"
        'Here is an example,\n<function=example_function_name>{"example_name": "example_value"}'
        "</function>\n- Function calls MUST start with <function= and end with </function>",
        "functionary-v3.1",
    ),
    "llama-3.2": (
        "[func_name1(params_name1=params_value1, params_name2=params_value2...), "
        "func_name2(params)] You SHOULD NOT include any other text.",
        "pythonic",
    ),
    "qwen3-coder": (
        "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n"
        "</parameter>\n<parameter=example_parameter_2>\nThis is the value\nof several lines\n"
        "</parameter>\n</function>\n</tool_call>\n\n- MUST begin with an opening <tool_call> tag",
        "qwen3-coder",
    ),
    "glm-4.6": (
        "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}"
        "</arg_value>\n...\n</tool_call>",
        "glm-4.5",
    ),
    "nemotron": (
        '<TOOLCALL>[{{"name": "tool_name1", "arguments": "tool_args1"}}, {{"name": "tool_name2", '
        '"arguments": "tool_args2"}}]</TOOLCALL>',
        "nemotron",
    ),
    "phi-4-mini": (
        'functools[{"name": [function name], "arguments": [function arguments as JSON]}, ...]',
        "functools",
    ),
    "react": (
        "Thought: what to do\nAction: the action to take, should be one of [search, now]\n"
        "Action Input: the input to the action\nObservation: the result",
        "react",
    ),
    "api-bank": (
        '```<tool_call>\n{"name": "Tool name", "parameters": {"Parameter name": "Parameter '
        'content", "... ...": "... ..."}}\n{"name": "... ...", "parameters": {"... ...": "... '
        '..."}}\n...\n</tool_call>\n```\n1. Provide at least one of `<tool_call>`.',
        "api-bank",
    ),
}


@pytest.mark.parametrize("text, name", DESCRIBED.values(), ids=DESCRIBED)  # noqa: PT006
def test_an_example_or_a_description_shows_its_format(text, name):
    prompt = f"You may call tools.\n{json.dumps(TOOLS)}\n{text}\nuser: What is the weather?"
    assert shown_formats(prompt)[0] == FORMATS[name]


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_tools_are_no_calls(indent):
    bare = [tool["function"] for tool in TOOLS]
    mute = [{"name": tool["name"], "parameters": tool["parameters"]} for tool in bare]
    strict = [{"name": "f", "parameters": {"required": [], "title": "F", **CITY}}]
    flat = [{"name": "f", "parameters": {"city": {"param_type": "str", "description": "Which."}}}]
    nested = [{"type": "function", "function": {"name": "now", "parameters": {}}}]
    for tools in (TOOLS, bare, mute, strict, flat, nested):
        lines = "\n".join(json.dumps(tool, indent=indent) for tool in tools)
        text = f"Tools: {json.dumps(tools, indent=indent)}\n<tools>\n{lines}\n</tools>"
        assert shown_formats(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It rains.",
        "See [the page](http://x) and [f(x) for x in y].",
        '{"city": "Oslo"}',
        "<tool_call>",
        "Write calls within <tool_call></tool_call> tags.",
        '{"id": "1", "function": {"name": "f", "parameters": {"a": 1}}}',
        ">>> print(1)\n1",
    ],
)
def test_text_without_a_call_shows_nothing(text):
    assert shown_formats(text) == ()


def test_a_call_that_can_be_read_comes_before_what_is_only_described():
    text = f"{FORMATS['llama-3'].render(CALLS[:1])}\n{DESCRIBED['qwen2.5'][0]}"
    assert [form.name for form in shown_formats(text)] == ["llama-3", "llama-4", "hermes"]


def test_what_is_marked_comes_before_bare_json():
    text = f"{DESCRIBED['qwen2.5'][0]}\n{DESCRIBED['llama-3.1'][0]}"
    assert [form.name for form in shown_formats(text)] == ["hermes", "llama-3", "llama-4"]


def test_the_later_of_two_calls_comes_first():
    first, second = FORMATS["nemotron"], FORMATS["qwen3-coder"]
    text = f"{first.render(CALLS)}\n{second.render(CALLS)}\n"
    assert shown_formats(text)[:2] == (second, first)
    text = f"{second.render(CALLS)}\n{first.render(CALLS)}\n"
    assert shown_formats(text)[:2] == (first, second)


def test_a_call_shows_its_own_white_space():
    compact = attrs.evolve(HERMES, arguments=Arguments.json(compact=True))
    text = f"{DESCRIBED['qwen2.5'][0]}\nassistant: {compact.render(CALLS)}"
    assert shown_formats(text) == (compact, HERMES)
    loose = '<tool_call> {  "name":"now",\n"arguments":{}} </tool_call>'
    assert "hermes" in {form.name for form in shown_formats(loose)}


def test_formats_of_the_caller_are_seen_and_preferred():
    mine = CallFormat("mine", open='<mine>{"name": "', close="}</mine>")
    text = f"user: Hi.\n{mine.render(CALLS)}"
    assert shown_formats(text) == ()
    assert shown_formats(text, [mine]) == (mine,)
    text = FORMATS["llama-3"].render(CALLS[:1])
    assert shown_formats(text, [FORMATS["llama-4"]])[0] == FORMATS["llama-4"]


def test_a_call_is_found_among_a_thousand_mentions_of_its_mark():
    mentions = "Use <tool_call> tags. " * 500
    for text in (f"{HERMES.render(CALLS)}{mentions}", f"{mentions}{HERMES.render(CALLS)}"):
        assert shown_formats(text)[0] == HERMES


@cache
def templates():
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    return {path.stem: utils._compile_jinja_template(path.read_text()) for path in TEMPLATES}


def printed(template, messages, tools, *, ask=True):
    marks = {"bos_token": "<s>", "eos_token": "</s>", "strftime_now": lambda form: "today"}
    return template.render(messages=messages, tools=tools, add_generation_prompt=ask, **marks)


def prompt(template):
    """A prompt with two tools and a system message, or without what a template cannot print."""
    user = {"role": "user", "content": "What is the weather in Oslo?"}
    messages = [{"role": "system", "content": "You are a helpful assistant."}, user]
    for tools in (TOOLS, None):
        try:
            return printed(template, messages, tools)
        except Exception:  # each template has errors of its own
            continue
    return printed(template, messages[1:], None)


def renderer(template):
    from specdec.calls import assistant_turn

    def apply(messages, ask):
        try:
            return printed(template, messages, TOOLS, ask=ask)
        except Exception:
            return printed(template, messages, None, ask=ask)

    return assistant_turn(apply)


@pytest.mark.skipif(not TEMPLATES, reason=f"{SHARED} holds no chat templates; set SPECDEC_SHARED")
def test_prompts_of_chat_templates_show_the_format_that_is_induced():
    assert len(templates()) == 27
    right = set()
    for name, template in templates().items():
        shown = shown_formats(prompt(template))
        assert (name in SILENT) == (not shown), name
        form = induce(renderer(template))
        if shown and form is not None and mark(shown[0]) == mark(form):
            right.add(name)
    # Phi 4 mini is told to write a mark that its own template leaves out.
    assert set(templates()) - SILENT - right == {"tool_chat_template_phi4_mini"}


def api_bank():
    file = SHARED / "api_bank.jsonl"
    if not file.exists():
        pytest.skip(f"needs {file}; set SPECDEC_SHARED")
    for line in file.read_text(encoding="utf-8").splitlines():
        yield "\n".join(message["content"] for message in json.loads(line)["messages"])


def test_every_prompt_of_api_bank_shows_its_format():
    prompts = list(api_bank())
    assert len(prompts) == 597
    for text in prompts:
        first = shown_formats(text)[0]
        assert mark(first).startswith("<tool_call>")
        assert first.arguments_key == "parameters"


def test_long_prompts_take_little_time():
    """Thrice the time that is meant, for slow machines; some 0.8 and 0.3 ms are usual."""
    many = [{**FUNCTION, "name": f"tool_{i}"} for i in range(500)]
    long = "\n".join(json.dumps(tool) for tool in many) + HERMES.render(CALLS)
    short = (DESCRIBED["qwen2.5"][0] + HERMES.render(CALLS) * 9 + " and so on" * 400)[:4000]
    assert len(long) > 60_000
    for text, limit in ((long, 0.015), (short, 0.003)):
        seconds = []
        for _ in range(9):
            start = time.perf_counter()
            assert shown_formats(text)[0] == HERMES
            seconds.append(time.perf_counter() - start)
        assert min(seconds) < limit


def test_any_text_is_taken_in_time_that_grows_with_it():
    pieces = [
        *(form.block_open + form.open for form in FORMATS.values()),
        *(form.between for form in FORMATS.values()),
        *(form.close + form.block_close for form in FORMATS.values()),
        *'{[("\\\ud800\x00\u00e9a \n=,:1',
        '"name"',
        '"parameters"',
        '{"type": "object"',
    ]
    draw = random.Random(3)
    for _ in range(1500):
        shown_formats("".join(draw.choice(pieces) for _ in range(draw.randint(0, 40))))
    start = time.perf_counter()
    for piece in (
        "{",
        "[",
        "{ ",
        '{"name":',
        "[a(b=",
        "<tool_call>",
        '{"name": "a", "parameters": ',
    ):
        shown_formats(piece * (1_000_000 // len(piece)))
    for head in ('{"name"', "<tool_call>\n", '<tool_call>\n{"arguments": ', "Action: "):
        shown_formats(head + " " * 1_000_000)
    assert time.perf_counter() - start < 10
