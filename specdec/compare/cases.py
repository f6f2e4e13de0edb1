"""Cases: the requests of a file, in whatever layout it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from specdec.calls import Tool
from specdec.compare import layouts
from specdec.compare.layouts.bfcl import bfcl_files
from specdec.compare.layouts.case import Case
from specdec.compare.layouts.layout import Layout
from specdec.compare.layouts.record import files_of, keys, records
from specdec.errors import RequestError, did_you_mean

LAYOUTS: Final = tuple(layout.name for layout in layouts.LAYOUTS)
"""The names of the layouts."""

__all__ = ["LAYOUTS", "Case", "bfcl_files", "offered", "read_cases"]


def read_cases(path: Path, *, layout: str | None = None) -> tuple[Case, ...]:
    """The cases in a file, or in a folder that a benchmark publishes.

    Ids are made unique: the second case of a name gets ``#2`` behind it, the third ``#3``.

    Args:
        path: The file or folder.
        layout: One of `LAYOUTS`; None finds it by what the first record looks like.

    Returns:
        (N,) the cases in the order of the file, N >= 1.

    Raises:
        RequestError: If the layout is unknown, or anything in the file cannot be read.
    """
    cases = tuple(_unique((_named(layout) if layout else _found(path)).cases(path)))
    if not cases:
        raise RequestError(f"requests file {path} holds no request")
    return cases


def _named(name: str) -> Layout:
    for layout in layouts.LAYOUTS:
        if layout.name == name:
            return layout
    raise RequestError(
        f"no layout {name!r}{did_you_mean(name, LAYOUTS)}; expected one of {', '.join(LAYOUTS)}"
    )


def _found(path: Path) -> Layout:
    """The layout of the first record that is of any."""
    first = None
    # A benchmark's folder may hold other files too; its layout knows which to read.
    for file in files_of(path):
        sample = records(file)[0]
        for layout in layouts.LAYOUTS:
            if layout.recognises(sample.data):
                return layout
        first = first or sample
    assert first is not None
    known = "; ".join(f"{layout.name}: {layout.expected}" for layout in layouts.LAYOUTS)
    raise RequestError(
        f"{first.where}: an object with {keys(first.data)} is of no known layout; expected one of "
        f"{known}. Bring the requests into the form of the first"
    )


def _unique(cases: Iterator[Case]) -> Iterator[Case]:
    """The cases with ids that differ."""
    counts: dict[str, int] = {}
    for case in cases:
        id = case.id
        while id in counts:
            counts[case.id] += 1
            id = f"{case.id}#{counts[case.id]}"
        counts[id] = 1
        yield case if id == case.id else attrs.evolve(case, id=id)


def offered(case: Case, tools: bool | None = None) -> tuple[Tool, ...]:
    """The tools that the chat template is given.

    Args:
        case: What is asked.
        tools: Whether it is given the case's tools; None gives them unless a system message
            documents all of them already, with descriptions and arguments (as API-Bank's prompts
            do): the template would tell them twice.
    """
    if tools is None:
        told = "\n".join(
            str(message.get("content")) for message in case.messages if message["role"] == "system"
        )
        tools = not all(_documented(tool, told) for tool in case.tools)
    return case.tools if tools else ()


def _documented(tool: Tool, text: str) -> bool:
    """Whether a text says all that is known of a tool; its name alone is often just mentioned."""
    if not tool.description and not tool.parameters.get("properties"):
        return False
    known = (tool.name, tool.description, *(tool.parameters.get("properties") or ()))
    return all(part in text for part in known)
