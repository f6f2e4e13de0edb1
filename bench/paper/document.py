"""The document: sections as Markdown, figures beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from bench.paper.experiment import Experiment
from bench.paper.section import Picture, Section
from specdec.files import replace

INTRODUCTION: Final = """\
# The ToolSpec paper's experiments, repeated

Xia et al., "ToolSpec: Accelerating Tool Calling via Schema-Aware and Retrieval-Augmented
Speculative Decoding", arXiv 2604.13519, measured 7B to 72B models on A100 GPUs. Here the same
experiments run on a model that fits a laptop, SmolLM2-135M-Instruct tuned to call tools
(`specdec-demo-model`), and where no model is needed, as a *replay* of reference calls with real
tokenizers ([replay.md](replay.md)). Absolute times therefore mean nothing beside the paper's; what
can be compared is what a step brings (MAT), which method is ahead, and by how much. EAGLE and other
trained drafters are not compared yet.

`make paper` writes this page (`python -m bench.paper --quick` tries it, `--full` takes all
requests). Counting is the same everywhere ([design.md](design.md#counting)): MAT leaves out the
prompt's own pass and the tokens that it writes, and speed-ups are over the faster of
`model.generate()` and the plain loop. Each stack starts empty and carries what it learns from
request to request. Ranges in brackets are 95 % bootstrap intervals over requests.
"""


def write(
    folder: Path,
    experiments: Iterable[Experiment],
    data: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> Path:
    """Write ``paper.md`` and its figures.

    Args:
        folder: Where; figures go to its ``paper/``.
        experiments: What to tell of; those whose data are missing are named as such.
        data: What was measured, by experiment.
        settings: What every figure depends on.

    Returns:
        The document's path.
    """
    figures = folder / "paper"
    figures.mkdir(parents=True, exist_ok=True)
    parts = [INTRODUCTION, _settings(settings)]
    for experiment in experiments:
        parts.append(f"## {experiment.title}")
        missing = [name for name in experiment.reads if name not in data]
        if missing:
            parts.append(f"Not measured: {', '.join(missing)}.")
            continue
        section = experiment.tell({name: data[name] for name in experiment.reads})
        parts.append(markdown(section))
        for picture in section.pictures:
            _draw(picture, figures)
    path = folder / "paper.md"
    replace(path, "\n\n".join(part.strip() for part in parts) + "\n")
    return path


def markdown(section: Section) -> str:
    """A section's text, tables and figures."""
    parts = []
    if section.replay:
        parts.append("*Replay: outputs were recorded before, or are reference calls.*")
    parts.append(section.found)
    if section.paper:
        parts.append(f"**Paper:** {section.paper}")
    if section.differs:
        parts.append(f"**Differs:** {section.differs}")
    parts += [grid.markdown() for grid in section.grids]
    parts += [f"![{p.caption}](paper/{p.name}.svg)\n\n*{p.caption}*" for p in section.pictures]
    return "\n\n".join(parts)


def _settings(settings: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in settings["versions"].items())
    return (
        f'Measured with scope "{settings["scope"]}", {settings["dtype"]}, '
        f"{settings['threads']} torch threads on {settings['machine']}; {versions}."
    )


def _draw(picture: Picture, folder: Path) -> None:
    path = folder / f"{picture.name}.svg"
    if isinstance(picture.figure, Figure):
        # No date and no random ids, so that the same figures are the same file.
        picture.figure.savefig(path, metadata={"Date": None})
    else:
        replace(path, str(picture.figure))
