"""EpisodeMemory: what is kept, what is found, what goes first."""

import threading
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specdec_toolspec import EpisodeMemory, MemoryFileError
from specdec_toolspec.keys import LEXICAL_WIDTH, TAIL, KeyMatrix, lexical_key, tail_of, unit

from specdec import Episode, Memory, parse

rng = np.random.default_rng(7)


def episode(number, *, prompt=None, tenant="", embedding=None, length=4, text=None):
    prompt = (number, 3, 5) if prompt is None else prompt
    output = tuple(range(number * 100, number * 100 + length))
    return Episode(prompt, output, embedding, text, tenant)


def direction(angle):
    return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


def outputs(memory, tenant=""):
    return [e.output[0] // 100 for e in memory if e.tenant == tenant]


def snapshot(memory):
    return [(e.tenant, e.prompt, e.output, e.text) for e in memory], memory.describe()


# Keys


def test_the_closest_embedding_comes_first():
    memory = EpisodeMemory()
    for number, angle in enumerate((0.9, 0.1, 0.5)):
        memory.store(episode(number, embedding=direction(angle)))
    found = memory.recall(episode(9, embedding=direction(0.0)), 3)
    assert [e.output[0] // 100 for e in found] == [1, 2, 0]


def test_length_does_not_matter_to_a_cosine():
    memory = EpisodeMemory()
    memory.store(episode(1, embedding=direction(0.0)))
    memory.store(episode(2, embedding=1e6 * direction(0.5)))
    assert memory.recall(episode(9, embedding=1e-6 * direction(0.1)), 1)[0].output[0] == 100


@pytest.mark.parametrize("k", [1, 3, 10, 40, 99])
def test_recall_is_what_a_full_sort_gives(k):
    matrix = KeyMatrix(6)
    keys = {}
    for serial in range(60):
        keys[serial] = unit(np.round(rng.standard_normal(6)))  # many ties
        if keys[serial] is None:
            keys[serial] = unit(np.ones(6))
        matrix.add(serial, keys[serial])
    for serial in range(0, 60, 3):
        matrix.remove(serial)
        del keys[serial]
    query = unit(np.ones(6))
    dots = {serial: np.einsum("j,j->", key, query) for serial, key in keys.items()}
    assert matrix.nearest(query, k) == sorted(keys, key=lambda s: (-dots[s], -s))[:k]


def test_equals_come_newest_first():
    memory = EpisodeMemory()
    for number in range(6):
        memory.store(episode(number, embedding=direction(1.0)))
    found = memory.recall(episode(9, embedding=direction(1.0)), 4)
    assert [e.output[0] // 100 for e in found] == [5, 4, 3, 2]


def test_without_embeddings_tokens_decide():
    memory = EpisodeMemory()
    for number, word in enumerate((50, 60, 70)):
        memory.store(episode(number, prompt=(1, 2, 3, word, word + 1, word + 2, 4, 5)))
    query = Episode((9, 9, 1, 2, 3, 60, 61, 62, 4, 5), ())
    assert memory.recall(query, 1)[0].output[0] // 100 == 1


def test_a_lexical_key_knows_order_and_is_the_same_everywhere():
    key = lexical_key(tail_of((1, 2, 3)))
    assert key.shape == (LEXICAL_WIDTH,)
    assert key.dtype == np.float32
    assert np.linalg.norm(key) == pytest.approx(1.0, abs=1e-6)
    assert float(key @ lexical_key(tail_of((3, 2, 1)))) < 0.9
    assert np.flatnonzero(key)[:3].tolist() == [50, 90, 161], "no seed, no hash() of Python's"
    assert not lexical_key(tail_of(())).any()


def test_kinds_are_compared_within_themselves():
    """Embeddings first; where they are fewer than asked for, tokens fill up."""
    memory = EpisodeMemory()
    memory.store(episode(1, prompt=(7, 7, 7)))
    memory.store(episode(2, embedding=direction(3.0)))
    memory.store(episode(3, embedding=np.ones(5)))
    wide = memory.recall(episode(9, prompt=(7, 7, 7), embedding=direction(0.0)), 9)
    assert [e.output[0] // 100 for e in wide][:2] == [2, 1]
    assert len(wide) == 3
    bare = memory.recall(Episode((7, 7, 7), ()), 9)
    assert bare[0].output[0] // 100 == 1
    assert len(bare) == 3


@pytest.mark.parametrize("bad", [np.zeros(3), np.full(3, np.nan), np.full(3, np.inf), np.zeros(0)])
def test_an_embedding_without_direction_counts_as_none(bad):
    memory = EpisodeMemory()
    memory.store(episode(1, embedding=bad))
    assert memory.recall(episode(1, embedding=bad), 1)[0].embedding is None


def test_huge_embeddings_do_not_overflow():
    memory = EpisodeMemory()
    memory.store(episode(1, embedding=np.full(3, 3e38, dtype=np.float32)))
    found = memory.recall(episode(1, embedding=np.ones(3)), 1)[0]
    assert np.linalg.norm(found.embedding) == pytest.approx(1.0, abs=1e-6)


def test_what_is_recalled_cannot_change_the_memory():
    memory = EpisodeMemory()
    mine = direction(0.3).copy()
    memory.store(episode(1, embedding=mine))
    mine[:] = 0
    memory.recall(episode(1, embedding=direction(0.3)), 1)[0].embedding[:] = 0
    assert memory.recall(episode(1, embedding=direction(0.3)), 1)[0].embedding @ direction(
        0.3
    ) == pytest.approx(1.0, abs=1e-6)


def test_of_a_prompt_its_end_is_kept():
    memory = EpisodeMemory()
    memory.store(Episode(tuple(range(1000)), (1, 2)))
    assert memory.recall(Episode((999,), ()), 1)[0].prompt == tuple(range(1000 - TAIL, 1000))


# Duplicates


def test_the_same_output_for_the_same_prompt_is_counted():
    memory = EpisodeMemory()
    for angle in (0.0, 1.0):  # however far apart the keys
        memory.store(episode(1, embedding=direction(angle)))
    assert len(memory) == 1
    assert memory.describe()["duplicates"] == 1
    assert memory.describe()["most_useful"][0]["stored"] == 2


def test_the_same_output_for_nearly_the_same_key_is_counted():
    memory = EpisodeMemory()
    for number, angle in enumerate((0.0, 0.01, 1.0)):
        memory.store(Episode((number, 1), (1, 2, 3), direction(angle)))
    assert len(memory) == 2
    for prompt in (tuple(range(300)), (99, *range(1, 300))):  # the same last 256 tokens
        memory.store(Episode(prompt, (5, 6)))
    assert len(memory) == 3


def test_other_outputs_and_other_tenants_are_no_duplicates():
    memory = EpisodeMemory()
    memory.store(episode(1))
    memory.store(episode(1, length=5))
    memory.store(episode(1, tenant="b"))
    assert len(memory) == 3
    assert memory.describe()["duplicates"] == 0


# Bounds and use


def test_the_least_recently_useful_goes_first():
    memory = EpisodeMemory(entries=3)
    for number in (1, 2, 3):
        memory.store(episode(number))
    memory.store(episode(1))  # stored again
    memory.credit(memory.recall(episode(2), 1)[0], 5)  # led to accepted tokens
    assert outputs(memory) == [3, 1, 2]
    memory.recall(episode(3), 3)  # no use
    memory.store(episode(4))
    assert outputs(memory) == [1, 2, 4]
    assert memory.describe()["most_useful"][0]["accepted"] == 5


def test_tokens_are_bounded_too():
    memory = EpisodeMemory(tokens=800)
    for number in range(40):
        memory.store(episode(number, length=99))
    assert len(memory) == 8
    assert memory.describe()["tokens"] == 8 * 99
    assert outputs(memory) == list(range(32, 40))


def test_an_output_too_large_drives_nothing_out():
    memory = EpisodeMemory(tokens=800)
    memory.store(episode(1))
    memory.store(episode(2, length=101))
    memory.store(Episode((1,), ()))
    assert outputs(memory) == [1]
    assert memory.describe()["declined"] == 2


def test_a_text_that_cannot_be_its_tokens_is_left_out():
    memory = EpisodeMemory()
    memory.store(episode(1, text="x" * 10_000))
    assert next(iter(memory)).text is None


def test_one_bound_holds_for_all_tenants_and_none_sees_another():
    memory = EpisodeMemory(entries=4)
    for number in range(3):
        for tenant in ("a", "b"):
            memory.store(episode(number, tenant=tenant, embedding=direction(number)))
    assert len(memory) == 4
    for tenant in ("a", "b"):
        found = memory.recall(episode(0, tenant=tenant, embedding=direction(0)), 9)
        assert {e.tenant for e in found} == {tenant}
    assert memory.describe()["tenants"] == {"a": 2, "b": 2}
    memory.credit(episode(2, tenant="c"), 5)
    assert memory.describe()["most_useful"][0]["uses"] == 0


def test_crediting_what_was_dropped_changes_nothing():
    memory = EpisodeMemory(entries=1)
    memory.store(episode(1))
    found = memory.recall(episode(1), 1)[0]
    memory.store(episode(2))
    before = snapshot(memory)
    memory.credit(found, 3)
    assert snapshot(memory) == before


def test_recall_changes_nothing():
    memory = EpisodeMemory()
    for number in range(20):
        memory.store(episode(number, embedding=direction(number)))
    before = snapshot(memory)
    for k in (0, 1, 5, 99):
        memory.recall(episode(3, embedding=direction(3)), k)
        memory.recall(episode(3), k)
        memory.recall(episode(3, tenant="nobody"), k)
    assert snapshot(memory) == before


def test_prune_keeps_the_most_recently_useful():
    memory = EpisodeMemory()
    for number in range(5):
        memory.store(episode(number))
    assert memory.prune(2) == 3
    assert outputs(memory) == [3, 4]
    assert memory.prune(9) == 0
    with pytest.raises(ValueError, match="at least 0"):
        memory.prune(-1)


def test_stored_in_its_own_order_a_memory_is_made_again():
    memory = EpisodeMemory()
    for number in range(5):
        memory.store(episode(number, embedding=direction(number), text=f"t{number}"))
    memory.store(episode(1, embedding=direction(1)))
    again = EpisodeMemory()
    for kept in memory:
        again.store(kept)
    assert list(again) == list(memory)


actions = st.lists(
    st.tuples(
        st.sampled_from(["store", "credit", "forget", "prune"]),
        st.integers(0, 7),
        st.sampled_from(["", "a"]),
    ),
    max_size=40,
)


@given(actions)
@settings(max_examples=60, deadline=None)
def test_it_does_what_a_list_would(steps):
    """Against the plainest model: a list, least recently useful first."""
    memory, model = EpisodeMemory(entries=4), []
    for verb, number, tenant in steps:
        kept = episode(number, tenant=tenant, embedding=direction(number) if number % 2 else None)
        if verb == "forget":
            memory.forget(tenant)
            model = [entry for entry in model if entry[1] != tenant]
        elif verb == "prune":
            memory.prune(number)
            model = model[max(len(model) - number, 0) :]
        else:
            name = (number, tenant)
            if verb == "store":
                memory.store(kept)
            else:
                memory.credit(kept, 1)
            if verb == "store" or name in model:
                model = [*(entry for entry in model if entry != name), name][-4:]
        assert [(e.output[0] // 100, e.tenant) for e in memory] == model
        assert memory.describe()["tokens"] == 4 * len(model) == 4 * len(memory)


# Hostile contents


@pytest.mark.parametrize("ids", [(-1,), (2**31,), (2**70,), ("x",), (None,)])
def test_output_ids_that_no_vocabulary_has_are_refused(ids):
    memory = EpisodeMemory()
    with pytest.raises(ValueError, match="token ids"):
        memory.store(Episode((1,), ids))
    assert len(memory) == 0


def test_placeholders_in_a_prompt_are_no_harm():
    memory = EpisodeMemory()
    memory.store(Episode((-200, 2**40, 5), (1, 2)))
    assert memory.recall(Episode((-200, 2**40, 5), ()), 1)[0].output == (1, 2)


def test_bad_bounds_are_refused():
    for options in ({"entries": 0}, {"tokens": 7}):
        with pytest.raises(ValueError, match="must be at least"):
            EpisodeMemory(**options)
    with pytest.raises(TypeError, match="must be a text"):
        EpisodeMemory(model=3)


def test_fingerprints_are_told_once():
    memory = EpisodeMemory()
    memory.identify(model="m")
    memory.identify(model="m", tokenizer="t")
    assert memory.describe()["fingerprints"] == {"model": "m", "tokenizer": "t"}
    with pytest.raises(MemoryFileError, match="model 'other', this memory of 'm'"):
        memory.identify(model="other")


# Size, speed, threads


def api_bank_like(number):
    """53 output tokens, 900 of prompt and 576 numbers, as on API-Bank with the demo model."""
    draw = np.random.default_rng(number)
    return Episode(
        tuple(draw.integers(0, 49152, 900).tolist()),
        tuple(draw.integers(0, 49152, 53).tolist()),
        draw.standard_normal(576).astype(np.float32),
        f"call {number} " + "x" * 200,
    )


def test_a_thousand_api_bank_episodes_stay_under_10_mb():
    memory = EpisodeMemory()
    memory.store(api_bank_like(5000))  # imports and caches are not the memory's
    tracemalloc.start()
    for number in range(1000):
        memory.store(api_bank_like(number))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(memory) == 1000
    assert held < 10e6
    assert memory.describe()["bytes"] == pytest.approx(held, rel=0.2)


def test_ten_thousand_stores_never_exceed_the_cap():
    memory = EpisodeMemory(entries=1000)
    prompt, spread = tuple(range(30)), rng.standard_normal((50, 16)).astype(np.float32)
    for number in range(10_000):
        memory.store(Episode((number, *prompt), (number, 1, 2), spread[number % 50]))
        assert len(memory) == min(number + 1, 1000)
    assert [e.output[0] for e in memory] == list(range(9000, 10_000))


def test_recall_from_a_thousand_is_quick():
    memory = EpisodeMemory()
    keys = rng.standard_normal((1000, 576)).astype(np.float32)
    for number, key in enumerate(keys):
        memory.store(Episode((number,), (number, 1), key))
    times = []
    for key in keys[:20]:
        begun = time.perf_counter()
        memory.recall(Episode((1,), (), key), 10)
        times.append(time.perf_counter() - begun)
    assert min(times) < 3e-3


def test_threads_may_store_recall_and_save_at_once(tmp_path):
    memory = EpisodeMemory(entries=50)
    errors = []

    def work(which):
        try:
            for number in range(120):
                kept = episode(number, tenant=str(which % 2), embedding=direction(number + which))
                memory.store(kept)
                for found in memory.recall(kept, 3):
                    assert found.tenant == kept.tenant
                    memory.credit(found, 1)
                assert len(memory) <= 50
                if number % 40 == 0:
                    memory.save(tmp_path / f"{which}.npz")
                    EpisodeMemory().load(tmp_path / f"{which}.npz")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    held = list(memory)
    assert len(held) == len(memory) <= 50
    assert memory.describe()["tokens"] == sum(len(e.output) for e in held)


def test_it_is_found_by_its_name():
    memory = parse("episodes(entries=5)", kind="memory")
    assert isinstance(memory, Memory)
    assert repr(memory) == "EpisodeMemory(entries=5, tokens=262144)"
