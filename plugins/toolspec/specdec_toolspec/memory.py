"""EpisodeMemory: earlier outputs, found again by what their requests were like."""

from __future__ import annotations

import hashlib
import heapq
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from specdec import Episode, Memory
from specdec_toolspec.archive import Archive
from specdec_toolspec.container import MemoryFileError
from specdec_toolspec.contents import Contents, Entry
from specdec_toolspec.keys import lexical_key, tail_of, token_array, unit, wide_array

ENTRIES: Final = 1000
"""Entries kept by default, as the paper suggests (ToolSpec, arXiv 2604.13519, appendix)."""

TOKENS: Final = 262_144
"""Output tokens kept by default: five times what 1,000 API-Bank calls take, 1 MB."""

SHARE: Final = 8
"""One output takes at most one part in so many of the token bound."""

CHARACTERS: Final = 64
"""Characters per token up to which a text is believed to be that of its tokens."""


class EpisodeMemory(Memory):
    """Episodes by the cosine of their prompts' last hidden states (ToolSpec, arXiv 2604.13519).

    Every episode also gets a lexical key, made of its prompt's last 256 tokens, so the same
    memory serves hosts that have no hidden states. A query with an embedding is compared with
    the embeddings of its width; where they are fewer than `k`, the rest comes from the lexical
    keys. A query without one is compared by its tokens only.

    Kept are the output's tokens, its text, the last 256 tokens of the prompt and a hash of all of
    it; recalled episodes carry those last tokens as their prompt.

    The same output stored again for the same prompt, or for one whose key is as good as the
    same, is counted and not kept twice. Over either bound, the least recently useful episode is
    dropped first; storing an episode again and crediting it with accepted tokens are uses. The
    bounds are shared by all tenants, but no tenant ever sees another's episodes.

    All methods may be called from several threads. Equal calls in equal order give equal
    memories: there is no chance and no clock.

    Args:
        entries: The most episodes kept.
        tokens: The most output tokens kept. An output longer than an eighth of it is not.
        model: Fingerprint of the model, such as its name and revision; empty when unknown.
        tokenizer: Fingerprint of the tokenizer, likewise.
    """

    def __init__(
        self,
        *,
        entries: int = ENTRIES,
        tokens: int = TOKENS,
        model: str = "",
        tokenizer: str = "",
    ) -> None:
        if entries < 1:
            raise ValueError(f"entries must be at least 1, got {entries}")
        if tokens < SHARE:
            raise ValueError(f"tokens must be at least {SHARE}, got {tokens}")
        for name, value in (("model", model), ("tokenizer", tokenizer)):
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a text, got {value!r}")
        self.entries = entries
        self.tokens = tokens
        self._own = {"model": model, "tokenizer": tokenizer}
        self._known = dict(self._own)  # with what a loaded file added
        self._contents = Contents()
        self._declined = 0
        self._lock = threading.RLock()

    # Memory

    def store(self, episode: Episode) -> None:
        """Keep `episode`, or count it if it is known.

        An empty output, and one longer than an eighth of the token bound, is declined without an
        error. A text that is far longer than its tokens can be is left out.

        Raises:
            ValueError: If a token id is negative or too large for any vocabulary.
        """
        entry = _entry(episode)
        with self._lock:
            if not 0 < entry.tokens <= self.tokens // SHARE:
                self._declined += 1
                return
            shelf = self._contents.shelves.get(entry.tenant)
            twin = shelf.twin(entry) if shelf is not None else None
            if twin is not None:
                twin.stored += 1
                self._contents.touch(twin)
                return
            self._contents.add(entry)
            while len(self._contents) > self.entries or self._contents.tokens > self.tokens:
                self._contents.remove(self._contents.least())

    def recall(self, query: Episode, k: int) -> list[Episode]:
        """At most `k` episodes of the query's tenant, closest first, of equals the newest first.

        Changes nothing: only `credit` notes that an episode was of use.
        """
        key, lexical = unit(query.embedding), lexical_key(tail_of(query.prompt))
        with self._lock:
            shelf = self._contents.shelves.get(query.tenant)
            if shelf is None or k < 1:
                return []
            return [self._contents.episode(e) for e in shelf.nearest(key, lexical, k)]

    def forget(self, tenant: str | None = None) -> None:
        """Drop everything of one tenant, or of all."""
        with self._lock:
            if tenant is None:
                self._contents = Contents()
                return
            shelf = self._contents.shelves.get(tenant)
            for entry in tuple(shelf.entries.values()) if shelf is not None else ():
                self._contents.remove(entry)

    def __len__(self) -> int:
        with self._lock:
            return len(self._contents)

    def save(self, path: Path) -> None:
        """Write everything to one file, atomically; readable by its owner only.

        Raises:
            MemoryFileError: If it cannot be written.
        """
        with self._lock:
            archive = Archive.snapshot(**self._known, contents=self._contents)
        archive.save(Path(path))

    def load(self, path: Path) -> None:
        """Replace the contents by a file's, fingerprints included.

        Raises:
            MemoryFileError: If the file is missing, torn, foreign, of a newer version or of
                another model or tokenizer, or holds more than this memory may. The old contents
                stay.
        """
        archive = Archive.load(Path(path), entries=self.entries, tokens=self.tokens)
        found, contents = (
            {"model": archive.model, "tokenizer": archive.tokenizer},
            archive.contents(),
        )
        with self._lock:
            self._known = _agreed(self._own, found, f"{path} is")
            self._contents = contents

    # Beyond Memory

    def credit(self, episode: Episode, tokens: int) -> None:
        """Note that a recalled episode led to accepted tokens; it is now the last to go.

        Args:
            episode: As `recall` returned it. One that was dropped in between is passed over.
            tokens: How many of its tokens were accepted.
        """
        entry = _entry(episode)
        with self._lock:
            shelf = self._contents.shelves.get(entry.tenant)
            for serial in shelf.by_output.get(entry.output, ()) if shelf is not None else ():
                assert shelf is not None
                kept = shelf.entries[serial]
                if kept.tail == entry.tail:
                    kept.uses += 1
                    kept.accepted += tokens
                    self._contents.touch(kept)
                    return

    def identify(self, *, model: str = "", tokenizer: str = "") -> None:
        """Say whose episodes these are; an empty fingerprint says nothing.

        Raises:
            MemoryFileError: If they are known to be another's.
        """
        with self._lock:
            told = {"model": model, "tokenizer": tokenizer}
            self._known = _agreed(self._known, told, "the episodes to come are")
            self._own = _agreed(self._own, told, "the episodes to come are")

    def prune(self, entries: int) -> int:
        """Drop the least recently useful episodes until `entries` are left; returns how many."""
        if entries < 0:
            raise ValueError(f"entries must be at least 0, got {entries}")
        with self._lock:
            before = len(self._contents)
            while len(self._contents) > entries:
                self._contents.remove(self._contents.least())
            return before - len(self._contents)

    def __iter__(self) -> Iterator[Episode]:
        """The episodes held now, the least recently useful first.

        Stored in this order they make the same memory again, counts aside.
        """
        with self._lock:
            held = [self._contents.episode(entry) for entry in self._contents]
        return iter(held)

    def describe(self, most: int = 5) -> dict[str, Any]:
        """What there is, as plain values.

        Args:
            most: How many of the most useful episodes to show.
        """
        with self._lock:
            held = tuple(self._contents)
            useful = heapq.nlargest(
                most, held, key=lambda e: (e.accepted, e.uses, e.stored, e.used)
            )
            return {
                "entries": len(held),
                "tokens": self._contents.tokens,
                "bytes": self._contents.nbytes,
                "tenants": dict(sorted(Counter(e.tenant for e in held).items())),
                "fingerprints": dict(self._known),
                "duplicates": sum(e.stored - 1 for e in held),
                "declined": self._declined,
                "most_useful": [
                    {
                        "tenant": e.tenant,
                        "text": e.text,
                        "tokens": e.tokens,
                        "stored": e.stored,
                        "uses": e.uses,
                        "accepted": e.accepted,
                    }
                    for e in useful
                ],
            }

    def __repr__(self) -> str:
        return f"EpisodeMemory(entries={self.entries}, tokens={self.tokens})"


def _entry(episode: Episode) -> Entry:
    output = token_array(episode.output, "output")
    text = episode.text
    if text is not None and len(text) > CHARACTERS * (len(output) + 1):
        text = None
    return Entry(
        tenant=episode.tenant,
        output=output.tobytes(),
        tail=tail_of(episode.prompt).tobytes(),
        digest=_digest(episode.prompt),
        text=text,
        key=unit(episode.embedding),
    )


def _digest(prompt: Sequence[int]) -> bytes:
    return hashlib.blake2b(wide_array(prompt, "prompt").tobytes(), digest_size=16).digest()


def _agreed(own: dict[str, str], other: dict[str, str], whose: str) -> dict[str, str]:
    """One set of fingerprints; an empty one agrees with any."""
    for name, fingerprint in own.items():
        if fingerprint and other[name] and fingerprint != other[name]:
            raise MemoryFileError(
                f"{whose} of the {name} {other[name]!r}, this memory of {fingerprint!r}; "
                "episodes of another do not help, so use a memory of its own"
            )
    return {name: own[name] or other[name] for name in own}
