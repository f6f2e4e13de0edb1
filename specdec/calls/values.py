"""Values: how one argument's value is written, and how it is read back."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from specdec.calls.schema import FREE, Kind, Slot

Strings = Literal["json", "python", "raw", "bare"]
Scalars = Literal["json", "python"]
Containers = Literal["json", "python", "bare"]

UNREADABLE: Final = object()
"""What `Values.read` gives for text that is no value."""

_BARE_KEY = re.compile(r"([{,]\s*)([^\s:{}\[\],\"]+)\s*:")
_WORDS = {"None": "null", "True": "true", "False": "false"}
_WORD = re.compile(r"\b(?:None|True|False)\b(?!\s*:)")
_FAILURES = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


@attrs.frozen
class Values:
    """How values are written.

    Attributes:
        strings: Of a string argument: a JSON or Python literal, between `quote` marks without
            escapes ("bare"), or as it is ("raw").
        scalars: Of numbers, booleans and null: ``true`` and ``null``, or ``True`` and ``None``.
        containers: Of objects and lists, and of everything in them; "bare" writes keys without
            quotes, sorted, and strings between `quote` marks.
        quote: The mark around bare strings.
        item_separator: Between items of a JSON container on one line.
        key_separator: Between key and value of a JSON object.
        indent: Spaces per level of a JSON container on several lines; 0 for one line.
        margin: What stands before every further line of such a container.
        ascii: Whether JSON escapes what is not ASCII.
        null: What null is outside of JSON and Python containers; None for what `scalars` says.
    """

    strings: Strings = "json"
    scalars: Scalars = "json"
    containers: Containers = "json"
    quote: str = '"'
    item_separator: str = ", "
    key_separator: str = ": "
    indent: int = 0
    margin: str = ""
    ascii: bool = False
    null: str | None = None

    def write(self, value: object) -> str:
        """The text of a value that JSON can say."""
        if isinstance(value, str):
            return self._string(value, self.strings)
        if value is None and self.null is not None:
            return self.null
        if value is None or isinstance(value, bool | int | float):
            return str(value) if self.scalars == "python" else json.dumps(value)
        if self.containers == "python":
            return repr(_plain(value))
        if self.containers == "bare":
            return self._bare(value)
        return self._json(value)

    def _string(self, value: str, how: str) -> str:
        if how == "raw":
            return value
        if how == "bare":
            return self.quote + value + self.quote
        return repr(value) if how == "python" else json.dumps(value, ensure_ascii=self.ascii)

    def _json(self, value: object) -> str:
        text = json.dumps(
            _plain(value),
            ensure_ascii=self.ascii,
            indent=self.indent or None,
            separators=("," if self.indent else self.item_separator, self.key_separator),
        )
        # A newline inside a string is written as two characters, so this finds line ends only.
        return text.replace("\n", "\n" + self.margin) if self.indent else text

    def _bare(self, value: object) -> str:
        if isinstance(value, Mapping):
            keys = sorted(value, key=lambda key: str(key).lower())
            return "{" + ",".join(f"{key}:{self._bare(value[key])}" for key in keys) + "}"
        if isinstance(value, Sequence) and not isinstance(value, str):
            return "[" + ",".join(self._bare(item) for item in value) + "]"
        if isinstance(value, str):
            return self._string(value, "bare")
        return self.null if value is None and self.null is not None else json.dumps(value)

    def read(self, text: str, slot: Slot = FREE, *, string: bool | None = None) -> Any:  # noqa: ANN401
        """The value that `text` writes, in this way or in any other.

        Args:
            text: A complete value.
            slot: What may stand there; decides what raw text means.
            string: Whether the call itself says that the value is a string; None if it is silent.

        Returns:
            The value, or `UNREADABLE`.
        """
        raw = self.strings == "raw"
        if raw and (string or (string is None and slot.kinds == ("string",))):
            return text
        value = self._literal(text)
        if not raw:
            return value
        if value is UNREADABLE or isinstance(value, str):
            return text
        mistaken = slot.allows("string") and not slot.allows(kind_of(value)) and string is None
        return text if mistaken else value

    def _literal(self, text: str) -> Any:  # noqa: ANN401
        stripped = text.strip()
        try:
            return json.loads(stripped)
        except _FAILURES:
            pass
        if len(self.quote) > 1 or self.containers == "bare":
            try:
                return json.loads(_unbare(stripped, self.quote))
            except _FAILURES:
                pass
        try:
            value = ast.literal_eval(stripped)
            json.dumps(value)  # sets, bytes and complex numbers are no arguments
        except _FAILURES:
            return UNREADABLE
        return _plain(value)


def kind_of(value: object) -> Kind:
    """The JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    if value is None:
        return "null"
    return "object" if isinstance(value, Mapping) else "array"


def _plain(value: object) -> Any:  # noqa: ANN401
    """`value` in dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _unbare(text: str, quote: str) -> str:
    """JSON from text with bare keys and with strings between `quote` marks."""
    parts = text.split(quote)
    for index, part in enumerate(parts):
        if index % 2:
            parts[index] = json.dumps(part)
        else:
            words = _WORD.sub(lambda word: _WORDS[word[0]], part)
            parts[index] = _BARE_KEY.sub(r'\1"\2":', words)
    return "".join(parts)
