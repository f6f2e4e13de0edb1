"""Counts: how drafts fared, by source, in the log and for Prometheus."""

from __future__ import annotations

import importlib
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from specdec import Step

log = logging.getLogger("vllm.specdec_vllm")


class Publish(Protocol):
    """Where counts go besides the log."""

    def __call__(self, source: str, drafted: int, accepted: int) -> None:
        """Add to a source's counts."""


class Counts:
    """Tokens drafted and accepted since the last line in the log.

    Args:
        every: Seconds between two lines; 0 for none.
        publish: Is told of every step, too.
        clock: Tells seconds.
    """

    def __init__(
        self, every: float, publish: Publish, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every = every
        self._publish = publish
        self._clock = clock
        self._reset()

    def _reset(self) -> None:
        self._since = self._clock()
        self._drafted: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._calls = 0
        self._seconds = 0.0
        self._longest = 0.0

    def book(self, step: Step) -> None:
        """Count one step; what was drafted but never verified is in none."""
        drafted = Counter(map(step.tree.source, range(len(step.tree))))
        accepted = Counter(map(step.tree.source, step.path))
        self._drafted += drafted
        self._accepted += accepted
        for source, count in drafted.items():
            self._publish(source, count, accepted[source])

    def call(self, seconds: float) -> None:
        """Note how long one call took; when it is time, write the line."""
        self._calls += 1
        self._seconds += seconds
        self._longest = max(self._longest, seconds)
        if self._every and self._clock() - self._since >= self._every:
            self.report()

    def report(self) -> None:
        """Write the line, if anything was drafted, and begin anew."""
        drafted, accepted = self._drafted.total(), self._accepted.total()
        if drafted:
            by_source = ", ".join(
                f"{source} {self._accepted[source]}/{count}"
                for source, count in sorted(self._drafted.items())
            )
            log.info(
                "specdec: accepted %d of %d drafted tokens (%.1f%%): %s; %.2f ms per call, at most "
                "%.1f ms",
                accepted,
                drafted,
                100 * accepted / drafted,
                by_source,
                1000 * self._seconds / max(self._calls, 1),
                1000 * self._longest,
            )
        self._reset()


def publisher() -> Publish:
    """Prometheus counters; where prometheus_client is missing, nothing."""
    try:
        proposed = _counter("specdec:draft_tokens", "Tokens drafted, by drafter.")
        kept = _counter("specdec:accepted_tokens", "Drafted tokens accepted, by drafter.")
    except Exception as error:  # not installed, or its folder cannot be written
        log.debug("specdec counts nothing for Prometheus: %s", error)
        return nowhere

    def publish(source: str, drafted: int, accepted: int) -> None:
        proposed.labels(source).inc(drafted)
        kept.labels(source).inc(accepted)

    return publish


def nowhere(source: str, drafted: int, accepted: int) -> None:
    """Publishes nothing: for workers that do not speak for all."""


def _counter(name: str, about: str) -> Any:  # noqa: ANN401 - prometheus_client is optional
    client = importlib.import_module("prometheus_client")
    # A second engine in one process counts on.
    known = getattr(client.REGISTRY, "_names_to_collectors", {}).get(name)
    return known or client.Counter(name, about, labelnames=("source",))
