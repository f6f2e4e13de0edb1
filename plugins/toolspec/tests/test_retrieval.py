"""RetrievalDrafter: what is drafted, what is remembered."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specdec_toolspec import EpisodeMemory, RetrievalDrafter
from specdec_toolspec.continuations import OPENING, TRUST

from specdec import EMPTY, ROOT, DraftTree, Engine, Episode, Limit, Memory, Request, Step, parse
from specdec.testing import CharCodec, OracleTarget

WIDE = Limit(64, 64)
KEY = (1, 0)  # of the request under test


def memory_of(*outputs, tenant="", keys=None):
    """A memory of these outputs, the first the most similar to `KEY`."""
    memory = EpisodeMemory()
    for number, output in enumerate(outputs):
        angle = keys[number] if keys else 0.1 * number
        key = np.array([np.cos(angle), np.sin(angle)])
        memory.store(Episode((900 + number,), tuple(output), key, None, tenant))
    return memory


def session_of(drafter, output=(), prompt=(500, 501), key=KEY, **fields):
    session = drafter.start(Request(prompt=prompt, max_new_tokens=999, **fields), output)
    session.prefilled(None if key is None else np.array(key, dtype=np.float32))
    return session


def draft(outputs, output, limit=WIDE, prompt=(500, 501), **options):
    drafter = RetrievalDrafter(memory=memory_of(*outputs), **options)
    return session_of(drafter, output, prompt).propose((*prompt, *output), limit)


def paths(tree):
    """The tokens of every leaf's path."""
    leaves = set(range(len(tree))) - set(tree.parents)
    return [tuple(tree.tokens[n] for n in tree.path_to(leaf)) for leaf in sorted(leaves)]


def step(*tokens, tree=EMPTY, path=()):
    return Step(0, tree, path, tokens)


# Matching


def test_what_followed_the_last_tokens_is_drafted():
    tree = draft([range(100)], range(20, 27))
    assert tree.tokens == tuple(range(27, 59)), "32 tokens at most"
    assert tree.parents == tuple(range(-1, 31))
    assert set(tree.votes[0]) == {("retrieval", tree.scores[0])}


def test_a_short_rest_is_drafted_too():
    assert draft([range(30)], range(20, 28)).tokens == (28, 29)
    assert draft([range(28)], range(20, 28)) == EMPTY


def test_fewer_tokens_than_the_shortest_match_find_nothing():
    assert draft([range(30)], range(20, 24)) == EMPTY
    assert draft([range(30)], range(20, 25)).tokens[0] == 25
    assert draft([range(30)], (20, 21), match=(2,)).tokens[0] == 22


def test_the_longest_match_counts():
    short, long = (9, 3, 4, 5, 6, 7, 50), (1, 2, 3, 4, 5, 6, 7, 60)
    assert draft([short, long], range(1, 8)).tokens == (60,)


def test_no_match_crosses_a_seam():
    assert draft([(1, 2, 3), (4, 5, 6, 7)], range(1, 6)) == EMPTY
    # Nor from the prompt into the output: only output tokens are looked up.
    assert draft([range(30)], (23, 24), prompt=(20, 21, 22)) == EMPTY


def test_prompt_and_output_are_searched_unless_told_otherwise():
    prompt = tuple(range(40, 60))
    assert draft([], (41, 42, 43, 44, 45), prompt=prompt).tokens[:3] == (46, 47, 48)
    assert draft([], (41, 42, 43, 44, 45), prompt=prompt, context=False) == EMPTY
    output = (1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5)
    assert draft([], output).tokens == (6, 1, 2, 3, 4, 5)


def test_most_agreement_comes_first_then_similarity():
    begin = (1, 2, 3, 4, 5)
    outputs = [(*begin, 10), (*begin, 20), (*begin, 30), (*begin, 20, 21), (*begin, 20)]
    tree = draft(outputs, begin)
    assert tree.tokens == (20, 10, 30, 21)
    first = dict(zip(tree.tokens, tree.scores, strict=True))
    assert first[20] == pytest.approx(3 * first[10])
    assert first[10] == first[30] == pytest.approx(TRUST[5] / 5)


