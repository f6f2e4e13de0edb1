"""Format adherence against speed-up: the same model, made to follow call formats more or less."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from bench.paper.experiment import Data, Experiment
from bench.paper.experiments.speed import with_interval
from bench.paper.lab import DATA_SETS, MOST, Lab
from bench.paper.results import GENERATE, results_of, row_at
from bench.paper.section import Grid, Picture, Section
from specdec.compare.canvas import axes, canvas, styled
from specdec.compare.palette import HUES
from specdec.compare.subject import ModelSubject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA_SET: Final = "API-Bank"
STRENGTHS: Final = (0.0, 0.125, 0.25, 0.375, 0.5, 1.0)
"""Shares of the demo model's adapter; 0 is the base model, which was not tuned to call tools.

From a half on, the form hardly changes any more.
"""

COUNTS: Final = {"quick": 2, "standard": 6, "full": None}
"""Requests per strength by scope."""

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
PAPER_PEARSON: Final = 0.90
PAPER: Final = (
    "across models on API-Bank, strict adherence (the output is valid JSON and nothing besides) "
    "and ToolSpec's speed-up correlate, Pearson about 0.90; Llama-3.1-8B-Instruct has the highest, "
    "0.997, with 4.45x. Llama-Instruct and Qwen2.5-Instruct all exceed 99 % by the looser rule "
    "that the output can be read as JSON."
)


def adheres(text: str) -> bool:
    """Whether an output is calls as API-Bank's prompts demand them, and nothing else.

    That is one or more blocks of `OPEN`, JSON objects with ``name`` and ``parameters``, `CLOSE`;
    white space between them is free.

    Args:
        text: The output without its end token.
    """
    decoder = json.JSONDecoder()
    rest = text.strip()
    if not rest:
        return False
    while rest:
        if not rest.startswith(OPEN):
            return False
        rest = rest.removeprefix(OPEN).lstrip()
        calls = 0
        while not rest.startswith(CLOSE):
            try:
                call, end = decoder.raw_decode(rest)
            except (ValueError, RecursionError):
                return False
            if not _is_call(call):
                return False
            calls, rest = calls + 1, rest[end:].lstrip()
        if not calls:
            return False
        rest = rest.removeprefix(CLOSE).lstrip()
    return True


def _is_call(data: object) -> bool:
    return (
        isinstance(data, dict)
        and data.keys() == {"name", "parameters"}
        and isinstance(data["name"], str)
        and isinstance(data["parameters"], dict)
    )


def measure(lab: Lab) -> Data:
    """Plain decoding and `toolspec` at every strength; one model at a time is in memory."""
    cases = lab.cases(DATA_SET, COUNTS[lab.scope.name])
    found = {}
    for strength in STRENGTHS:
        # Costs depend on shapes alone, and those are the same at every strength.
        target = lab.target_at(strength)
        curve = lab.kept_curve("demo", target)
        subject = ModelSubject(target, MOST)
        name = f"adherence-{DATA_SETS[DATA_SET]}-{strength}"
        report = lab.study(name, cases, ("toolspec",), subject=subject, curve=curve)
        codec = target.codec
        assert codec is not None  # the demo model has a tokenizer
        results = results_of(report)[GENERATE].values()
        texts = {r.request: codec.decode(without_end(r.tokens, r.finish)) for r in results}
        found[str(strength)] = {"report": report, "texts": texts}
        del target, subject, codec
        gc.collect()
    return found


def without_end(tokens: Sequence[int], finish: str) -> Sequence[int]:
    """Output tokens without the end token, if one ended them."""
    return tokens[:-1] if finish == "stop_id" else tokens


@attrs.frozen
class Point:
    """One strength.

    Attributes:
        strength: Share of the adapter.
        adherence: Share of outputs that adhere.
        requests: How many outputs there are.
        tokens: Mean length of an output.
        fixed: The row of `toolspec` at the fixed budget.
        timed: The same at the measured budget.
    """

    strength: float
    adherence: float
    requests: int
    tokens: float
    fixed: Mapping[str, Any]
    timed: Mapping[str, Any]


def points(data: Mapping[str, Any]) -> list[Point]:
    """One point per strength, the base model first."""
    found = []
    for strength, kept in data.items():
        texts = list(kept["texts"].values())
        plain = row_at(kept["report"], GENERATE, measured=False)
        found.append(
            Point(
                float(strength),
                fmean(map(adheres, texts)) if texts else 0.0,
                len(texts),
                plain["tokens"] / max(plain["requests"], 1),
                row_at(kept["report"], "toolspec", measured=False),
                row_at(kept["report"], "toolspec", measured=True),
            )
        )
    return sorted(found, key=lambda point: point.strength)


def pearson(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's correlation; None for fewer than three points, or where one side is constant."""
    if len(xs) < 3 or np.std(xs) == 0 or np.std(ys) == 0:
        return None
    return float(np.corrcoef(xs, ys)[0, 1])


