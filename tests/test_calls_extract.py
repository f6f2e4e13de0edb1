"""Tools found in prompts, and tools in the forms that callers use."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec import RequestError, Tool
from specdec.calls import tools_in_prompt

SHARED = Path(os.environ.get("SPECDEC_SHARED", Path(__file__).parents[2] / "shared"))

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OTHER = {"type": "object", "properties": {"a": {"type": "integer"}}}
F = {"name": "f", "description": "F.", "parameters": SCHEMA}
G = {"name": "g", "description": "G.", "parameters": OTHER}
BOTH = (Tool("f", "F.", SCHEMA), Tool("g", "G.", OTHER))


def wrapped(tool):
    return {"type": "function", "function": tool}


@pytest.mark.parametrize("key", ["parameters", "inputSchema", "input_schema"])
def test_the_schema_is_read_under_the_key_of_every_convention(key):
    assert Tool.from_mapping({"name": "f", "description": "F.", key: SCHEMA}) == BOTH[0]


def test_a_malformed_schema_is_refused_under_its_own_key():
    with pytest.raises(RequestError, match=r"'inputSchema\.properties' must be an object"):
        Tool.from_mapping({"name": "f", "inputSchema": {"properties": 3}})


def lines(*tools):
    return "\n".join(json.dumps(tool) for tool in tools)


@pytest.mark.parametrize(
    "text",
    [
        f"You have tools.\n<tools>\n{lines(wrapped(F), wrapped(G))}\n</tools>\nUse them.",
        f"<tools> {[wrapped(F), wrapped(G)]} </tools>",
        f"<tools>\n{wrapped(F)}\n{wrapped(G)}\n</tools>",
        json.dumps([F, G]),
        f"Use {json.dumps([wrapped(F), G])} well.",
        json.dumps({"tools": [F, G]}, indent=4),
        json.dumps({"functions": [wrapped(F), wrapped(G)]}),
        # Llama 3.1 prints each with four spaces, and a blank line between them.
        "\n\n".join(json.dumps(wrapped(tool), indent=4) for tool in (F, G)),
        f"Use the function 'f' to: F.\n{json.dumps(F)}\n\nUse the function 'g' to: G.\n"
        + json.dumps(G),
        f"[AVAILABLE_TOOLS][{json.dumps(wrapped(F))}, {json.dumps(wrapped(G))}][/AVAILABLE_TOOLS]",
        f"a {{ b [ c {{'d'\n{lines(F, G, F)}",
    ],
)
def test_tools_are_found_in_every_embedding(text):
    assert tools_in_prompt(text) == BOTH


@pytest.mark.parametrize(
    "text",
    [
        "1. Name: f\nDescription: F.\nParameters: {parameters}\n"
        "2. Name: g\nDescription: G.\nParameters: {}\n",
        "1. f: F.\nParameters: {parameters}\n2. g: G.\nParameters: {}",
    ],
)
def test_both_layouts_of_api_bank_are_read(text):
    about = (
        "{'city': {'type': 'str', 'description': \"the city's name\"}, 'n': {'type': 'list(int)'}}"
    )
    f, g = tools_in_prompt(f"**Tools**\n{text.replace('{parameters}', about)}\n\nBegin.")
    assert (f.name, f.description) == ("f", "F.")
    assert f.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "the city's name"},
            "n": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["city", "n"],
    }
    assert g == Tool("g", "G.", {"type": "object", "properties": {}, "required": []})


def test_the_documents_of_llamas_custom_tools_are_read():
    flat = {"city": {"param_type": "string", "required": True}, "n": {"param_type": "int"}}
    flat["n"]["required"] = False
    (tool,) = tools_in_prompt(json.dumps({"name": "f", "description": "F.", "parameters": flat}))
    assert tool.parameters["required"] == ["city"]
    assert tool.parameters["properties"]["n"] == {"type": "integer"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"name": "f", "parameters": {"city": "Oslo"}}',
        '{"name": "f", "parameters": {}}',
        '{"name": "f", "arguments": {"city": {"type": "string"}}}',
        '{"name": "f", "parameters": {"filter": {"a": 1}}}',
        '{"name": "Ann"} {"name": "Bob", "description": "d", "age": 3}',
        '{"name": 3, "parameters": {}}',
        "1. Name: f\nDescription: F.\nParameters: {'city': 'Oslo'}",
        "Parameters: {}",
    ],
)
def test_calls_and_other_objects_are_no_tools(text):
    assert tools_in_prompt(text) == ()


def test_the_first_tool_of_a_name_stands_and_order_is_kept():
    text = lines(G, F, {**G, "description": "Again."}, {"name": "h", "description": "H."})
    assert tools_in_prompt(text) == (BOTH[1], BOTH[0], Tool("h", "H."))


pieces = st.sampled_from(
    [
        *"{}[]\"':,\\\n 1a",
        json.dumps(F),
        json.dumps([wrapped(G)]),
        "1. Name: f\nParameters: ",
        "<tools>",
        "</tools>",
        '{"name": "f", "parameters": ',
        "\ud83d",
    ]
)


@given(st.lists(pieces, max_size=30).map("".join))
def test_any_text_is_searched_without_an_error(text):
    names = [tool.name for tool in tools_in_prompt(text)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "piece", ["{", '[{"', "[{'a': ", '{"a":', '[{"a":1},', "1. f: x\n", '"{\n']
)
def test_hostile_text_takes_linear_time(piece):
    """A quadratic search would take minutes."""
    text = piece * (400_000 // len(piece))
    start = time.perf_counter()
    assert tools_in_prompt(text) == ()
    assert time.perf_counter() - start < 5


def test_the_tools_of_api_bank_are_found_in_its_prompts():
    file = SHARED / "data" / "api_bank.jsonl"
    if not file.exists():
        pytest.skip(f"{file} is not there; set SPECDEC_SHARED")
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    wrong = []
    for record in records:
        found = tools_in_prompt("\n".join(message["content"] for message in record["messages"]))
        expected = [Tool.from_mapping(tool) for tool in record["tools"]]
        if [named(tool) for tool in found] != [named(tool) for tool in expected]:
            wrong.append(record["id"])
    assert len(wrong) <= 0.01 * len(records), wrong


def named(tool):
    return tool.name, list(tool.parameters.get("properties", ()))


def test_python_functions_become_tools():
    tools = pytest.importorskip("specdec.hf.tools")

    def weather(city: str, days: int = 3) -> str:
        """Weather in a city.

        Args:
            city: Where.
            days: How long.
        """

    made, mapped = tools.read_any_tools([weather, F])
    assert (made.name, made.description, mapped) == ("weather", "Weather in a city.", BOTH[0])
    assert list(made.parameters["properties"]) == ["city", "days"]
    assert made.parameters["required"] == ["city"]
    with pytest.raises(RequestError, match="<lambda> cannot be read as a tool"):
        tools.read_any_tools([lambda x: x])
