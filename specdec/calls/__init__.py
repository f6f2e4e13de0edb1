"""Tools and the formats in which models call them."""

from specdec.calls.formats import HERMES, Call, CallFormat
from specdec.calls.tools import Tool, load_tools, read_tools

__all__ = ["HERMES", "Call", "CallFormat", "Tool", "load_tools", "read_tools"]
