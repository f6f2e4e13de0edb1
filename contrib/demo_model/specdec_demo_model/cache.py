"""A folder of converted models: written whole or not at all, never trusted blindly."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import platformdirs

T = TypeVar("T")

logger = logging.getLogger(__name__)

_MANIFEST = "complete.json"
_KEPT = 2  # entries: the current one, and one for a second environment with other versions
_STALE_SECONDS = 24 * 3600  # a temporary folder this old belongs to a process that died


class DamagedEntry(Exception):
    """A cache entry is not what was written."""


def default_folder() -> Path:
    """``$SPECDEC_CACHE`` if set, else the user's cache folder for specdec."""
    chosen = os.environ.get("SPECDEC_CACHE")
    base = Path(chosen) if chosen else Path(platformdirs.user_cache_dir("specdec", False))
    return base / "demo-model"


def digest(files: Iterable[Path], extra: Iterable[str] = ()) -> str:
    """A short name for the contents of `files` and the strings of `extra`."""
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    for text in extra:
        total.update(hashlib.sha256(text.encode()).digest())
    return total.hexdigest()[:16]


def fetch(
    folder: Path,
    key: str,
    *,
    read: Callable[[Path], T],
    build: Callable[[], T],
    write: Callable[[T, Path], None],
) -> T:
    """What entry `key` holds, built and written if it is absent or damaged.

    Args:
        folder: Where the entries lie; need not exist or be writable.
        key: Name of the entry.
        read: Makes the value from an entry's folder; any exception means damage.
        build: Makes the value from scratch.
        write: Puts the value's files into an empty folder.

    Returns:
        The value, whether or not it could be cached.
    """
    entry = folder / key
    if _exists(entry):
        try:
            _check(entry)
            value = read(entry)
        except Exception as error:  # damage shows as whatever the reader trips over
            logger.warning("rebuilding the damaged cache entry %s (%s)", entry, _line(error))
        else:
            with contextlib.suppress(OSError):
                os.utime(entry)  # so that pruning knows which entries are in use
            return value
    value = build()
    try:
        _store(entry, lambda temporary: write(value, temporary))
    except Exception as error:  # a full disk shows as OSError or as the writer's own error
        logger.info("the converted demo model is not kept: %s", _line(error))
    return value


def _exists(entry: Path) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # the folder above may not be readable
        return False


def _check(entry: Path) -> None:
    sizes = json.loads((entry / _MANIFEST).read_text(encoding="utf-8"))
    for name, size in sizes.items():
        path = entry / name
        if not path.is_file() or path.stat().st_size != size:
            raise DamagedEntry(f"{name} is missing or has the wrong size")


def _store(entry: Path, write: Callable[[Path], None]) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".new-", dir=entry.parent))
    try:
        write(temporary)
        sizes = {path.name: path.stat().st_size for path in sorted(temporary.iterdir())}
        (temporary / _MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
        _install(temporary, entry)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _prune(entry)


def _install(temporary: Path, entry: Path) -> None:
    """Puts `temporary` in the place of `entry`.

    A folder cannot be replaced in one step when it holds files, so an old entry first moves
    aside, out of the way of readers, and whoever has it open keeps what they have.
    """
    if entry.exists():
        aside = Path(tempfile.mkdtemp(prefix=".old-", dir=entry.parent))
        try:
            os.replace(entry, aside / entry.name)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    os.replace(temporary, entry)


def _prune(current: Path) -> None:
    """Removes what nobody will read again: an entry is half a gigabyte."""
    with contextlib.suppress(OSError):
        times = {path: path.stat().st_mtime for path in current.parent.iterdir() if path.is_dir()}
        temporary = {path for path in times if path.name.startswith((".new-", ".old-"))}
        doomed = [path for path in temporary if times[path] < time.time() - _STALE_SECONDS]
        # Only what this module wrote: the folder may be one that the user shares with other files.
        others = [path for path in times.keys() - temporary if (path / _MANIFEST).is_file()]
        others.sort(key=lambda path: times[path], reverse=True)
        doomed += [path for path in others if path != current][_KEPT - 1 :]
        for path in doomed:
            shutil.rmtree(path, ignore_errors=True)


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
