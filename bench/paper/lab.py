"""Lab: the models, data and means of measuring that experiments share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import attrs

from bench.coverage.cases import SHARED, Missing, spread
from specdec import CostCurve, measure_costs
from specdec.compare.cases import Case, read_cases
from specdec.compare.journal import JournalError, drop
from specdec.compare.outcome import Outcome
from specdec.compare.report import Report
from specdec.compare.study import Study, budgets_of, versions
from specdec.compare.subject import ModelSubject, ReplaySubject, Subject
from specdec.files import replace
from specdec.hf import HFTarget
from specdec.registry import default_registry

NODES: Final = 64
"""The fixed budget at which MAT and steps are judged."""

MOST: Final = 160
"""The most new tokens per request."""

STACKS: Final = ("pld", "token-recycling", "samd", "toolspec")
"""The paper's training-free methods; plain decoding is always among the arms."""

DATA_SETS: Final = {
    "API-Bank": "api_bank",
    "ToolAlpaca": "toolalpaca",
    "BFCLv2": "bfcl",
    "ToolBench": "toolbench",
}
"""The paper's data sets, and the files that hold them."""


@attrs.frozen
class Scope:
    """How much is measured.

    Attributes:
        name: "quick", "standard" or "full".
        requests: Of each data set; None for all.
        traces: The same where no model runs.
    """

    name: str
    requests: int | None
    traces: int | None


SCOPES: Final = {
    "quick": Scope("quick", 4, 8),
    "standard": Scope("standard", 30, 150),
    "full": Scope("full", None, None),
}


@attrs.define
class Lab:
    """What experiments draw on.

    Attributes:
        folder: Where measurements are kept.
        scope: How much is measured.
        dtype: Of the demo model.
        threads: torch threads.
        progress: Is told about every outcome of a study.
        ready: Is told how many outcomes a study will have.
    """

    folder: Path
    scope: Scope
    dtype: str = "bfloat16"
    threads: int = 1
    progress: Callable[[Outcome], None] = lambda _: None
    ready: Callable[[int], None] = lambda _: None

    @property
    def settings(self) -> dict[str, Any]:
        """What every figure depends on."""
        return {
            "scope": self.scope.name,
            "dtype": self.dtype,
            "threads": self.threads,
            "versions": versions(default_registry().plugins),
        }

    @cached_property
    def target(self) -> HFTarget:
        """The demo model as it ships."""
        return self.target_at(1.0)

    def target_at(self, strength: float) -> HFTarget:
        """The demo model with its adapter at a share of its strength; 0 is the base model."""
        import specdec_demo_model
        import torch

        kind = getattr(torch, self.dtype)
        if strength == 1.0:
            return HFTarget(*specdec_demo_model.load(dtype=kind))
        # Used once, so not kept in the cache, where each takes half a gigabyte.
        return HFTarget(*specdec_demo_model.load(dtype=kind, strength=strength, cache=False))

    @cached_property
    def curve(self) -> CostCurve:
        """What passes of the demo model cost, measured once."""
        return self.kept_curve("demo", self.target)

    def kept_curve(self, name: str, target: Any) -> CostCurve:
        """What passes of a target cost, measured once and kept under a name."""
        path = self.folder / f"costs-{name}.json"
        if path.exists() and CostCurve.load(path).label == target.label:
            return CostCurve.load(path)
        curve = measure_costs(target)
        curve.save(path)
        return curve

    def cases(self, name: str, count: int | None) -> Sequence[Case]:
        """Requests of a data set of the paper, evenly spread.

        Args:
            name: One of `DATA_SETS`. Of BFCLv2, those that the demo model was not trained on.
            count: How many; None for all.

        Raises:
            Missing: If its file is not there.
        """
        return spread(_all_cases(name), count)

    def study(
        self,
        name: str,
        cases: Sequence[Case],
        stacks: Sequence[str] = STACKS,
        *,
        subject: Subject | None = None,
        fixed: bool = True,
        measured: bool = True,
        warm: bool = False,
        curve: CostCurve | None = None,
    ) -> Mapping[str, Any]:
        """Compare stacks on cases; an interrupted study goes on, a finished one is only read.

        Args:
            name: Of the study among all of the lab's.
            cases: What is asked.
            stacks: Expressions.
            subject: What answers; the demo model by default.
            fixed: Whether each stack has an arm at the fixed budget.
            measured: Whether each stack has an arm at the measured budget.
            warm: Whether a lap that does not count goes before.
            curve: What passes cost; the demo model's by default. In a replay, also the time.

        Returns:
            The report as plain values; see `specdec.compare.report.Report.to_json`.
        """
        if subject is None:
            subject, curve = ModelSubject(self.target, MOST), self.curve
        study = Study(
            subject,
            cases,
            stacks,
            budgets_of(NODES if fixed else None, curve if measured else None),
            {"study": name, "target": subject.label, **self.settings},
            warm=warm,
            curve=curve,
        )
        identity = study.identity(len(study.arms()))
        kept = self._read(f"{name}/report.json")
        if kept is not None and kept["identity"] == identity:
            found: Mapping[str, Any] = kept["report"]
            return found

        def write(report: Report) -> None:
            kept = {"identity": identity, "report": report.to_json()}
            self._write(f"{name}/report.json", kept)

        try:
            report = study.run(self.folder / name, self.progress, self.ready, write)
        except JournalError:  # of other requests, versions or costs: measured anew
            drop(self.folder / name)
            report = study.run(self.folder / name, self.progress, self.ready, write)
        return report.to_json()

    def replay(self, cases: Sequence[Case], tokenizer: str) -> ReplaySubject:
        """The cases' reference calls, to be written again with a real tokenizer.

        Args:
            cases: What will be asked.
            tokenizer: A folder beside the data sets.
        """
        return ReplaySubject(cases, _tokenizer(tokenizer), MOST)

    def keep(self, name: str, data: Any) -> None:
        """Keep what an experiment measured."""
        self._write(f"{name}.json", {"settings": self.settings, "data": data})

    def kept(self, name: str) -> Any:
        """What an experiment measured with these settings; None if it did not yet."""
        found = self._read(f"{name}.json")
        return found["data"] if found is not None and found["settings"] == self.settings else None

    def _write(self, name: str, value: Any) -> None:
        replace(self.folder / name, json.dumps(value, allow_nan=False) + "\n")

    def _read(self, name: str) -> Any:
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


@lru_cache(maxsize=len(DATA_SETS))
def _all_cases(name: str) -> tuple[Case, ...]:
    path = SHARED / "data" / f"{DATA_SETS[name]}.jsonl"
    if not path.is_file():
        raise Missing(f"no data set {name!r}: there is no file {path}")
    cases = read_cases(path)
    if name != "BFCLv2":
        return cases
    held_out = set(json.loads((SHARED / "data" / "bfcl_heldout_ids.json").read_text()))
    return tuple(
        case
        for case in cases
        if case.split in ("live_simple", "live_multiple")
        and case.id.removeprefix("bfcl-") in held_out
    )


def _tokenizer(name: str) -> Any:
    from specdec.hf.loading import load_tokenizer

    folder = SHARED / "tokenizers" / name
    if not folder.is_dir():
        raise Missing(f"no tokenizer {name!r}: there is no folder {folder}")
    return load_tokenizer(folder)