def tell(data: Mapping[str, Data]) -> Section:
    """One row and one point per strength."""
    found = points(data["adherence"])
    rows = [
        (
            f"{point.strength:g}",
            f"{100 * point.adherence:.1f} % of {point.requests}",
            f"{point.tokens:.0f}",
            with_interval(point.fixed["mat"], point.fixed["mat_interval"]),
            with_interval(point.timed["speedup"], point.timed["speedup_interval"], "x"),
            with_interval(
                point.timed["decode_speedup"], point.timed["decode_speedup_interval"], "x"
            ),
        )
        for point in found
    ]
    columns = (
        "adapter's strength",
        "adherence",
        "tokens of an output",
        "MAT at 64 nodes",
        "speed-up",
        "decode only",
    )
    return Section(
        found=_found(found),
        paper=PAPER,
        differs=(
            "The paper compares models; here one model's adapter is merged at "
            f"{len(found)} strengths, so size and vocabulary stay the same, and the points are few "
            "and not independent. Adherence is as strict as the paper's, except that the "
            f"`{OPEN}` tags are part of the form, because these prompts demand them: calls in "
            "tags, JSON with `name` and `parameters` inside, nothing else. Speed-ups of the "
            "correlation are without the prompt's pass, whose share depends on how long outputs "
            "are."
        ),
        grids=[Grid(columns, rows)],
        pictures=[
            Picture(
                "adherence",
                f"Adherence and speed-up of `toolspec` on {DATA_SET} (decode only, 95 % "
                "intervals), one point per strength of the adapter.",
                draw(found),
            )
        ],
    )


def _found(found: Sequence[Point]) -> str:
    adherence = [point.adherence for point in found]
    gains = [point.timed["decode_speedup"] or 0.0 for point in found]
    mats = [point.fixed["mat"] or 0.0 for point in found]
    values = {"speed-up": pearson(adherence, gains), "MAT": pearson(adherence, mats)}
    low, high = found[0], found[-1]
    text = (
        f"From the base model to the demo model, adherence goes from {100 * low.adherence:.1f} % "
        f"to {100 * high.adherence:.1f} % and the speed-up of `toolspec` (decode only) from "
        f"{gains[0]:.2f} to {gains[-1]:.2f}. "
    )
    if values["speed-up"] is None:
        return text + "Adherence or speed-up does not vary, so there is no correlation to speak of."
    said = " and ".join(f"{value:.2f} with {name}" for name, value in values.items() if value)
    side = "as high as" if values["speed-up"] >= PAPER_PEARSON else "below"
    text += f"Over {len(found)} strengths, Pearson is {said}, {side} the paper's 0.90"
    if high.adherence < 0.99:
        text += "; even the demo model adheres less than the paper's models"
    return text + "."


@styled
def draw(found: Sequence[Point]) -> Figure:
    """Points with intervals."""
    figure = canvas(3.2)
    ax = axes(figure, left=0.6, top=0.1, width=7.4, height=2.6)
    for number, point in enumerate(found):
        gain = point.timed["decode_speedup"]
        if gain is None:
            continue
        low, high = point.timed["decode_speedup_interval"] or (gain, gain)
        errors = [[max(gain - low, 0)], [max(high - gain, 0)]]
        place = 100 * point.adherence
        ax.errorbar(place, gain, errors, color=HUES[0], marker="o", capsize=2)
        ax.annotate(
            f"{point.strength:g}",
            (place, gain),
            (-6, 4) if number % 2 else (6, 4),  # neighbours often share their place
            textcoords="offset points",
            ha="right" if number % 2 else "left",
        )
    ax.set_xlim(-4, 106)
    ax.set_ylim(bottom=0)
    ax.grid()
    ax.set_xlabel("outputs that adhere to the form, %")
    ax.set_ylabel("speed-up, decode only")
    return figure


EXPERIMENTS: Final = (Experiment("adherence", "Format adherence and speed-up", tell, measure),)
