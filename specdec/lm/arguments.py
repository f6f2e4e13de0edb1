"""Arguments: a call's arguments as JSON text, each part handed out as soon as it is certain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from specdec.calls.formats import PLACEHOLDER, CallFormat
from specdec.calls.schema import FREE, Slot
from specdec.calls.values import UNREADABLE, Values
from specdec.lm.prefix import JsonPrefix


def to_json(value: object) -> str:
    """A value as JSON text that can be written as UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(value)
    return text


class _Value(Protocol):
    """One argument's value on its way to JSON."""

    @property
    def closer(self) -> str:
        """What makes a whole value of what was handed out."""

    def push(self, text: str) -> str:
        """What `text`, more of the value as it is written, makes certain."""

    def finish(self) -> str | None:
        """The rest of the value; None where what was handed out is no beginning of it."""


class _Held:
    """A value that shows what it is at its end: written as Python, or raw and of any type."""

    closer = ""

    def __init__(self, values: Values, slot: Slot) -> None:
        self._values = values
        self._slot = slot
        self._written = ""

    def push(self, text: str) -> str:
        self._written += text
        return ""

    def finish(self) -> str | None:
        value = self._values.read(self._written, self._slot)
        return None if value is UNREADABLE else to_json(value)


class _Raw:
    """A string that is written without quotes."""

    closer = '"'

    def __init__(self) -> None:
        self._begun = False

    def push(self, text: str) -> str:
        quote = "" if self._begun else '"'
        self._begun = True
        return quote + to_json(text)[1:-1]

    def finish(self) -> str | None:
        return '"'


class _Json:
    """A value that should be written as JSON; one that is not is read at its end."""

    def __init__(self, values: Values, slot: Slot) -> None:
        self._prefix = JsonPrefix()
        self._held = _Held(values, slot)
        self._out = ""

    @property
    def closer(self) -> str:
        return self._prefix.closer

    def push(self, text: str) -> str:
        self._held.push(text)
        piece = self._prefix.push(text)
        self._out += piece
        return piece

    def finish(self) -> str | None:
        rest = self._prefix.finish()
        if self._prefix.complete:
            return rest
        self._out += rest
        value = self._held.finish()
        if value is None or not value.startswith(self._out):
            return None
        return rest + value[len(self._out) :]


class ArgumentWriter:
    """Writes one call's arguments as a JSON object while the model writes them its own way.

    What `push` and `finish` return, put together, is always JSON that equals the call's arguments.
    Strings come as they are written where they are JSON, or raw in a place where the tool's schema
    allows strings alone; objects and lists in JSON, too. Other values come when they are complete,
    and those of formats that give each value's type with it at the call's end.

    Args:
        form: How the model writes calls; without it, all comes at the call's end.
        slot: What the tool's arguments may be.
    """

    def __init__(self, form: CallFormat | None, slot: Slot = FREE) -> None:
        known = form is not None and not PLACEHOLDER.search(form.arguments.key_close)
        self._form = form if known else None
        self._slot = slot
        self._key: str | None = None
        self._value: _Value | None = None
        self._begun = False  # something of the value was handed out
        self._sent = ""
        self._closer = ""  # of a value that was handed out in part, and wrongly
        self._held = self._form is None

    def push(self, key: str, text: str) -> str:
        """What more of an argument makes certain.

        Args:
            key: The argument.
            text: More of its value, as it is written.
        """
        out = ""
        if key != self._key:
            out = self._end_value()
            self._key, self._value, self._begun = key, self._start(key), False
        if self._held or self._value is None:
            return out
        return out + self._hand_out(self._value.push(text))

    def finish(self, arguments: Mapping[str, Any]) -> str:
        """The rest.

        Args:
            arguments: What the finished call's arguments are.
        """
        out = self._end_value()
        if not self._sent:
            return to_json(dict(arguments))
        seen = json.loads(self._sent + self._closer + "}")
        # What was handed out cannot be taken back, but of two equal keys the last one counts.
        left = {
            key: value
            for key, value in arguments.items()
            if key not in seen or to_json(seen[key]) != to_json(value)
        }
        more = ", " + to_json(left)[1:-1] if left else ""
        return out + self._closer + more + "}"

    def _start(self, key: str) -> _Value | None:
        if self._form is None:
            return None
        arguments, slot = self._form.arguments, self._slot.at(key)
        values = arguments.values
        if not arguments.marked and {values.strings, values.scalars, values.containers} == {"json"}:
            return _Json(values, slot)
        if arguments.marked and values.strings == "raw" and slot.kinds == ("string",):
            return _Raw()
        return _Held(values, slot)

    def _end_value(self) -> str:
        value, self._value = self._value, None
        if self._held or value is None:
            return ""
        rest = value.finish()
        if rest is None:
            # The call's end will tell; nothing behind this can be handed out before.
            self._held = True
            self._closer = value.closer if self._begun else ""
            return ""
        return self._hand_out(rest)

    def _hand_out(self, piece: str) -> str:
        if not piece:
            return ""
        if not self._begun:
            piece = (", " if self._sent else "{") + to_json(self._key) + ": " + piece
            self._begun = True
        self._sent += piece
        return piece
