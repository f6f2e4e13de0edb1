"""The conformance kit, on this plugin."""

from specdec_pld import PromptLookup

from specdec.testing import drafter_checks


@drafter_checks(
    PromptLookup,
    lambda: PromptLookup(ngram=1, length=1),
    lambda: PromptLookup(ngram=5, min_ngram=2, match="first"),
)
def test_conformance(check):
    check()
