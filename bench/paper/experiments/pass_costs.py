"""Pass costs of models of real shapes with random weights, measured on this machine."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Final

import attrs
import torch

from bench.paper.lab import Lab
from specdec import CostCurve
from specdec.hf import HFTarget
from specdec.hf.shapes import SHAPES, random_model

SPARE: Final = 1.15
"""Memory that a model takes over its weights: its cache, its masks, what a pass computes."""


def curve_of(lab: Lab, shape: str, layers: tuple[int, int] | None = None) -> CostCurve:
    """What passes of a shape cost on this machine, in the lab's dtype.

    Args:
        lab: Keeps the curve.
        shape: One of `specdec.hf.shapes.SHAPES`.
        layers: Measure models of that many layers only, and scale up from them.
    """
    if layers is None:
        return _measured(lab, shape, None)
    few, more = (_measured(lab, shape, count) for count in layers)
    return scaled(few, more, layers, SHAPES[shape]["num_hidden_layers"])


def scaled(few: CostCurve, more: CostCurve, layers: tuple[int, int], all_layers: int) -> CostCurve:
    """The curve of a model of all layers, each of which costs what one measured layer does."""
    seconds = [
        [a + max(b - a, 0.0) / (layers[1] - layers[0]) * (all_layers - layers[0]) for a, b in pairs]
        for pairs in map(zip, few.seconds, more.seconds)
    ]
    label = f"{more.label}, scaled from {layers[0]} and {layers[1]} to {all_layers} layers"
    return attrs.evolve(few, seconds=seconds, label=label)


def _measured(lab: Lab, shape: str, layers: int | None) -> CostCurve:
    dtype = getattr(torch, lab.dtype)
    name = shape if layers is None else f"{shape}-{layers}-layers"
    model = random_model(shape, dtype=dtype, device="cpu", layers=layers)
    try:
        return lab.kept_curve(name, HFTarget(model))
    finally:
        # Before the next one is made: two large ones would not fit.
        del model
        gc.collect()


def missing_memory(count: int, dtype: str) -> str:
    """Why a model of so many parameters cannot be made here; empty if it can."""
    needed = SPARE * count * getattr(torch, dtype).itemsize
    free = _free_memory()
    if free is None or needed <= free:
        return ""
    return f"it takes {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"


def _free_memory() -> float | None:
    """Bytes that can be taken; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        known = dict(line.split(":", 1) for line in lines)
        return 1024.0 * int(known["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
