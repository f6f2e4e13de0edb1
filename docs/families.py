"""Writes docs/families.md by building the models of tests/families.py and trying them."""

from __future__ import annotations

import sys
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")
sys.path.insert(0, str(PAGE.parents[1] / "tests"))

import torch  # noqa: E402
import transformers  # noqa: E402
from families import FAMILIES, Family, Outcome, try_out  # noqa: E402

from specdec.hf.compat import WAY_OUT  # noqa: E402

HEAD = """\
# Families of models

What `HFTarget` makes of the decoder-only models of transformers {version}. Every row is a tiny
random model in float64 that was built and tried under each attention that its family has: all rows
of random draft trees against plain passes; greedy output, with honest, mixed and random drafts,
against `model.generate()`, from prompts shorter and longer than its sliding window and on both
sides of the length at which its rotations change; sampled output with the same seed; and a prompt
near the end of its positions. (`make docs` writes this page, and a test tries all of it again.)

- **exact**: the output is that of `model.generate()`, as [Exactness](exactness.md) says.
- **refused**: building the target raises `UnsupportedModel` with this reason, before the first
  token.
- **sdpa**, **eager**: whether transformers has this attention for the family.

A model of no family here is judged by the same rules, and by the comparison of a few rows when its
target is built. Models that also see images are tried with text.

| family | models | sdpa | eager | masks | verdict |
|---|---|---|---|---|---|
"""


def row(family: Family) -> str:
    """One line of the table."""
    outcomes = {attention: try_out(family, attention) for attention in ("sdpa", "eager")}
    offered = ["no" if each.verdict == "none" else "yes" for each in outcomes.values()]
    last = outcomes["eager"]
    cells = (family.name, family.models, *offered, last.masks, verdict(last))
    return f"| {' | '.join(cells)} |"


def verdict(outcome: Outcome) -> str:
    """The verdict, and a refusal's reason without the class that it begins with."""
    if not outcome.reason:
        return outcome.verdict
    _, reason = outcome.reason.removesuffix(f"; {WAY_OUT}").split(" ", 1)
    return f"refused: {reason}"


def page() -> str:
    """The page; a family that the installed transformers lacks is an error."""
    missing = [family.config for family in FAMILIES if not family.known]
    if missing:
        raise SystemExit(f"transformers {transformers.__version__} lacks {', '.join(missing)}")
    return HEAD.format(version=transformers.__version__) + "\n".join(map(row, FAMILIES)) + "\n"


if __name__ == "__main__":
    torch.set_num_threads(1)  # more of them would wait for each other on models this small
    transformers.logging.set_verbosity_error()  # tiny configurations look odd to it
    PAGE.write_text(page(), encoding="utf-8")
