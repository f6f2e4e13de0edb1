"""A whole comparison: arms, warm-up, measurement, report."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import attrs

from specdec.budget import CostCurve, FixedBudget, MeasuredBudget
from specdec.compare.arm import Arm, plain_arms, stack_arms
from specdec.compare.cases import Case
from specdec.compare.departure import Gap
from specdec.compare.journal import Journal
from specdec.compare.outcome import Outcome
from specdec.compare.report import Report, report_of
from specdec.compare.run import compare
from specdec.compare.subject import Subject
from specdec.interfaces import Budget
from specdec.plugin import PluginInfo
from specdec.replay import modelled

WARM_UP: Final = 8
"""Tokens that every arm writes before anything is timed."""


@attrs.frozen
class Study:
    """What is compared on what.

    Attributes:
        subject: What answers.
        cases: What is asked.
        stacks: The drafters' expressions.
        budgets: Those of every stack.
        settings: What to print about the run, names and values.
        warm: Whether each arm first answers all cases without being counted.
        curve: In a replay without a model, what a pass is taken to cost; None leaves times out.
        hook: Observers; see `specdec.Engine`.
    """

    subject: Subject
    cases: Sequence[Case]
    stacks: Sequence[str]
    budgets: Sequence[Budget]
    settings: Mapping[str, Any]
    warm: bool = False
    curve: CostCurve | None = None
    hook: Any = None

    @property
    def timed(self) -> bool:
        """Whether times mean anything."""
        return not self.subject.replay or self.passes or self.curve is not None

    @property
    def passes(self) -> bool:
        """Whether passes of a model are run."""
        return not self.subject.replay or getattr(self.subject.target, "model", None) is not None

    def run(
        self,
        folder: Path | None = None,
        progress: Callable[[Outcome], None] = lambda _: None,
        ready: Callable[[int], None] = lambda _: None,
        write: Callable[[Report], None] = lambda _: None,
    ) -> Report:
        """Measure and report.

        Args:
            folder: Where to keep what is done, so that an interrupted run can be taken up; None
                keeps nothing. What is kept is removed once the report is written.
            progress: Is told about every outcome.
            ready: Is told how many outcomes there will be, before the first.
            write: Writes the report. If it fails, nothing is lost: the next run reports at once.

        Raises:
            RequestError: If the folder holds an interrupted comparison of other settings.
        """
        arms = self.arms()
        journal = None if folder is None else Journal(folder, self.identity(len(arms)))
        rounds = len(self.cases) * (2 if self.warm else 1)
        ready(rounds * len(arms))
        if self.passes and rounds > (0 if journal is None else journal.rounds):
            self._warm_up()
        outcomes = compare(
            self.cases,
            arms,
            self.subject.request,
            warm=self.warm,
            journal=journal,
            progress=progress,
        )
        report = self.report(arms, outcomes)
        write(report)
        if journal is not None:
            journal.remove()
        return report

    def arms(self) -> list[Arm]:
        """The plain arms, then one for each stack and budget, knowing nothing yet."""
        target = self.subject.target
        return [
            *plain_arms(target, self.subject.generate),
            *stack_arms(target, self.stacks, self.budgets, self.hook),
        ]

    def report(self, arms: Sequence[Arm], outcomes: Sequence[Outcome]) -> Report:
        """The report on these outcomes."""
        if self.curve is not None and not self.passes:
            outcomes = [self._modelled(outcome, self.curve) for outcome in outcomes]

        def explain(place: int, own: tuple[int, ...], other: tuple[int, ...]) -> Gap | None:
            return self.subject.explain(self.cases[place], own, other)

        return report_of(
            arms,
            outcomes,
            self.settings,
            explain=explain,
            replay=self.subject.replay,
            timed=self.timed,
        )

    def identity(self, arms: int) -> dict[str, Any]:
        """What must be the same for an interrupted run to be taken up."""
        asked = hashlib.sha256(repr([attrs.astuple(case) for case in self.cases]).encode())
        curves = [b.curve for b in self.budgets if isinstance(b, MeasuredBudget)]
        costs = hashlib.sha256(repr(curves).encode())
        return {
            **self.settings,
            "arms": arms,
            "asked": asked.hexdigest()[:16],
            "costs": costs.hexdigest()[:16],
        }

    def _modelled(self, outcome: Outcome, curve: CostCurve) -> Outcome:
        if outcome.result is None:
            return outcome
        return attrs.evolve(outcome, result=modelled(outcome.result, outcome.prompt, curve))

    def _warm_up(self) -> None:
        """A few tokens by every arm, with drafters that are thrown away."""
        try:
            request = attrs.evolve(self.subject.request(self.cases[0]), max_new_tokens=WARM_UP)
        except Exception:  # it will be reported when its turn comes
            return
        for arm in self.arms():
            try:
                arm.answer(request)
            except Exception:  # likewise
                continue


def budgets_of(nodes: int | None, curve: CostCurve | None) -> list[Budget]:
    """The budgets of a comparison.

    Args:
        nodes: The fixed number at which MAT and steps are judged; None leaves it out.
        curve: What passes cost, for the budget at which time is judged; None leaves it out.
    """
    fixed: list[Budget] = [] if nodes is None else [FixedBudget(nodes)]
    return fixed if curve is None else [*fixed, MeasuredBudget(curve)]


def versions(plugins: Sequence[PluginInfo]) -> dict[str, str]:
    """The versions that a figure depends on, by distribution."""
    known = {"python": platform.python_version(), "specdec-core": version("specdec-core")}
    known |= {name: version(name) for name in ("torch", "transformers")}
    for plugin in plugins:
        if plugin.distribution and plugin.version and not plugin.error:
            known[plugin.distribution] = plugin.version
    return known
