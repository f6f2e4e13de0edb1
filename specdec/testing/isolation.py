"""Checks that what a drafter learns goes where it belongs and nowhere else."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Final

import numpy as np

from specdec.testing.checks import CheckSkipped, Factory, during, fail_unless
from specdec.testing.replay import ask, complete, play, recordings, same, tell

STRANGER: Final = "somebody else"
"""A tenant whom only the drafter that is restored over has served."""


def requests_do_not_leak(factory: Factory) -> None:
    """A request after others, or among others, is drafted for as the first one ever."""
    drafter = factory()
    if drafter.remembers:
        raise CheckSkipped("it declares that it remembers; see tenants_do_not_leak")
    _isolated(
        factory,
        first="",
        second="",
        cure="keep it in the session, or declare `remembers`",
    )


def tenants_do_not_leak(factory: Factory) -> None:
    """What one tenant's requests taught is never seen by another's, even if it remembers."""
    _isolated(
        factory,
        first="tenant-a",
        second="tenant-b",
        cure="keep what is learned by request.tenant",
    )


def state_round_trips(factory: Factory) -> None:
    """After ``restore(state())`` a drafter, new or used, proposes what the first one would."""
    taught = factory()
    if not taught.remembers:
        raise CheckSkipped("it declares that it remembers nothing")
    for recording in recordings(taught.needs.top_k):
        complete(taught.start(recording.request), recording)
    state = taught.state()
    _require_plain(state, "state()")
    saved = pickle.dumps(state)
    new, used = factory(), factory()
    for recording in recordings(taught.needs.top_k):
        complete(used.start(recording.asked_by(STRANGER)), recording)
    for drafter, what in ((new, "a new"), (used, "a used")):
        with during(f"restoring {what} drafter"):
            drafter.restore(pickle.loads(saved))
    for recording in recordings(taught.needs.top_k):
        for request in (recording.request, recording.asked_by(STRANGER)):
            # All three go on learning alike.
            drafts = complete(taught.start(request), recording)
            for drafter, what in ((new, "a new"), (used, "a used")):
                restored = complete(drafter.start(request), recording)
                blame = f"{what} {drafter!r} after restore(state()) differs from the one it copies"
                same(drafts, restored, recording, blame)


def _isolated(factory: Factory, *, first: str, second: str, cure: str) -> None:
    """Requests of the tenant `second` do not notice those of the tenant `first`."""
    drafter = factory()
    played = list(recordings(drafter.needs.top_k))
    for recording, neighbour in zip(played, (*played[1:], played[0]), strict=True):
        alone = play(factory().start(recording.asked_by(second)), recording)
        shared = factory()
        # The same request comes last before the look: a memory of any kind finds it.
        for earlier in (neighbour, recording):
            complete(shared.start(earlier.asked_by(first)), earlier)
        after = play(shared.start(recording.asked_by(second)), recording)
        same(alone, after, recording, f"{drafter!r} is changed by earlier requests ({cure})")
        for other in (neighbour, recording):
            mixed = factory()
            here = mixed.start(recording.asked_by(second))
            there = mixed.start(other.asked_by(first))
            drafts = []
            for step in range(len(recording.steps)):
                if step < len(other.steps):
                    ask(there, other, step)
                    tell(there, other, step, step + 1)
                drafts.append(ask(here, recording, step))
                tell(here, recording, step, step + 1)
            same(alone, drafts, recording, f"{drafter!r} mixes sessions open at once ({cure})")


def _require_plain(value: object, where: str) -> None:
    """Fail unless `value` is made of plain values and numpy arrays."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _require_plain(key, f"a key of {where}")
            _require_plain(inner, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            _require_plain(inner, f"an item of {where}")
    else:
        fail_unless(
            value is None or isinstance(value, str | bytes | int | float | np.ndarray | np.generic),
            f"{where} is a {type(value).__name__}; state must hold plain values and numpy arrays",
        )