def test_of_one_text_the_last_place_comes_first():
    begin = (1, 2, 3, 4, 5)
    tree = draft([(*begin, 10, *begin, 20)], begin)
    assert tree.tokens[0] == 20


def test_the_four_best_are_drafted_with_their_lengths():
    begin = (1, 2, 3, 4, 5)
    outputs = [(*begin, *range(100 * n, 100 * n + 50)) for n in range(1, 7)]
    found = paths(draft(outputs, begin, Limit(99, 64)))
    assert [(path[0], len(path)) for path in found] == [(100, 32), (200, 16), (300, 8), (400, 8)]
    found = paths(draft(outputs, begin, lengths=[3, 2]))
    assert found == [(100, 101, 102), (200, 201)]


def test_prefixes_are_shared():
    begin = (1, 2, 3, 4, 5)
    tree = draft([(*begin, 6, 7, 8), (*begin, 6, 7, 9)], begin)
    assert sorted(tree.tokens) == [6, 7, 8, 9]
    assert tree.parents.count(ROOT) == 1


def test_a_small_limit_keeps_what_reaches_furthest():
    begin = (1, 2, 3, 4, 5)
    tree = draft([(*begin, 10, 11, 12), (*begin, 20, 21, 22)], begin, Limit(3, 2))
    assert len(tree) == 3
    assert int(tree.depths.max()) <= 2


def test_longer_matches_and_consent_are_trusted_more():
    one = draft([range(30)], range(20, 25)).scores
    assert draft([range(30)], range(20, 27)).scores[0] > one[0]
    assert draft([range(30), range(10, 40)], range(20, 25)).scores[0] > one[0]
    assert list(one) == sorted(one), "accepted tokens lengthen the match"


few = st.lists(st.integers(0, 2), min_size=1, max_size=30)


@given(st.lists(few, max_size=4), few, few)
@settings(max_examples=200, deadline=None)
def test_first_tokens_are_those_of_a_plain_search(outputs, prompt, output):
    """Every text on its own, the longest match of all of them."""
    drafter = RetrievalDrafter(memory=memory_of(*outputs), match=(4, 3, 2), lengths=(9,) * 9)
    tree = session_of(drafter, output, tuple(prompt)).propose((), Limit(999, 99))
    texts = [*map(list, {tuple(text) for text in outputs}), prompt + output]
    for size in (4, 3, 2):
        end = output[-size:]
        expected = {
            text[at]
            for text in texts
            for at in range(size, len(text))
            if text[at - size : at] == end and len(end) == size
        }
        if expected:
            break
    found = {t for t, p in zip(tree.tokens, tree.parents, strict=True) if p == ROOT}
    # Of one text the last four places count.
    assert found <= expected
    assert bool(found) == bool(expected)
    if all(len(text) < 6 for text in texts):
        assert found == expected


# From the start


def test_from_the_start_whole_outputs_are_drafted():
    outputs = [(1, 2, 3, 4), (1, 2, 9)]
    assert draft(outputs, ()) == EMPTY
    tree = draft(outputs, (), from_start=True)
    assert paths(tree) == [(1, 2, 3, 4), (1, 2, 9)]
    assert tree.scores[0] == TRUST[min(OPENING + 1, len(TRUST) - 1)]


def test_from_the_start_what_begins_alike_comes_before_shorter_matches():
    outputs = [(7, 1, 2, 50), (1, 2, 60)]
    assert draft(outputs, (1, 2), from_start=True).tokens == (60,)
    assert draft(outputs, (9, 1, 2), from_start=True).tokens == (50, 60)
    assert draft(outputs, (9, 2), from_start=True).tokens == (50, 60)
    assert draft(outputs, (9, 2), from_start=True, shortest=2) == EMPTY


def test_from_the_start_the_prompts_own_pass_gets_a_draft():
    """It has no embedding yet, so the memory is asked by tokens."""
    memory = memory_of((1, 2, 3))
    request = Request(prompt=(900,), max_new_tokens=9)
    early = RetrievalDrafter(memory=memory, from_start=True).start(request)
    assert early.propose((900,), WIDE).tokens == (1, 2, 3)
    early.prefilled(None)  # a host without hidden states
    assert early.propose((900,), WIDE).tokens == (1, 2, 3)
    assert RetrievalDrafter(memory=memory).start(request).propose((900,), WIDE) == EMPTY


