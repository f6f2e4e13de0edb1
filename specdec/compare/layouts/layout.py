"""Layout: a form in which requests are published or logged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from specdec.compare.layouts.case import Case
from specdec.compare.layouts.record import Record, files_of, keys, records
from specdec.errors import RequestError


@attrs.frozen
class Layout:
    """A form in which requests are published or logged.

    Attributes:
        name: What users call it.
        expected: What one of its records looks like, for messages.
        recognises: Whether a record, the decoded JSON object, is of this layout. No record is of
            two layouts.
        read: The cases of the records of all files, in order; errors name the record's place.
        files: The files to read when a file or a folder is named.
    """

    name: str
    expected: str
    recognises: Callable[[object], bool]
    read: Callable[[Iterable[Record]], Iterator[Case]]
    files: Callable[[Path], Sequence[Path]] = files_of

    def cases(self, path: Path) -> Iterator[Case]:
        """The cases of a file, or of a folder's files.

        Raises:
            RequestError: If it cannot be read or holds something else.
        """
        return self.read(self._records(path))

    def _records(self, path: Path) -> Iterator[Record]:
        for file in self.files(path):
            for record in records(file):
                if not self.recognises(record.data):
                    raise RequestError(
                        f"{record.where}: an object with {keys(record.data)} is not of the layout "
                        f"{self.name!r}; expected {self.expected}"
                    )
                yield record


def each(
    one: Callable[[Record], Iterable[Case]],
) -> Callable[[Iterable[Record]], Iterator[Case]]:
    """A reader of records that have nothing to do with each other.

    Args:
        one: The cases of one record; its errors need not name the place.
    """

    def read(given: Iterable[Record]) -> Iterator[Case]:
        for record in given:
            with record.located():
                cases = tuple(one(record))
            yield from cases

    return read
