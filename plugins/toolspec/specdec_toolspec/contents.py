"""Contents: what a memory holds at one time, with its indexes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import attrs
import numpy as np
from sortedcontainers import SortedDict

from specdec import Episode
from specdec_toolspec.keys import LEXICAL_WIDTH, Key, KeyMatrix, lexical_key

LEXICAL: Final = 0
"""Kind of the keys made from tokens; other kinds are the widths of the embeddings."""

SAME: Final = 0.999
"""Cosine from which two keys count as one."""

OVERHEAD: Final = 700
"""Bytes that an entry takes in indexes and object headers, about."""


@attrs.define(eq=False)
class Entry:
    """One kept episode. Only its counts change, under the memory's lock.

    Attributes:
        tenant: Its owner.
        output: int32 token ids, as bytes: a tuple of them would take nine times as much.
        tail: The prompt's last tokens, likewise.
        digest: (16,) hash of the whole prompt.
        text: The output's text, if known.
        key: Its unit-length embedding until it is added, None without one.
        kind: Width of the embedding, or LEXICAL.
        stored: How often it was stored.
        uses: How often it was credited with accepted tokens.
        accepted: Those tokens.
        serial: When it was first stored, in ticks of the contents' clock.
        used: When it was last useful, in ticks.
    """

    tenant: str
    output: bytes
    tail: bytes
    digest: bytes
    text: str | None
    key: Key | None = None
    kind: int = LEXICAL
    stored: int = 1
    uses: int = 0
    accepted: int = 0
    serial: int = 0
    used: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the output."""
        return len(self.output) // 4

    @property
    def nbytes(self) -> int:
        """Bytes it takes outside the key matrices, about."""
        text = sys.getsizeof(self.text) if self.text is not None else 0
        return len(self.output) + len(self.tail) + text + OVERHEAD


class Shelf:
    """One tenant's entries."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.keys: dict[int, KeyMatrix] = {LEXICAL: KeyMatrix(LEXICAL_WIDTH)}
        self.by_output: dict[bytes, list[int]] = {}

    def add(self, entry: Entry) -> None:
        """Take in an entry with a serial of its own."""
        self.entries[entry.serial] = entry
        self.by_output.setdefault(entry.output, []).append(entry.serial)
        self.keys[LEXICAL].add(entry.serial, lexical_key(np.frombuffer(entry.tail, np.int32)))
        if entry.key is not None:
            entry.kind = len(entry.key)
            self.keys.setdefault(entry.kind, KeyMatrix(entry.kind)).add(entry.serial, entry.key)
            entry.key = None  # the matrix has it now

    def remove(self, entry: Entry) -> None:
        """Drop an entry."""
        del self.entries[entry.serial]
        same = self.by_output[entry.output]
        same.remove(entry.serial)
        if not same:
            del self.by_output[entry.output]
        for kind, matrix in tuple(self.keys.items()):
            matrix.remove(entry.serial)
            if kind != LEXICAL and not len(matrix):
                del self.keys[kind]

    def nearest(self, key: Key | None, lexical: Key, k: int) -> list[Entry]:
        """The `k` closest entries.

        Those with an embedding as wide as `key` come first. Only when all of them are found do
        the others follow, compared by their tokens: cosines of two kinds say nothing about
        each other.
        """
        found: list[int] = []
        if key is not None and (matrix := self.keys.get(len(key))) is not None:
            found = matrix.nearest(key, k)
        if len(found) < k:
            seen = set(found)
            rest = self.keys[LEXICAL].nearest(lexical, k + len(found))
            found += [serial for serial in rest if serial not in seen]
        return [self.entries[serial] for serial in found[:k]]

    def twin(self, entry: Entry) -> Entry | None:
        """The entry with the same output, and the same prompt or as good as the same key."""
        serials = self.by_output.get(entry.output, [])
        for serial in serials:
            if self.entries[serial].digest == entry.digest:
                return self.entries[serial]
        kind = LEXICAL if entry.key is None else len(entry.key)
        serials = [serial for serial in serials if self.entries[serial].kind == kind]
        if not serials:
            return None
        key = entry.key
        if key is None:
            key = lexical_key(np.frombuffer(entry.tail, np.int32))
        cosines = self.keys[kind].similarity(key, serials)
        best = int(cosines.argmax())
        return self.entries[serials[best]] if cosines[best] >= SAME else None


class Contents:
    """Entries by tenant, key, output and use. Knows no bounds and no lock."""

    def __init__(self) -> None:
        self.shelves: dict[str, Shelf] = {}
        self.tokens = 0
        # When each entry was last useful: the first is the next to go.
        self._by_use: SortedDict[int, Entry] = SortedDict()
        self._clock = 0

    def __len__(self) -> int:
        return len(self._by_use)

    def __iter__(self) -> Iterator[Entry]:
        """Least recently useful first."""
        return iter(self._by_use.values())

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def add(self, entry: Entry) -> None:
        """Take in a new entry, as the most recently useful."""
        entry.serial = entry.used = self._tick()
        self.shelves.setdefault(entry.tenant, Shelf()).add(entry)
        self._by_use[entry.used] = entry
        self.tokens += entry.tokens

    def remove(self, entry: Entry) -> None:
        """Drop an entry."""
        del self._by_use[entry.used]
        shelf = self.shelves[entry.tenant]
        shelf.remove(entry)
        if not shelf.entries:
            del self.shelves[entry.tenant]
        self.tokens -= entry.tokens

    def touch(self, entry: Entry) -> None:
        """Note that an entry was useful just now."""
        del self._by_use[entry.used]
        entry.used = self._tick()
        self._by_use[entry.used] = entry

    def least(self) -> Entry:
        """The least recently useful entry of at least one."""
        entry: Entry = self._by_use.peekitem(0)[1]
        return entry

    def key(self, entry: Entry) -> Key | None:
        """A copy of an entry's embedding."""
        if entry.kind == LEXICAL:
            return None
        return self.shelves[entry.tenant].keys[entry.kind].get(entry.serial)

    def episode(self, entry: Entry) -> Episode:
        """The entry as others see it."""
        return Episode(
            prompt=tuple(np.frombuffer(entry.tail, np.int32).tolist()),
            output=tuple(np.frombuffer(entry.output, np.int32).tolist()),
            embedding=self.key(entry),
            text=entry.text,
            tenant=entry.tenant,
        )

    @property
    def nbytes(self) -> int:
        """Bytes in all, about."""
        matrices = sum(m.nbytes for shelf in self.shelves.values() for m in shelf.keys.values())
        return matrices + sum(entry.nbytes for entry in self)
