"""Formats read off chat templates, without a table of models."""

import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from specdec.calls import FORMATS, Call, assistant_turn, induce

SHARED = Path(os.environ.get("SPECDEC_SHARED", Path(__file__).parents[2] / "shared")) / "data"
TEMPLATES = sorted((SHARED / "chat_templates").glob("*.jinja"))
MUTE = {"LFM2-8B-A1B.jinja", "ibm-granite-granite-3.3-2B-Instruct.jinja"}
"""Templates that print no call."""

WEATHER = Call(
    "get_weather",
    {"city": 'São "P"', "days": 3, "opts": {"unit": "C", "tags": ["a", "b"]}, "exact": True},
    "000000001",
)
NOW = Call("now", {}, "000000002")
OTHERS = [
    [Call("f", {"b": "x\ny", "a": [{"k": None}, -2.5, {}], "c": False}, "abcdefgh1")],
    [Call("g_h", {}, "abcdefgh2")],
    [Call("get", {"q": "it's < 3 & \\ é"}, "abcdefgh3"), Call("now", {"n": 10}, "abcdefgh4")],
    [NOW, Call("f", {"a": "0", "o": {"z": [[]], "y": "1"}}, "abcdefgh5"), WEATHER],
]

needs_templates = pytest.mark.skipif(
    not TEMPLATES, reason=f"{SHARED} holds no chat templates; set SPECDEC_SHARED"
)


def printer(source):
    """What a template prints, with transformers' own environment, or without tools it fails on."""
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    template = utils._compile_jinja_template(source)
    empty = {"type": "object", "properties": {}, "required": []}
    function = {"name": "f", "description": "F.", "parameters": empty}

    def apply(messages, add_generation_prompt):
        given = {"messages": messages, "add_generation_prompt": add_generation_prompt}
        marks = {"bos_token": "<s>", "eos_token": "</s>", "strftime_now": lambda form: "today"}
        try:
            tools = [{"type": "function", "function": function}]
            return template.render(tools=tools, **given, **marks)
        except Exception:
            return template.render(tools=None, **given, **marks)

    return assistant_turn(apply)


@needs_templates
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_that_prints_calls_gives_its_format(path, caplog):
    render = printer(path.read_text(encoding="utf-8"))
    with caplog.at_level(logging.WARNING):
        form = induce(render)
    if path.name in MUTE:
        assert form is None
        (record,) = caplog.records
        assert "no call format can be read off" in record.message
        return
    assert form is not None
    assert not caplog.records
    recorded = json.loads((SHARED / "formats_rendered.json").read_text(encoding="utf-8"))
    for calls, printed in zip(
        ([WEATHER], [WEATHER, NOW]), recorded[path.name].values(), strict=True
    ):
        if isinstance(printed, dict):  # else the template refuses several calls
            assert form.render(calls if form.several else calls[:1]) in printed["assistant"]
        else:
            assert not form.several
    # What stands around calls does not depend on them.
    around = set()
    for calls in [[WEATHER], [NOW], *OTHERS]:
        calls = calls if form.several else calls[:1]
        before, found, after = render(calls, None).partition(form.render(calls))
        assert found, (render(calls, None), form.render(calls))
        around.add((before, after))
    assert len(around) == 1


@needs_templates
def test_at_least_24_of_27_templates_give_their_format():
    formats = [induce(printer(path.read_text(encoding="utf-8"))) for path in TEMPLATES]
    assert len(formats) == 27
    assert sum(form is not None for form in formats) >= 24


