"""CallFormat: how a model writes tool calls, as data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs

from specdec.calls.tools import Tool
from specdec.calls.values import Values, kind_of

PLACEHOLDER = re.compile(r"\{(?:id|index|number|name|string|type)\}")
"""What a literal may leave open.

``{id}``: the call's id. ``{index}``, ``{number}``: its place in the turn, from 0 and from 1.
``{name}``: the tool's name once more. Before a value: ``{string}``: whether it is a string,
``{type}``: its JSON type.
"""


@attrs.frozen
class Call:
    """One invocation of a tool, as the model wrote it.

    Attributes:
        name: The tool's name.
        arguments: Its arguments.
        id: What the model called it, where the format has ids.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str = attrs.field(default="", eq=False)


@attrs.frozen
class Arguments:
    """How the arguments of one call are written.

    Attributes:
        open: Before the first argument.
        key_open: Before an argument's name.
        key_close: Between an argument's name and its value.
        value_close: Behind a value. Where it is more than white space, a value ends at it and
            nowhere else; otherwise a value ends as a literal does.
        separator: Between two arguments.
        close: Behind the last argument.
        empty: What stands for no arguments at all; None for `open` and `close`.
        values: How values are written.
        sort: Whether arguments are written in alphabetical order.
    """

    open: str = "{"
    key_open: str = '"'
    key_close: str = '": '
    value_close: str = ""
    separator: str = ", "
    close: str = "}"
    empty: str | None = None
    values: Values = attrs.field(factory=Values)
    sort: bool = False

    @property
    def marked(self) -> bool:
        """Whether a value ends at a mark, as in XML, rather than as a literal does."""
        return bool(self.value_close.strip())

    def write(self, arguments: Mapping[str, Any]) -> str:
        """The text of `arguments`."""
        if not arguments:
            return self.open + self.close if self.empty is None else self.empty
        keys = sorted(arguments, key=lambda key: key.lower()) if self.sort else list(arguments)
        written = (
            self.key_open
            + self.write_key(key)
            + self._key_close(arguments[key])
            + self.values.write(arguments[key])
            + self.value_close
            for key in keys
        )
        return self.open + self.separator.join(written) + self.close

    def write_key(self, key: str) -> str:
        """An argument's name as it stands between `key_open` and `key_close`."""
        if self.marked:
            return key
        if self.key_open.endswith('"'):
            return json.dumps(key, ensure_ascii=self.values.ascii)[1:-1]
        return repr(key)[1:-1] if self.key_open.endswith("'") else key

    def _key_close(self, value: object) -> str:
        kind = kind_of(value)
        return self.key_close.replace("{string}", "true" if kind == "string" else "false").replace(
            "{type}", "number" if kind == "integer" else kind
        )

    @classmethod
    def json(cls, *, indent: int = 0, margin: str = "", compact: bool = False) -> Arguments:
        """Arguments as one JSON object.

        Args:
            indent: Spaces per level; 0 for one line.
            margin: What stands before each of its lines but the first.
            compact: Whether to leave out the spaces behind commas and colons.
        """
        space = "" if compact else " "
        inner = margin + " " * indent
        values = Values(
            item_separator="," + space, key_separator=":" + space, indent=indent, margin=inner
        )
        if indent:
            return cls(
                open="{\n" + inner,
                separator=",\n" + inner,
                close="\n" + margin + "}",
                empty="{}",
                values=values,
            )
        return cls(key_close='":' + space, separator="," + space, values=values)


@attrs.frozen
class CallFormat:
    """How a model writes its calls: literals, and how arguments are written between them.

    A turn is ``block_open call separator call ... block_close``; a call is ``open name between
    arguments close``, or ``open arguments between name close``. Literals may hold the
    placeholders of `PLACEHOLDER`. They say exactly how calls are written; reading is forgiving:
    white space is free, ends may be missing, and a call that is a JSON object may have its keys
    in any order.

    Attributes:
        name: Name of the format.
        open: What stands before the first of name and arguments.
        between: What stands between name and arguments.
        close: What stands behind the last of them.
        separator: What stands between two calls.
        block_open: What stands before the first call.
        block_close: What stands behind the last call.
        after_text: What stands between text and the calls that follow it.
        arguments: How arguments are written.
        name_first: Whether the name stands before the arguments.
        envelope: Whether name and arguments stand in a JSON object ("object") or in text.
        name_key: Key of the name in the object; empty where the name itself is the key.
        arguments_key: Key of the arguments in the object.
        several: Whether one turn may hold several calls.
    """

    name: str
    open: str
    between: str = '", "arguments": '
    close: str = "}"
    separator: str = ""
    block_open: str = ""
    block_close: str = ""
    after_text: str = ""
    arguments: Arguments = attrs.field(factory=Arguments)
    name_first: bool = True
    envelope: Literal["object", "text"] = "object"
    name_key: str = "name"
    arguments_key: str = "arguments"
    several: bool = True

    def render(self, calls: Iterable[Call]) -> str:
        """The text of `calls`, byte for byte as the model writes them; empty for none."""
        written = [self.render_call(call, index) for index, call in enumerate(calls)]
        if not written:
            return ""
        return self.block_open + self.separator.join(written) + self.block_close

    def render_call(self, call: Call, index: int = 0) -> str:
        """The text of one call, the turn's `index`-th, without what stands around calls."""
        name, arguments = self.write_name(call.name), self.arguments.write(call.arguments)
        first, second = (name, arguments) if self.name_first else (arguments, name)
        fill = {
            "{id}": call.id or f"{index + 1:09d}",
            "{index}": str(index),
            "{number}": str(index + 1),
            "{name}": call.name,
        }
        literals = (
            PLACEHOLDER.sub(lambda match: fill.get(match[0], match[0]), literal)
            for literal in (self.open, self.between, self.close)
        )
        before, between, after = literals
        return before + first + between + second + after

    def write_name(self, name: str) -> str:
        """A tool's name as it stands in a call."""
        if self.envelope == "text":
            return name
        return json.dumps(name, ensure_ascii=self.arguments.values.ascii)[1:-1]

    def parse(self, text: str, tools: Sequence[Tool] = ()) -> list[Call]:
        """The complete, well-formed calls in `text`, in order; everything else is passed over.

        Args:
            text: What a model wrote.
            tools: The tools it may call; where strings are written without quotes, their
                schemas tell a string from a number.
        """
        from specdec.calls.parser import CallParser  # the parser needs the formats

        parser = CallParser(self, tools)
        parser.push(text)
        parser.finish()
        return parser.calls


HERMES = CallFormat(
    name="hermes",
    open='<tool_call>\n{"name": "',
    close="}\n</tool_call>",
    separator="\n",
)
"""Qwen 2.5 and 3, Hermes 2 and 3, Granite 4 and the demo model."""
