"""MemoryCorpus: the outputs of finished requests, kept by a Memory, as automata per tenant."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from specdec import Episode, Memory, PerTenant, Request, Result
from specdec_samd.automaton import SuffixAutomaton
from specdec_samd.corpus import Corpus

Output = tuple[int, ...]
"""(T,) token ids of an output."""


class MemoryCorpus(Corpus):
    """What a memory holds of a request's tenant.

    The memory decides what is kept and what is dropped; a request sees what it held when the
    request began. Outputs that were dropped may still be drafted until they make up half of an
    automaton; forgetting a tenant empties it at once.

    Args:
        memory: Where outputs are kept; may be shared with other drafters.
        store: Whether outputs are stored; without it the memory only serves.
    """

    def __init__(self, memory: Memory, *, store: bool = True) -> None:
        self.memory = memory
        self.store = store
        self._shelves = PerTenant(Shelf)

    @property
    def remembers(self) -> bool:
        """True: the outputs are those of earlier requests."""
        return True

    def automata(self, request: Request) -> tuple[SuffixAutomaton, ...]:
        """The automata of the outputs held of the request's tenant."""
        query = Episode(request.prompt, (), tenant=request.tenant)
        held = self.memory.recall(query, len(self.memory))
        return self._shelves[request.tenant].hold(episode.output for episode in held)

    def learn(self, request: Request, result: Result) -> None:
        """Store the output, without the token that ended it."""
        output = result.tokens
        if result.finish == "stop_id" and output and output[-1] in request.stop_ids:
            output = output[:-1]
        if self.store and output:
            text = request.codec.decode(output) if request.codec is not None else None
            self.memory.store(Episode(request.prompt, output, text=text, tenant=request.tenant))

    def state(self) -> Mapping[str, Any]:
        """The memory's file, and how its outputs are spread over automata, by tenant."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory"
            self.memory.save(path)
            return {"memory": path.read_bytes(), "shelves": self._shelves.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory"
            path.write_bytes(state["memory"])
            self.memory.load(path)
        self._shelves.restore(state["shelves"])

    def __repr__(self) -> str:
        return repr(self.memory)


@attrs.frozen(eq=False)
class Volume:
    """Some outputs and their automaton.

    Attributes:
        outputs: The outputs, each once.
        automaton: Theirs, with boundaries between them.
        tokens: Tokens of all outputs.
    """

    outputs: tuple[Output, ...]
    automaton: SuffixAutomaton
    tokens: int

    @classmethod
    def of(cls, outputs: Iterable[Output]) -> Volume:
        """The volume of these outputs."""
        kept = tuple(outputs)
        return cls(kept, SuffixAutomaton.of(kept), _tokens(kept))


class Shelf:
    """A changing set of outputs as a few automata that do not change (Bentley and Saxe 1980).

    A session keeps the automata it began with, so others may come and go around it, in any
    thread. Each volume has more than twice the tokens of the next; new outputs take in those
    that have not. So n tokens make at most log2(n) volumes, and a token that stays is built into
    O(log n) of them in turn.
    """

    def __init__(self) -> None:
        self._volumes: tuple[Volume, ...] = ()
        self._lock = threading.Lock()

    def hold(self, outputs: Iterable[Output]) -> tuple[SuffixAutomaton, ...]:
        """Hold these outputs and no others, each once.

        A volume of which more than half of the tokens are still wanted is kept as it is.

        Args:
            outputs: All that is to be held.

        Returns:
            Their automata, the newest outputs last.
        """
        missing = set(outputs)
        missing.discard(())
        with self._lock:
            kept: list[tuple[Volume, tuple[Output, ...]]] = []
            for volume in self._volumes:
                wanted = tuple(output for output in volume.outputs if output in missing)
                if 2 * _tokens(wanted) > volume.tokens:
                    kept.append((volume, wanted))
                    missing.difference_update(wanted)
            if missing:
                # Sorted: where a state ends first must not depend on what the memory was asked for.
                loose = tuple(sorted(missing))
                while kept and kept[-1][0].tokens <= 2 * _tokens(loose):
                    loose = (*kept.pop()[1], *loose)
                kept.append((Volume.of(loose), loose))
            self._volumes = tuple(volume for volume, _ in kept)
            return tuple(volume.automaton for volume in self._volumes)

    def state(self) -> list[list[Output]]:
        """The outputs by volume."""
        return [list(volume.outputs) for volume in self._volumes]

    def restore(self, state: Iterable[Iterable[Output]]) -> None:
        """The inverse of `state`."""
        with self._lock:
            self._volumes = tuple(map(Volume.of, state))


def _tokens(outputs: Iterable[Output]) -> int:
    return sum(map(len, outputs))
