"""Files that are never half-written."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path


def replace(path: Path, data: str | bytes) -> None:
    """Put `data` in the place of a file: after a crash it holds the old contents or the new.

    Args:
        path: The file; its folder must exist. Its permissions stay.
        data: Text, written as UTF-8, or bytes.

    Raises:
        OSError: If it cannot be written; the old contents stay.
    """
    # Not a temporary file of tempfile's: those are for their owner alone.
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        new.write_bytes(data.encode() if isinstance(data, str) else data)
        if path.exists():
            shutil.copymode(path, new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
