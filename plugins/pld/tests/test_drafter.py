"""PromptLookup: what the conformance kit cannot know."""

import time

import pytest
from specdec_pld import PromptLookup

from specdec import EMPTY, Limit, Request, Step, parse

WIDE = Limit(64, 64)


def draft(prompt, limit=WIDE, committed=(), **options):
    request = Request(prompt=prompt, max_new_tokens=99)
    session = PromptLookup(**options).start(request, committed)
    return session.propose((*prompt, *committed), limit).tokens


def naive(tokens, ngram, min_ngram, length, match):
    """The paper's search, written plainly."""
    for size in range(ngram, min_ngram - 1, -1):
        starts = range(len(tokens) - size)
        for at in starts if match == "first" else reversed(starts):
            if tokens[at : at + size] == tokens[len(tokens) - size :]:
                return tokens[at + size : at + size + length]
    return ()


def test_the_longest_match_wins():
    #         1 2 3 -> 4       3 -> 9        look up 1 2 3
    assert draft((1, 2, 3, 4, 5, 3, 9, 8, 1, 2, 3))[0] == 4


def test_the_first_match_wins_unless_the_last_is_asked_for():
    prompt = (7, 1, 5, 7, 2, 5, 7)
    assert draft(prompt, ngram=1)[0] == 1
    assert draft(prompt, ngram=1, match="last")[0] == 2


def test_the_draft_ends_with_its_length_the_limit_or_the_text():
    prompt = (*range(20), 0)
    assert len(draft(prompt)) == 10
    assert len(draft(prompt, length=4)) == 4
    assert len(draft(prompt, Limit(3, 64))) == 3
    assert len(draft(prompt, Limit(64, 2))) == 2
    assert draft((1, 2, 3, 1)) == (2, 3, 1)


def test_without_a_match_nothing_is_drafted():
    assert draft((1, 2, 3)) == ()
    assert draft((1,)) == ()
    assert PromptLookup().start(Request((1,), 1)).propose((1,), WIDE) == EMPTY


def test_longer_matches_are_trusted_more():
    request = Request(prompt=(1, 2, 3, 4, 1, 2, 3), max_new_tokens=9)
    sure = PromptLookup(ngram=3).start(request).propose(request.prompt, WIDE)
    unsure = PromptLookup(ngram=1).start(request).propose(request.prompt, WIDE)
    assert sure.tokens == unsure.tokens
    assert min(sure.scores) > max(unsure.scores)


@pytest.mark.parametrize("match", ["last", "first"])
@pytest.mark.parametrize("ngram", [1, 2, 3, 5])
def test_the_index_finds_what_a_plain_search_finds(ngram, match):
    # A deterministic walk over few symbols, so that matches of all lengths occur.
    tokens = tuple((i * i + i // 7) % 5 for i in range(200))
    drafter = PromptLookup(ngram=ngram, match=match, length=6)
    session = drafter.start(Request(prompt=tokens[:3], max_new_tokens=999))
    for end in range(3, 200):
        expected = naive(tokens[:end], ngram, 1, 6, match)
        assert session.propose(tokens[:end], WIDE).tokens == expected
        session.observe(Step(0, EMPTY, (), tokens[end : end + 1]))


def test_proposing_does_not_slow_down_with_the_context():
    tokens = tuple(i % 997 for i in range(100_000))
    session = PromptLookup().start(Request(prompt=tokens, max_new_tokens=9))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        session.propose(tokens, WIDE)
        times.append(time.perf_counter() - start)
    assert min(times) < 200e-6


@pytest.mark.parametrize(
    "options",
    [{"ngram": 0}, {"min_ngram": 0}, {"ngram": 2, "min_ngram": 3}, {"length": 0}, {"match": "any"}],
)
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        PromptLookup(**options)


def test_it_is_found_by_its_name():
    assert repr(parse("pld(ngram=2)")) == "PromptLookup(ngram=2, length=10, match='first')"