# Memory and tenants


def test_at_most_k_are_recalled():
    begin = (1, 2, 3, 4, 5)
    outputs = [(*begin, 10), (*begin, 20), (*begin, 30)]
    assert draft(outputs, begin, k=1).tokens == (10,)
    assert draft(outputs, begin, k=0) == EMPTY


def test_without_an_embedding_the_memory_goes_by_tokens():
    memory = EpisodeMemory()
    memory.store(Episode((500, 501), tuple(range(20))))
    drafter = RetrievalDrafter(memory=memory)
    assert session_of(drafter, range(5), key=None).propose((), WIDE).tokens[0] == 5


def test_another_tenants_outputs_are_never_drafted():
    drafter = RetrievalDrafter(memory=memory_of(range(30), tenant="a"), from_start=True)
    assert session_of(drafter, range(9), tenant="b").propose((), WIDE) == EMPTY
    assert session_of(drafter, range(9), tenant="a").propose((), WIDE).tokens[0] == 9


def test_ids_of_another_tokenizer_are_left_out():
    begin = (1, 2, 3, 4, 5)
    drafter = RetrievalDrafter(memory=memory_of((*begin, 10, 5000), (*begin, 20)))
    assert session_of(drafter, begin, vocabulary=1000).propose((), WIDE).tokens == (20,)


class Overlong(Memory):
    """A memory without bounds, credit or sense."""

    def store(self, episode):
        self.kept = episode

    def recall(self, query, k):
        return [Episode((), (1, 2, 3) * 500_000), Episode((), ())]

    def forget(self, tenant=None):
        pass

    def __len__(self):
        return 1

    def save(self, path):
        path.write_text("nothing")

    def load(self, path):
        assert path.read_text() == "nothing"


def test_any_memory_will_do_and_a_huge_output_costs_little():
    drafter = RetrievalDrafter(memory=Overlong(), accept=lambda request, result: True)
    begun = time.perf_counter()
    session = session_of(drafter, (1, 2, 3, 1, 2))
    tree = session.propose((), WIDE)
    assert time.perf_counter() - begun < 1
    assert tree.tokens[:4] == (3, 1, 2, 3)
    session.observe(step(3, 1, tree=tree, path=(0,)))
    drafter.restore(drafter.state())


def finished(drafter, text, finish_with="", prompt=(500, 501), tenant="", limit=200):
    """Decode a request whose output is `text`, on the oracle."""
    codec = CharCodec()
    script = codec.encode(text)
    stop = codec.encode(finish_with)
    target = OracleTarget(script=(*script, *stop))
    request = Request(
        prompt=tuple(t % 64 for t in prompt),
        max_new_tokens=min(limit, len(script) + len(stop)),
        stop_ids=frozenset(stop),
        codec=codec,
        tenant=tenant,
    )
    return Engine(target, drafter, on_error="raise").generate(request)


CALL = '{"name": "f", "arguments": {"city": "paris"}}'


def test_a_call_that_ended_by_itself_is_stored_without_its_stop_id():
    drafter = RetrievalDrafter()
    finished(drafter, CALL, "'")
    (kept,) = drafter.memory
    assert kept.output == CharCodec().encode(CALL)
    assert kept.text == CALL
    assert kept.embedding is not None


def test_nothing_else_is_stored():
    drafter = RetrievalDrafter()
    finished(drafter, CALL)  # ended by its limit
    finished(drafter, "no call", "'")
    finished(RetrievalDrafter(memory=drafter.memory, store=False), CALL, "'")
    assert len(drafter.memory) == 0


def test_accept_decides():
    seen = []
    drafter = RetrievalDrafter(accept=lambda request, result: seen.append(result) or True)
    result = finished(drafter, "no call")
    assert [given.tokens for given in seen] == [result.tokens]
    assert len(drafter.memory) == 1


