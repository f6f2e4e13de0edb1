"""Slot: what may stand in one argument's place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

Kind = Literal["string", "number", "integer", "boolean", "null", "object", "array"]
"""The JSON types."""

KINDS: Final[tuple[Kind, ...]] = (
    "string",
    "number",
    "integer",
    "boolean",
    "null",
    "object",
    "array",
)

TYPE_NAMES: Final[Mapping[str, Kind]] = {
    **{kind: kind for kind in KINDS},
    "str": "string",
    "char": "string",
    "date": "string",
    "datetime": "string",
    "int": "integer",
    "long": "integer",
    "short": "integer",
    "byte": "integer",
    "bigint": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "none": "null",
    "nonetype": "null",
    "dict": "object",
    "hashmap": "object",
    "map": "object",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "arraylist": "array",
}
"""Type names that tool documents use (BFCL, API-Bank, Python, Java), in lower case."""

_GENERIC = re.compile(r"\s*(\w+)\s*[(\[<](.*)[)\]>]\s*\Z", re.DOTALL)


@attrs.frozen
class Property:
    """One named place in an object."""

    name: str
    slot: Slot
    required: bool = False


@attrs.frozen
class Slot:
    """What may stand in one place.

    Constants are kept as JSON text, which hashes and tells 1, 1.0 and true apart.

    Attributes:
        kinds: The JSON types allowed, in the schema's order; empty allows everything.
        choices: The only values allowed, as JSON text; empty means any of `kinds`.
        default: The value assumed when it is left out, as JSON text; None without one.
        properties: Of an object, in the schema's order.
        extra: Whether an object may hold other properties.
        extra_slot: What those must be; None if anything.
        items: What an array holds; None if anything.
    """

    kinds: tuple[Kind, ...] = ()
    choices: tuple[str, ...] = ()
    default: str | None = None
    properties: tuple[Property, ...] = ()
    extra: bool = True
    extra_slot: Slot | None = None
    items: Slot | None = None

    def allows(self, kind: Kind) -> bool:
        """Whether a value of `kind` may stand here; an integer is also a number."""
        return (
            not self.kinds or kind in self.kinds or (kind == "integer" and "number" in self.kinds)
        )

    def at(self, step: str | int) -> Slot:
        """The slot below: a property by name, an item by index; `FREE` where nothing is said."""
        if isinstance(step, int):
            return self.items or FREE
        for item in self.properties:
            if item.name == step:
                return item.slot
        return self.extra_slot or FREE


FREE: Final = Slot()
"""Anything may stand here."""


def named_type(name: str) -> dict[str, Any]:
    """The schema of a type as documents name it: "float", "list(str)", "List[int]".

    An unknown name is kept, as a type that no schema knows.
    """
    match = _GENERIC.match(name)
    head, inside = match.groups() if match else (name, None)
    kind = TYPE_NAMES.get(head.strip().lower())
    if kind is None:
        return {"type": name}
    if kind == "array" and inside and inside.strip().lower() in TYPE_NAMES:
        return {"type": kind, "items": {"type": TYPE_NAMES[inside.strip().lower()]}}
    return {"type": kind}
