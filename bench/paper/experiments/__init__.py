"""The experiments, in the order of the document."""

from __future__ import annotations

from typing import Final

from bench.paper.experiment import Experiment
from bench.paper.experiments import (
    ablation,
    accuracy,
    adherence,
    cases,
    first_steps,
    lengths,
    lengths_of_drafts,
    memory,
    neighbours,
    phases,
    repeated,
    replayed,
    sizes,
    speed,
    statistics,
    tools_time,
)

EXPERIMENTS: Final[tuple[Experiment, ...]] = (
    *speed.EXPERIMENTS,
    *first_steps.EXPERIMENTS,
    *repeated.EXPERIMENTS,
    *lengths.EXPERIMENTS,
    *ablation.EXPERIMENTS,
    *adherence.EXPERIMENTS,
    *phases.EXPERIMENTS,
    *accuracy.EXPERIMENTS,
    *tools_time.EXPERIMENTS,
    *statistics.EXPERIMENTS,
    *replayed.EXPERIMENTS,
    *sizes.EXPERIMENTS,
    *lengths_of_drafts.EXPERIMENTS,
    *neighbours.EXPERIMENTS,
    *memory.EXPERIMENTS,
    *cases.EXPERIMENTS,
)
