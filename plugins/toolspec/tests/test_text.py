"""Text: matches as a plain search would find them."""

from hypothesis import given
from hypothesis import strategies as st
from specdec_toolspec.text import REACH, Text

TIER = (4, 3, 2)
tokens = st.lists(st.integers(0, 2), max_size=60)  # few symbols, so matches of all lengths occur


def naive(text, output, tier):
    """The longest match first, every place in turn, the last one first."""
    for length in tier:
        end = output[-length:]
        if len(end) == length:
            found = [
                at for at in range(len(text) - 1, length - 1, -1) if text[at - length : at] == end
            ]
            if found:
                return length, found
    return 0, []


@given(tokens, tokens)
def test_it_finds_what_a_plain_search_finds(text, output):
    assert Text((TIER,), text).find(output, TIER) == naive(text, output, TIER)


@given(tokens, st.integers(1, 7))
def test_a_growing_text_is_searched_like_a_whole_one(tokens, piece):
    text = Text((TIER, (1,)))
    for end in range(0, len(tokens), piece):
        text.extend(tokens[end : end + piece])
        so_far = tokens[: end + piece]
        assert text.tokens == so_far
        for tier in (TIER, (1,)):
            assert text.find(so_far, tier) == naive(so_far, so_far, tier)


def test_a_text_that_repeats_itself_costs_no_more():
    text = Text((TIER,), [5] * 1000)
    length, places = text.find([5] * 9, TIER)
    assert length == 4
    assert places == list(range(999, 999 - REACH, -1))


def test_the_end_has_no_continuation():
    assert Text((TIER,), [1, 2]).find([1, 2], TIER) == (0, [])
    assert Text((TIER,), [1, 2, 3]).find([1, 2], TIER) == (2, [2])
    assert Text((TIER,)).find([1, 2], TIER) == (0, [])
