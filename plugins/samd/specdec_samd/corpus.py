"""Corpus: the texts behind static automata, and FileCorpus, those of a file."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from specdec import Request, Result, SpecdecError, TextCodec
from specdec_samd.automaton import SuffixAutomaton

LINES: Final = ".jsonl"
"""Ending of the name of a file of JSON lines; any other is one plain text."""

HIGHEST: Final = 2**31 - 1
"""The highest token id."""

Text = str | tuple[int, ...]
"""A text, or its token ids."""


class CorpusError(SpecdecError, ValueError):
    """A corpus file cannot be read; the message names it, what was found and what is expected."""


class Corpus(ABC):
    """Texts that outlive a request, as automata that never change once they are built."""

    @property
    def remembers(self) -> bool:
        """Whether earlier requests add to it."""
        return False

    @abstractmethod
    def automata(self, request: Request) -> tuple[SuffixAutomaton, ...]:
        """The automata that a request may look in, the newest texts last."""

    def learn(self, request: Request, result: Result) -> None:
        """Take in what came out of a request."""

    def state(self) -> Mapping[str, Any]:
        """What was learned, for saving."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""


class FileCorpus(Corpus):
    """The texts of a file: static, and the same for every tenant.

    The file is read at the first request, and its texts are encoded once per codec; the automaton
    of the codec asked for last is kept. Without a codec in the request only token ids are of use.

    Args:
        path: A plain text, or JSON lines if its name ends in ``.jsonl``: each a text or a list of
            token ids.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._texts: tuple[Text, ...] | None = None
        self._codec: TextCodec | None = None
        self._automata: tuple[SuffixAutomaton, ...] | None = None
        self._lock = threading.Lock()  # requests may be open in several threads

    def automata(self, request: Request) -> tuple[SuffixAutomaton, ...]:
        """One automaton of all texts; the first request with a codec waits for it.

        Raises:
            CorpusError: If the file cannot be read.
        """
        with self._lock:
            if self._texts is None:
                self._texts = read_corpus(self.path)
            if self._automata is None or self._codec is not request.codec:
                texts = (_encoded(text, request.codec) for text in self._texts)
                self._automata = (SuffixAutomaton.of(texts),)
                self._codec = request.codec
            return self._automata

    def __repr__(self) -> str:
        return repr(str(self.path))


def _encoded(text: Text, codec: TextCodec | None) -> Sequence[int]:
    if not isinstance(text, str):
        return text
    return codec.encode(text, ()) if codec is not None else ()


def read_corpus(path: Path) -> tuple[Text, ...]:
    """The texts of a file.

    Args:
        path: See `FileCorpus`. Empty lines and a byte order mark are passed over.

    Raises:
        CorpusError: If there is no such file, it is not UTF-8, holds no text, or a line of a
            ``.jsonl`` file is neither a text nor a list of token ids.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CorpusError(
            f"corpus {path} cannot be read: {error.strerror or error}; expected a text file or "
            f"JSON lines (*{LINES})"
        ) from error
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"corpus {path} holds byte {error.object[error.start]:#04x} at offset {error.start}, "
            "which is not UTF-8; expected UTF-8 text"
        ) from error
    if path.suffix != LINES:
        texts: tuple[Text, ...] = (content,) if content.strip() else ()
    else:
        # Not splitlines: JSON texts may hold line separators of other kinds.
        lines = enumerate(content.split("\n"), start=1)
        texts = tuple(_text(line, f"{path}:{number}") for number, line in lines if line.strip())
    if not texts:
        raise CorpusError(f"corpus {path} is empty; expected at least one text")
    return texts


def _text(line: str, place: str) -> Text:
    """The text of a JSON line."""
    try:
        value = json.loads(line)
    except ValueError as error:
        raise CorpusError(
            f"corpus {place} is not JSON ({error}); expected a text or a list of token ids per line"
        ) from error
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise CorpusError(
            f"corpus {place} holds a JSON {type(value).__name__}; expected a text or a list of "
            "token ids"
        )
    for token in value:
        if type(token) is not int or not 0 <= token <= HIGHEST:
            raise CorpusError(
                f"corpus {place} holds {token!r} in a list; expected token ids from 0 to {HIGHEST}"
            )
    return tuple(value)
