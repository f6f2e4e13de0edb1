"""Checks of a drafter in the engine: same output, whatever cuts a request short."""

from __future__ import annotations

import statistics
import time
from typing import Any

import attrs

from specdec.engine import Engine
from specdec.interfaces import Drafter
from specdec.request import Request, Sampling
from specdec.testing.cases import cases, long_case
from specdec.testing.checks import Factory, during, fail_unless
from specdec.testing.replay import ROOMY, Recording, play, recordings, tell


def output_is_unchanged(factory: Factory) -> None:
    """The engine writes with this drafter what the oracle writes alone, greedy and sampled."""
    drafter = factory()
    for given in cases(long=True):
        for request in (
            given.request,
            attrs.evolve(given.request, sampling=Sampling(temperature=0.4, seed=7)),
        ):
            with during(f"the prompt {given.name!r}"):
                result = Engine(given.target, drafter, on_error="raise").generate(request)
            fail_unless(
                result.tokens == given.target.plain(request),
                f"{drafter!r} changed the output of {given.name!r}; does it change its arguments?",
            )


def survives_being_cut_off(factory: Factory) -> None:
    """It goes on after steps without drafts, stops inside a path and a missing finish."""
    drafter = factory()
    for recording in recordings(drafter.needs.top_k, plain=True):
        with during(f"steps without a draft for {recording.request.id!r}"):
            play(drafter.start(recording.request), recording)
    for recording in recordings(drafter.needs.top_k):
        with during(f"a stop inside a path for {recording.request.id!r}"):
            _cut(drafter, recording)
    for given in cases():
        engine = Engine(given.target, drafter, on_error="raise")
        plain = given.target.plain(given.request)
        with during(f"an abandoned {given.name!r}"):
            stream = engine.stream(given.request)
            next(stream)
            stream.close()
        changes: list[dict[str, Any]] = [{"stop_ids": {token}} for token in plain[1:6]]
        for change in (*changes, {"max_new_tokens": 0}, {"max_new_tokens": 1}):
            request: Request = attrs.evolve(given.request, **change)
            with during(f"{given.name!r} and {change}"):
                tokens = engine.generate(request).tokens
            fail_unless(
                tokens == given.target.plain(request),
                f"{drafter!r} changed the output of {given.name!r} with {change}",
            )


def is_quick(factory: Factory) -> str:
    """Says what a draft and an observation cost behind 4,096 tokens; never fails."""
    drafter, given = factory(), long_case()
    recording = next(
        r for r in recordings(drafter.needs.top_k, long=True) if r.request.id == given.name
    )
    begun = time.perf_counter()
    session = drafter.start(recording.request)
    opened = time.perf_counter() - begun
    drafting, observing = [], []
    for step in range(len(recording.steps)):
        tokens = recording.tokens(step)
        begun = time.perf_counter()
        session.propose(tokens, ROOMY)
        asked = time.perf_counter()
        tell(session, recording, step, step + 1)
        drafting.append(asked - begun)
        observing.append(time.perf_counter() - asked)
    return (
        f"{statistics.median(drafting) * 1e6:.0f} us per draft, "
        f"{statistics.median(observing) * 1e6:.0f} us per observation, "
        f"{opened * 1e6:.0f} us to start, behind {len(given.request.prompt):,} tokens"
    )


def _cut(drafter: Drafter, recording: Recording) -> None:
    """Stop inside the first long path, ask once more, and leave without a finish."""
    for step in recording.steps:
        if len(step.path) < 2:
            continue
        session = drafter.start(recording.request)
        tell(session, recording, 0, step.index)
        tokens = tuple(step.tree.tokens[node] for node in step.path[:1])
        session.observe(attrs.evolve(step, path=step.path[:1], committed=tokens))
        session.propose((*recording.tokens(step.index), *tokens), ROOMY)
        return
