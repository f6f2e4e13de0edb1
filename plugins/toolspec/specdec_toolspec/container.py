"""Container: arrays and a description in one file, written whole or not at all.

The file is an npz (``numpy.load`` opens it): uncompressed arrays in a zip archive, without
pickle. It is read with more care than ``numpy.load`` takes, since a memory may come from anywhere:
nothing is believed about sizes that the file's own size does not bear out.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from specdec import SpecdecError

Columns = Mapping[str, npt.NDArray[Any]]

META: Final = "meta"
"""The member that holds the description, as JSON."""


class MemoryFileError(SpecdecError, ValueError):
    """A memory file cannot be read or written, or must not be loaded; the message says why."""


def write(path: Path, meta: Mapping[str, Any], columns: Columns) -> None:
    """Put a file in the place of `path`, in one move.

    Raises:
        MemoryFileError: If it cannot be written; what was there before then still is.
    """
    description = np.frombuffer(json.dumps(meta).encode("ascii"), dtype=np.uint8)
    members: dict[str, Any] = {META: description, **columns}
    target = Path(os.path.realpath(path))  # a link stays one
    try:
        # Beside the target, since a move is only atomic inside one file system.
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, **members)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise MemoryFileError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def opened(path: Path, most: int) -> Iterator[Members]:
    """The members of a file that `write` made.

    Everything that goes wrong inside the block, `MemoryFileError` aside, is the file's fault.

    Args:
        path: The file.
        most: The most bytes it may have.

    Raises:
        MemoryFileError: If it cannot be read, is too large or is not such a file.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise MemoryFileError(
                    f"{path} has {size} bytes; what this memory may hold takes at most {most}"
                )
            with zipfile.ZipFile(file) as archive:
                yield Members(archive, size)
    except MemoryFileError:
        raise
    except OSError as error:
        raise MemoryFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a torn file fails in more ways than can be listed
        raise MemoryFileError(
            f"{path} is torn or is no memory file ({type(error).__name__}: {_line(error)})"
        ) from error


class Members:
    """What an open file holds.

    Args:
        archive: The open zip archive.
        size: Bytes of the file.
    """

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        self._left = size

    def meta(self) -> dict[str, Any]:
        """The description.

        Raises:
            ValueError: If there is none.
        """
        found = json.loads(self.column(META, np.uint8, 1).tobytes())
        if not isinstance(found, dict):
            raise ValueError("its description is not an object")
        return found

    def column(self, name: str, dtype: npt.DTypeLike, dimensions: int) -> npt.NDArray[Any]:
        """One array, read-only.

        Raises:
            ValueError: If it is missing, damaged or of another kind.
        """
        content = self._content(f"{name}.npy")
        file = io.BytesIO(content)
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"array {name!r} is of version {version}")
        shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
        if kind != np.dtype(dtype) or len(shape) != dimensions or fortran:
            raise ValueError(f"array {name!r} is of kind {kind} and shape {shape}")
        body = content[file.tell() :]
        # Python's integers do not overflow, so no shape can pretend to be small.
        count = 1
        for extent in shape:
            count *= extent
        if min(shape, default=0) < 0 or count * kind.itemsize != len(body):
            raise ValueError(f"array {name!r} of shape {shape} does not fill its place")
        return np.frombuffer(body, dtype=kind).reshape(shape)

    def _content(self, member: str) -> bytes:
        info = self._archive.getinfo(member)
        # Stored as it is: no member is larger than the file, nor all of them together.
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > self._left:
            raise ValueError(f"member {member!r} is compressed or larger than the file")
        self._left -= info.file_size
        # Reading to the end compares the checksum.
        return self._archive.read(info)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
