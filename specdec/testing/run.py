"""run_checks: the suite that fits a component, without pytest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdec.errors import ContractError
from specdec.interfaces import Drafter, Memory, StateMachine, Verifier
from specdec.testing import drafter, memory, verifier
from specdec.testing.checks import Check, CheckResult, Factory, run_suite
from specdec.testing.machine import machine_suite


def run_checks(
    factory: Factory,
    *,
    texts: Sequence[str] = (),
    expected_failures: Mapping[str, str] | None = None,
) -> tuple[CheckResult, ...]:
    """How a component of any kind fares in the checks for its kind, one row per check.

    Args:
        factory: Builds a new component at every call; two of them share nothing. What it raises
            when called for the first time is raised.
        texts: For a state machine: texts of its language; see `machine_checks`.
        expected_failures: Checks known to fail, by name, each with the reason. One that passes
            after all is a failure.

    Raises:
        ContractError: If the factory builds none of Drafter, StateMachine, Memory and Verifier.
        ValueError: If an expected failure is unknown or without reason, or texts are given for
            something that is no state machine.
    """
    component = factory()
    if texts and not isinstance(component, StateMachine):
        raise ValueError(f"texts are for state machines; the factory built {component!r}")
    return run_suite(_suite(component, texts), factory, expected_failures)


def _suite(component: object, texts: Sequence[str]) -> tuple[Check, ...]:
    match component:
        case Drafter():
            return drafter.CHECKS
        case StateMachine():
            return machine_suite(texts)
        case Memory():
            return memory.CHECKS
        case Verifier():
            return verifier.CHECKS
    raise ContractError(
        f"the factory built {component!r}; there are checks for a Drafter, a StateMachine, a "
        "Memory and a Verifier"
    )
