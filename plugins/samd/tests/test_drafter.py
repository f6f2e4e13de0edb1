"""SuffixDrafter: what the conformance kit cannot know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specdec_samd import Context, SuffixDrafter
from specdec_samd.automaton import ROOT_STATE, SuffixAutomaton
from specdec_samd.drafter import score

from specdec import EMPTY, Limit, Request, Step, parse

WIDE = Limit(64, 64)


@pytest.fixture
def corpus(tmp_path):
    """Writes lists of token ids to a corpus file."""

    def write(*texts):
        path = tmp_path / "corpus.jsonl"
        path.write_text("".join(f"{list(text)}\n" for text in texts))
        return path

    return write


def draft(prompt, limit=WIDE, committed=(), vocabulary=0, **options):
    request = Request(prompt=prompt, max_new_tokens=99, vocabulary=vocabulary)
    session = SuffixDrafter(**options).start(request, committed)
    return session.propose((*prompt, *committed), limit)


def repeat(size, follow=60):
    """A prompt that ends with its first `size` tokens, once more."""
    return (*range(size), *range(100, 100 + follow), *range(size))


def test_what_followed_the_longest_match_is_drafted():
    assert draft(repeat(6), Limit(3, 64)).tokens == (100, 101, 102)
    # The longest match stands at its first end.
    prompt = (1, 2, 3, 7, 2, 3, 8, 2, 3, 9, 2, 3)
    assert draft(prompt, threshold=1).tokens[0] == 7


def test_a_match_shorter_than_the_threshold_is_left_to_others():
    assert draft(repeat(4)) == EMPTY
    assert draft(repeat(5))
    assert draft(repeat(4), threshold=4)
    assert draft((1,), threshold=1) == EMPTY


def test_the_draft_is_as_long_as_the_match_lets_it_be():
    assert len(draft(repeat(5))) == 20
    assert len(draft(repeat(6))) == 24
    assert len(draft(repeat(20))) == 40
    assert len(draft(repeat(5), scale=1.5)) == 7
    assert len(draft(repeat(5), scale=None)) == 40
    assert len(draft(repeat(20), length=8)) == 8
    assert draft(repeat(5), scale=0.1) == EMPTY


def test_the_draft_keeps_to_the_limit():
    assert len(draft(repeat(20), Limit(7, 64))) == 7
    assert len(draft(repeat(20), Limit(64, 3))) == 3


def test_a_draft_that_reaches_the_end_of_the_text_goes_on_with_itself():
    assert draft((9, *(1, 2, 3) * 4)).tokens == (1, 2, 3) * 12
    assert draft((5,) * 8).tokens == (5,) * 28


def test_longer_matches_are_trusted_more_and_the_match_grows_along_the_draft():
    short, long = draft(repeat(5)), draft(repeat(20))
    assert short.scores == tuple(score(5 + i) for i in range(20))
    assert list(short.scores) == sorted(short.scores)
    assert long.scores[0] > short.scores[0]
    assert 0 < score(1) < score(2) < score(1000) < 1
    assert {vote.source for votes in short.votes for vote in votes} == {"samd"}


def test_a_static_text_is_drafted_from(corpus):
    static = corpus((*range(10), 50, 51, 52))
    assert draft((7, 8, 9), threshold=3, bias=0, static=static).tokens == (50, 51, 52)
    assert draft((90, *range(10)), static=static).tokens == (50, 51, 52)


def test_a_static_match_counts_less(corpus):
    static = corpus((*range(10), 50, 51, 52))
    assert draft((90, *range(1, 10)), static=static) == EMPTY  # 9 counts as 4
    assert draft((90, *range(1, 10)), static=static, bias=4).tokens == (50, 51, 52)
    # 5 tokens in the prompt, 10 in the static text: equal, so the prompt's.
    prompt = (*range(5, 10), 60, 61, *range(10))
    assert draft(prompt, static=static).tokens[0] == 60
    assert draft(prompt, static=static, bias=4).tokens[0] == 50
    # Its draft is as long, and as sure, as what it counts.
    tree = draft((90, *range(10)), static=corpus(range(60)))
    assert len(tree) == 20
    assert tree.scores[0] == score(5)


def test_an_empty_draft_of_the_static_text_gives_way(corpus):
    static = corpus(range(20))  # ends with the match
    prompt = (*range(10, 20), 70, 71, *range(20))
    assert draft(prompt, static=static).tokens[:2] == (70, 71)
    assert draft(range(20), static=static) == EMPTY


def test_texts_of_a_corpus_have_seams(corpus):
    static = corpus((1, 2, 3), (4, 5, 6))
    options = {"threshold": 1, "bias": 0, "static": static}
    assert draft((2, 3), **options) == EMPTY
    assert draft((3, 4), **options).tokens == (5, 6)  # a match of 4 alone
    assert draft((3, 4), **options).scores[0] == score(1)


def test_tokens_that_the_target_does_not_know_end_the_draft(corpus):
    static = corpus((1, 2, 3, 4, 99, 5))
    options = {"threshold": 2, "bias": 0, "static": static}
    assert draft((1, 2), vocabulary=50, **options).tokens == (3, 4)
    assert draft((3, 4), vocabulary=50, **options) == EMPTY


@pytest.mark.parametrize("options", [{}, {"threshold": 1, "scale": None}])
def test_a_rebuilt_session_proposes_what_the_original_does(corpus, options):
    drafter = SuffixDrafter(static=corpus([i * i % 7 for i in range(50)]), **options)
    text = tuple((i * i + i // 7) % 5 for i in range(200))
    request = Request(prompt=text[:3], max_new_tokens=999)
    session = drafter.start(request)
    for end in range(3, 200):
        tree = session.propose(text[:end], WIDE)
        assert tree == session.propose(text[:end], WIDE)
        assert tree == drafter.start(request, text[3:end]).propose(text[:end], WIDE)
        session.observe(Step(0, EMPTY, (), text[end : end + 1]))


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.lists(st.integers(0, 2)))
def test_an_automaton_of_the_prompt_alone_would_never_be_drafted_from(prompt, output):
    """Why `static=context` builds none: it never counts more, with any bias."""
    static, context = SuffixAutomaton(prompt), SuffixAutomaton(prompt)
    state, length = static.follow(ROOT_STATE, 0, prompt)
    assert static.behind(state, 1) == ()  # it matches all of itself, behind which nothing stands
    for token in output:
        state, length = static.follow(state, length, [token])
        context.extend([token])
        assert length <= context.repeated()[1]


@pytest.mark.parametrize("static", ["context", Context(), None])
def test_the_context_as_static_text_is_what_is_searched_anyway(static):
    drafter = SuffixDrafter(static=static)
    assert drafter.corpus is None
    assert not drafter.remembers
    assert draft(repeat(9), static=static) == draft(repeat(9))


@pytest.mark.parametrize(
    "options",
    [{"length": 0}, {"threshold": 0}, {"bias": -1}, {"scale": 0}, {"scale": -1.0}, {"static": ""}],
)
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        SuffixDrafter(**options)


@pytest.mark.parametrize("static", [3, SuffixDrafter()])
def test_a_static_text_of_another_kind_is_refused(static):
    with pytest.raises(TypeError, match="static must be the path of a corpus, a memory"):
        SuffixDrafter(static=static)


def test_many_sessions_of_one_drafter_do_not_meet(corpus):
    drafter = SuffixDrafter(threshold=2, static=corpus(range(30)))
    one, other = (
        drafter.start(Request(prompt=prompt, max_new_tokens=9))
        for prompt in ((1, 2, 8, 1, 2), (1, 2, 9, 1, 2))
    )
    for _ in range(2):
        assert one.propose((1, 2, 8, 1, 2), WIDE).tokens[0] == 8
        assert other.propose((1, 2, 9, 1, 2), WIDE).tokens[0] == 9


def test_it_is_found_by_its_names():
    assert repr(parse("sam(length=8)")) == "SuffixDrafter(length=8, threshold=5)"
    assert repr(parse("context")) == "Context(length=40, threshold=5)"
    static = parse('sam(static="corpus.txt")')
    assert repr(static) == "SuffixDrafter(length=40, threshold=5, static='corpus.txt')"


def test_a_long_prompt_is_drafted_from_too():
    prompt = [i % 997 for i in range(100_000)]
    assert draft(prompt).tokens == tuple(i % 997 for i in range(100_000, 100_040))
