"""SuffixAutomaton against a search written plainly, and what it costs."""

import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specdec_samd.automaton import BOUNDARY, ROOT_STATE, SuffixAutomaton

# Few symbols, so that matches of all lengths occur.
texts = st.lists(st.integers(0, 2), max_size=60)


def first_end(text, part):
    """Length of `text` up to where `part` ends first; None if it does not occur."""
    ends = range(len(part), len(text) + 1)
    return next((end for end in ends if text[end - len(part) : end] == part), None)


def longest_suffix(text, query):
    """The longest suffix of `query` in `text`."""
    sizes = range(len(query), 0, -1)
    return next((query[-n:] for n in sizes if first_end(text, query[-n:]) is not None), [])


def longest_repeat(text):
    """The longest suffix of `text` that occurred before it ended here."""
    return longest_suffix(text[:-1], text[1:])


def states_of(text):
    """Number of different sets of end positions of the substrings; the root's included."""
    ends = {}
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            ends.setdefault(tuple(text[start:end]), set()).add(end)
    return 1 + len({frozenset(found) for found in ends.values()})


@given(texts, texts)
def test_it_follows_the_longest_suffix_that_occurs(text, query):
    automaton = SuffixAutomaton(text)
    state, length = ROOT_STATE, 0
    for end, token in enumerate(query, start=1):
        state, length = automaton.follow(state, length, [token])
        match = longest_suffix(text, query[:end])
        assert length == len(match)
        if match:
            at = first_end(text, match)
            followed = tuple(text[at : at + 7])
            if followed:
                assert automaton.behind(state, 7) == followed


@given(texts)
def test_it_knows_the_longest_suffix_that_occurred_before(text):
    automaton = SuffixAutomaton()
    for end, token in enumerate(text, start=1):
        automaton.extend([token])
        state, length = automaton.repeated()
        match = longest_repeat(text[:end])
        assert length == len(match)
        if match:
            at = first_end(text, match)
            copied = list(text[:end])
            for step in range(9):  # token by token, so that a near match reads what was copied
                copied.append(copied[at + step])
            assert automaton.onward(state, 9) == tuple(copied[end:])


@given(texts)
def test_going_on_with_itself_is_what_the_extended_text_would_give(text):
    automaton = SuffixAutomaton(text)
    state, length = automaton.repeated()
    if length:
        draft = automaton.onward(state, 12)
        for done, token in enumerate(draft):
            state, matched = automaton.repeated()
            assert matched == length + done
            assert automaton.onward(state, 1) == (token,)
            automaton.extend([token])


@given(texts)
def test_it_is_the_smallest_automaton_however_it_is_fed(text):
    at_once, one_by_one = SuffixAutomaton(text), SuffixAutomaton()
    for token in text:
        one_by_one.extend([token])
    assert len(at_once) == len(one_by_one) == states_of(text)
    assert at_once.operations == one_by_one.operations


@given(st.lists(texts, max_size=4), texts)
def test_nothing_matches_across_a_seam(parts, query):
    automaton = SuffixAutomaton.of(parts)
    state, length = automaton.follow(ROOT_STATE, 0, query)
    match = max((longest_suffix(part, query) for part in parts), key=len, default=[])
    assert length == len(match)
    found = automaton.behind(state, 20)
    assert BOUNDARY not in found
    ways = {
        tuple(part[end : end + 20])
        for part in parts
        for end in range(len(match), len(part) + 1)
        if part[end - len(match) : end] == match
    } or {()}
    assert found in ways
    if match:
        assert bool(found) == any(ways)


def test_where_a_text_ended_another_end_goes_on():
    automaton = SuffixAutomaton.of([[7, 8], [7, 8, 9, 6], [7, 8, 5]])
    state, length = automaton.follow(ROOT_STATE, 0, [7, 8])
    assert length == 2
    assert automaton.behind(state, 9) == (9, 6)


def test_an_empty_automaton_has_nothing_to_offer():
    automaton = SuffixAutomaton()
    assert automaton.repeated() == (ROOT_STATE, 0)
    assert automaton.follow(ROOT_STATE, 0, [1, 2]) == (ROOT_STATE, 0)
    assert automaton.behind(ROOT_STATE, 5) == ()
    assert len(automaton) == 1


def test_a_token_of_more_than_32_bits_is_refused():
    with pytest.raises(OverflowError):
        SuffixAutomaton([2**31])


def random_text(size):
    """A text that repeats earlier parts of itself, as prompts do."""
    random = Random(size)
    text = [random.randrange(30_000) for _ in range(20)]
    while len(text) < size:
        if random.random() < 0.5:
            at = random.randrange(len(text))
            text += text[at : at + random.randrange(3, 60)]
        else:
            # Some tokens are far more common than others.
            text += [int(random.paretovariate(0.8)) % 49_152 for _ in range(10)]
    return text[:size]


def fibonacci(size):
    """The text of the most different repeats."""
    a, b = [0], [0, 1]
    while len(b) < size:
        a, b = b, b + a
    return b[:size]


SHAPES = {
    "text": random_text,
    "one token": lambda size: [5] * size,
    "period": lambda size: [i % 97 for i in range(size)],
    "all different": lambda size: list(range(size)),
    "fibonacci": fibonacci,
    "most states": lambda size: [0, *[1] * (size - 2), 0],  # abb...ba, and abb...bc by turns
    "most transitions": lambda size: [0, *[1] * (size - 2), 2],
    "two halves": lambda size: [*range(size // 2), *range(size // 2)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_token_costs_the_same_in_a_long_text(shape):
    """Counted, not timed: transitions set, copied or redirected per token."""
    costs = {}
    for size in (1_000, 10_000, 100_000):
        text = SHAPES[shape](size)
        automaton = SuffixAutomaton(text)
        assert len(automaton) <= 2 * size
        costs[size] = automaton.operations / size
    assert max(costs.values()) < 6  # 3 transitions set or copied, 3 redirected
    assert costs[100_000] < 1.5 * costs[1_000]


@pytest.mark.parametrize("cut", [1, 10, 1_000])
def test_no_token_of_a_text_that_grows_by_steps_is_paid_twice(cut):
    text = random_text(10_000)
    automaton = SuffixAutomaton()
    for at in range(0, len(text), cut):
        automaton.extend(text[at : at + cut])
    assert automaton.operations == SuffixAutomaton(text).operations


def test_a_token_of_ordinary_text_takes_some_150_bytes():
    text = random_text(20_000)
    tracemalloc.start()
    try:
        automaton = SuffixAutomaton(text)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(automaton.tokens) == 20_000
    assert used < 200 * 20_000
