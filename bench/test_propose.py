"""One proposal of each drafter, without a model."""

import pytest

from specdec import Engine, Limit, Request, parse
from specdec.testing import OracleTarget

STACKS = ("pld", "token-recycling", "merge(pld, token-recycling)", "fallback(pld, token-recycling)")
LENGTH = 4096


@pytest.mark.benchmark(group="propose")
@pytest.mark.parametrize("stack", STACKS)
def test_propose_behind_4096_tokens(benchmark, stack):
    """The text is periodic, so that there is something to find."""
    prompt = tuple(i * i % 61 for i in range(LENGTH))
    target = OracleTarget(script=prompt)
    drafter = parse(stack)
    engine = Engine(target, drafter, on_error="raise")
    engine.generate(Request(prompt=prompt, max_new_tokens=64))  # fills what outlives a request
    session = drafter.start(Request(prompt=prompt, max_new_tokens=64))
    tree = benchmark(session.propose, prompt, Limit(64, 64))
    benchmark.extra_info["nodes"] = len(tree)
    assert tree
