"""Checks for drafters: what makes one safe to compose, to rebuild and to serve tenants with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from specdec.interfaces import Drafter, DraftSession, Needs
from specdec.testing.cases import cases
from specdec.testing.checks import (
    Check,
    CheckFailed,
    Factory,
    during,
    fail_unless,
    parametrize,
)
from specdec.testing.isolation import requests_do_not_leak, state_round_trips, tenants_do_not_leak
from specdec.testing.replay import ask, complete, play, record, recordings, same, tell
from specdec.testing.serving import is_quick, output_is_unchanged, survives_being_cut_off
from specdec.tree import DraftTree, Limit

if TYPE_CHECKING:
    import pytest


SEED: Final = 2_604_135
"""Seed of the global generators while a drafter is watched."""


def drafter_checks(
    *factories: Callable[[], Drafter], expected_failures: Mapping[str, str] | None = None
) -> pytest.MarkDecorator:
    """Parametrise a pytest function with every check of every drafter.

    The function takes `check` and calls it::

        @drafter_checks(PromptLookup, lambda: PromptLookup(ngram=1))
        def test_conformance(check):
            check()

    Args:
        *factories: Each builds a new drafter at every call; two of them share nothing.
        expected_failures: Checks known to fail, by name, each with the reason. One that passes
            after all is a failure.

    Raises:
        ValueError: If there is no factory, or an expected failure is unknown or without reason.
    """
    return parametrize(CHECKS, factories, expected_failures)


def returns_a_tree(factory: Factory) -> None:
    """Whatever the prompt and however far along, `propose` returns a DraftTree."""
    drafter = factory()
    fail_unless(isinstance(drafter, Drafter), f"the factory built {drafter!r}, not a Drafter")
    fail_unless(
        isinstance(drafter.needs, Needs), f"{drafter!r}.needs is {drafter.needs!r}, not a Needs"
    )
    for recording in recordings(drafter.needs.top_k, long=True):
        with during(f"the prompt {recording.request.id!r}"):
            session = factory().start(recording.request)
            fail_unless(
                isinstance(session, DraftSession),
                f"{drafter!r}.start returned a {type(session).__name__}, not a DraftSession",
            )
            for draft in complete(session, recording):
                fail_unless(
                    isinstance(draft, DraftTree),
                    f"{drafter!r} proposed a {type(draft).__name__}; expected a DraftTree",
                )


def declares_its_needs(factory: Factory) -> None:
    """It works when it gets no more than `needs` asks for, and when its neighbours need more."""
    needs = factory().needs
    for recording in recordings(factory().needs.top_k):
        with during(f"the prompt {recording.request.id!r}"):
            if not needs.top_k:
                with _blaming(
                    "step.top_ids is None, since needs.top_k is 0; declare Needs(top_k=...)"
                ):
                    play(factory().start(recording.request), recording.bare())
            host = "as a host may have none"
            if not needs.embedding:
                host = "since needs.embedding is False; declare Needs(embedding=True)"
            with _blaming(f"the embedding is None, {host}"):
                session = factory().start(recording.request)
                session.observe(recording.steps[0])
                session.prefilled(None)
                ask(session, recording, 1)
    more = needs.top_k * 2 + 16
    for recording in recordings(more):
        with (
            during(f"the prompt {recording.request.id!r}"),
            _blaming(f"step.top_ids has {more} columns, as a neighbour may ask for more"),
        ):
            play(factory().start(recording.request), recording)


def keeps_to_the_limit(factory: Factory) -> None:
    """A draft has at most `limit.nodes` nodes and no path longer than `limit.depth`."""
    drafter = factory()
    for recording in recordings(drafter.needs.top_k):
        session, told = factory().start(recording.request), 0
        for step in recording.checkpoints():
            tell(session, recording, told, step)
            told = step
            for nodes in (1, 2, 7, 64):
                for depth in (1, 2, 5):
                    draft = ask(session, recording, step, Limit(nodes, depth))
                    if not draft:
                        continue
                    fail_unless(
                        len(draft) <= nodes,
                        f"{drafter!r} proposed {len(draft)} nodes where the limit is {nodes}",
                    )
                    longest = int(draft.depths.max())
                    fail_unless(
                        longest <= depth,
                        f"{drafter!r} proposed a path of {longest} tokens where {depth} may follow",
                    )


def stays_in_the_vocabulary(factory: Factory) -> None:
    """Every drafted token is an id of the target."""
    drafter = factory()
    for recording in recordings(drafter.needs.top_k):
        size = recording.request.vocabulary
        for draft in play(factory().start(recording.request), recording):
            strange = [token for token in draft.tokens if not 0 <= token < size]
            fail_unless(
                not strange,
                f"{drafter!r} proposed token {strange and strange[0]}, outside the vocabulary of "
                f"{size}, for the prompt {recording.request.id!r}",
            )


def is_deterministic(factory: Factory) -> None:
    """Two new drafters propose the same for the same tokens."""
    for recording in recordings(factory().needs.top_k):
        first = play(factory().start(recording.request), recording)
        second = play(factory().start(recording.request), recording)
        same(first, second, recording, "two new drafters differ on the same tokens")


def leaves_global_random_state_alone(factory: Factory) -> None:
    """The global generators of random, numpy and torch are where they were."""
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        # A state of the kit's own: one that the component itself had left, by seeding, would
        # look the same afterwards.
        random.seed(SEED)
        np.random.seed(SEED)
        torch.set_rng_state(torch.Generator().manual_seed(SEED).get_state())
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        drafter = factory()
        for recording in recordings(drafter.needs.top_k):
            complete(drafter.start(recording.request), recording)
        same_as_before = {
            "random": random.getstate() == before[0],
            "numpy.random": _equal(np.random.get_state(), before[1]),
            "torch": torch.equal(torch.get_rng_state(), before[2]),
        }
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])
    moved = [name for name, same_state in same_as_before.items() if not same_state]
    fail_unless(
        not moved,
        f"{drafter!r} moved the global generator of {', '.join(moved)}, from which the target may "
        "sample; use a generator of your own",
    )


def follows_committed_tokens_only(factory: Factory) -> None:
    """Asked at every step or never asked, the next draft is the same.

    This is what makes `Fallback` sound: it may skip a drafter. It is tried with the drafter's
    own trees in the steps, and with a neighbour's.
    """
    drafter = factory()
    own = [record(given, factory()) for given in cases()]
    for recording in (*own, *recordings(drafter.needs.top_k)):
        asked, told = factory().start(recording.request), 0
        drafts = []
        for step in range(len(recording.steps)):
            ask(asked, recording, step, Limit(1, 1))
            drafts.append(ask(asked, recording, step))
            tell(asked, recording, told, step + 1)
            told = step + 1
        for step in recording.checkpoints():
            silent = factory().start(recording.request)
            tell(silent, recording, 0, step)
            fail_unless(
                ask(silent, recording, step) == drafts[step],
                f"{drafter!r}: asked at every step it proposes something else than when it was "
                f"never asked before, after {step} steps of {recording.request.id!r}; propose must "
                "change nothing, all progress comes from observe",
            )


def can_be_rebuilt(factory: Factory) -> None:
    """``start(request, committed)`` proposes what the session that saw it happen would.

    The rebuilt session is given the prompt's embedding again, as the host has it.
    """
    for recording in recordings(factory().needs.top_k):
        for step in recording.checkpoints():
            drafter = factory()
            original = drafter.start(recording.request)
            tell(original, recording, 0, step)
            draft = ask(original, recording, step)
            rebuilt = drafter.start(recording.request, recording.committed(step))
            if step:
                rebuilt.prefilled(recording.embedding)
            fail_unless(
                ask(rebuilt, recording, step) == draft,
                f"{drafter!r}: a session rebuilt with start(request, committed) after {step} steps "
                f"of {recording.request.id!r} proposes something else than the original",
            )


_FIRST: Final = [returns_a_tree]
_COMPARED: Final = [*_FIRST, is_deterministic]
# The engine refuses what these would find, with an error that says less.
_SERVED: Final = [*_FIRST, declares_its_needs, keeps_to_the_limit, stays_in_the_vocabulary]

CHECKS: Final = (
    Check.of(returns_a_tree),
    Check.of(declares_its_needs, after=_FIRST),
    Check.of(keeps_to_the_limit, after=_FIRST),
    Check.of(stays_in_the_vocabulary, after=_FIRST),
    Check.of(is_deterministic, after=_FIRST),
    Check.of(leaves_global_random_state_alone, after=_FIRST),
    Check.of(follows_committed_tokens_only, after=[*_SERVED, is_deterministic]),
    Check.of(can_be_rebuilt, after=_COMPARED),
    Check.of(requests_do_not_leak, after=_COMPARED),
    Check.of(tenants_do_not_leak, after=_COMPARED),
    Check.of(state_round_trips, after=_COMPARED),
    Check.of(output_is_unchanged, after=_SERVED),
    Check.of(survives_being_cut_off, after=_SERVED),
    Check.of(is_quick, after=_FIRST),
)
"""The suite; a check is skipped when one it builds on did not pass."""


@contextmanager
def _blaming(cause: str) -> Iterator[None]:
    """Turns any error into one that names its cause."""
    try:
        yield
    except Exception as error:
        raise CheckFailed(f"{type(error).__name__}: {error}, when {cause}") from error


def _equal(first: Any, second: Any) -> bool:  # noqa: ANN401 - numpy's tuple of state
    return all(np.array_equal(one, two) for one, two in zip(first, second, strict=True))
