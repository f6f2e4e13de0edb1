"""A sound plugin whose drafter has the same name as that of specdec-fake-good."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec.hookspecs import hookimpl
from specdec.interfaces import Drafter, DraftSession
from specdec.request import Request


class TwinEcho(Drafter):
    """Another echo."""

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """Not used."""
        raise NotImplementedError


@hookimpl
def register_drafters(register: Callable[[str, object], None]) -> None:
    """Register a second drafter named echo."""
    register("echo", TwinEcho)
