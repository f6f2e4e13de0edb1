"""Findings: what a reader of a comparison must not miss, one sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from specdec.compare.failure import Failure
from specdec.compare.row import Row

JUNK: Final = 0.01
"""A drafter of whose nodes fewer are accepted than this share is called out."""

SLOW: Final = 0.25
"""A drafter that takes a greater share of the time than this is called out."""

FEW: Final = 100
"""Nodes below which a share of accepted ones says nothing."""


def findings(
    rows: Sequence[Row], failures: Sequence[Failure], *, timed: bool = True
) -> tuple[str, ...]:
    """What stands out: drafters that fail, that propose junk, that are slow, that do not pay.

    Args:
        rows: One per arm.
        failures: What was not answered.
        timed: Whether the times mean anything.
    """
    found: list[str] = []
    for row in rows:
        key = row.key
        found += _failed(row, [failure for failure in failures if key in failure.arms], key)
        if row.budget and row.run.results:
            found += _about(row, key, timed=timed)
    return tuple(found)


def _failed(row: Row, failures: Sequence[Failure], key: str) -> Iterable[str]:
    if row.failed:
        count = row.failed + len(row.run.results)
        kinds = {failure.error for failure in failures}
        more = f" (and {len(kinds) - 1} other errors)" if len(kinds) > 1 else ""
        yield f"{key} failed on {row.failed} of {count} requests: {failures[0].error}{more}"


def _about(row: Row, key: str, *, timed: bool) -> Iterable[str]:
    if not row.proposed:
        yield f"{key} drafted nothing: no pass carried a node of it"
    elif row.proposed >= FEW and row.accepted < JUNK * row.proposed:
        yield (
            f"{key} proposes junk: {row.accepted} of its {row.proposed} verified nodes "
            "were accepted"
        )
    if timed and row.drafting is not None and row.drafting > SLOW:
        seconds = row.run.phases.draft + row.run.phases.observe
        yield (
            f"{key} is slow: {100 * row.drafting:.0f} % of its time goes into making drafts and "
            f"learning from them, {1000 * seconds / max(row.run.passes, 1):.1f} ms per pass"
        )
    if row.speedup is not None and row.speedup.high < 1:
        yield f"{key} is slower than plain decoding: {row.speedup.value:.2f}x, prompts included"
