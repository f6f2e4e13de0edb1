"""Memories: what a stack remembers, loaded from a file and kept in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

from specdec import Drafter, Memory
from specdec_vllm.settings import SettingsError

BUSY: Final = 10.0
"""Seconds between two saves while requests are being served; one takes some 10 ms."""

IDLE: Final = 1.0
"""Seconds between two saves where nobody waits for the next pass."""

log = logging.getLogger("vllm.specdec_vllm")


class Keeper:
    """Saves a memory now and then, and at exit: vLLM kills its workers unless told to wait.

    Args:
        memory: What to save.
        file: Where to.
        clock: Tells seconds.
    """

    def __init__(
        self, memory: Memory, file: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._memory = memory
        self._file = file
        self._clock = clock
        self._ended = 0
        self._saved = clock()

    def tend(self, ended: int, *, idle: bool) -> None:
        """Save if there is something new, and it is time.

        Args:
            ended: Requests that have come to their end so far.
            idle: Whether nothing was drafted: all requests have ended, or wait for their prompts.
        """
        if ended != self._ended and self._clock() - self._saved >= (IDLE if idle else BUSY):
            self._ended, self._saved = ended, self._clock()
            self.save()

    def save(self) -> None:
        """Save, and only log what goes wrong: requests are served all the same."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._memory.save(self._file)
        except Exception as error:
            log.warning("specdec cannot save what it remembers to %s: %s", self._file, error)


def memories(drafter: Drafter) -> Iterator[Memory]:
    """The memories in a stack."""
    held = getattr(drafter, "memory", None)
    if isinstance(held, Memory):
        yield held
    for inner in getattr(drafter, "drafters", ()):
        yield from memories(inner)


def attach(drafter: Drafter, file: Path, *, model: str) -> Keeper:
    """Load the stack's memory from `file`, if that exists.

    Args:
        drafter: The stack.
        file: The memory's file.
        model: Fingerprint of the model.

    Returns:
        What saves it.

    Raises:
        SettingsError: If the stack keeps no memory.
        SpecdecError: If the file cannot be used; it is never overwritten then.
    """
    found = list({id(memory): memory for memory in memories(drafter)}.values())
    if len(found) != 1:
        raise SettingsError(
            f"memory={str(file)!r} is for a stack with one memory, and {drafter!r} has "
            f"{len(found)}; use toolspec or retrieval, or leave the setting out"
        )
    (memory,) = found
    identify = getattr(memory, "identify", None)
    if identify is not None:
        identify(model=model)
    if file.exists():
        memory.load(file)
        log.info("specdec remembers %d outputs from %s", len(memory), file)
    return Keeper(memory, file)


def save_at_exit(keeper: Keeper) -> None:
    """Save once more when this process ends, if it is given the time."""
    # Workers are child processes, which skip atexit; this runs in them and in others.
    Finalize(None, keeper.save, exitpriority=10)
