"""Memory: bytes that what drafters remember takes."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from specdec_samd import SuffixAutomaton
from specdec_token_recycling import TokenRecycling
from specdec_toolspec import EpisodeMemory

from bench.paper.experiment import Data, Experiment
from bench.paper.lab import Lab
from bench.paper.section import Grid, Section
from specdec import Engine, Episode, FixedBudget, Request
from specdec.compare.cases import Case
from specdec.compare.subject import ReplaySubject

WIDTHS: Final = {0: "none: found by words", 576: "the demo model", 4096: "as of an 8B model"}
"""Numbers in a hidden state, and whose it is."""

COMPARED: Final = 4096
"""The width of the paper's model, Llama-3.1-8B."""

PAPER_BYTES: Final = 4.9e6
PAPER_ENTRIES: Final = 597
"""What the paper's memory of API-Bank takes, and its entries."""

PAPER: Final = (
    f"{PAPER_ENTRIES} entries of API-Bank take {PAPER_BYTES / 1e6:.1f} MB, 0.0082 MB each "
    "(appendix, memory overhead): each input's hidden state and the output's tokens."
)


def measure(lab: Lab) -> Data:
    """The memory filled with API-Bank at each width, and what other drafters keep."""
    cases = lab.cases("API-Bank", None)
    subject = lab.replay(cases, "qwen2_5")
    answered = answers(cases, subject)
    return {
        "episodes": [filled(answered, width) for width in WIDTHS],
        "others": [table(cases, subject), automaton([r.prompt for r, _ in answered])],
    }


Answer = tuple[Request, tuple[int, ...]]
"""A request and the output to remember, without its end token."""


def answers(cases: Sequence[Case], subject: ReplaySubject) -> list[Answer]:
    """What the cases' requests and outputs are in tokens."""
    engine = Engine(subject.target, on_error="raise")
    found = []
    for case in cases:
        request = subject.request(case)
        output = engine.generate(request).tokens
        found.append((request, output[:-1] if output[-1] in request.stop_ids else output))
    return found


def filled(answered: Sequence[Answer], width: int) -> dict[str, Any]:
    """What a memory of these answers takes, with hidden states of a width; 0 for none.

    The numbers in the states do not matter for their size, only that no two are alike.
    """
    noise = np.random.default_rng(0)
    states = noise.standard_normal((len(answered), width), dtype=np.float32)

    def build() -> EpisodeMemory:
        memory = EpisodeMemory(entries=max(len(answered), 1))
        for (request, output), state in zip(answered, states, strict=True):
            assert request.codec is not None
            text = request.codec.decode(output)
            memory.store(Episode(request.prompt, output, state if width else None, text))
        return memory

    memory, held = _allocated(build)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.npz"
        memory.save(path)
        saved = path.stat().st_size
    tokens = sum(len(output) for _, output in answered)
    return {
        "width": width,
        "offered": len(answered),
        "entries": len(memory),
        "tokens_per_output": tokens / max(len(answered), 1),
        "saved": saved,
        "held": held,
    }


def table(cases: Sequence[Case], subject: ReplaySubject) -> dict[str, Any]:
    """What the matrix of Token Recycling takes after these requests."""
    drafter = TokenRecycling()
    engine = Engine(subject.target, drafter, budget=FixedBudget(64), on_error="raise")
    for case in cases:
        engine.generate(subject.request(case))
    size = sum(column.nbytes for table in drafter.state().values() for column in table.values())
    known = subject.target.vocabulary
    return {
        "what": "matrix of `token-recycling`, once for all requests",
        "bytes": size,
        "each": size / known,
        "unit": f"token of a vocabulary of {known:,}",
    }


def automaton(prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What suffix automata of prompts take, each as long as its request is open."""
    sizes = [_allocated(lambda prompt=prompt: SuffixAutomaton(prompt))[1] for prompt in prompts]
    tokens = sum(map(len, prompts))
    return {
        "what": "suffix automaton of `samd`, one per open request (mean)",
        "bytes": sum(sizes) / max(len(sizes), 1),
        "each": sum(sizes) / max(tokens, 1),
        "unit": "token of the prompt",
    }


def _allocated(build: Callable[[], Any]) -> tuple[Any, int]:
    """What `build` makes, and the bytes that stay allocated for it."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = build()
        return made, tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def tell(data: Mapping[str, Data]) -> Section:
    """Bytes per entry beside the paper's, and a table of what else is kept."""
    known = data["memory"]
    theirs = PAPER_BYTES / PAPER_ENTRIES
    lines: list[tuple[Any, ...]] = [
        (
            f"{row['width']:,} ({WIDTHS.get(row['width'], 'other')})"
            if row["width"]
            else WIDTHS[0],
            row["entries"],
            _mega(row["saved"]),
            _kilo(row["saved"] / row["entries"]),
            _mega(row["held"]),
            _kilo(row["held"] / row["entries"]),
        )
        for row in known["episodes"]
    ]
    lines.append(
        (
            "the paper",
            PAPER_ENTRIES,
            "-",
            "-",
            _mega(PAPER_BYTES),
            _kilo(theirs),
        )
    )
    columns = (
        "hidden state, numbers",
        "entries",
        "file",
        "file per entry",
        "in memory",
        "in memory per entry",
    )
    wide = next(row for row in known["episodes"] if row["width"] == COMPARED)
    ours = wide["held"] / wide["entries"]
    lines_of_others = [
        (row["what"], _mega(row["bytes"]), f"{row['each']:.0f} bytes per {row['unit']}")
        for row in known["others"]
    ]
    verdict = "behind the paper" if ours > theirs else "no more than the paper's"
    half = 2 * COMPARED
    return Section(
        found=(
            f"An entry with a hidden state of {COMPARED:,} numbers takes {_kilo(ours)} in memory "
            f"and {_kilo(wide['saved'] / wide['entries'])} on disk, against the paper's "
            f"{_kilo(theirs)}: {ours / theirs:.1f} times as much in memory, {verdict}. "
            f"{wide['offered']} outputs made {wide['entries']} entries."
        ),
        paper=PAPER,
        differs=(
            f"The paper's figure is what {COMPARED:,} numbers in fp16 take, {half:,} bytes, so it "
            "counts little but the hidden state. Here the state is kept in float32, so that recall "
            "is the same everywhere, and beside it a second key made of words, the prompt's last "
            "256 tokens, the output's text, and the indexes. The block of keys doubles when it is "
            "full, so up to half of it is free. An output that is stored again for as good as the "
            "same prompt makes no entry. In memory is what Python and numpy allocate for it."
        ),
        grids=[
            Grid(columns, lines, "The memory of API-Bank's outputs:"),
            Grid(("what", "size", "each"), lines_of_others, "For comparison:"),
        ],
    )


def _mega(size: float) -> str:
    return f"{size / 1e6:.2f} MB"


def _kilo(size: float) -> str:
    return f"{size / 1e3:.1f} kB"


EXPERIMENTS: Final = (Experiment("memory", "Memory per entry", tell, measure),)
