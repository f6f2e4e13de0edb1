"""The schema machine: what a tool call can go on with, from its tools' schemas and its format."""

from __future__ import annotations

from specdec_toolspec.schema.machine import SchemaMachine
from specdec_toolspec.schema.state import SchemaState

__all__ = ["SchemaMachine", "SchemaState"]
