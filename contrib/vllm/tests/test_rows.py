"""Rows move, are cut, come and go; the session of each request is found by what it holds."""

import gc
import random
import weakref

import pytest
from specdec_vllm.batch import PATIENCE, SPARE

STOP = 1


def a_request(served, number, *, size=40, prompt=None, chunks=1):
    chance = random.Random(number)
    prompt = prompt or tuple(chance.randrange(10, 900) for _ in range(20))
    output = tuple(chance.randrange(10, 900) for _ in range(size))
    return served(prompt, (*output, STOP), chunks)


def test_what_a_drafter_knows_is_drafted_and_accepted(served, serving):
    request = a_request(served, 0)
    drafter, host = serving(request)
    host.run()
    # The prompt's pass writes one token, each of the others four drafted ones and one more.
    assert (host.calls, host.accepted, host.longest) == (9, 32, 4)
    assert drafter.wrong == []


def test_rows_that_are_swapped_keep_their_sessions(served, serving):
    requests = [a_request(served, i) for i in range(6)]
    drafter, host = serving(*requests)
    chance = random.Random(0)
    for _ in range(8):
        host.swap(*chance.sample(range(6), 2))
        host.step()
    assert len(drafter.started) == 6
    assert drafter.wrong == []
    assert host.accepted == 6 * 7 * 4


def test_requests_come_and_go_move_and_wait(served, batch, engine, watched):
    chance = random.Random(1)
    prefix = tuple(range(100, 130))
    requests = [
        a_request(
            served,
            i,
            size=chance.randrange(1, 60),
            prompt=(*prefix, *(chance.randrange(10, 12) for _ in range(8)))
            if i % 2
            else (*prefix, i),
            chunks=chance.randrange(1, 4),
        )
        for i in range(150)
    ]
    # Equal prompts give equal outputs here, as greedy decoding does.
    same = {r.prompt: r.output for r in requests}
    for request in requests:
        request.output = same[request.prompt]
    drafter = watched(requests)
    one = batch(drafter)
    host = engine(one, rows=24)
    waiting, away = requests[::-1], []
    while waiting or away or not all(r.done for r in host.rows):
        while waiting and len(host.rows) < 20:
            host.add(waiting.pop())
        for request in away[: chance.randrange(3)]:
            away.remove(request)
            host.add(request)
        for request in chance.sample(host.rows, min(2, len(host.rows))):
            if not request.done and request.at and chance.random() < 0.3:
                host.remove(request)  # preempted: its prompt and output are computed again
                request.chunks = 2
                away.append(request)
        if len(host.rows) > 1 and chance.random() < 0.5:
            host.swap(*chance.sample(range(len(host.rows)), 2))
        host.step()
    assert drafter.wrong == []
    # Every session is opened once, whatever became of its row.
    assert len(drafter.started) == len(requests)
    assert all(committed == () for _, committed in drafter.started)
    assert sorted(r.tokens for r in drafter.finished) == sorted(r.output for r in requests)
    assert len(one.live) == 0


def test_equal_prompts_side_by_side_are_all_drafted_for(served, batch, engine, watched):
    first, *others = [a_request(served, 3) for _ in range(5)]
    drafter = watched([first])
    host = engine(batch(drafter))
    host.add(first, *others[:2])
    host.step()
    host.add(*others[2:])  # while the first are some tokens ahead
    host.run()
    assert len(drafter.started) == len(drafter.finished) == 5
    assert drafter.wrong == []
    assert host.accepted == 5 * 32


def test_equal_prompts_that_go_on_differently_are_told_apart(served, batch, engine, watched):
    one, other = a_request(served, 3), a_request(served, 3)
    other.output = (*other.output[:9], *reversed(other.output[9:-1]), STOP)
    drafter = watched([one])
    host = engine(batch(drafter))
    host.add(one, other)
    for _ in range(50):
        if len(host.rows) == 2:
            host.swap(0, 1)
        host.step()
    assert drafter.wrong == []
    assert sorted(r.tokens for r in drafter.finished) == sorted([one.output, other.output])


def test_requests_that_differ_at_their_beginning_only_are_told_apart(served, serving):
    ending, begun = tuple(range(100, 140)), tuple(range(50, 56))
    requests = [
        served((10 + i, *ending), (*begun, *a_request(served, i, size=34).output)) for i in range(4)
    ]
    _, host = serving(*requests)
    host.step()
    host.swap(0, 3)
    host.swap(1, 2)
    host.run()
    # 41 tokens in 9 passes, for each what is its own.
    assert host.accepted == 4 * 32


