"""Names of the dtypes that a model can be loaded in."""

from __future__ import annotations

from typing import Final

DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
"""What may be asked for; "auto" is what the model was saved in."""
