"""Checks for memories: bounded, pure to read, apart by tenant, and safe on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from specdec.interfaces import Episode, Memory
from specdec.testing.cases import CALL
from specdec.testing.checks import (
    Check,
    CheckFailed,
    CheckSkipped,
    Factory,
    during,
    fail_unless,
    parametrize,
)
from specdec.testing.codec import CharCodec

if TYPE_CHECKING:
    import pytest

MANY: Final = 300
"""Episodes after which a memory made for the kit should have begun to drop some."""


def memory_checks(
    *factories: Callable[[], Memory], expected_failures: Mapping[str, str] | None = None
) -> pytest.MarkDecorator:
    """Parametrise a pytest function with every check of every memory.

    Used as `specdec.testing.drafter_checks`.

    Args:
        *factories: Each builds a new, empty memory at every call; two of them share nothing. A
            capacity below 300 episodes lets the bound be checked; it must hold at least 8.
        expected_failures: Checks known to fail, by name, each with the reason. One that passes
            after all is a failure.

    Raises:
        ValueError: If there is no factory, or an expected failure is unknown or without reason.
    """
    return parametrize(CHECKS, factories, expected_failures)


def recalls_what_it_stored(factory: Factory) -> None:
    """An episode is recalled first when asked for by its own prompt and embedding."""
    memory = factory()
    fail_unless(isinstance(memory, Memory), f"the factory built {memory!r}, not a Memory")
    fail_unless(len(memory) == 0, f"a new {memory!r} holds {len(memory)} episodes; expected none")
    fail_unless(memory.recall(_query(0), 3) == [], f"an empty {memory!r} recalls something")
    for distance in range(4):
        memory.store(_episode(distance))
    fail_unless(len(memory) == 4, f"{memory!r} holds {len(memory)} of 4 different episodes")
    for distance in range(4):
        found, stored = memory.recall(_query(distance), 1), [_episode(distance)]
        fail_unless(
            found == stored,
            f"{memory!r} recalls {_names(found)} for the exact key of {_names(stored)}",
        )


def recall_is_sorted(factory: Factory) -> None:
    """What is nearer in every respect comes earlier, and fewer are the first of more."""
    memory = factory()
    for distance in reversed(range(5)):
        memory.store(_episode(distance))
    found = memory.recall(_query(0), 5)
    nearest = [_episode(distance) for distance in range(len(found))]
    fail_unless(
        found == nearest,
        f"{memory!r} recalls {_names(found)}; closest first is {_names(nearest)}",
    )
    for k in range(1, 5):
        fail_unless(
            memory.recall(_query(0), k) == found[:k],
            f"{memory!r} does not recall for k={k} the first {k} of what it recalls for k=5",
        )


def recall_is_bounded(factory: Factory) -> None:
    """At most k episodes are recalled, for any k; a k of 0 recalls none."""
    memory = factory()
    for distance in range(5):
        memory.store(_episode(distance))
    for k in (0, 1, 2, 3, 100):
        found = memory.recall(_query(0), k)
        fail_unless(len(found) <= k, f"{memory!r} recalls {len(found)} episodes for k={k}")


def recall_is_pure(factory: Factory) -> None:
    """Recalling changes neither what is held, nor what is recalled, nor what is dropped later."""
    asked, left_alone = factory(), factory()
    for number in range(MANY):
        for memory in (asked, left_alone):
            memory.store(_other(number))
        # Only the oldest: a memory that took this for use would keep it.
        asked.recall(_key(0), 1)
    fail_unless(
        len(asked) == len(left_alone)
        and all(
            asked.recall(_key(number), 3) == left_alone.recall(_key(number), 3)
            for number in range(0, MANY, 7)
        ),
        f"{asked!r} holds something else after recalls than without them; recall changes nothing",
    )


def capacity_holds(factory: Factory) -> str:
    """However many episodes are stored, only so many are kept, and the newest among them."""
    memory = factory()
    for number in range(MANY):
        memory.store(_other(number))
    held = len(memory)
    newest = memory.recall(_key(MANY - 1), 1)
    fail_unless(
        newest == [_other(MANY - 1)], f"{memory!r} dropped the episode that it was given last"
    )
    if held >= MANY:
        raise CheckSkipped(
            f"it kept all of {MANY} episodes; give the factory a smaller capacity to check it"
        )
    for number in range(MANY, 2 * MANY):
        memory.store(_other(number))
    fail_unless(
        len(memory) <= held,
        f"{memory!r} holds {len(memory)} episodes after {2 * MANY}, and {held} after {MANY}",
    )
    return f"keeps {held} episodes"


def forget_empties(factory: Factory) -> None:
    """``forget()`` drops everything, ``forget(tenant)`` everything of one tenant only."""
    memory = factory()
    for tenant in ("a", "b"):
        for distance in range(3):
            memory.store(_episode(distance, tenant))
    memory.forget("a")
    fail_unless(
        len(memory) == 3 and memory.recall(_query(0, "a"), 9) == [],
        f"{memory!r} still holds episodes of a tenant that was forgotten",
    )
    fail_unless(
        memory.recall(_query(0, "b"), 1) == [_episode(0, "b")],
        f"{memory!r} forgot another tenant's episodes too",
    )
    memory.forget("nobody")
    memory.forget()
    fail_unless(
        len(memory) == 0 and memory.recall(_query(0, "b"), 9) == [],
        f"{memory!r} holds {len(memory)} episodes after forget()",
    )
    memory.store(_episode(1, "a"))
    fail_unless(len(memory) == 1, f"{memory!r} cannot store after forget()")


def tenants_are_apart(factory: Factory) -> None:
    """A tenant recalls its own episodes only, equal prompts and embeddings or not."""
    memory = factory()
    for tenant in ("a", "b"):
        for distance in range(3):
            memory.store(_episode(distance, tenant))
    fail_unless(len(memory) == 6, f"{memory!r} holds {len(memory)} of 6 episodes of two tenants")
    for tenant in ("a", "b", "c", ""):
        found = memory.recall(_query(0, tenant), 9)
        owners = {episode.tenant for episode in found}
        fail_unless(
            owners <= {tenant}, f"{memory!r} shows tenant {tenant!r} episodes of {sorted(owners)}"
        )


def save_and_load_round_trip(factory: Factory) -> None:
    """What was saved is loaded in another memory, in place of what that one held."""
    memory = factory()
    for tenant in ("a", "b"):
        for distance in range(3):
            memory.store(_episode(distance, tenant))
    with _folder() as folder:
        path = folder / "memory.bin"
        for _ in range(2):  # the second time over the first
            memory.save(path)
            left = [entry.name for entry in folder.iterdir()]
            fail_unless(
                left == [path.name], f"{memory!r}.save({path.name!r}) leaves {left} in the folder"
            )
        other = factory()
        other.store(_episode(4, "a"))
        other.load(path)
    _same(memory, other, "loaded what another saved")


def torn_file_is_refused(factory: Factory) -> None:
    """A file that is missing, torn or foreign raises, and the old contents stay."""
    memory = factory()
    for distance in range(3):
        memory.store(_episode(distance))
    with _folder() as folder:
        path = folder / "memory.bin"
        memory.save(path)
        if path.is_dir():
            raise CheckSkipped("it saves to a folder")
        content = path.read_bytes()
        torn = {f"{cut} of {len(content)} bytes": content[:cut] for cut in _cuts(len(content))}
        torn |= {"foreign text": b"[remote]\n", "foreign bytes": bytes(range(256))}
        for what, found in torn.items():
            path.write_bytes(found)
            _refused(factory, path, what, whole=memory)
        path.unlink()
        _refused(factory, path, "no file")


def _cuts(size: int) -> tuple[int, ...]:
    return tuple(sorted({0, 1, size // 4, size // 2, size * 3 // 4, size - 1}))


def _refused(factory: Factory, path: Path, what: str, whole: Memory | None = None) -> None:
    """Loading `path` raises and changes nothing, or, for a harmless tear, loads it `whole`."""
    memory, twin = factory(), factory()
    for kept in (memory, twin):
        kept.store(_episode(4))
    try:
        memory.load(path)
    except Exception:  # a memory may raise what it likes
        _same(twin, memory, f"was to load {what}, and raised; its old contents must stay")
        return
    blame = f"loads {what} without an error"
    if whole is None:
        raise CheckFailed(f"{memory!r} {blame}")
    _same(whole, memory, blame)


CHECKS: Final = (
    Check.of(recalls_what_it_stored),
    Check.of(recall_is_sorted, after=[recalls_what_it_stored]),
    Check.of(recall_is_bounded, after=[recalls_what_it_stored]),
    Check.of(recall_is_pure, after=[recalls_what_it_stored]),
    Check.of(capacity_holds, after=[recalls_what_it_stored]),
    Check.of(forget_empties, after=[recalls_what_it_stored]),
    Check.of(tenants_are_apart, after=[recalls_what_it_stored]),
    Check.of(save_and_load_round_trip, after=[recalls_what_it_stored]),
    Check.of(torn_file_is_refused, after=[save_and_load_round_trip]),
)
"""The suite; a check is skipped when one it builds on did not pass."""


def _query(distance: int, tenant: str = "") -> Episode:
    """What is known of a request before its output: the key of `_episode(distance)`."""
    # The middle differs, more and more of it: the common start, the common end, the tokens in
    # common and the cosine of the embeddings all fall with the distance.
    prompt = list(range(8, 40))
    for place in range(16 - 3 * distance, 16 + 3 * distance):
        prompt[place] = (place * 7 + 11 * distance) % 8
    angle = 0.2 * distance
    embedding = np.array([np.cos(angle), np.sin(angle), 0.0, 0.0], dtype=np.float32)
    return Episode(tuple(prompt), (), embedding, tenant=tenant)


def _episode(distance: int, tenant: str = "") -> Episode:
    """A finished request with a tool call for its output."""
    query = _query(distance, tenant)
    text = CALL.replace("s\u00e3o paulo", f"city {distance}")
    return Episode(query.prompt, CharCodec().encode(text), query.embedding, text, tenant)


def _key(number: int) -> Episode:
    """The key of `_other(number)`."""
    prompt = tuple((number // 8**place) % 8 + 8 * place for place in range(4)) * 4
    spread = np.random.default_rng(number).standard_normal(4).astype(np.float32)
    return Episode(prompt, (), spread / np.linalg.norm(spread))


def _other(number: int) -> Episode:
    """One of many different episodes."""
    key, text = _key(number), CALL.replace("s\u00e3o paulo", f"town {number}")
    return Episode(key.prompt, CharCodec().encode(text), key.embedding, text)


def _same(expected: Memory, memory: Memory, blame: str) -> None:
    with during("the memory compared to what it should hold"):
        fail_unless(
            len(memory) == len(expected),
            f"{memory!r} {blame}: it holds {len(memory)} episodes, expected {len(expected)}",
        )
        for tenant in ("a", "b", ""):
            for distance in range(5):
                query = _query(distance, tenant)
                found, wanted = memory.recall(query, 9), expected.recall(query, 9)
                fail_unless(
                    found == wanted,
                    f"{memory!r} {blame}: it recalls {_names(found)}, expected {_names(wanted)}",
                )


def _names(episodes: list[Episode]) -> str:
    """Episodes by what tells them apart."""
    names = [f"{e.tenant}:{(e.text or '?').partition('city ')[2][:1]}" for e in episodes]
    return f"[{', '.join(names)}]"


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)