@pytest.mark.parametrize("back", [1, 3, 10])
def test_a_row_cut_short_is_drafted_for_from_there(served, serving, back):
    request = a_request(served, 4)
    drafter, host = serving(request)
    for _ in range(4):
        host.step()
    host.remove(request)
    request.at -= back
    kept = request.output[: request.at]
    host.add(request)
    host.step()
    assert len(request.draft) == 4
    _, (again, committed) = drafter.started
    # What was its prompt still is.
    assert (again.prompt, committed) == (request.prompt, kept)


def test_calls_that_were_left_out_are_made_up_for(served, serving):
    request = a_request(served, 5)
    drafter, host = serving(request)
    host.step()
    for _ in range(6):
        host.step(ask=False)
    host.run()
    assert len(drafter.started) == 1
    assert drafter.wrong == []
    assert [r.tokens for r in drafter.finished] == [request.output]


def test_the_next_turn_of_a_conversation_is_another_request(served, serving):
    first = a_request(served, 6)
    drafter, host = serving(first)
    for _ in range(3):
        host.step()
    host.remove(first)  # given up by its client, which answers
    written = first.content
    second = served((*written, STOP, 50, 51, 52), (60, 61, STOP))
    host.add(second)
    host.run()
    assert drafter.started[-1][0].prompt == second.prompt


def test_a_request_that_stays_away_is_given_up(served, batch, engine, watched):
    gone, stays = a_request(served, 7), a_request(served, 8, size=400)
    drafter = watched([])
    one = batch(drafter)
    host = engine(one)
    host.add(gone, stays)
    host.step()
    host.remove(gone)
    for _ in range(PATIENCE + 1):
        host.step()
    assert [r.finish for r in drafter.finished] == ["length"]
    assert len(one.live) == 1


def test_memory_is_bounded_whatever_clients_do(served, batch, engine, watched):
    drafter = watched([])
    one = batch(drafter)
    host = engine(one, rows=40)
    sessions = weakref.WeakSet()
    for i in range(1000):
        request = a_request(served, i)
        host.add(request)
        host.step()
        sessions.update(live.session for live in one.live)
        if len(host.rows) >= 30:
            for given_up in list(host.rows):
                host.remove(given_up)
        assert len(one.live) <= 30 + SPARE
    gc.collect()
    assert len(sessions) <= 30 + SPARE
    assert len(drafter.started) == 1000


def test_hundreds_of_requests_at_once(served, serving):
    prefix = tuple(range(200, 300))
    requests = [a_request(served, i, size=12, prompt=(*prefix, i)) for i in range(400)]
    drafter, host = serving(*requests, rows=400)
    host.run()
    assert drafter.wrong == []
    assert host.accepted == 400 * 9
    assert len(drafter.started) == len(drafter.finished) == 400


def test_a_prompt_in_chunks_is_not_drafted_for_before_its_end(served, serving):
    request = a_request(served, 9, chunks=3)
    drafter, host = serving(request)
    host.step()
    host.step()
    assert drafter.started == []
    assert request.draft == ()
    host.step()
    assert len(request.draft) == 4


def test_a_request_put_off_and_computed_again_in_chunks_keeps_its_session(
    served, batch, engine, watched
):
    request, other = a_request(served, 10), a_request(served, 11, size=200)
    drafter = watched([request])
    host = engine(batch(drafter))
    host.add(request, other)
    host.step()
    host.step()
    host.remove(request)
    for _ in range(20):
        host.step()
    request.chunks = 4
    host.add(request)
    for _ in range(4):
        host.step()
    assert len(request.draft) == 4
    assert len(drafter.started) == 2


@pytest.mark.parametrize(("length", "drafted"), [(512, 4), (24, 2), (23, 1), (22, 0), (21, 0)])
def test_a_draft_ends_before_the_models_last_position(
    served, batch, engine, watched, length, drafted
):
    request = a_request(served, 12)
    host = engine(batch(watched([request]), length=length))
    host.add(request)
    host.step()  # 20 tokens of prompt and one more
    assert len(request.draft) == drafted


def test_nothing_is_drafted_behind_a_stop(served, batch, engine, watched):
    request = served((5, 6, 7), (8, 9, STOP, 20, 21, 22, 23))
    drafter = watched([request])
    one = batch(drafter)
    host = engine(one)
    host.add(request)
    host.step()
    assert request.draft == (9, STOP, 20, 21)
    host.step()  # all accepted: the engine cuts what stands behind the stop, later
    assert request.draft == ()
    (result,) = drafter.finished
    assert (result.tokens, result.finish) == ((8, 9, STOP), "stop_id")
    assert len(one.live) == 0


def test_an_output_that_goes_on_behind_a_stop_is_drafted_for_again(served, batch, engine, watched):
    request = served((5, 6, 7), (8, STOP, *range(20, 60)))
    drafter = watched([request])
    drafter.outputs[request.prompt + request.output[:6]] = request.output[6:]
    host = engine(batch(drafter))
    host.add(request)
    host.run()
    assert drafter.wrong == []
    assert host.accepted > 20
