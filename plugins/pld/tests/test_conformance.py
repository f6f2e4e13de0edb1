"""The conformance kit, on this plugin."""

from specdec_pld import Prediction, PromptLookup

from specdec.testing import drafter_checks


@drafter_checks(
    PromptLookup,
    lambda: PromptLookup(ngram=1, length=1),
    lambda: PromptLookup(ngram=5, min_ngram=2, match="first"),
)
def test_conformance(check):
    check()


@drafter_checks(
    Prediction,
    lambda: Prediction(ngram=1, length=1, careful=1),
    lambda: Prediction(ngram=7, careful=64),
)
def test_conformance_of_prediction(check):
    check()
