from __future__ import annotations

from collections import Counter

import attrs
import pytest
from specdec_demo_model import REQUESTS, requests

from specdec.calls.tools import read_tools

JSON_TYPES = {"string", "integer", "number", "boolean"}


def test_there_are_twenty_or_so_with_names_of_their_own() -> None:
    assert 18 <= len(requests()) <= 24
    assert len({request.id for request in requests()}) == len(requests())
    assert tuple(requests()) == REQUESTS


def test_they_share_one_set_of_tools() -> None:
    tools = read_tools(REQUESTS[0].tools)
    assert 4 <= len(tools) <= 6
    assert all(request.tools == REQUESTS[0].tools for request in REQUESTS)


def test_tool_schemas_are_well_formed() -> None:
    for tool in read_tools(REQUESTS[0].tools):
        schema = tool.parameters
        assert tool.description
        assert schema["type"] == "object"
        assert set(schema["required"]) <= set(schema["properties"])
        for inner in schema["properties"].values():
            assert inner["type"] in JSON_TYPES
            assert len(inner.get("enum", [0])) == len(set(inner.get("enum", [0])))


def test_schemas_show_enums_numbers_booleans_and_optional_arguments() -> None:
    schemas = [tool.parameters for tool in read_tools(REQUESTS[0].tools)]
    inner = [argument for schema in schemas for argument in schema["properties"].values()]
    assert {argument["type"] for argument in inner} == JSON_TYPES
    assert any("enum" in argument for argument in inner)
    assert any(len(schema["required"]) < len(schema["properties"]) for schema in schemas)


def test_each_is_one_short_message_for_a_tool_on_offer() -> None:
    for request in REQUESTS:
        (message,) = request.messages
        assert message["role"] == "user"
        assert len(message["content"]) < 130
        assert request.expected in {tool.name for tool in read_tools(request.tools)}


def test_every_tool_is_wanted_again() -> None:
    wanted = Counter(request.expected for request in REQUESTS)
    assert set(wanted) == {tool.name for tool in read_tools(REQUESTS[0].tools)}
    assert min(wanted.values()) >= 3


def test_requests_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        REQUESTS[0].id = "other"  # type: ignore[misc]
