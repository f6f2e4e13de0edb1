"""Speed-up by model size: replayed acceptance, and pass costs of models of real shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from matplotlib.figure import Figure

from bench.paper.experiment import Data, Experiment
from bench.paper.experiments.pass_costs import curve_of, missing_memory
from bench.paper.experiments.replayed import BLIND, failures, rows
from bench.paper.experiments.speed import with_interval
from bench.paper.lab import NODES, STACKS, Lab
from bench.paper.results import rows_of
from bench.paper.section import Grid, Picture, Section
from specdec.compare.canvas import axes, canvas, legend, styled
from specdec.compare.palette import GREY, HUES
from specdec.hf.shapes import parameters

MEASURED: Final = {
    "quick": ("qwen2.5-0.5b",),
    "standard": ("qwen2.5-0.5b", "qwen2.5-1.5b"),
    "full": ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b"),
}
"""The shapes whose passes are timed, by scope."""

FEW: Final = (2, 6)
"""Layers of the two models that a quick look scales up from."""

LENGTH: Final = 512
"""Tokens in the cache at which the table says what a pass costs."""

PAPER_LARGE: Final = 3.0
"""ToolSpec's speed-up on Qwen2.5-32B, the most."""

FLAT: Final = "flat cost"

PAPER: Final = (
    f"Up to {PAPER_LARGE:.0f}x on API-Bank with Qwen2.5-32B-Instruct, ahead of PLD, Token "
    "Recycling and SAM-Decoding (table 8); the gain over the best of them grows with the size of "
    "the Qwen2.5 models (figure 12). A100, fp16."
)


def measure(lab: Lab) -> Data:
    """Pass costs of each shape, a replay timed with each, and one at the fixed budget."""
    cases = lab.cases("API-Bank", lab.scope.traces)
    subject = lab.replay(cases, "qwen2_5")
    sizes = []
    for shape in MEASURED[lab.scope.name]:
        size: dict[str, Any] = {"shape": shape, "parameters": parameters(shape)}
        if lack := missing_memory(size["parameters"], lab.dtype):
            sizes.append(size | {"skipped": lack})
            continue
        layers = FEW if lab.scope.name == "quick" else None
        curve = curve_of(lab, shape, layers)
        report = lab.study(f"sizes-{shape}", cases, subject=subject, fixed=False, curve=curve)
        costs = curve.costs(LENGTH, NODES)
        size |= {
            "layers": layers,
            "plain_ms": 1000 * float(costs[0]),
            "wide_ms": 1000 * float(costs[NODES]),
        }
        sizes.append(size | rows(report))
    bound = lab.study("sizes-bound", cases, subject=subject, measured=False)
    return {"sizes": sizes, "bound": rows(bound)}


def gains(data: Data) -> dict[str, dict[str, float]]:
    """Decode-only speed-up by size and stack, then the bound at flat cost."""
    found = {
        size["shape"]: {
            stack: rows_of(size, stack)["measured"]["decode_speedup"] or 0.0 for stack in STACKS
        }
        for size in data["sizes"]
        if "rows" in size
    }
    plain = rows_of(data["bound"], "none")[""]["steps"]
    found[FLAT] = {
        stack: plain / max(rows_of(data["bound"], stack)[str(NODES)]["steps"], 1)
        for stack in STACKS
    }
    return found


