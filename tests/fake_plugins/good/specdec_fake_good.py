"""A plugin with nothing wrong: a drafter, a call format and an observer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec.hookspecs import hookimpl
from specdec.interfaces import Drafter, DraftSession
from specdec.request import Request, Step

seen: list[Step] = []


class Echo(Drafter):
    """Takes options and is never asked for a draft."""

    def __init__(self, ngram: int = 3, *, length: int = 10) -> None:
        self.ngram = ngram
        self.length = length

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        """Not used."""
        raise NotImplementedError


@hookimpl
def register_drafters(register: Callable[[str, object], None]) -> None:
    """Register one drafter."""
    register("echo", Echo)


@hookimpl
def register_call_formats(register: Callable[[str, object], None]) -> None:
    """Register one record."""
    register("bare", {"begin": "<call>"})


@hookimpl
def on_step(step: Step) -> None:
    """Keep the step; asks for one of the hook's two arguments."""
    seen.append(step)


def register_drafter() -> None:
    """Not a hook: it is not marked, so its name is its own affair."""
