"""Tools and call formats."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec import Call, RequestError, Tool
from specdec.calls import (
    FORMATS,
    HERMES,
    CallEnd,
    CallParser,
    CallStart,
    TextDelta,
    load_tools,
    read_tools,
)

WEATHER = {"name": "get_weather", "description": "Weather.", "parameters": {"type": "object"}}


def test_a_tool_is_read_bare_or_in_its_openai_wrapping():
    bare = Tool.from_mapping(WEATHER)
    assert bare == Tool.from_mapping({"type": "function", "function": WEATHER})
    assert bare == Tool("get_weather", "Weather.", {"type": "object"})
    assert bare.to_openai() == {"type": "function", "function": WEATHER}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "got 3"),
        ({}, "string 'name'"),
        ({"name": 3}, "string 'name'"),
        ({"type": "function", "function": []}, "string 'name'"),
        ({"name": "f", "parameters": []}, None),
        ({"name": "f", "parameters": [1]}, "'parameters' must be a JSON Schema object"),
        ({"name": "f", "parameters": {"properties": [1]}}, "'parameters.properties'"),
    ],
)
def test_a_malformed_tool_is_refused_with_what_was_given(data, message):
    if message is None:
        assert Tool.from_mapping(data) == Tool("f")
        return
    with pytest.raises(RequestError, match=message):
        Tool.from_mapping(data)


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(RequestError, match="two tools are named 'get_weather'"):
        read_tools([WEATHER, WEATHER])


def test_tools_are_loaded_from_a_list_or_from_under_tools(tmp_path):
    path = tmp_path / "tools.json"
    for data in ([WEATHER], {"tools": [WEATHER]}):
        path.write_text(json.dumps(data))
        assert load_tools(path) == (Tool.from_mapping(WEATHER),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON: .* line 1, column 2"),
        (b"\xff", "is not UTF-8"),
        (b"3", "must hold a JSON list of tools, got 3"),
        (b'{"tool": []}', "must hold a JSON list"),
        (b'[{"nome": "f"}]', "string 'name'"),
    ],
)
def test_a_malformed_tools_file_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "tools.json"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=rf"tools\.json.*{message}"):
        load_tools(path)


def test_a_missing_tools_file_is_refused_by_name(tmp_path):
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        load_tools(tmp_path / "tools.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
# Where a name is due, the mark that opens a call opens one: the one before it broke off.
names = st.text().filter(lambda text: "<tool_call>" not in text)
calls = st.lists(
    st.builds(Call, names.filter(bool), st.dictionaries(names, json_values)), max_size=4
)


@given(calls, st.text(alphabet="ab {}\n"))
def test_what_is_rendered_is_parsed_back(made, around):
    assert HERMES.parse(around + HERMES.render(made) + around) == made


def test_a_mark_where_a_name_is_due_opens_another_call():
    whole = HERMES.render([Call("ping", {})])
    assert HERMES.parse('<tool_call>\n{"name": "' + whole) == [Call("ping", {})]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no call",
        "<tool_call>",
        '<tool_call>\n{"name": "f"',
        "<tool_call>\n[1]",
        '<tool_call>\n{"arguments": {}}',
        '<tool_call>\n{"name": "f", "arguments": 3}',
        '<tool_call> words {"name": "f", "arguments": {}}',
    ],
)
def test_what_is_no_complete_call_is_passed_over(text):
    assert HERMES.parse(text) == []


def test_arguments_of_a_call_whose_name_breaks_off_are_no_part_of_the_next():
    parser = CallParser(FORMATS["hermes-arguments-first"])
    events = parser.push(
        '<tool_call>\n{"arguments": {"on": 1}, "name": "se\n</tool_call>\n'
        '<tool_call>\n{"arguments": {}, "name": "ping"}\n</tool_call>'
    )
    assert [type(event) for event in events] == [TextDelta, CallStart, CallEnd]
    assert parser.calls == [Call("ping", {})]


def test_white_space_and_missing_end_markers_are_tolerated():
    text = 'Sure.<tool_call>{"name":"f","arguments":{}} then <tool_call>\n\n{"name": "g"}'
    assert HERMES.parse(text) == [Call("f", {}), Call("g", {})]


def test_the_page_on_calls_says_what_is_so():
    page = (Path(__file__).parents[1] / "docs" / "calls.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
