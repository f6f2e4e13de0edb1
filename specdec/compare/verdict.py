"""Verdict: what a comparison comes to, in one sentence, and what qualifies it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from specdec.compare.interval import Interval
from specdec.compare.report import Report
from specdec.compare.row import Row

Measure = Callable[[Row], Interval | None]


@attrs.frozen
class Verdict:
    """What a comparison comes to.

    Attributes:
        sentence: The best arm, and whether outputs are identical.
        notes: One sentence each on what qualifies it.
        best: The best arm; None where nothing drafted was compared.
    """

    sentence: str
    notes: tuple[str, ...]
    best: Row | None


def verdict(report: Report) -> Verdict:
    """What a report comes to."""
    drafted = [row for row in report.rows if row.budget]
    notes: list[str] = []
    best: Row | None = None
    if not drafted:
        said = "No drafter was compared"
    elif report.timed and (ranked := _ranked(drafted, _decode)):
        best = ranked[0]
        said = _fastest(best, drafted)
        notes += _open(ranked, _decode)
    elif ranked := _ranked(drafted, _mat):
        best = ranked[0]
        said = f"{_key(best)} commits the most tokens per step: {_with_ends(best.mat)}"
        notes += _open(ranked, _mat)
    else:
        said = "No drafter took a step, so there is nothing to rank"
    if not report.timed:
        notes.append(
            "There are no speed-ups and no figures of time: the outputs were recorded before and "
            "no pass of a model was made, so times would mean nothing."
            if report.replay
            else "There are no speed-ups and no figures of time, as no times were taken."
        )
    if best is not None and len(best.run.results) == 1:
        notes.append("One request makes no interval: the figures may be chance.")
    return Verdict(f"{said}; {_outputs(report)}.", tuple(notes), best)


def _fastest(best: Row, drafted: Sequence[Row]) -> str:
    decode, whole = best.decode_speedup, best.speedup
    figures = f"{_with_ends(decode, 'x')} decode-only"
    if whole is not None:
        figures += f" and {_with_ends(whole, 'x')} end to end"
    if decode is not None and decode.value <= 1:
        return (
            f"No drafter is faster than plain decoding; {_key(best)} comes nearest with {figures}"
        )
    if len(drafted) == 1:
        return f"{_key(best)} has a speed-up of {figures}"
    said = f"{_key(best)} is the fastest of {len(drafted)} arms with a speed-up of {figures}"
    other = _ranked(drafted, _whole)
    if other and other[0] is not best:
        said += f", where {_key(other[0])} is ahead with {_with_ends(other[0].speedup, 'x')}"
    return said


def _outputs(report: Report) -> str:
    compared = [row for row in report.rows if row.run.identical is not None]
    count = sum(len(row.run.results) for row in compared)
    own = "those recorded" if report.replay else "the model's own"
    if not count:
        said = "no outputs were compared"
    elif not report.departures:
        said = f"every output is identical to {own}"
    else:
        differ = sum(len(departure.arms) for departure in report.departures)
        beyond = sum(len(d.arms) for d in report.departures if not d.near_tie)
        said = (
            f"{differ:,} of {count:,} outputs {'differs' if differ == 1 else 'differ'} from {own}"
        )
        said += (
            f", {beyond:,} of them by more than rounding is known to explain"
            if beyond
            else ", at a near-tie that rounding alone explains"
        )
    failed = sum(row.failed for row in report.rows)
    missing = "1 answer is" if failed == 1 else f"{failed:,} answers are"
    return f"{said}; {missing} missing because of failures" if failed else said


def _open(ranked: Sequence[Row], measure: Measure) -> list[str]:
    """What the intervals leave open about the first place."""
    best, *others = ranked
    own = measure(best)
    near = []
    for row in others:
        interval = measure(row)
        if own is not None and interval is not None and own.overlaps(interval):
            near.append(_key(row))
    if not near:
        return []
    more = f" and {len(near) - 1} more" if len(near) > 1 else ""
    return [
        f"The first place is not settled by these requests: the interval of {near[0]}{more} "
        f"overlaps that of {_key(best)}."
    ]


def _ranked(rows: Sequence[Row], measure: Measure) -> list[Row]:
    """The rows that have the measure, the greatest first."""

    def value(row: Row) -> float:
        interval = measure(row)
        return -math.inf if interval is None or math.isnan(interval.value) else interval.value

    return sorted((row for row in rows if math.isfinite(value(row))), key=value, reverse=True)


def _key(row: Row) -> str:
    return row.key


def _mat(row: Row) -> Interval | None:
    return row.mat


def _decode(row: Row) -> Interval | None:
    return row.decode_speedup


def _whole(row: Row) -> Interval | None:
    return row.speedup


def _with_ends(interval: Interval | None, unit: str = "") -> str:
    if interval is None:
        return "-"
    if interval.low == interval.high:
        return f"{interval.value:.2f}{unit}"
    return f"{interval.value:.2f}{unit} [{interval.low:.2f}, {interval.high:.2f}]"
