"""Tools and the formats in which models call them."""

from specdec.calls.catalogue import FORMATS
from specdec.calls.compiler import compile_schema, compile_tool
from specdec.calls.cursor import Cursor
from specdec.calls.extract import tools_in_prompt
from specdec.calls.formats import HERMES, PLACEHOLDER, Arguments, Call, CallFormat
from specdec.calls.induce import induce
from specdec.calls.parser import (
    ArgumentDelta,
    CallEnd,
    CallParser,
    CallStart,
    Event,
    TextDelta,
)
from specdec.calls.recognise import recognise, style_of
from specdec.calls.schema import FREE, Property, Slot
from specdec.calls.shown import shown_formats
from specdec.calls.state import CallState, Phase, Scan
from specdec.calls.tools import Tool, load_tools, read_tools
from specdec.calls.turns import assistant_turn
from specdec.calls.values import Values

__all__ = [
    "FORMATS",
    "FREE",
    "HERMES",
    "PLACEHOLDER",
    "ArgumentDelta",
    "Arguments",
    "Call",
    "CallEnd",
    "CallFormat",
    "CallParser",
    "CallStart",
    "CallState",
    "Cursor",
    "Event",
    "Phase",
    "Property",
    "Scan",
    "Slot",
    "TextDelta",
    "Tool",
    "Values",
    "assistant_turn",
    "compile_schema",
    "compile_tool",
    "induce",
    "load_tools",
    "read_tools",
    "recognise",
    "shown_formats",
    "style_of",
    "tools_in_prompt",
]
