"""Report: a comparison's rows, failures, differences and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from specdec.compare.arm import GENERATE, PLAIN, Arm
from specdec.compare.departure import Departure, Explain, departures_of, unexplained
from specdec.compare.failure import Failure, failures_of
from specdec.compare.findings import findings
from specdec.compare.outcome import Outcome, outcome_to
from specdec.compare.row import Row, row_of
from specdec.request import Result


@attrs.frozen
class Report:
    """What a comparison found.

    Attributes:
        settings: What was compared on what, as names and values to print.
        rows: One per arm, the plain ones first.
        failures: Requests that were not answered.
        departures: Outputs that are not the model's own.
        findings: One sentence each on what a reader must not miss.
        outcomes: Every request by every arm.
        replay: Whether the outputs were recorded before, not written by a model now.
        timed: Whether the times mean anything.
    """

    settings: Mapping[str, Any]
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    departures: tuple[Departure, ...]
    findings: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = attrs.field(repr=False)
    replay: bool = False
    timed: bool = True

    @property
    def complete(self) -> bool:
        """Whether every arm answered every request, and only rounding tells outputs apart."""
        return not self.failures and all(d.near_tie for d in self.departures)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values: `rows`, and one line per request and arm."""
        return {
            "version": 1,
            "replay": self.replay,
            **self.settings,
            "rows": [row.to_json() for row in self.rows],
            "findings": list(self.findings),
            "failures": [attrs.asdict(failure) for failure in self.failures],
            "departures": [
                {**attrs.asdict(departure), "near_tie": departure.near_tie}
                for departure in self.departures
            ],
            "requests": [outcome_to(outcome) for outcome in self.outcomes],
        }


def report_of(
    arms: Sequence[Arm],
    outcomes: Sequence[Outcome],
    settings: Mapping[str, Any],
    *,
    explain: Explain = unexplained,
    replay: bool = False,
    timed: bool = True,
) -> Report:
    """The report on these outcomes.

    Args:
        arms: The arms, the plain ones first.
        outcomes: Every request by every arm.
        settings: What to print about the run.
        explain: Margin and noise where two outputs of the request at a place part, if a model can
            tell.
        replay: Whether the outputs were recorded before.
        timed: Whether the times mean anything.
    """
    results: dict[str, dict[int, Result]] = {arm.key: {} for arm in arms}
    failed = dict.fromkeys(results, 0)
    for outcome in outcomes:
        if outcome.result is None:
            failed[outcome.arm] += 1
        else:
            results[outcome.arm][outcome.case] = outcome.result
    plain = [results[name] for name in (GENERATE, PLAIN) if name in results]
    rows = tuple(
        row_of(arm.name, arm.budget, results[arm.key], failed[arm.key], plain, timed=timed)
        for arm in arms
    )
    failures = failures_of(outcomes)
    departures = departures_of(outcomes, plain[0], explain)
    return Report(
        settings,
        rows,
        failures,
        departures,
        findings(rows, failures, timed=timed),
        tuple(outcomes),
        replay,
        timed,
    )
