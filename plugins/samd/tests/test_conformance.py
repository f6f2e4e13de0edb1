"""The conformance kit, on this plugin."""

from specdec_samd import Context, SamDecoding, SuffixDrafter

from specdec import parse
from specdec.testing import drafter_checks


@drafter_checks(
    SamDecoding,
    lambda: SamDecoding(auxiliary=None),
    lambda: SuffixDrafter(length=3, threshold=1, scale=None),
    lambda: parse("sam(threshold=1, bias=0, static=episodes(entries=20))"),
    Context,
)
def test_conformance(check):
    check()
