"""Journal: what a comparison has done so far, kept so that it can be taken up again."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from specdec.compare.outcome import Outcome, outcome_from, outcome_to
from specdec.errors import RequestError
from specdec.files import replace

LINES: Final = "journal.jsonl"
STATE: Final = "journal.state"

SAVE_EVERY: Final = 5.0
"""Seconds between two saved states; what came after the last one is measured again."""


class JournalError(RequestError):
    """A journal that cannot be gone on with: of another comparison, or damaged."""


class Journal:
    """Outcomes and drafters' states in a folder, complete to the last saved round.

    A round is one request answered by every arm. Outcomes are appended to ``journal.jsonl`` as
    they come; the drafters' states and the number of rounds they have seen are replaced as a
    whole in ``journal.state``. What lies behind the last saved round is dropped when the journal
    is opened again, since the drafters do not know of it, and so is a last line that was cut.

    The state is a pickle, as what drafters learn may be any Python value: open only journals that
    you wrote.

    Args:
        folder: Where it lies; created if missing.
        settings: What the comparison is about. A journal of another comparison is not gone on
            with.

    Raises:
        JournalError: If the folder holds a journal of other settings, or a damaged one.
        RequestError: If the folder cannot be written.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._lines = folder / LINES
        self._state = folder / STATE
        self._saved = 0.0
        self.rounds = 0
        self.outcomes: list[Outcome] = []
        self.states: dict[str, Any] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self._lines.exists():
                self._take_up(dict(settings))
            else:
                self._state.unlink(missing_ok=True)
            self._replace([dict(settings), *map(outcome_to, self.outcomes)])
        except OSError as error:
            raise RequestError(
                f"the comparison's folder {folder} cannot be used: {error.strerror}"
            ) from None

    def add(self, outcomes: Iterable[Outcome], states: Mapping[str, Any], *, last: bool) -> None:
        """Keep one round.

        Args:
            outcomes: One per arm.
            states: What the drafters know now, by arm; asked for only when it is saved.
            last: Whether this was the last round.
        """
        with self._lines.open("a", encoding="utf-8") as file:
            for outcome in outcomes:
                file.write(json.dumps(outcome_to(outcome)) + "\n")
                self.outcomes.append(outcome)
        self.rounds += 1
        if last or time.monotonic() - self._saved > SAVE_EVERY:
            replace(self._state, pickle.dumps((self.rounds, dict(states))))
            self._saved = time.monotonic()

    def remove(self) -> None:
        """The comparison is complete: what was kept to go on with is not needed any more."""
        drop(self._lines.parent)

    def _take_up(self, settings: dict[str, Any]) -> None:
        lines = self._lines.read_text(encoding="utf-8").split("\n")
        try:
            kept = json.loads(lines[0])
        except ValueError:
            kept = {}  # killed while the first line was written: nothing was done yet
        if not kept:
            return
        if different := [key for key in settings | kept if settings.get(key) != kept.get(key)]:
            raise JournalError(
                f"{self._lines.parent} holds an interrupted comparison with other settings ("
                + ", ".join(f"{key}: {kept.get(key)}, now {settings.get(key)}" for key in different)
                + "); give the same ones to go on with it, another --out, or --restart to drop it"
            )
        if not self._state.exists():
            return  # killed in the first round
        lines = lines[1:]
        try:
            self.rounds, self.states = pickle.loads(self._state.read_bytes())
            known = self.rounds * int(settings["arms"])
            self.outcomes = [outcome_from(json.loads(line)) for line in lines[:known]]
            if len(self.outcomes) < known:
                raise ValueError(f"{known} outcomes expected, {len(self.outcomes)} found")
        except Exception as error:  # a pickle may raise anything
            raise JournalError(
                f"the interrupted comparison in {self._lines.parent} is damaged ({error}); "
                "--restart drops it"
            ) from error

    def _replace(self, rows: Iterable[Any]) -> None:
        replace(self._lines, "".join(json.dumps(row) + "\n" for row in rows))


def drop(folder: Path) -> None:
    """Remove the journal of an interrupted comparison, if there is one."""
    for name in (LINES, STATE):
        (folder / name).unlink(missing_ok=True)
