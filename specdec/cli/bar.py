"""Bar: how far a long command is, and how long it will still take."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY: Final = 60.0
"""Seconds between two lines where there is no terminal to draw a bar on."""

WIDTH: Final = 60
"""Characters of a description that are shown."""


class Bar:
    """A progress bar with the time left; where there is no terminal, a line now and then.

    Args:
        console: Where it is shown.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rich = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._rich.add_task("starting", total=None)
        self._total = self._done = 0
        self._start = self._said = time.monotonic()

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._rich.stop()

    def ready(self, total: int) -> None:
        """Something of `total` parts begins."""
        self._total, self._done = total, 0
        self._start = self._said = time.monotonic()
        self._rich.reset(self._task, total=total)

    def advance(self, description: str) -> None:
        """One more part is done."""
        self._done += 1
        shown = description[:WIDTH]
        self._rich.update(self._task, advance=1, description=shown)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._said >= EVERY:
            self._said = now
            left = (now - self._start) / self._done * (self._total - self._done)
            self._console.print(
                f"{self._done} of {self._total}, about {left / 60:.0f} min left; {shown}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
