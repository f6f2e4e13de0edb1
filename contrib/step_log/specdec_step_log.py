"""Writes one JSON line per step to the file named by SPECDEC_STEP_LOG; silent without it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import specdec


@specdec.hookimpl
def on_step(request: specdec.Request, step: specdec.Step) -> None:
    """Append the step's figures; token ids, no text."""
    name = os.environ.get("SPECDEC_STEP_LOG")
    if not name:
        return
    line = {
        "request": request.id,
        "step": step.index,
        "nodes": len(step.tree),
        "accepted": len(step.path),
        "committed": list(step.committed),
        "sources": list(step.sources),
        "forward_ms": round(1000 * step.phases.forward, 3),
        "draft_ms": round(1000 * step.phases.draft, 3),
    }
    with Path(name).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
