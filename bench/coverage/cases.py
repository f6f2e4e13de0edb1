"""Cases: the requests of the data sets, each with the calls that answer it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from specdec.compare.cases import Case, read_cases
from specdec.compare.layouts.chat import calls_of
from specdec.errors import SpecdecError

__all__ = ["DATA_SETS", "SHARED", "Case", "Missing", "calls_of", "load", "spread"]

T = TypeVar("T")

SHARED: Final = Path(
    os.environ.get("SPECDEC_SHARED", Path(__file__).resolve().parents[3] / "shared")
)
"""Where the data sets and tokenizers lie: beside the project, never in it."""

DATA_SETS: Final = ("api_bank", "bfcl", "toolalpaca", "bfcl_multi_turn")


class Missing(SpecdecError):
    """Data or a tokenizer is not there; the message says where it was looked for."""


@lru_cache(maxsize=len(DATA_SETS))
def load(name: str, folder: Path = SHARED / "data") -> tuple[Case, ...]:
    """The cases of a data set, in its own order; each holds at least one call.

    Raises:
        Missing: If the data set's file is not in `folder`.
        RequestError: If it cannot be read.
    """
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        raise Missing(f"no data set {name!r}: there is no file {path}")
    return read_cases(path)


def spread(items: Sequence[T], count: int | None) -> Sequence[T]:
    """`count` of `items` at even distances, in their order; all of them for None."""
    if count is None or count >= len(items):
        return items
    return [items[i * len(items) // count] for i in range(count)]
