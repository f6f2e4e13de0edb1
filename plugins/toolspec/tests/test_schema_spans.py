"""Spans: where a value that is copied from a conversation ends."""

import pytest
from specdec_toolspec.schema.spans import copied

SAID = 'From San Francisco and "Las Vegas" to New York, NY by 5 small red cars.'


def likeliest(written, said=SAID):
    found, _ = copied(said, written)
    return max(found, key=found.get)


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("San", "San Francisco"),  # before a word like "and"
        ("Las", "Las Vegas"),  # before a quote
        ("New", "New York"),  # before a comma, as often as behind what follows it
        ("small", "small red cars"),  # at the end of the sentence
    ],
)
def test_a_copy_ends_where_people_end_things(written, whole):
    assert likeliest(written) == whole


def test_a_copy_may_end_where_it_is():
    assert copied(SAID, "San Francisco")[1] > 0.7
    assert copied(SAID, "San")[1] < 0.1
    assert copied(SAID, "San Fran")[1] == 0.0


def test_the_odds_of_a_copy_add_up_to_at_most_1():
    for written in ("San", "New York", "5", "S"):
        found, here = copied(SAID, written)
        assert 0.0 < sum(found.values()) + here <= 1.0 + 1e-9


def test_what_was_said_last_counts_most():
    assert likeliest("the", "the old town. the new town.") == "the new town"


def test_the_middle_of_a_word_begins_no_copy():
    assert copied("cargo", "argo") == ({}, 0.0)
    assert copied("", "x") == ({}, 0.0)
