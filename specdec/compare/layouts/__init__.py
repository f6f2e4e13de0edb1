"""Layouts: the forms in which requests are published or logged.

To add one, write a module with a `Layout` and name it here.
"""

from typing import Final

from specdec.compare.layouts import api_bank, bfcl, openai, toolalpaca, toolbench, uniform
from specdec.compare.layouts.case import Case
from specdec.compare.layouts.layout import Layout

LAYOUTS: Final[tuple[Layout, ...]] = (
    uniform.LAYOUT,
    openai.LAYOUT,
    bfcl.LAYOUT,
    toolalpaca.LAYOUT,
    api_bank.LAYOUT,
    toolbench.LAYOUT,
)
"""Every layout; a record is of one of them at most."""

__all__ = ["LAYOUTS", "Case", "Layout"]
