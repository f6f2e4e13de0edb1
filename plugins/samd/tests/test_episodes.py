"""MemoryCorpus: outputs of finished requests, by tenant, within the memory's bounds."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specdec_samd import SuffixDrafter
from specdec_samd.episodes import Shelf, Volume
from specdec_toolspec import EpisodeMemory

from specdec import EMPTY, Limit, Request, Result
from specdec.testing import CharCodec

WIDE = Limit(64, 64)
OUTPUT = tuple(range(20, 40))


def remembering(**bounds):
    return SuffixDrafter(static=EpisodeMemory(**bounds), threshold=3, bias=0)


def finish(drafter, output=OUTPUT, tenant="", prompt=(1,), finish="length", **options):
    request = Request(prompt=prompt, max_new_tokens=99, tenant=tenant, **options)
    drafter.start(request).finish(Result(request.id, tuple(output), finish, 1, len(output)))


def draft(drafter, prompt=OUTPUT[:5], tenant=""):
    request = Request(prompt=prompt, max_new_tokens=99, tenant=tenant)
    return drafter.start(request).propose(prompt, WIDE).tokens


def held(automata):
    """The outputs in some automata, sorted."""
    found = []
    for automaton in automata:
        text = ",".join(map(str, automaton.tokens)).split("-1")
        found += [tuple(int(token) for token in part.split(",") if token) for part in text]
    return sorted(output for output in found if output)


def test_the_outputs_of_finished_requests_are_drafted_from():
    drafter = remembering()
    assert drafter.remembers
    assert draft(drafter) == ()
    finish(drafter)
    assert draft(drafter) == OUTPUT[5:]
    finish(drafter, output=range(50, 60))
    assert draft(drafter, (50, 51, 52)) == tuple(range(53, 60))
    assert draft(drafter) == OUTPUT[5:]
    assert draft(drafter, (38, 39, 50)) == ()  # no match across outputs


def test_an_output_is_stored_without_what_ended_it():
    drafter = remembering()
    finish(drafter, output=(*OUTPUT, 2), finish="stop_id", stop_ids={2})
    assert draft(drafter, OUTPUT[-3:]) == ()
    finish(drafter, output=(2,), finish="stop_id", stop_ids={2})
    assert len(drafter.static) == 1


def test_its_text_is_stored_where_there_is_a_codec():
    drafter = remembering()
    finish(drafter, output=CharCodec().encode("hello"), codec=CharCodec())
    assert [episode.text for episode in drafter.static] == ["hello"]


def test_a_memory_that_only_serves_is_not_written_to():
    memory = EpisodeMemory()
    drafter = SuffixDrafter(static=memory, store=False)
    finish(drafter)
    assert len(memory) == 0


def test_no_tenant_sees_the_outputs_of_another():
    drafter = remembering()
    finish(drafter, tenant="a")
    assert draft(drafter, tenant="a") == OUTPUT[5:]
    assert draft(drafter, tenant="b") == ()
    finish(drafter, output=(*OUTPUT[:5], 7, 8), tenant="b")
    assert draft(drafter, tenant="a") == OUTPUT[5:]
    assert draft(drafter, tenant="b") == (7, 8)


def test_what_is_forgotten_is_gone_at_the_next_request():
    drafter = remembering()
    for tenant in ("a", "b"):
        finish(drafter, tenant=tenant)
    drafter.static.forget("a")
    assert draft(drafter, tenant="a") == ()
    assert draft(drafter, tenant="b") == OUTPUT[5:]


def test_a_memory_shared_with_others_is_followed():
    memory = EpisodeMemory()
    one, other = (SuffixDrafter(static=memory, threshold=3, bias=0) for _ in range(2))
    finish(one)
    assert draft(other) == OUTPUT[5:]


def test_an_open_session_sees_what_there_was_when_it_began():
    drafter = remembering()
    prompt = OUTPUT[:5]
    session = drafter.start(Request(prompt=prompt, max_new_tokens=99))
    finish(drafter)
    assert session.propose(prompt, WIDE) == EMPTY
    finish(drafter, output=(*OUTPUT[:5], 7))
    assert session.propose(prompt, WIDE) == EMPTY


def test_the_state_round_trips():
    drafter = remembering()
    for tenant in ("a", "b"):
        for size in range(3, 9):
            finish(drafter, output=(*OUTPUT[:size], 90 + size), tenant=tenant)
    copy = remembering()
    copy.restore(drafter.state())
    assert draft(copy, tenant="a") == draft(drafter, tenant="a") != ()
    assert len(copy.static) == len(drafter.static)


def test_equal_outputs_are_held_once():
    drafter = remembering()
    for number in range(5):
        finish(drafter, prompt=(number + 1,) * 20)
    corpus = drafter.corpus
    assert held(corpus.automata(Request(prompt=(1,), max_new_tokens=9))) == [OUTPUT]


def test_it_holds_no_more_than_the_memory_and_what_is_about_to_go():
    drafter = remembering(entries=10)
    kept = 0
    for number in range(200):
        finish(drafter, output=range(number, number + 10), prompt=(number,) * 9)
        automata = drafter.corpus.automata(Request(prompt=(1,), max_new_tokens=9))
        outputs = held(automata)
        assert {tuple(range(n, n + 10)) for n in range(max(0, number - 9), number + 1)} <= set(
            outputs
        )
        kept = max(kept, len(outputs))
    assert kept <= 20


outputs = st.frozensets(st.lists(st.integers(0, 9), min_size=1, max_size=6).map(tuple), max_size=12)


@given(st.lists(outputs, max_size=12))
def test_a_shelf_holds_what_is_wanted_in_few_volumes_that_never_change(changes):
    shelf, seen = Shelf(), {}
    for wanted in changes:
        automata = shelf.hold(wanted)
        found = held(automata)
        assert len(found) == len(set(found))
        assert set(wanted) <= set(found)
        tokens = sum(map(len, wanted))
        assert sum(map(len, found)) <= 2 * tokens
        sizes = [len(automaton.tokens) for automaton in automata]
        assert len(sizes) <= max(1, (2 * tokens).bit_length())
        assert shelf.hold(wanted) == automata
        for automaton in automata:
            assert seen.setdefault(id(automaton), (automaton, list(automaton.tokens)))[1] == list(
                automaton.tokens
            )


def test_an_output_is_built_into_few_automata_in_turn(monkeypatch):
    built = 0
    of = Volume.of

    def counting(outputs):
        nonlocal built
        volume = of(outputs)
        built += volume.tokens
        return volume

    monkeypatch.setattr(Volume, "of", counting)
    shelf, stored = Shelf(), []
    for number in range(512):
        stored.append(tuple(range(number, number + 10)))
        shelf.hold(stored)
    assert built <= 2 * 9 * 512 * 10  # twice log2 of the number of outputs


def test_requests_may_begin_in_many_threads():
    drafter = remembering(entries=50)

    def work(seed):
        for number in range(30):
            base = 1000 * seed + 10 * number
            finish(drafter, output=range(base, base + 10), prompt=(base + 1,))
            assert draft(drafter, range(base, base + 4)) in ((), tuple(range(base + 4, base + 10)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(drafter.static) <= 50


def test_a_memory_is_named_in_the_repr():
    assert "EpisodeMemory(entries=7" in repr(remembering(entries=7))


@pytest.mark.parametrize("output", [(), (5,)])
def test_short_outputs_are_no_trouble(output):
    drafter = remembering()
    finish(drafter, output=output)
    assert draft(drafter) == ()
