"""TokenRecycling: what the conformance kit cannot know."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from specdec_token_recycling import TokenRecycling
from specdec_token_recycling.shape import cut, published
from specdec_token_recycling.table import SuccessorTable

from specdec import EMPTY, ROOT, DraftTree, Limit, Request, Step, parse

WIDE = Limit(80, 64)


def rows(*lists):
    return np.array(lists, dtype=np.int64)


def session(drafter, prompt=(1,), tenant=""):
    return drafter.start(Request(prompt=prompt, max_new_tokens=99, tenant=tenant))


def paths(tree):
    return [tuple(tree.tokens[n] for n in tree.path_to(i)) for i in range(len(tree))]


def test_the_tree_is_the_published_one():
    shape = published()
    depths = DraftTree(shape.ranks, shape.parents, shape.scores, shape.votes).depths
    assert len(shape.parents) == 80
    assert Counter(depths.tolist()) == {1: 8, 2: 21, 3: 25, 4: 15, 5: 8, 6: 3}
    ranks = DraftTree(shape.ranks, shape.parents, shape.scores, shape.votes)
    known = set(paths(ranks))
    for path in ((7, 0), (0, 0, 7), (0, 1, 2), (5, 0, 0), (3, 0, 0, 0), (0, 0, 0, 0, 2)):
        assert path in known
    for path in ((7, 1), (6, 0, 0), (4, 0, 0, 0), (2, 0, 0, 0, 0)):
        assert path not in known
    deepest = {path for path in known if len(path) == 6}
    assert deepest == {(0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 1), (0, 0, 0, 1, 0, 0)}


def test_a_cut_tree_keeps_the_nodes_of_the_greatest_reach():
    shape = cut(10, 64, 8)
    assert len(shape.parents) == 10
    assert shape.ranks[0] == 0
    assert max(shape.ranks) < 8
    assert len(cut(80, 2, 8).parents) == 8 + 21
    assert max(cut(80, 64, 2).ranks) == 1
    assert cut(80, 64, 8) == published()


def test_the_draft_follows_the_table_from_the_root():
    drafter = TokenRecycling(top_k=2)
    one = session(drafter, prompt=(1,))
    assert one.propose((1,), WIDE) == EMPTY
    one.observe(Step(0, EMPTY, (), (2,), top_ids=rows([2, 3])))
    one.observe(Step(1, EMPTY, (), (1,), top_ids=rows([1, 4])))
    # 1 leads to 2 or 3; 2 leads back to 1 or 4; nothing is known of 3 and 4.
    found = paths(one.propose((1, 2, 1), WIDE))
    assert found[:2] == [(2,), (3,)]
    assert {(2, 1), (2, 4), (2, 1, 2), (2, 1, 3)} <= set(found)
    assert not any(path[:1] == (3,) and len(path) > 1 for path in found)


def test_every_verified_node_teaches_its_successors():
    drafter = TokenRecycling(top_k=2)
    one = session(drafter, prompt=(1,))
    tree = DraftTree.from_sequences([[5, 6], [7]], source="x", limit=WIDE)
    one.observe(Step(0, tree, (), (9,), top_ids=rows([9, 8], [50, 51], [60, 61], [70, 71])))
    assert paths(session(drafter, (5,)).propose((5,), WIDE))[:2] == [(50,), (51,)]
    assert paths(session(drafter, (7,)).propose((7,), WIDE))[:2] == [(70,), (71,)]
    assert paths(session(drafter, (1,)).propose((1,), WIDE))[:2] == [(9,), (8,)]


def test_the_accepted_context_of_a_token_outweighs_a_rejected_one():
    drafter = TokenRecycling(top_k=2)
    one = session(drafter, prompt=(1,))
    # Token 5 stands on the accepted path and, later in the tree, on a rejected one.
    tree = DraftTree.from_sequences([[5], [6, 5]], source="x", limit=WIDE)
    one.observe(Step(0, tree, (0,), (5, 2), top_ids=rows([5, 6], [2, 3], [0, 0], [40, 41])))
    assert paths(session(drafter, (5,)).propose((5,), WIDE))[:2] == [(2,), (3,)]


def test_the_table_outlives_requests_but_not_tenants():
    drafter = TokenRecycling(top_k=1)
    session(drafter, (1,), "a").observe(Step(0, EMPTY, (), (2,), top_ids=rows([2])))
    assert session(drafter, (1,), "a").propose((1,), WIDE).tokens == (2,)
    assert session(drafter, (1,), "b").propose((1,), WIDE) == EMPTY


def test_a_host_without_top_ids_gets_no_draft():
    one = session(TokenRecycling())
    one.observe(Step(0, EMPTY, (), (2,)))
    assert one.propose((1, 2), WIDE) == EMPTY


def test_a_vocabulary_smaller_than_top_k_is_enough():
    drafter = TokenRecycling(top_k=8)
    one = session(drafter, (0,))
    one.observe(Step(0, EMPTY, (), (1,), top_ids=rows([1, 0])))
    one.observe(Step(1, EMPTY, (), (0,), top_ids=rows([0, 1])))
    assert set(one.propose((0, 1, 0), WIDE).tokens) == {0, 1}


def test_more_successors_than_asked_for_are_cut_to_its_own_number():
    drafter = TokenRecycling(top_k=2)
    one = session(drafter, (1,))
    one.observe(Step(0, EMPTY, (), (5,), top_ids=rows([5, 6, 7, 8])))
    assert paths(session(drafter, (1,)).propose((1,), WIDE)) == [(5,), (6,)]


def test_the_table_grows_with_the_ids_seen_and_keeps_what_it_knew():
    table = SuccessorTable(2)
    table.put([3], rows([1, 2]))
    table.put([1000], rows([3, 4]))
    assert table.get(3) == [1, 2]
    assert table.get(1000) == [3, 4]
    assert table.get(5) == table.get(10**9) == [-1, -1]
    assert len(table.state()["rows"]) < 2 * 1001


def test_the_state_round_trips():
    drafter = TokenRecycling(top_k=1)
    session(drafter, (1,), "a").observe(Step(0, EMPTY, (), (2,), top_ids=rows([2])))
    copy = TokenRecycling(top_k=1)
    copy.restore(drafter.state())
    assert session(copy, (1,), "a").propose((1,), WIDE).tokens == (2,)


@pytest.mark.parametrize("options", [{"top_k": 0}, {"top_k": 9}, {"nodes": 0}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match="must be"):
        TokenRecycling(**options)


def test_the_root_is_a_child_of_nothing():
    assert published().parents[0] == ROOT


def test_it_is_found_by_its_name():
    assert repr(parse("token-recycling(top_k=4)")) == "TokenRecycling(top_k=4, nodes=80)"


def test_a_table_of_another_width_is_refused():
    with pytest.raises(ValueError, match="2 successors per token"):
        SuccessorTable(2).restore(SuccessorTable(4).state())


def test_a_table_grows_safely_in_many_threads():
    table = SuccessorTable(1)

    def work(seed):
        for i in range(500):
            table.put([seed + 37 * i], rows([seed]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert all(table.get(seed + 37 * i) == [seed] for seed in range(4) for i in range(500))


# What the paper does not have


def test_the_prompt_fills_rows_of_which_nothing_is_known():
    drafter = TokenRecycling(top_k=2)
    session(drafter, (7,)).observe(Step(0, EMPTY, (), (5,), top_ids=rows([5, 6])))
    # 7 is known; 1 is followed by 2, 3 and, too late for a row of two, by 4.
    one = session(drafter, (7, 8, 1, 2, 1, 3, 1, 4, 1))
    tree = one.propose((7, 8, 1, 2, 1, 3, 1, 4, 1), Limit(8, 1))
    assert tree.tokens == (2, 3)
    assert session(drafter, (7,)).propose((7,), Limit(8, 1)).tokens == (5, 6)


def test_without_the_prompt_nothing_is_known_at_first():
    assert session(TokenRecycling(prompt=False), (1, 2, 1)).propose((1, 2, 1), WIDE) == EMPTY


def test_a_wrong_guess_does_not_drive_out_what_the_output_went_on_with():
    """9 stood at a node that was not accepted, where it would have gone on with 4, 5 or 6."""
    tree = DraftTree.chain([9], source="x")
    for keep, expected in ((True, [4, 3]), (False, [4, 5])):
        drafter = TokenRecycling(top_k=2, prompt=False, keep=keep)
        one = session(drafter, (9,))
        one.observe(Step(0, EMPTY, (), (3,), top_ids=rows([3, 2])))
        one.observe(Step(1, tree, (), (8,), top_ids=rows([8, 7], [4, 5])))
        found = session(drafter, (9,)).propose((9,), Limit(8, 1))
        assert list(found.tokens) == expected


@pytest.mark.parametrize(
    ("row", "kept", "expected"),
    [
        ([1, 2, 3, 4], 1, [1, 2, 3, 4]),
        ([1, 2, 3, 4], 2, [1, 2, 3, 4]),
        ([1, 2, 3, 4], 3, [1, 3, 2, 4]),
        ([1, 2, 3, 4], 4, [1, 4, 2, 3]),
        ([1, 2, 3, 4], 9, [1, 9, 2, 3]),
        ([1, 2, 3, 4], 0, [1, 0, 2, 3]),
        ([1, 2], 9, [1, 9]),
        ([1], 9, [1]),
    ],
)
def test_what_followed_last_is_second_at_least(row, kept, expected):
    table = SuccessorTable(len(row))
    table.follow([5, kept])
    table.put([5, 6], rows(row, row))
    assert table.get(5) == expected
    assert table.get(6) == row


def test_what_followed_last_is_saved_too():
    table, copy = SuccessorTable(2), SuccessorTable(2)
    table.follow([5, 9])
    copy.restore(table.state())
    copy.put([5], rows([1, 2]))
    assert copy.get(5) == [1, 9]


def test_filling_from_a_long_prompt_is_cheap_once_its_tokens_are_known():
    prompt = tuple(i % 997 for i in range(100_000))
    drafter = TokenRecycling()
    session(drafter, prompt)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        session(drafter, prompt)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.05