def tell(data: Mapping[str, Data]) -> Section:
    """A table of sizes and methods, and the figure."""
    known = data["sizes"]
    by_size = gains(known)
    lines: list[tuple[Any, ...]] = []
    for size in known["sizes"]:
        if "rows" not in size:
            lines.append((size["shape"], _billions(size), *[None] * (3 + len(STACKS))))
            continue
        cells = [rows_of(size, stack)["measured"] for stack in STACKS]
        lines.append(
            (
                size["shape"] + (" (scaled)" if size["layers"] else ""),
                _billions(size),
                f"{size['plain_ms']:.0f}",
                f"{size['wide_ms']:.0f}",
                size["wide_ms"] / size["plain_ms"],
                *(
                    with_interval(c["decode_speedup"], c["decode_speedup_interval"], "x")
                    for c in cells
                ),
            )
        )
    lines.append(
        (f"{FLAT} (bound)", "-", "-", "-", 1.0, *(f"{by_size[FLAT][s]:.2f}x" for s in STACKS))
    )
    columns = (
        "shape",
        "parameters",
        "ms of a plain pass",
        f"ms with {NODES} nodes",
        "ratio",
        *(f"`{stack}`" for stack in STACKS),
    )
    skipped = [f"{s['shape']}: {s['skipped']}" for s in known["sizes"] if "skipped" in s]
    quick = any(size.get("layers") for size in known["sizes"])
    studies = {size["shape"]: size for size in known["sizes"] if "rows" in size}
    return Section(
        found=_found(by_size)
        + (f" Not measured: {'; '.join(skipped)}." if skipped else "")
        + failures(studies),
        paper=PAPER,
        differs=(
            "No model of these sizes was run on the requests: what is accepted comes from a replay "
            "of API-Bank's reference calls with Qwen2.5's tokenizer, the time of each pass from a "
            "model of the shape with random weights, timed on this machine's CPU, and drafting is "
            "as measured. The choice of tokens from logits is left out, and so are the prompts' "
            "passes, although the first draft rides on them. "
            + (
                f"In this quick look models of {FEW[0]} and {FEW[1]} layers were timed and scaled. "
                if quick
                else ""
            )
            + "On a CPU a pass with many nodes costs more than a plain one; on a large GPU it may "
            f"cost the same. The last row is that bound: plain steps over steps at {NODES} nodes, "
            "as if every pass cost the same and drafting nothing. It was not measured on any "
            "GPU. " + BLIND
        ),
        grids=[Grid(columns, lines, "Decode-only speed-up at the measured budget:")],
        pictures=[
            Picture(
                "sizes",
                "Decode-only speed-up by model size, modelled from measured pass costs. Right of "
                "the dashed line is the bound for a device on which every pass costs the same.",
                draw(by_size),
            )
        ],
        replay=True,
    )


def _found(by_size: Mapping[str, Mapping[str, float]]) -> str:
    measured = {size: gain for size, gain in by_size.items() if size != FLAT}
    bound = (
        f"a device with flat cost would give at most {by_size[FLAT]['toolspec']:.1f}x with the "
        "same acceptance"
    )
    if not measured:
        return f"No size was timed; {bound}."
    each = ", ".join(f"{gain['toolspec']:.2f}x on {size}" for size, gain in measured.items())
    text = f"With pass costs measured here `toolspec` decodes at {each}; {bound}."
    leads = {
        size: gain["toolspec"] / max(gain[s] for s in STACKS if s != "toolspec")
        for size, gain in measured.items()
    }
    spelled = ", ".join(f"{100 * (lead - 1):+.0f} % on {size}" for size, lead in leads.items())
    text += f" Over the best other method that is {spelled}"
    if len(leads) > 1:
        first, *_, last = leads.values()
        text += (
            ", which grows with size as in the paper"
            if last > first
            else ", which, unlike in the paper, does not grow with size"
        )
    last_size, last_gain = [*measured.items()][-1]
    if last_gain["toolspec"] < PAPER_LARGE:
        text += f". On {last_size} it is behind the paper's {PAPER_LARGE:.0f}x for 32B on an A100"
    return text + "."


def _billions(size: Mapping[str, Any]) -> str:
    return f"{size['parameters'] / 1e9:.2f}B"


@styled
def draw(by_size: Mapping[str, Mapping[str, float]]) -> Figure:
    """A group of bars for each size, and one for the bound."""
    figure = canvas(3.4)
    ax = axes(figure, left=0.6, top=0.5, width=7.3, height=2.4)
    width = 0.8 / len(STACKS)
    marks = []
    for i, (stack, colour) in enumerate(zip(STACKS, HUES, strict=False)):
        places = [j + (i - (len(STACKS) - 1) / 2) * width for j in range(len(by_size))]
        values = [gain[stack] for gain in by_size.values()]
        bars = ax.bar(places, values, width * 0.92, color=colour)
        ax.bar_label(bars, [f"{value:.1f}" for value in values], padding=2, fontsize=8)
        marks.append((bars, stack))
        bars[-1].set_alpha(0.45)
    ax.axvline(len(by_size) - 1.5, color=GREY, lw=1, ls=(0, (4, 2)))
    ax.axhline(1, color=GREY, lw=1)
    names = [f"{size} (bound)" if size == FLAT else size for size in by_size]
    ax.set_xticks(range(len(by_size)), names)
    ax.set_ylabel("times as fast as plain")
    ax.grid(axis="y")
    legend(figure, marks, columns=len(STACKS))
    return figure


EXPERIMENTS: Final = (Experiment("sizes", "Model size", tell, measure),)