@pytest.mark.parametrize(("options", "steps"), [({}, 5), ({"from_start": True}, 1)])
def test_a_repeated_call_takes_few_steps(options, steps):
    drafter = RetrievalDrafter(**options)
    first = finished(drafter, CALL, "'")
    second = finished(drafter, CALL, "'")
    assert second.tokens == first.tokens
    assert first.steps > 30
    # In paper mode five tokens must stand before anything can match; 45 come 33 at a time.
    assert second.steps <= steps + (2 if not options else 0)


def test_episodes_whose_tokens_were_accepted_are_credited():
    drafter = RetrievalDrafter()
    finished(drafter, CALL, "'")
    finished(drafter, CALL.replace("paris", "rome"), "'", prompt=(3, 9, 27))
    rows = {row["text"]: row for row in drafter.memory.describe()["most_useful"]}
    assert rows[CALL]["uses"] == 1
    assert rows[CALL]["accepted"] > 20
    assert rows[CALL.replace("paris", "rome")]["uses"] == 0


def test_only_accepted_nodes_of_ours_are_credited():
    memory = memory_of(range(30), keys=[0.0])
    session = session_of(RetrievalDrafter(memory=memory), range(5))
    theirs = DraftTree.chain((5, 6), source="pld")
    session.observe(step(5, 6, 99, tree=theirs, path=(0, 1)))
    ours = session.propose((), WIDE)
    assert ours == EMPTY
    session.finish(finished(RetrievalDrafter(memory=EpisodeMemory()), "x"))
    assert memory.describe()["most_useful"][0]["uses"] == 0


def test_drafters_may_share_a_memory():
    memory = EpisodeMemory()
    finished(RetrievalDrafter(memory=memory), CALL, "'")
    assert finished(RetrievalDrafter(memory=memory, from_start=True), CALL, "'").steps == 1


def test_open_sessions_do_not_see_what_others_store():
    drafter = RetrievalDrafter(from_start=True, accept=lambda request, result: True)
    early = session_of(drafter, key=None)
    before = early.propose((), WIDE)
    finished(drafter, CALL, "'")
    assert early.propose((), WIDE) == before == EMPTY
    assert session_of(drafter, key=None).propose((), WIDE) != EMPTY


def test_a_host_may_use_its_array_again():
    drafter = RetrievalDrafter(accept=lambda request, result: True)
    session = drafter.start(Request((1, 2), 9))
    embedding = np.array([1, 0], dtype=np.float32)
    session.prefilled(embedding)
    embedding[:] = (0, 1)
    session.finish(finished(RetrievalDrafter(), "abc"))
    assert next(iter(drafter.memory)).embedding.tolist() == [1, 0]


def test_a_proposal_is_quick_behind_a_long_prompt():
    begin = tuple(range(1000, 1020))
    outputs = [(*begin, 100 + n // 3, *range(200 * n, 200 * n + 60)) for n in range(10)]
    prompt = tuple((i * i // 7 + i // 64) % 500 for i in range(4096))
    session = session_of(RetrievalDrafter(memory=memory_of(*outputs)), begin, prompt)
    times = []
    for _ in range(30):
        started = time.perf_counter()
        tree = session.propose((), WIDE)
        times.append(time.perf_counter() - started)
    assert len(tree) > 40
    assert min(times) < 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"k": -1},
        {"match": ()},
        {"match": (3, 0)},
        {"lengths": ()},
        {"lengths": (0,)},
        {"from_start": True, "shortest": 0},
        {"from_start": True, "shortest": 6},
    ],
)
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        RetrievalDrafter(**options)


def test_components_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match="must be a Memory"):
        RetrievalDrafter(memory=3)
    with pytest.raises(TypeError, match="must be a function"):
        RetrievalDrafter(accept=True)


def test_it_is_found_by_its_name():
    drafter = parse("retrieval(memory=episodes(entries=5), k=3, match=[4, 2], from_start=true)")
    assert drafter.memory.entries == 5
    assert repr(drafter) == "RetrievalDrafter(k=3, match=(4, 2), from_start=True)"