@needs_templates
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_induced_format_reads_what_it_prints(path):
    form = induce(printer(path.read_text(encoding="utf-8")))
    if form is None or path.stem.endswith("gemma3_pythonic"):
        return  # that template forgets the commas between arguments
    calls = [WEATHER, NOW] if form.several else [WEATHER]
    assert form.parse(f"Sure.{form.after_text}{form.render(calls)}\n") == calls


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_every_known_format_is_read_off_a_template_that_prints_it(form):
    def render(calls, content):
        if not form.several:
            calls = calls[:1]
        lead = f"{content}{form.after_text if calls else ''}" if content else ""
        return f"<|im_start|>assistant\n{lead}{form.render(calls)}<|im_end|>\n"

    found = induce(render, form.name)
    assert found is not None
    for calls in OTHERS:
        calls = calls if form.several else calls[:1]
        assert found.render(calls) == form.render(calls)
    assert found.several == form.several
    assert found.name == form.name
    assert (found.envelope, found.name_first) == (form.envelope, form.name_first)
    if form.envelope == "object":
        assert (found.name_key, found.arguments_key) == (form.name_key, form.arguments_key)
    calls = [Call("f", {"x": 1, "y": "a"}), NOW] if form.several else [NOW]
    assert found.parse(f"Hm. {found.render(calls)} Bye.") == calls


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("indent", [None, 2, 4])
def test_white_space_of_json_is_read_off(space, indent):
    def render(calls, content):
        items = [{"name": call.name, "arguments": call.arguments} for call in calls]
        separators = ("," + space if indent is None else ",", ":" + space)
        text = json.dumps(items, ensure_ascii=False, separators=separators, indent=indent)
        return f"A: {content or ''}{'<c>' + text + '</c>' if calls else ''}<end>"

    form = induce(render)
    assert form is not None
    for calls in OTHERS:
        assert "A: " + form.render(calls) + "<end>" == render(calls, None)


def test_ids_that_hold_the_name_are_understood():
    def render(calls, content):
        made = (f"<call>{call.id}<args>{json.dumps(call.arguments)}</call>" for call in calls)
        return f"A{content or ''}{''.join(made)}<end>"

    form = induce(render)
    assert form is not None
    assert form.render([Call("f", {}), Call("g", {"a": 1})]) == (
        '<call>functions.f:0<args>{}</call><call>functions.g:1<args>{"a": 1}</call>'
    )


def raising(calls, content):
    raise ValueError("no roles")


@pytest.mark.parametrize(
    ("render", "reason"),
    [
        (lambda calls, content: "always the same", "'probe_alpha' is not printed"),
        (lambda calls, content: "".join(call.name for call in calls), "'qkey' is not printed|7401"),
        (raising, "ValueError: no roles"),
        (lambda calls, content: f"{[str(call.arguments)[:20] for call in calls]}", "not printed"),
        (
            lambda calls, content: "".join(
                f'<c>{{"name": "{call.name}", "arguments": {json.dumps(call.arguments)[:60]}}}'
                for call in calls
            ),
            "it prints",
        ),
    ],
)
def test_what_cannot_be_read_off_costs_one_warning_with_a_reason(render, reason, caplog):
    with caplog.at_level(logging.WARNING):
        assert induce(render) is None
    (record,) = caplog.records
    import re

    assert re.search(reason, record.message), record.message


def test_arguments_are_given_as_text_where_a_template_wants_text():
    def apply(messages, add_generation_prompt):
        made = ""
        for message in messages:
            for call in message.get("tool_calls", ()):
                if not isinstance(call["function"]["arguments"], str):
                    raise TypeError("text, please")
                made += f">>>{call['function']['name']}\n{call['function']['arguments']}"
        return f"U{made}" + ("A" if add_generation_prompt else "")

    form = induce(assistant_turn(apply))
    assert form is not None
    assert form.render([WEATHER, NOW]).startswith('>>>get_weather\n{"city": "São')


def test_a_tokenizer_gives_the_format_of_its_template():
    tools = pytest.importorskip("specdec.hf.tools")

    def apply_chat_template(messages, tools, add_generation_prompt, tokenize):
        if tools is not None:
            raise TypeError("no tools here")
        calls = messages[-1].get("tool_calls", ())
        made = (f"[{call['function']['name']}]{call['function']['arguments']}" for call in calls)
        text = messages[-1]["content"] if len(messages) > 1 else ""
        return f"<s>{text}{''.join(made)}"

    form = tools.tokenizer_format(SimpleNamespace(apply_chat_template=apply_chat_template))
    assert form is not None
    assert form.render([Call("f", {"a": "b"})]) == "[f]{'a': 'b'}"
