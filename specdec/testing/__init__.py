"""The conformance kit: what a component must do to be trusted, checked without a model.

In a plugin's own tests::

    from specdec.testing import drafter_checks

    @drafter_checks(PromptLookup, lambda: PromptLookup(ngram=1))
    def test_conformance(check):
        check()

and likewise `machine_checks`, `memory_checks` and `verifier_checks`. `run_checks` runs them
without pytest.
"""

from __future__ import annotations

from specdec.testing.checks import CheckFailed, CheckResult
from specdec.testing.codec import CharCodec
from specdec.testing.drafter import drafter_checks
from specdec.testing.machine import machine_checks
from specdec.testing.memory import memory_checks
from specdec.testing.oracle import OracleTarget
from specdec.testing.run import run_checks
from specdec.testing.verifier import verifier_checks

__all__ = [
    "CharCodec",
    "CheckFailed",
    "CheckResult",
    "OracleTarget",
    "drafter_checks",
    "machine_checks",
    "memory_checks",
    "run_checks",
    "verifier_checks",
]
