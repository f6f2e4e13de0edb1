"""Prediction: what the conformance kit cannot know."""

import random

import pytest
from specdec_pld import Prediction

from specdec import EMPTY, Limit, Request, Step, parse
from specdec.testing import CharCodec

WIDE = Limit(64, 64)
CODEC = CharCodec()


def session(prediction, written="", **options):
    request = Request((1,), 99, codec=CODEC, prediction=prediction)
    return Prediction(**options).start(request, CODEC.encode(written))


def draft(prediction, written="", limit=WIDE, **options):
    tree = session(prediction, written, **options).propose((), limit)
    return CODEC.decode(tree.tokens)


def test_the_prediction_is_followed_from_the_start():
    assert draft("abcdef") == "abcdef"
    assert draft("abcdef", "abc") == "def"
    assert draft("abcdef", "abcdef") == ""


def test_the_draft_ends_with_its_length_and_the_limit():
    assert draft("abcdefgh", length=3) == "abc"
    assert draft("abcdefgh", limit=Limit(2, 64)) == "ab"
    assert draft("abcdefgh", limit=Limit(64, 4)) == "abcd"


def test_a_departure_is_left_behind_by_the_longest_match_then_the_nearest():
    # Replaced: the character behind it tells the place.
    assert draft("size = 12\nname = x\n", "size = 77\n") == "name = x"
    # "ed" comes later than "d", but is longer.
    assert draft("abc d1 ed2", "abcXed") == "2"
    # Of equal matches the nearest ahead counts, not one that is behind.
    assert draft("a;b;c;d", "a;bX;") == "c;d"


def test_where_nothing_matches_the_prediction_goes_on_where_it_was_left():
    assert draft("return x", "# 0", careful=3) == "ret"
    assert draft("abcdef", "abcXYZ", careful=2) == "de"


def test_a_short_match_does_not_lose_the_place():
    # The inserted ";" stands far ahead too; the next characters show that it was not that one.
    assert draft("abcd efgh;rest", "abcd;zz efg") == "h;rest"


def test_a_prediction_that_is_followed_is_trusted_more():
    def first(written):
        return session("abcdefghij", written).propose((), WIDE).scores[0]

    assert first("abX") < first("abXe") < first("") < first("abcdef")


def test_without_a_prediction_or_a_codec_nothing_is_drafted():
    for request in (
        Request((1,), 9, codec=CODEC),
        Request((1,), 9, codec=CODEC, prediction=""),
        Request((1,), 9, prediction="abc"),
        Request((1,), 9, codec=CODEC, prediction="abc", vocabulary=2),
    ):
        started = Prediction().start(request)
        started.observe(Step(0, EMPTY, (), (3,)))
        assert started.propose((1, 3), WIDE) == EMPTY


def test_a_rebuilt_session_proposes_the_same():
    draw = random.Random(3)
    text = "".join(draw.choice("abc;") for _ in range(80))
    output = CODEC.encode("".join(draw.choice("abc;") if draw.random() < 0.2 else c for c in text))
    request = Request((1,), 99, codec=CODEC, prediction=text)
    live = Prediction(ngram=3).start(request)
    for end in range(1, len(output)):
        live.observe(Step(0, EMPTY, (), output[end - 1 : end]))
        rebuilt = Prediction(ngram=3).start(request, output[:end])
        assert rebuilt.propose((), WIDE) == live.propose((), WIDE)


@pytest.mark.parametrize("option", ["ngram", "length", "careful"])
def test_bad_options_are_refused(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 1 token, got 0"):
        Prediction(**{option: 0})


def test_it_is_found_by_its_name():
    assert repr(parse("prediction(length=9)")) == "Prediction(ngram=4, length=9)"
