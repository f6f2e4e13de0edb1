"""Archive: a memory's entries as the columns of a file, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from specdec_toolspec.container import Members, MemoryFileError, opened, write
from specdec_toolspec.contents import LEXICAL, Contents, Entry
from specdec_toolspec.keys import TAIL

FORMAT: Final = "specdec-episodes"
"""What a file says it is."""

VERSION: Final = 1
"""The version written, and the newest one read."""

ENTRY_BYTES: Final = 1 << 18
"""Bytes of a file per entry, at most: the widest embeddings known take a quarter of it."""

TOKEN_BYTES: Final = 1 << 9
"""Bytes of a file per output token, at most, its text included."""

COUNTS: Final = ("stored", "uses", "accepted")
"""The columns of counts, all int64."""


@attrs.frozen
class Archive:
    """What a file holds.

    Attributes:
        model: Fingerprint of the model that made the embeddings; empty when unknown.
        tokenizer: Fingerprint of the tokenizer of all ids; empty when unknown.
        entries: The entries with their keys, in the order in which they were first stored.
    """

    model: str
    tokenizer: str
    entries: tuple[Entry, ...]

    @classmethod
    def snapshot(cls, model: str, tokenizer: str, contents: Contents) -> Archive:
        """A copy that later changes of `contents` do not reach."""
        copies = (attrs.evolve(entry, key=contents.key(entry)) for entry in contents)
        return cls(model, tokenizer, tuple(sorted(copies, key=lambda entry: entry.serial)))

    def contents(self) -> Contents:
        """Contents that hold the entries, in the same order of use. The entries are theirs then."""
        by_use = sorted(self.entries, key=lambda entry: entry.used)
        contents = Contents()
        for entry in self.entries:
            contents.add(entry)
        for entry in by_use:
            contents.touch(entry)
        return contents

    def save(self, path: Path) -> None:
        """Write everything to `path`, atomically.

        Raises:
            MemoryFileError: If it cannot be written.
        """
        entries = self.entries
        tenants = sorted({entry.tenant for entry in entries})
        place = {tenant: i for i, tenant in enumerate(tenants)}
        texts = [None if e.text is None else e.text.encode(**_UTF8) for e in entries]
        columns: dict[str, npt.NDArray[Any]] = {
            "tenant": np.array([place[e.tenant] for e in entries], np.int64),
            # As ranks, so that a memory that was loaded is saved as the same bytes.
            "used": np.argsort(np.argsort([e.used for e in entries])).astype(np.int64),
            "kind": np.array([e.kind for e in entries], np.int64),
            "digests": _bytes([e.digest for e in entries]).reshape(-1, 16),
            "outputs": _bytes([e.output for e in entries]).view(np.int32),
            "output_tokens": np.array([e.tokens for e in entries], np.int64),
            "tails": _bytes([e.tail for e in entries]).view(np.int32),
            "tail_tokens": np.array([len(e.tail) // 4 for e in entries], np.int64),
            "texts": _bytes([text or b"" for text in texts]),
            "text_bytes": np.array([-1 if t is None else len(t) for t in texts], np.int64),
        }
        for name in COUNTS:
            columns[name] = np.array([getattr(e, name) for e in entries], np.int64)
        for kind in sorted({e.kind for e in entries} - {LEXICAL}):
            keys = [entry.key for entry in entries if entry.kind == kind]
            columns[f"keys_{kind}"] = np.array(keys, np.float32)
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "tokenizer": self.tokenizer,
            "entries": len(entries),
            "tokens": sum(entry.tokens for entry in entries),
            "tenants": tenants,
        }
        write(path, meta, columns)

    @classmethod
    def load(cls, path: Path, *, entries: int, tokens: int) -> Archive:
        """What `save` wrote.

        Args:
            path: The file.
            entries: The most entries wanted.
            tokens: The most output tokens wanted.

        Raises:
            MemoryFileError: If the file cannot be read, is torn, foreign or of a newer version,
                or holds more than is wanted.
        """
        with opened(path, (1 << 20) + entries * ENTRY_BYTES + tokens * TOKEN_BYTES) as members:
            meta = members.meta()
            if meta.get("format") != FORMAT:
                raise MemoryFileError(f"{path} holds {meta.get('format')!r}, not {FORMAT!r}")
            version = meta.get("version")
            if not isinstance(version, int) or version < 1:
                raise ValueError(f"its version is {version!r}")
            if version > VERSION:
                raise MemoryFileError(
                    f"{path} is of version {version}; this specdec-toolspec reads up to {VERSION}, "
                    "a newer one is needed"
                )
            held = {name: meta.get(name) for name in ("entries", "tokens")}
            for name, most in (("entries", entries), ("tokens", tokens)):
                count = held[name]
                if not isinstance(count, int) or count > most:
                    raise MemoryFileError(
                        f"{path} holds {count!r} {name}, this memory at most {most}; make it with "
                        f"{name}={count!r}, or prune the file with: specdec memory prune"
                    )
            found = tuple(_entries(members, meta))
            if sum(entry.tokens for entry in found) != held["tokens"]:
                raise ValueError("it holds something else than it says")
            return cls(_text(meta, "model"), _text(meta, "tokenizer"), found)


_UTF8: Final[dict[str, Any]] = {"encoding": "utf-8", "errors": "surrogatepass"}
"""How texts are written; half a surrogate pair is kept as it is."""


def _bytes(parts: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def _text(meta: dict[str, Any], name: str) -> str:
    value = meta.get(name)
    if not isinstance(value, str):
        raise ValueError(f"its {name} is {value!r}")
    return value


def _entries(members: Members, meta: dict[str, Any]) -> list[Entry]:
    """The entries that the columns describe; any contradiction raises."""
    names = meta["tenants"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its tenants are no list of names")
    n = meta["entries"]

    def numbers(name: str, least: int) -> list[int]:
        column = members.column(name, np.int64, 1)
        if len(column) != n or (n and int(column.min()) < least):
            raise ValueError(f"column {name!r} has {len(column)} numbers or one below {least}")
        values: list[int] = column.tolist()
        return values

    ids = members.column("outputs", np.int32, 1)
    if len(ids) and int(ids.min()) < 0:
        raise ValueError("an output holds a negative id")
    outputs = _cut(ids, numbers("output_tokens", 1))
    tails = _cut(members.column("tails", np.int32, 1), numbers("tail_tokens", 0), most=TAIL)
    lengths = numbers("text_bytes", -1)
    texts = _cut(members.column("texts", np.uint8, 1), [max(length, 0) for length in lengths])
    digests = members.column("digests", np.uint8, 2)
    if digests.shape != (n, 16):
        raise ValueError(f"column 'digests' has the shape {digests.shape}")
    kinds, tenants, used = numbers("kind", 0), numbers("tenant", 0), numbers("used", 0)
    keys = {
        kind: list(members.column(f"keys_{kind}", np.float32, 2)) for kind in {*kinds} - {LEXICAL}
    }
    for kind, rows in keys.items():
        if len(rows) != kinds.count(kind) or len(rows[0]) != kind:
            raise ValueError(f"there are {len(rows)} keys of width {kind}")
        rows.reverse()  # so that the next one can be taken off the end
    counts = {name: numbers(name, least) for name, least in zip(COUNTS, (1, 0, 0), strict=True)}
    entries = []
    for i in range(n):
        key = None if kinds[i] == LEXICAL else keys[kinds[i]].pop()
        # Kept bit by bit, so that nothing is recalled in another order than before.
        if key is not None and not abs(float(np.einsum("i,i->", key, key)) - 1.0) < 1e-3:
            raise ValueError("a key is not of length 1")
        text = None if lengths[i] < 0 else texts[i].decode(**_UTF8)
        digest = digests[i].tobytes()
        entry = Entry(names[tenants[i]], outputs[i], tails[i], digest, text, key, kinds[i])
        for name, column in counts.items():
            setattr(entry, name, column[i])
        entry.serial, entry.used = i, used[i]
        entries.append(entry)
    return entries


def _cut(whole: npt.NDArray[Any], lengths: list[int], most: int | None = None) -> list[bytes]:
    """`whole` in pieces of these lengths, as bytes."""
    if sum(lengths) != len(whole):
        raise ValueError("a column of ids or characters does not fit its lengths")
    if most is not None and max(lengths, default=0) > most:
        raise ValueError(f"a piece is longer than {most}")
    ends = np.cumsum([0, *lengths]).tolist()
    return [whole[a:b].tobytes() for a, b in pairwise(ends)]
