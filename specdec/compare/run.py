"""The comparison itself: every request by every arm, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from specdec.compare.arm import Arm
from specdec.compare.cases import Case
from specdec.compare.journal import Journal
from specdec.compare.outcome import Outcome
from specdec.errors import SpecdecError
from specdec.request import Request


def compare(
    cases: Sequence[Case],
    arms: Sequence[Arm],
    request_of: Callable[[Case], Request],
    *,
    warm: bool = False,
    journal: Journal | None = None,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Answer every case with every arm.

    The arms take turns request by request (A B C A B C), so that drift of the machine hits all
    alike. Each arm's drafter goes on from request to request with what it has learned.

    Args:
        cases: What is asked.
        arms: What answers.
        request_of: Makes the request of a case; an error there fails the case for every arm.
        warm: Whether each arm first answers all of the cases once without being counted.
        journal: Keeps what is done; a journal that holds rounds already is gone on with.
        progress: Is told about every outcome, those of an interrupted run first.

    Returns:
        The outcomes that count, in the order of the cases and, for each, of the arms. A request
        that fails is one of them, with its error, and ends nothing else.
    """
    done: list[Outcome] = []
    start = 0
    if journal is not None:
        for arm in arms:
            if arm.drafter is not None and arm.key in journal.states:
                arm.drafter.restore(journal.states[arm.key])
        done += journal.outcomes
        start = journal.rounds
        for outcome in done:
            progress(outcome)
    laps = (True, False) if warm else (False,)
    turns = [(warming, place) for warming in laps for place in range(len(cases))]
    for number, (warming, place) in enumerate(turns[start:], start=start + 1):
        outcomes = []
        for outcome in _round(place, cases[place], arms, request_of, warming):
            outcomes.append(outcome)
            progress(outcome)
        done += outcomes
        if journal is not None:
            journal.add(outcomes, _States(arms), last=number == len(turns))
    return [outcome for outcome in done if not outcome.warming]


def _round(
    place: int,
    case: Case,
    arms: Sequence[Arm],
    request_of: Callable[[Case], Request],
    warming: bool,
) -> Iterator[Outcome]:
    """One case by every arm."""
    request: Request | None = None
    refused = ""
    try:
        request = request_of(case)
    except Exception as error:  # a chat template may raise anything
        refused = explained(error)
    for arm in arms:
        length = len(request.prompt) if request is not None else 0
        result, failure = None, refused or None
        if request is not None:
            try:
                result = arm.answer(request)
            except Exception as error:  # a drafter may raise anything; the others go on
                failure = explained(error)
        yield Outcome(arm.key, place, case.id, length, result, failure, warming)


def explained(error: Exception) -> str:
    """An error as one line of a report."""
    lines = str(error).strip().splitlines() or ["no message"]
    return lines[0] if isinstance(error, SpecdecError) else f"{type(error).__name__}: {lines[0]}"


class _States(Mapping[str, Any]):
    """The arms' states by key, taken when they are looked up."""

    def __init__(self, arms: Sequence[Arm]) -> None:
        self._drafters = {arm.key: arm.drafter for arm in arms if arm.drafter is not None}

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - what a drafter learned
        return self._drafters[key].state()

    def __iter__(self) -> Iterator[str]:
        return iter(self._drafters)

    def __len__(self) -> int:
        return len(self._drafters)
