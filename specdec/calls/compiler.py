"""Compiler: JSON Schema as people write it, made into slots."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from specdec.calls.schema import FREE, TYPE_NAMES, Kind, Property, Slot, named_type
from specdec.calls.tools import Tool
from specdec.calls.values import kind_of

_log = logging.getLogger(__name__)

MAX_DEPTH = 12
"""Nesting, references included, below which anything may stand."""

MAX_SLOTS = 4_096
"""Slots of one tool; what lies beyond is free."""


def compile_tool(tool: Tool) -> Slot:
    """The slot of a tool's whole arguments object.

    What cannot be compiled becomes `FREE`, at the cost of one log line for the tool.

    Args:
        tool: A tool; its schema may be anything. Never raises.
    """
    compiler = _Compiler(tool.parameters)
    slot = compiler.slot(tool.parameters, 0)
    if compiler.problems:
        _log.warning(
            "tool %r: %s; drafted as free text there", tool.name, "; ".join(compiler.problems[:3])
        )
    # Arguments are an object, whatever a schema forgets to say.
    return attrs.evolve(slot, kinds=("object",), choices=())


def compile_schema(schema: object) -> Slot:
    """The slot of one schema; what cannot be compiled becomes `FREE`. Never raises."""
    return _Compiler(schema).slot(schema, 0)


class _Compiler:
    """Compiles one tool's schema; `problems` says what was given up."""

    def __init__(self, root: object) -> None:
        self.root = root
        self.problems: list[str] = []
        self._left = MAX_SLOTS

    def slot(self, schema: object, depth: int) -> Slot:
        """The slot of `schema`, `depth` levels below the arguments."""
        if schema is True or (isinstance(schema, Mapping) and not schema):
            return FREE
        if not isinstance(schema, Mapping):
            # Some documents give a type's name in place of a schema.
            if isinstance(schema, str) and schema.lower() in TYPE_NAMES:
                return Slot((TYPE_NAMES[schema.lower()],))
            return self._free(f"{_short(schema)} is no schema")
        if depth > MAX_DEPTH or self._left <= 0:
            # A recursive type ends here; that is no fault of the schema.
            return FREE
        self._left -= 1
        if "$ref" in schema:
            return self._reference(schema, depth)
        slot = self._own(schema, depth)
        if isinstance(whole := schema.get("allOf"), Sequence) and not isinstance(whole, str):
            for part in whole:
                slot = _both(slot, self.slot(part, depth + 1))
        for key in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(key), Sequence) and not isinstance(options, str):
                branches = [self.slot(option, depth + 1) for option in options]
                slot = _both(slot, _either(branches))
        if schema.get("nullable") is True and slot.kinds and "null" not in slot.kinds:
            slot = attrs.evolve(slot, kinds=(*slot.kinds, "null"))
            if slot.choices and "null" not in slot.choices:
                slot = attrs.evolve(slot, choices=(*slot.choices, "null"))
        return slot

    def _own(self, schema: Mapping[str, Any], depth: int) -> Slot:
        """What the schema says itself, without its branches."""
        given = schema.get("type")
        if isinstance(given, str) and given.lower() not in TYPE_NAMES:
            schema = {**schema, **named_type(given)}  # "list(str)" and the like
        kinds = self._kinds(schema.get("type"))
        choices = self._choices(schema)
        properties = self._properties(schema, depth)
        extra = schema.get("additionalProperties", True)
        items = schema.get("items", schema.get("prefixItems"))
        if not kinds and not choices:
            if properties:
                kinds = ("object",)
            elif items is not None:
                kinds = ("array",)
        if choices and not kinds:
            kinds = tuple(dict.fromkeys(kind_of(json.loads(choice)) for choice in choices))
        if isinstance(items, Sequence) and not isinstance(items, str):
            # A tuple: one slot that fits each of its places.
            item = _either([self.slot(entry, depth + 1) for entry in items]) if items else None
        else:
            item = None if items is None else self.slot(items, depth + 1)
        return Slot(
            kinds=kinds,
            choices=choices,
            default=_text(schema["default"]) if "default" in schema else None,
            properties=properties,
            extra=extra is not False,
            extra_slot=self.slot(extra, depth + 1) if isinstance(extra, Mapping) else None,
            items=item,
        )

    def _kinds(self, given: object) -> tuple[Kind, ...]:
        if given is None:
            return ()
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            self._free(f"type {_short(given)} is unknown")
            return ()
        kinds = [TYPE_NAMES.get(name.lower()) for name in names]
        known = tuple(dict.fromkeys(kind for kind in kinds if kind is not None))
        if None in kinds and not any(name.lower() == "any" for name in names):
            self._free(f"type {_short(given)} is unknown")
        return known if None not in kinds else ()

    def _choices(self, schema: Mapping[str, Any]) -> tuple[str, ...]:
        if "const" in schema:
            values: object = [schema["const"]]
        elif "enum" in schema:
            values = schema["enum"]
        else:
            return ()
        if not isinstance(values, Sequence) or isinstance(values, str):
            self._free(f"enum {_short(values)} is no list")
            return ()
        texts = [_text(value) for value in values]
        return tuple(dict.fromkeys(text for text in texts if text is not None))

    def _properties(self, schema: Mapping[str, Any], depth: int) -> tuple[Property, ...]:
        given = schema.get("properties")
        if given is None:
            return ()
        if not isinstance(given, Mapping):
            self._free(f"properties {_short(given)} are no object")
            return ()
        required = schema.get("required")
        names = required if isinstance(required, Sequence) and not isinstance(required, str) else ()
        needed = {name for name in names if isinstance(name, str)}
        return tuple(
            Property(str(name), self.slot(inner, depth + 1), str(name) in needed)
            for name, inner in given.items()
        )

    def _reference(self, schema: Mapping[str, Any], depth: int) -> Slot:
        """The slot that a local reference names, with what stands beside it."""
        target = self.root
        reference = schema["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            return self._free(f"reference {_short(reference)} is not local")
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and key in target:
                target = target[key]
            else:
                return self._free(f"reference {_short(reference)} leads nowhere")
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _both(self._own(beside, depth), self.slot(target, depth + 1))

    def _free(self, problem: str) -> Slot:
        if problem not in self.problems:
            self.problems.append(problem)
        return FREE


def _either(branches: Iterable[Slot]) -> Slot:
    """A slot that allows what any branch allows."""
    slots = list(branches)
    if not slots or any(not slot.kinds for slot in slots):
        return FREE
    kinds = tuple(dict.fromkeys(kind for slot in slots for kind in slot.kinds))
    choices: tuple[str, ...] = ()
    # Only branches with a list of values, or null, leave the union with one.
    if all(slot.choices or slot.kinds == ("null",) for slot in slots):
        listed = (slot.choices or ("null",) for slot in slots)
        choices = tuple(dict.fromkeys(choice for some in listed for choice in some))
        choices = () if choices == ("null",) and kinds != ("null",) else choices
    objects = [slot for slot in slots if "object" in slot.kinds]
    properties: dict[str, Property] = {}
    for slot in objects:
        for item in slot.properties:
            # What one branch does not know is not required of all.
            everywhere = all(item.name in {p.name for p in other.properties} for other in objects)
            properties.setdefault(
                item.name, Property(item.name, item.slot, item.required and everywhere)
            )
    arrays = [slot.items for slot in slots if "array" in slot.kinds]
    return Slot(
        kinds=kinds,
        choices=choices,
        default=next((slot.default for slot in slots if slot.default is not None), None),
        properties=tuple(properties.values()),
        extra=not objects or any(slot.extra for slot in objects),
        extra_slot=objects[0].extra_slot if objects else None,
        items=_either([items or FREE for items in arrays]) if arrays else None,
    )


def _both(first: Slot, second: Slot) -> Slot:
    """A slot that says what two schemas for the same place say together."""
    shared = tuple(kind for kind in first.kinds if kind in second.kinds)
    known = {item.name: item for item in first.properties}
    for item in second.properties:
        mine = known.get(item.name)
        known[item.name] = (
            item if mine is None else Property(item.name, mine.slot, mine.required or item.required)
        )
    return Slot(
        kinds=shared or first.kinds or second.kinds,
        choices=first.choices or second.choices,
        default=second.default if first.default is None else first.default,
        properties=tuple(known.values()),
        extra=first.extra and second.extra,
        extra_slot=first.extra_slot or second.extra_slot,
        items=first.items or second.items,
    )


def _text(value: object) -> str | None:
    """`value` as JSON text; None for what JSON cannot say."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _short(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = f"a deep {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
