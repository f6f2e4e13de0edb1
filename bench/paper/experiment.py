"""Experiment: something to measure, and how to tell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from bench.paper.lab import Lab
from bench.paper.section import Section

Data = Any
"""What an experiment measured, as plain values for JSON."""


@attrs.frozen
class Experiment:
    """One experiment of the paper.

    Attributes:
        name: Of its file and, in the document, of its anchor.
        title: Its heading.
        tell: The section, from the data of the experiments in `needs` by their names.
        measure: Measures it; None where other experiments' data tell all of it.
        needs: Names of the experiments whose data it tells of; its own, if it measures.
    """

    name: str
    title: str
    tell: Callable[[Mapping[str, Data]], Section]
    measure: Callable[[Lab], Data] | None = None
    needs: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of all experiments whose data `tell` is given."""
        return self.needs if self.measure is None else (self.name, *self.needs)
