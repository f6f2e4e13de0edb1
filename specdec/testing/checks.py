"""Checks: named functions of a factory, run by pytest or without it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from specdec.errors import did_you_mean

if TYPE_CHECKING:
    import pytest

Factory = Callable[[], Any]
"""Builds the component under test, new in every part: two that it built share nothing."""


class CheckFailed(AssertionError):
    """The component breaks the contract that a check looks at; the message says how."""


class CheckSkipped(Exception):
    """A check does not apply to the component; the message says why."""


@attrs.frozen
class Check:
    """One promise of an interface.

    Attributes:
        name: What a component that passes does.
        run: Takes the factory; raises when the promise is broken, may return a remark.
        after: Names of checks that must pass first, since this one could say nothing without.
    """

    name: str
    run: Callable[[Factory], str | None]
    after: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        function: Callable[..., str | None],
        *,
        after: Sequence[Callable[..., str | None]] = (),
        **fixed: Any,  # noqa: ANN401 - arguments of `function`, which checks them itself
    ) -> Check:
        """The check that goes by the function's own name; `fixed` are its further arguments."""
        run = partial(function, **fixed) if fixed else function
        return cls(function.__name__, run, tuple(earlier.__name__ for earlier in after))


@attrs.frozen
class CheckResult:
    """How one check went.

    Attributes:
        check: The check's name.
        ok: False for a broken promise, and for an expected failure that passed.
        message: What is wrong, why it was skipped, or a remark; often empty.
        seconds: Wall-clock seconds it took.
        skipped: Whether it was not run; then `ok` is True.
    """

    check: str
    ok: bool
    message: str = ""
    seconds: float = 0.0
    skipped: bool = False


@contextmanager
def during(what: str) -> Iterator[None]:
    """Adds to an error from inside what was being done, such as ``the prompt 'one_token'``."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {what}")
        raise


def fail_unless(condition: bool, message: str) -> None:
    """Fail the running check unless `condition` holds.

    Raises:
        CheckFailed: With `message`.
    """
    if not condition:
        raise CheckFailed(message)


class Trial:
    """One component's way through a suite; what a check found is kept for those after it."""

    def __init__(self, suite: Sequence[Check], factory: Factory) -> None:
        self.suite = {check.name: check for check in suite}
        self.factory = factory
        self._results: dict[str, CheckResult] = {}

    def obstacle(self, name: str) -> str | None:
        """Why the check of this name cannot be run, or None."""
        for earlier in self.suite[name].after:
            result = self.result(earlier)
            if not result.ok or (result.skipped and self.obstacle(earlier)):
                return f"not run: {earlier} comes first and did not pass"
        return None

    def result(self, name: str) -> CheckResult:
        """The outcome of the check of this name; it runs once."""
        if name not in self._results:
            self._results[name] = self._run(name)
        return self._results[name]

    def _run(self, name: str) -> CheckResult:
        if obstacle := self.obstacle(name):
            return CheckResult(name, ok=True, message=obstacle, skipped=True)
        begun = time.perf_counter()
        ok, skipped = True, False
        try:
            message = self.suite[name].run(self.factory) or ""
        except CheckSkipped as reason:
            message, skipped = str(reason), True
        except Exception as error:  # whatever a component raises is its finding
            message, ok = describe(error), False
        return CheckResult(name, ok, message, time.perf_counter() - begun, skipped)


def describe(error: Exception) -> str:
    """An error in one line: what, with what, and where it was raised."""
    notes = "".join(f", {note}" for note in getattr(error, "__notes__", ()))
    if isinstance(error, CheckFailed):
        return f"{error}{notes}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{notes}{where}"


def known_failures(
    suite: Sequence[Check], expected_failures: Mapping[str, str] | None
) -> Mapping[str, str]:
    """The expected failures, if each names a check of `suite` and gives a reason.

    Raises:
        ValueError: If one does not.
    """
    expected = expected_failures or {}
    names = [check.name for check in suite]
    for name, reason in expected.items():
        if name not in names:
            raise ValueError(
                f"expected_failures names {name!r}, which is not a check{did_you_mean(name, names)}"
                f" (checks: {', '.join(names)})"
            )
        if not reason:
            raise ValueError(f"expected_failures gives no reason for {name!r}; say why it fails")
    return expected


def run_suite(
    suite: Sequence[Check], factory: Factory, expected_failures: Mapping[str, str] | None = None
) -> tuple[CheckResult, ...]:
    """One row per check, in order. See `specdec.testing.run_checks`."""
    expected = known_failures(suite, expected_failures)
    trial = Trial(suite, factory)
    rows = []
    for check in suite:
        row = trial.result(check.name)
        if check.name in expected and not row.skipped:
            reason = expected[check.name]
            message = f"fails as expected ({reason}): {row.message}"
            if row.ok:
                message = f"passes, but was expected to fail ({reason}); take it off the list"
            row = attrs.evolve(row, ok=not row.ok, message=message)
        rows.append(row)
    return tuple(rows)


class BoundCheck:
    """A check and a component's factory: what the author's test function calls."""

    def __init__(self, trial: Trial, check: Check) -> None:
        self._trial = trial
        self._check = check

    def __call__(self) -> None:
        """Run the check in pytest: an error is raised as it is, with its own traceback."""
        import pytest

        if obstacle := self._trial.obstacle(self._check.name):
            pytest.skip(obstacle)
        try:
            remark = self._check.run(self._trial.factory)
        except CheckSkipped as reason:
            pytest.skip(str(reason))
        if remark:
            print(remark)  # pytest shows it with -rP

    def __repr__(self) -> str:
        return f"<check {self._check.name}>"


def parametrize(
    suite: Sequence[Check],
    factories: Sequence[Factory],
    expected_failures: Mapping[str, str] | None,
) -> pytest.MarkDecorator:
    """Parametrise a test function's `check` with every check of every factory.

    Raises:
        ValueError: If there is no factory, or an expected failure is unknown or without reason.
    """
    import pytest

    if not factories:
        raise ValueError("give at least one factory, such as a class or `lambda: Mine(size=3)`")
    expected = known_failures(suite, expected_failures)
    parameters = []
    for name, factory in zip(_names(factories), factories, strict=True):
        trial = Trial(suite, factory)
        for check in suite:
            reason = expected.get(check.name)
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            bound = BoundCheck(trial, check)
            parameters.append(pytest.param(bound, marks=marks, id=f"{name}-{check.name}"))
    return pytest.mark.parametrize("check", parameters)


def _names(factories: Sequence[Factory]) -> list[str]:
    """One name per factory; a number tells namesakes apart, as strict pytest demands."""
    names: list[str] = []
    for factory in factories:
        inner = factory.func if isinstance(factory, partial) else factory
        name = getattr(inner, "__name__", type(inner).__name__)
        if name == "<lambda>":
            try:
                name = type(inner()).__name__
            except Exception:  # its checks will show the error, each in its place
                name = "factory"
        count = 1
        unique = name
        while unique in names:
            count += 1
            unique = f"{name}{count}"
        names.append(unique)
    return names
