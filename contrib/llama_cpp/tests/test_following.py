"""Which ids are of one request, and what its drafter is told."""

from __future__ import annotations

import numpy as np
import pytest
from specdec_llama_cpp import LlamaCodec

import specdec


def test_the_first_call_shows_the_prompt_and_the_first_token(scripted, joined, called):
    drafter = scripted.chain(7, 8)
    model, _ = joined(drafter)
    assert called(model, 1, 2, 3) == [7, 8]
    (session,) = drafter.sessions
    assert session.request.prompt == (1, 2)
    assert session.output == (3,)
    assert session.steps[0].index == 0
    assert session.prefills == [(1, None)]


def test_ids_that_go_on_are_a_step_on_the_accepted_part_of_the_draft(scripted, joined, called):
    drafter = scripted.chain(7, 8, 9)
    model, _ = joined(drafter)
    called(model, 1, 2)
    called(model, 1, 2, 7, 8, 5)
    (session,) = drafter.sessions
    step = session.steps[1]
    assert (step.tree.tokens, step.path, step.committed) == ((7, 8, 9), (0, 1), (7, 8, 5))
    assert (step.index, step.kv_length) == (1, 1)
    assert model.report.by_source["s"] == specdec.SourceCount(3, 2)
    assert model.report.mean_acceptance_length == 3


def test_a_draft_may_be_accepted_whole_or_not_at_all(scripted, joined, called):
    drafter = scripted.chain(7, 8)
    model, _ = joined(drafter)
    called(model, 1, 2)
    called(model, 1, 2, 7, 8, 9)
    called(model, 1, 2, 7, 8, 9, 4)
    assert [step.path for step in drafter.sessions[0].steps] == [(), (0, 1), ()]


@pytest.mark.parametrize(
    "then",
    [
        (1, 2),  # the same request once more
        (1,),
        (1, 2, 3, 7, 9, 9),  # more than the draft explains
        (1, 2, 3, 7, 8, 5, 6),
        (1, 2, 3, 4, 5),  # two tokens, the first of which was not drafted
        (1, 9, 3, 7),
        (5, 6, 7, 8, 9),
    ],
    ids=str,
)
def test_other_ids_begin_another_request(scripted, joined, called, then):
    drafter = scripted.chain(7, 8)
    model, _ = joined(drafter)
    called(model, 1, 2, 3)
    called(model, *then)
    if len(then) > 1:
        first, second = drafter.sessions
        assert second.request.prompt == then[:-1]
        assert second.output == then[-1:]
    else:
        (first,) = drafter.sessions
    assert first.result.finish == "length"


@pytest.mark.parametrize("draft", [(), (7,), (7, 8)], ids=len)
def test_the_same_ids_once_more_are_another_request(scripted, joined, called, draft):
    drafter = scripted.chain(*draft)
    model, _ = joined(drafter)
    assert called(model, 1, 2, 3) == called(model, 1, 2, 3) == [*draft]
    assert [session.output for session in drafter.sessions] == [(3,), (3,)]


def test_the_next_turn_of_a_conversation_is_another_request(scripted, joined):
    """Its prompt begins with all that was said before, the last answer included."""
    drafter = scripted.chain(7, 8)
    _, llm = joined(drafter)
    llm.write(b"one", b"two")
    llm.write(b"one" + b"two<|im_end|>" + b"three", b"four")
    assert [len(s.request.prompt) for s in drafter.sessions] == [3, 12]


def test_the_ids_are_copied(scripted, joined, called):
    drafter = scripted.chain(7)
    model, _ = joined(drafter)
    buffer = np.array([1, 2, 3, 0, 0], dtype=np.intc)
    model(buffer[:3])
    buffer[3] = 7
    buffer[:3] = 99  # as a host that goes on writing to its buffer
    assert called(model, 1, 2, 3, 7) == [7]
    assert len(drafter.sessions) == 1


def test_what_is_known_of_a_request_reaches_the_next_one_alone(scripted, joined, called):
    drafter = scripted()
    model, _ = joined(drafter)
    tool = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    model.begin(tools=[tool], messages=[{"role": "user"}], prediction="p", tenant="t")
    called(model, 1, 2)
    called(model, 3, 4)
    first, second = (session.request for session in drafter.sessions)
    assert [t.name for t in first.tools] == ["f"]
    assert (first.prediction, first.tenant, len(first.messages)) == ("p", "t", 1)
    assert (second.tools, second.prediction, second.tenant) == ((), None, "")


def test_begin_separates_requests_that_look_like_one(scripted, joined, called):
    drafter = scripted.chain(7)
    model, _ = joined(drafter)
    called(model, 1, 2)
    model.begin()
    called(model, 1, 2, 7)
    assert [s.request.prompt for s in drafter.sessions] == [(1,), (1, 2)]


def test_a_malformed_tool_is_refused_at_once(scripted, joined):
    model, _ = joined(scripted())
    with pytest.raises(specdec.RequestError):
        model.begin(tools=[{"parameters": {}}])


def test_a_request_knows_the_host(scripted, joined, called):
    drafter = scripted()
    model, llm = joined(drafter, n_ctx=100)
    called(model, 1, 2, 3)
    request = drafter.sessions[0].request
    assert (request.vocabulary, request.stop_ids) == (llm.n_vocab(), {llm.token_eos()})
    assert request.max_new_tokens == 98
    assert request.codec.decode((104, 105)) == "hi"


def test_another_codec_may_be_given(scripted, joined, called, fake):
    drafter = scripted()
    model, llm = joined(drafter)
    codec = LlamaCodec(fake(space=True))
    model.attach(llm, codec)
    called(model, 1, 2)
    assert drafter.sessions[0].request.codec is codec


def test_the_end_is_told_with_the_text(scripted, joined):
    drafter = scripted.chain(*b"cd")
    model, llm = joined(drafter)
    written = llm.write(b"prompt", b"-cd")
    assert drafter.sessions[0].result is None
    model.end("-cd")
    result = drafter.sessions[0].result
    assert (result.tokens, result.finish) == (tuple(written), "stop_id")
    assert drafter.sessions[0].steps[-1].path == (0, 1)
    assert model.report.num_accepted_draft_tokens == 2


def test_an_end_inside_the_draft_has_no_token_of_the_targets_own(scripted, joined, fake):
    drafter = scripted.chain(*b"cd", fake().token_eos(), 1)
    model, llm = joined(drafter)
    written = llm.write(b"prompt", b"-cd")
    model.end("-cd")
    assert drafter.sessions[0].result.tokens == tuple(written)
    assert drafter.sessions[0].steps[-1].path == (0, 1, 2)


@pytest.mark.parametrize("text", ["another text", "-cd and more than a pass can write", None])
def test_a_text_that_does_not_fit_is_no_end(scripted, joined, text):
    drafter = scripted.chain(*b"cd")
    model, llm = joined(drafter)
    llm.write(b"prompt", b"-cd")
    model.end(text)
    model.end(text)
    assert drafter.sessions[0].result.finish == "length"
    assert drafter.sessions[0].result.tokens == tuple(b"-")


def test_likely_tokens_are_read_off_the_hosts_logits(scripted, joined):
    drafter = scripted.chain(*b"bX", top_k=2)
    _, llm = joined(drafter)
    llm.write(b"prompt", b"bc!")
    llm.draft_model.end()
    steps = drafter.sessions[0].steps
    assert steps[0].top_ids.tolist() == [[ord("b"), 7]]
    assert steps[1].top_ids.shape == (3, 2)
    assert steps[1].top_ids[0].tolist() == [ord("c"), 7]
    assert steps[1].top_ids.dtype == np.int64
