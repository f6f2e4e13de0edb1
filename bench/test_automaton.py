"""Building and following a suffix automaton: the time per token must not depend on the length."""

from random import Random

import pytest

specdec_samd = pytest.importorskip("specdec_samd")

SIZES = (1_000, 10_000, 100_000)


def text(size):
    """Half common tokens, half repeats of earlier parts, as in a conversation with documents."""
    random = Random(0)
    tokens = [random.randrange(49_152) for _ in range(20)]
    while len(tokens) < size:
        at, count = random.randrange(len(tokens)), random.randrange(3, 60)
        tokens += tokens[at : at + count]
        tokens += [int(random.paretovariate(0.8)) % 49_152 for _ in range(30)]
    return tokens[:size]


def per_token(benchmark, size):
    """Notes and prints the time per token, of the fastest round: long rounds are disturbed more."""
    if benchmark.stats:  # None with --benchmark-disable
        time = benchmark.stats.stats.min / size * 1e6
        benchmark.extra_info["microseconds per token"] = round(time, 3)
        print(f"{benchmark.name}: {time:.2f} us per token")


@pytest.mark.benchmark(group="suffix automaton: build")
@pytest.mark.parametrize("size", SIZES)
def test_build(benchmark, size):
    tokens = text(size)
    automaton = benchmark(specdec_samd.SuffixAutomaton, tokens)
    per_token(benchmark, size)
    benchmark.extra_info["operations per token"] = round(automaton.operations / size, 2)
    assert len(automaton.tokens) == size


@pytest.mark.benchmark(group="suffix automaton: follow")
@pytest.mark.parametrize("size", SIZES)
def test_follow(benchmark, size):
    """Through a text that leaves the automaton's at every eighth token, so that matches end."""
    tokens = text(size)
    automaton = specdec_samd.SuffixAutomaton(tokens)
    other = [3 if i % 8 == 0 else token for i, token in enumerate(tokens)]
    _, length = benchmark(automaton.follow, 0, 0, other)
    per_token(benchmark, size)
    assert 0 < length < size
