"""Row: what one arm did on the requests that it answered, measured against plain decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from specdec.compare.arm import key_of
from specdec.compare.interval import Interval, median, ratio
from specdec.report import Run
from specdec.request import Result


@attrs.frozen
class Row:
    """One arm of a comparison.

    Attributes:
        name: The stack's expression, or the name of a plain arm.
        budget: Nodes per pass, or "measured"; empty where nothing is drafted.
        run: Its results, in the order of the requests.
        cases: (n,) places of the requests that it answered.
        failed: How many requests it did not answer.
        mat: Committed tokens per step.
        speedup: Seconds of the faster plain arm over its own, prompts included; None where times
            mean nothing.
        decode_speedup: The same without the prompts' passes.
        median_speedup: Median over the requests of the speed-up, prompts included.
        median_decode_speedup: The same without the prompts' passes.
        fields: The run's figures as plain values; see `specdec.report.Run.row`.
    """

    name: str
    budget: str
    run: Run
    cases: tuple[int, ...]
    failed: int
    mat: Interval | None
    speedup: Interval | None
    decode_speedup: Interval | None
    median_speedup: Interval | None
    median_decode_speedup: Interval | None
    fields: Mapping[str, Any] = attrs.field(repr=False)

    @property
    def key(self) -> str:
        """The arm's own name among all arms of the comparison."""
        return key_of(self.name, self.budget)

    @property
    def accepted_lengths(self) -> Mapping[int, int]:
        """Steps by the number of drafted tokens that they accepted; the prompts' passes apart."""
        return Counter(n for result in self.run.results for n in result.accepted[1:])

    @property
    def tokens_by_source(self) -> Mapping[str, int]:
        """Emitted tokens by the drafter they came from; "target" for the passes' own."""
        drafted = {name: count.accepted for name, count in self.run.by_source.items()}
        return {"target": self.run.tokens - sum(drafted.values()), **drafted}

    @property
    def nodes_per_step(self) -> float | None:
        """Drafted nodes in a step."""
        nodes = sum(sum(result.nodes[1:]) for result in self.run.results)
        return nodes / self.run.steps if self.run.steps else None

    @property
    def proposed(self) -> int:
        """Nodes verified in all passes."""
        return sum(count.proposed for count in self.run.by_source.values())

    @property
    def accepted(self) -> int:
        """Nodes accepted in all passes."""
        return sum(count.accepted for count in self.run.by_source.values())

    @property
    def drafting(self) -> float | None:
        """Share of the time that went into drafts and what drafters learn from steps."""
        phases = self.run.phases
        return (phases.draft + phases.observe) / phases.total if phases.total else None

    def to_json(self) -> dict[str, Any]:
        """The row as plain values."""
        return {
            **self.fields,
            "budget": self.budget,
            "failed": self.failed,
            "mat_interval": _ends(self.mat),
            "speedup_interval": _ends(self.speedup),
            "decode_speedup_interval": _ends(self.decode_speedup),
            "median_speedup": _value(self.median_speedup),
            "median_speedup_interval": _ends(self.median_speedup),
            "median_decode_speedup": _value(self.median_decode_speedup),
            "median_decode_speedup_interval": _ends(self.median_decode_speedup),
            "nodes_per_step": self.nodes_per_step,
            "phases": attrs.asdict(self.run.phases),
            "accepted_lengths": {str(n): c for n, c in sorted(self.accepted_lengths.items())},
            "tokens_by_source": dict(self.tokens_by_source),
        }


def row_of(
    name: str,
    budget: str,
    results: Mapping[int, Result],
    failed: int,
    plain: Sequence[Mapping[int, Result]],
    *,
    timed: bool,
) -> Row:
    """The row of an arm.

    Args:
        name: The arm's name.
        budget: Its budget.
        results: Its results by the place of the request.
        failed: How many requests it did not answer.
        plain: Results of the plain arms, the one whose tokens count as the model's own first.
            Speed-ups are over the fastest of them, on the requests that all of them answered.
        timed: Whether times mean anything.
    """
    common = sorted(set(results).intersection(*plain))
    own = [results[place] for place in common]
    others = [[arm[place] for place in common] for arm in plain]
    reference = [result.tokens for result in others[0]] if others else None
    run = Run.of(name, own, reference)
    runs = [Run.of("", other) for other in others]
    fields = run.row(runs) if runs else {}
    whole: Gain = (None, None)
    decode: Gain = (None, None)
    if timed and runs and common:
        whole = _gain(others, own, lambda result: result.seconds)
        decode = _gain(others, own, lambda result: result.decode_phases.total)
    mat = ratio([len(r.tokens) - r.prompt_tokens for r in own], [r.steps for r in own])
    return Row(
        name,
        budget,
        run,
        tuple(common),
        failed,
        mat,
        speedup=whole[0],
        decode_speedup=decode[0],
        median_speedup=whole[1],
        median_decode_speedup=decode[1],
        fields=fields,
    )


Gain = tuple[Interval | None, Interval | None]
"""A speed-up over totals, and the median request's."""


def _gain(
    plain: Sequence[Sequence[Result]], own: Sequence[Result], seconds: Callable[[Result], float]
) -> Gain:
    """The speed-up of `own` over the fastest of `plain`."""
    mine = [seconds(result) for result in own]
    theirs = [[seconds(result) for result in arm] for arm in plain]
    faster = min(theirs, key=sum)
    # A single request is compared with what was faster for it.
    best = map(min, zip(*theirs, strict=True))
    ratios = [plainly / spent for plainly, spent in zip(best, mine, strict=True) if spent]
    return ratio(faster, mine), median(ratios)


def _value(interval: Interval | None) -> float | None:
    return None if interval is None else interval.value


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
