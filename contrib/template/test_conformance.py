"""The conformance kit, on this plugin."""

from specdec_repeat import RepeatLast

from specdec.testing import drafter_checks


@drafter_checks(RepeatLast, lambda: RepeatLast(length=1))
def test_conformance(check):
    check()
