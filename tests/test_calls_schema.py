"""JSON Schema as people write it, compiled into slots."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec import Tool
from specdec.calls.compiler import MAX_SLOTS, compile_schema, compile_tool
from specdec.calls.schema import FREE, Property, Slot

STRING, INTEGER, NULL = Slot(("string",)), Slot(("integer",)), Slot(("null",))


@pytest.mark.parametrize(
    ("schema", "slot"),
    [
        ({}, FREE),
        (True, FREE),
        ({"type": "string"}, STRING),
        ({"type": ["string", "null"]}, Slot(("string", "null"))),
        ({"type": "string", "nullable": True}, Slot(("string", "null"))),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, Slot(("string", "null"))),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, Slot(("integer", "string"))),
        ({"anyOf": [{"type": "string"}, {}]}, FREE),
        ({"type": "dict"}, Slot(("object",))),
        ({"type": "float"}, Slot(("number",))),
        ({"type": "tuple", "items": {"type": "int"}}, Slot(("array",), items=INTEGER)),
        ({"type": "list(str)"}, Slot(("array",), items=STRING)),
        ({"type": "List[int]"}, Slot(("array",), items=INTEGER)),
        ({"type": "any"}, FREE),
        ("str", STRING),
        ({"enum": ["C", "F"]}, Slot(("string",), ('"C"', '"F"'))),
        ({"enum": [1, 1.0, True, None, 1]}, None),
        ({"const": "é"}, Slot(("string",), ('"é"',))),
        ({"type": "string", "enum": ["C"], "nullable": True}, None),
        ({"type": "boolean", "default": False}, Slot(("boolean",), default="false")),
        ({"default": None}, Slot(default="null")),
        ({"items": {"type": "string"}}, Slot(("array",), items=STRING)),
        ({"items": [{"type": "string"}, {"type": "null"}]}, None),
        (
            {"anyOf": [{"const": "auto"}, {"enum": ["a"]}, {"type": "null"}]},
            Slot(("string", "null"), ('"auto"', '"a"', "null")),
        ),
        ({"anyOf": [{"const": "auto"}, {"type": "integer"}]}, Slot(("string", "integer"))),
        ({"allOf": [{"type": "string"}], "default": "x"}, Slot(("string",), default='"x"')),
    ],
)
def test_what_people_write_is_compiled(schema, slot):
    special = {
        str({"enum": [1, 1.0, True, None, 1]}): Slot(
            ("integer", "number", "boolean", "null"), ("1", "1.0", "true", "null")
        ),
        str({"type": "string", "enum": ["C"], "nullable": True}): Slot(
            ("string", "null"), ('"C"', "null")
        ),
        str({"items": [{"type": "string"}, {"type": "null"}]}): Slot(
            ("array",), items=Slot(("string", "null"))
        ),
    }
    assert compile_schema(schema) == (special[str(schema)] if slot is None else slot)


def test_properties_keep_their_order_and_say_what_is_required():
    slot = compile_schema(
        {
            "properties": {"b": {"type": "string"}, "a": {"type": "integer"}},
            "required": ["a", "unknown"],
            "additionalProperties": False,
        }
    )
    assert slot == Slot(
        ("object",),
        properties=(Property("b", STRING), Property("a", INTEGER, required=True)),
        extra=False,
    )
    assert (slot.at("a"), slot.at("z"), slot.at(0)) == (INTEGER, FREE, FREE)


def test_additional_properties_have_a_slot_of_their_own():
    slot = compile_schema({"type": "object", "additionalProperties": {"type": "integer"}})
    assert slot.extra
    assert slot.at("anything") == INTEGER


def test_local_references_are_followed_and_recursion_ends():
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}
    schema = {
        "$defs": {"tree": tree, "a/b": {"type": "string"}},
        "properties": {"tree": {"$ref": "#/$defs/tree"}, "s": {"$ref": "#/$defs/a~1b"}},
        "allOf": [{"$ref": "#"}],
    }
    slot = compile_tool(Tool("f", "", schema))
    assert slot.at("s") == STRING
    deep, depth = slot.at("tree"), 0
    while deep != FREE:
        assert deep.kinds == ("object",)
        deep, depth = deep.at("left"), depth + 1
    assert depth > 3


def test_a_definition_used_often_stays_bounded():
    schema = {
        "$defs": {"n": {"type": "object", "properties": {k: {"$ref": "#/$defs/n"} for k in "abcd"}}}
    }

    def size(slot):
        return 1 + sum(size(inner.slot) for inner in slot.properties)

    slot = compile_schema({**schema, "$ref": "#/$defs/n"})
    assert 4 <= size(slot) <= 5 * MAX_SLOTS


def test_an_integer_is_also_a_number():
    assert Slot(("number",)).allows("integer")
    assert not Slot(("integer",)).allows("number")
    assert FREE.allows("array")


@pytest.mark.parametrize(
    ("inner", "problem"),
    [
        ({"$ref": "https://example.com/a"}, "not local"),
        ({"$ref": "#/nowhere"}, "leads nowhere"),
        ({"type": "quaternion"}, "'quaternion' is unknown"),
        ({"type": 3}, "3 is unknown"),
        (7, "7 is no schema"),
        ({"enum": 3}, "enum 3 is no list"),
        ({"properties": 3}, "properties 3 are no object"),
    ],
)
def test_what_cannot_be_compiled_is_free_and_costs_one_line(caplog, inner, problem):
    schema = {"properties": {"a": inner, "b": inner, "c": {"type": "string"}}}
    with caplog.at_level(logging.WARNING):
        slot = compile_tool(Tool("f", "", schema))
    assert slot.at("a") == FREE
    assert slot.at("c") == STRING
    (record,) = caplog.records
    assert "'f'" in record.message
    assert problem in record.message


def test_sound_schemas_are_silent(caplog):
    with caplog.at_level(logging.WARNING):
        compile_tool(Tool("f", "", {"properties": {"a": {"type": ["string", "null"]}}}))
    assert not caplog.records


keys = st.sampled_from(
    [
        *("type", "enum", "const", "default", "properties", "required", "items", "anyOf", "oneOf"),
        *("allOf", "$ref", "nullable", "additionalProperties", "prefixItems"),
    ]
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["string", "object", "array", "#", "#/properties/a", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys | st.sampled_from("ab"), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(anything)
def test_any_schema_compiles_to_a_hashable_slot(schema):
    slot = compile_schema(schema)
    assert hash(slot) == hash(compile_schema(schema))
    if isinstance(schema, dict):
        assert compile_tool(Tool("f", "", schema)).kinds == ("object",)
