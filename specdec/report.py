"""Counting, one rule everywhere; see `docs/design.md`, "Counting"."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from specdec.request import Finish, Phases, Request, Result, SourceCount, Step


class Clock:
    """Splits the time of one step into phases."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        return passed


class Ledger:
    """Books the steps of one request and closes them into a Result."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._tokens: list[int] = []
        self._accepted: list[int] = []
        self._nodes: list[int] = []
        self._proposed_by: Counter[str] = Counter()
        self._accepted_by: Counter[str] = Counter()
        self._prompt_tokens = 0
        self._prompt = Phases()
        self._decode = Phases()

    @property
    def passes(self) -> int:
        """Passes booked so far."""
        return len(self._nodes)

    def book(self, step: Step, observe: float) -> None:
        """Count one step; `observe` is the time its observers took, in seconds."""
        self._tokens += step.committed
        self._accepted.append(len(step.path))
        self._nodes.append(len(step.tree))
        sources = [step.tree.source(node) for node in range(len(step.tree))]
        self._proposed_by.update(sources)
        self._accepted_by.update(sources[node] for node in step.path)
        phases = attrs.evolve(step.phases, observe=observe)
        if step.index == 0:
            self._prompt_tokens = len(step.committed)
            self._prompt += phases
        else:
            self._decode += phases

    def close(self, finish: Finish, errors: Sequence[str], ending: float = 0.0) -> Result:
        """The request's result.

        Args:
            finish: Why it ended.
            errors: What went wrong in drafters.
            ending: Seconds that drafters took to take in the result.
        """
        return Result(
            request=self._request.id,
            tokens=tuple(self._tokens),
            finish=finish,
            passes=self.passes,
            prompt_tokens=self._prompt_tokens,
            accepted=tuple(self._accepted),
            nodes=tuple(self._nodes),
            by_source={
                source: SourceCount(count, self._accepted_by[source])
                for source, count in sorted(self._proposed_by.items())
            },
            prompt_phases=self._prompt,
            decode_phases=self._decode + Phases(observe=ending),
            errors=tuple(errors),
        )


@attrs.frozen
class Run:
    """What one drafter did on a list of requests; a row of a comparison.

    Attributes:
        drafter: The stack expression.
        results: One per request, in order.
        seconds: Seconds of all requests, prompts included; what a consumer of the stream did
            between steps is not in it.
        decode_seconds: Seconds after the prompts' passes.
        identical: Requests whose tokens equal plain decoding's; None when not compared.
    """

    drafter: str
    results: tuple[Result, ...]
    seconds: float
    decode_seconds: float
    identical: int | None = None

    @classmethod
    def of(
        cls, drafter: str, results: Iterable[Result], plain: Iterable[Sequence[int]] | None = None
    ) -> Run:
        """The row of these results, compared with the tokens of plain decoding."""
        kept = tuple(results)
        identical = None
        if plain is not None:
            identical = sum(
                r.tokens == tuple(tokens) for r, tokens in zip(kept, plain, strict=True)
            )
        return cls(
            drafter,
            kept,
            sum(r.seconds for r in kept),
            sum(r.decode_phases.total for r in kept),
            identical,
        )

    @property
    def tokens(self) -> int:
        """Emitted tokens."""
        return sum(len(r.tokens) for r in self.results)

    @property
    def passes(self) -> int:
        """Forward passes, prompts included."""
        return sum(r.passes for r in self.results)

    @property
    def steps(self) -> int:
        """Forward passes after the prompts'."""
        return sum(r.steps for r in self.results)

    @property
    def mat(self) -> float:
        """Committed tokens per step over the whole run; NaN without a step."""
        emitted = sum(len(r.tokens) - r.prompt_tokens for r in self.results)
        return emitted / self.steps if self.steps else math.nan

    @property
    def phases(self) -> Phases:
        """Seconds by phase, prompts included."""
        total = Phases()
        for result in self.results:
            total = total + result.prompt_phases + result.decode_phases
        return total

    @property
    def by_source(self) -> Mapping[str, SourceCount]:
        """Nodes proposed and accepted by source."""
        total: dict[str, SourceCount] = {}
        for result in self.results:
            for source, count in result.by_source.items():
                total[source] = total.get(source, SourceCount()) + count
        return total

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of each request, its prompt's pass included."""
        return tuple(result.seconds for result in self.results)

    def row(self, plain: Sequence[Run]) -> dict[str, Any]:
        """The row as plain values for JSON.

        Args:
            plain: Runs without drafts; each speed-up is over the fastest of them.
        """
        seconds = min(run.seconds for run in plain)
        decode_seconds = min(run.decode_seconds for run in plain)
        return {
            "drafter": self.drafter,
            "requests": len(self.results),
            "tokens": self.tokens,
            "passes": self.passes,
            "steps": self.steps,
            "mat": None if math.isnan(self.mat) else self.mat,
            "seconds": self.seconds,
            "decode_seconds": self.decode_seconds,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else None,
            "speedup": seconds / self.seconds if self.seconds else None,
            "decode_speedup": (
                decode_seconds / self.decode_seconds if self.decode_seconds else None
            ),
            "identical": self.identical,
            "by_source": {name: attrs.asdict(count) for name, count in self.by_source.items()},
        }


def parting(one: Sequence[int], other: Sequence[int]) -> int:
    """The first place at which two outputs differ, or the end of the shorter one."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
