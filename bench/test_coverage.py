"""Coverage of real calls without a model, on a sample; see `bench.coverage`.

`make bench` shows the time of a sample's walks, and in the saved figures (``--benchmark-json``) the
coverage, steps and nodes of each.
"""

import pytest

from bench.coverage import cases, references
from bench.coverage.measure import sample, total, walk
from specdec import default_registry, parse

STACKS = {  # expression: the drafter that it needs
    "pld": "pld",
    "retrieval(from_start=true)": "retrieval",
    "schema": "schema",
    "toolspec": "toolspec",
}
EACH = 4  # cases for each format; 1 where nothing is timed


@pytest.mark.benchmark(group="coverage")
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("tokenizer", references.TOKENIZERS)
@pytest.mark.parametrize("data", cases.DATA_SETS)
def test_coverage(benchmark, data, tokenizer, stack):
    """Each round begins with empty memories."""
    if STACKS[stack] not in default_registry().names("drafter"):
        pytest.skip(f"no drafter named {STACKS[stack]}")
    try:
        some, encoder = cases.load(data), references.load(tokenizer)
    except cases.Missing as missing:
        pytest.skip(str(missing))
    each = 1 if benchmark.disabled else EACH
    corner = cases.DATA_SETS.index(data) + references.TOKENIZERS.index(tokenizer)
    groups = [known for _, known in sample(encoder, some, corner, each)]

    def walks():
        drafters = [parse(stack) for _ in groups]
        pairs = zip(drafters, groups, strict=True)
        return [walk(drafter, one, encoder.vocabulary) for drafter, known in pairs for one in known]

    tally = total(benchmark.pedantic(walks, rounds=3))
    benchmark.extra_info.update(tally.row(), row=f"{data}, {tokenizer}: {stack}")
    assert tally.requests == len(groups) * each
    assert 0 <= tally.covered <= tally.structural
