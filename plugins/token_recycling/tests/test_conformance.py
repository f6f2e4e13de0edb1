"""The conformance kit, on this plugin."""

from specdec_token_recycling import TokenRecycling

from specdec.testing import drafter_checks


@drafter_checks(TokenRecycling, lambda: TokenRecycling(top_k=2, nodes=5))
def test_conformance(check):
    check()
