"""Arm: one way of answering requests, to be compared with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from specdec.budget import FixedBudget
from specdec.engine import Engine, Target
from specdec.errors import ExpressionError
from specdec.expression import parse
from specdec.interfaces import Budget, Drafter
from specdec.request import Request, Result

GENERATE: Final = "generate()"
"""Name of the arm that is transformers' own loop."""

PLAIN: Final = "none"
"""Name of the arm that is our own loop without a drafter."""

MEASURED: Final = "measured"
"""Name of the budget that weighs what passes cost."""


@attrs.frozen
class Arm:
    """One way of answering requests.

    Attributes:
        name: The stack's expression, or `GENERATE` or `PLAIN`.
        budget: Nodes per pass, or `MEASURED`; empty where nothing is drafted.
        answer: Decodes one request.
        drafter: What outlives a request in this arm; None where nothing does.
    """

    name: str
    budget: str
    answer: Callable[[Request], Result]
    drafter: Drafter | None = None

    @property
    def key(self) -> str:
        """The arm's own name among all arms of a comparison."""
        return key_of(self.name, self.budget)


def key_of(name: str, budget: str) -> str:
    """The key of an arm of that name and budget."""
    return f"{name} @ {budget}" if budget else name


def plain_arms(target: Target, generate: Callable[[Request], Result] | None) -> list[Arm]:
    """The arms that everything is measured against.

    Args:
        target: The model that decides.
        generate: transformers' own loop; None where there is none, as in a replay.
    """
    own = Arm(PLAIN, "", Engine(target, on_error="raise").generate)
    return [own] if generate is None else [Arm(GENERATE, "", generate), own]


def stack_arms(
    target: Target,
    stacks: Sequence[str],
    budgets: Sequence[Budget],
    hook: Any = None,  # noqa: ANN401
) -> list[Arm]:
    """One arm for each stack and budget, each with a stack of its own that knows nothing yet.

    Args:
        target: The model that decides.
        stacks: Expressions; `PLAIN` is left out, as it is among the plain arms.
        budgets: The budgets of every stack.
        hook: Observers; see `specdec.Engine`.
    """
    arms = []
    for stack in stacks:
        for budget in budgets if stack != PLAIN else ():
            drafter = parse(stack)
            # A drafter that raises is what a comparison must show, so nothing is hidden.
            engine = Engine(target, drafter, budget=budget, on_error="raise", hook=hook)
            arms.append(Arm(stack, budget_name(budget), engine.generate, drafter))
    return arms


def budget_name(budget: Budget) -> str:
    """How reports name a budget."""
    return str(budget.limit(0)) if isinstance(budget, FixedBudget) else MEASURED


def check_stacks(stacks: Sequence[str]) -> tuple[str, ...]:
    """The stacks, each once.

    Raises:
        ExpressionError: If one cannot be built, or is given twice.
    """
    for place, stack in enumerate(stacks):
        if stack in stacks[:place]:
            raise ExpressionError(
                f"drafter {stack!r} is given twice; each is compared with all others once"
            )
        parse(stack)
    return tuple(stacks)
