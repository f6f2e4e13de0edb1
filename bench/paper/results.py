"""Results: what is kept of a comparison, as the records that figures are told from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.paper.lab import NODES
from specdec.compare.arm import GENERATE, MEASURED, PLAIN, key_of
from specdec.compare.outcome import outcome_from
from specdec.compare.row import Row
from specdec.report import Run
from specdec.request import Result

__all__ = ["GENERATE", "PLAIN", "committed", "results_of", "row_at", "rows_at", "rows_of"]


def results_of(report: Mapping[str, Any]) -> dict[str, dict[int, Result]]:
    """What every arm answered.

    Args:
        report: A report's JSON.

    Returns:
        Results by the arm's key and the place of the request; those that failed are left out.
    """
    found: dict[str, dict[int, Result]] = {
        key_of(row["drafter"], row["budget"]): {} for row in report["rows"]
    }
    for outcome in map(outcome_from, report["requests"]):
        if outcome.result is not None:
            found[outcome.arm][outcome.case] = outcome.result
    return found


def rows_at(report: Mapping[str, Any], stacks: Sequence[str], *, measured: bool) -> list[Row]:
    """One row per stack, with its results and without figures against plain decoding.

    Args:
        report: A report's JSON.
        stacks: Expressions and names of plain arms; those that the report lacks are left out.
        measured: Whether to take the measured budget, at which time is judged, or the fixed one.
    """
    results = results_of(report)
    rows = []
    for stack in stacks:
        for budget in ("", MEASURED if measured else str(NODES)):
            found = results.get(key_of(stack, budget))
            if found is None:
                continue
            run = Run.of(stack, found.values())
            cases = tuple(found)
            rows.append(Row(stack, budget, run, cases, 0, None, None, None, None, None, {}))
    return rows


def rows_of(report: Mapping[str, Any], stack: str) -> Mapping[str, Mapping[str, Any]]:
    """The JSON rows of a stack by their budgets; "" is the budget of a plain arm.

    Args:
        report: A report's JSON.
        stack: Its expression, or a plain arm's name.
    """
    return {row["budget"]: row for row in report["rows"] if row["drafter"] == stack}


def row_at(report: Mapping[str, Any], stack: str, *, measured: bool) -> Mapping[str, Any]:
    """The JSON row of a stack, or of a plain arm.

    Args:
        report: A report's JSON.
        stack: Its expression.
        measured: Whether to take the measured budget or the fixed one.
    """
    found = rows_of(report, stack)
    budget = MEASURED if measured else str(NODES)
    if not found.keys() & {"", budget}:
        raise KeyError(f"no row {stack!r} at the budget {budget}, only at {', '.join(found)}")
    return found[""] if "" in found else found[budget]


def committed(result: Result) -> tuple[int, ...]:
    """(passes,) tokens that each pass added to the output, the prompt's first."""
    counts = [accepted + 1 for accepted in result.accepted]
    if counts:
        # A pass that ends inside the draft adds no token of the model's own.
        counts[-1] -= sum(counts) - len(result.tokens)
    return tuple(counts)
