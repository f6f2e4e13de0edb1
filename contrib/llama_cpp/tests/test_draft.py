"""What the draft model makes of the calls that a host is known to make."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from specdec_llama_cpp import LlamaCodec, SpecdecDraft

import specdec
from specdec import Drafter, DraftSession, DraftTree, SpecdecError, default_registry

needs_pld = pytest.mark.skipif(
    "pld" not in default_registry().names("drafter"), reason="pip install -e plugins/pld"
)


class Scripted(Drafter):
    """Offers what `tree(tokens, limit)` says, and keeps a record of what its sessions saw."""

    def __init__(self, tree=None, top_k=0):
        self.tree = tree or (lambda tokens, limit: specdec.EMPTY)
        self.top_k = top_k
        self.sessions = []

    @property
    def needs(self):
        return specdec.Needs(self.top_k)

    def start(self, request, committed=()):
        self.sessions.append(session := _Session(self, request))
        return session


class _Session(DraftSession):
    def __init__(self, drafter, request):
        self.drafter, self.request, self.steps, self.result = drafter, request, [], None
        self.prefills = []

    def prefilled(self, embedding):
        self.prefills.append((len(self.steps), embedding))

    def propose(self, tokens, limit):
        assert tuple(tokens) == self.request.prompt + self.output
        return self.drafter.tree(tokens, limit)

    @property
    def output(self):
        return tuple(token for step in self.steps for token in step.committed)

    def observe(self, step):
        self.steps.append(step)

    def finish(self, result):
        self.result = result


def chain(*tokens):
    return lambda _, limit: DraftTree.chain(tokens[: limit.depth], source="s")


def joined(fake, drafter, **options):
    """A draft model and the host that it drafts for."""
    given = {name: options.pop(name) for name in ("num_pred_tokens", "least") if name in options}
    model = SpecdecDraft(drafter, **{"num_pred_tokens": 4, **given})
    llm = fake(model, **options)
    model.attach(llm)
    return model, llm


def ids(*tokens):
    return np.array(tokens, dtype=np.intc)


def called(model, *tokens):
    return model(ids(*tokens)).tolist()


def test_the_first_call_shows_the_prompt_and_the_first_token(fake):
    drafter = Scripted(chain(7, 8))
    model, _ = joined(fake, drafter)
    assert called(model, 1, 2, 3) == [7, 8]
    (session,) = drafter.sessions
    assert session.request.prompt == (1, 2)
    assert session.output == (3,)
    assert session.steps[0].index == 0
    assert session.prefills == [(1, None)]


def test_ids_that_go_on_are_a_step_on_the_accepted_part_of_the_draft(fake):
    drafter = Scripted(chain(7, 8, 9))
    model, _ = joined(fake, drafter)
    called(model, 1, 2)
    called(model, 1, 2, 7, 8, 5)
    (session,) = drafter.sessions
    step = session.steps[1]
    assert (step.tree.tokens, step.path, step.committed) == ((7, 8, 9), (0, 1), (7, 8, 5))
    assert (step.index, step.kv_length) == (1, 1)
    assert model.report.by_source["s"] == specdec.SourceCount(3, 2)
    assert model.report.mean_acceptance_length == 3


def test_a_draft_may_be_accepted_whole_or_not_at_all(fake):
    drafter = Scripted(chain(7, 8))
    model, _ = joined(fake, drafter)
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
def test_other_ids_begin_another_request(fake, then):
    drafter = Scripted(chain(7, 8))
    model, _ = joined(fake, drafter)
    called(model, 1, 2, 3)
    called(model, *then)
    if len(then) > 1:
        first, second = drafter.sessions
        assert second.request.prompt == then[:-1]
        assert second.output == then[-1:]
    else:
        (first,) = drafter.sessions
    assert first.result.finish == "length"


def test_the_next_turn_of_a_conversation_is_another_request(fake):
    """Its prompt begins with all that was said before, the last answer included."""
    drafter = Scripted(chain(7, 8))
    _, llm = joined(fake, drafter)
    llm.write(b"one", b"two")
    llm.write(b"one" + b"two<|im_end|>" + b"three", b"four")
    assert [len(s.request.prompt) for s in drafter.sessions] == [3, 12]


def test_the_ids_are_copied(fake):
    drafter = Scripted(chain(7))
    model, _ = joined(fake, drafter)
    buffer = ids(1, 2, 3, 0, 0)
    model(buffer[:3])
    buffer[3] = 7
    buffer[:3] = 99  # as a host that goes on writing to its buffer
    assert called(model, 1, 2, 3, 7) == [7]
    assert len(drafter.sessions) == 1


def test_the_hosts_buffer_is_left_alone(fake):
    model, _ = joined(fake, Scripted(chain(7)))
    buffer = ids(1, 2, 3)
    buffer.setflags(write=False)
    drafted = model(buffer)
    drafted[:] = 0
    assert called(model, 1, 2, 3, 7) == [7], "what is handed out is the host's to change"


def test_of_a_tree_the_most_promising_path_is_drafted(fake):
    def tree(tokens, limit):
        return DraftTree.from_sequences(
            [(1, 2), (3, 4, 5)], source="s", limit=limit, scores=[0.9, 0.2]
        )

    drafter = Scripted(tree)
    model, _ = joined(fake, drafter)
    assert called(model, 1, 2) == [1, 2]
    called(model, 1, 2, 1, 6)
    assert drafter.sessions[0].steps[1].tree.tokens == (1, 2), "what was verified, no more"


def test_a_draft_is_capped_and_leaves_the_last_position_to_the_target(fake):
    model, _ = joined(fake, Scripted(lambda t, limit: chain(*[7] * 99)(t, limit)), n_ctx=10)
    assert len(called(model, *range(1, 4))) == 4
    assert len(called(model, *range(1, 8))) == 2
    assert called(model, *range(1, 10)) == []
    assert called(model, *range(1, 11)) == []


@pytest.mark.parametrize("n_ctx", range(8, 14))
def test_output_at_the_end_of_the_context_is_the_same(fake, n_ctx):
    _, llm = joined(fake, Scripted(chain(*b"wxyz")), n_ctx=n_ctx)
    plain = fake(n_ctx=n_ctx)
    assert llm.write(b"start", b"wxyzwxyzwxyz") == plain.write(b"start", b"wxyzwxyzwxyz")


def test_a_drafter_that_raises_costs_speed_only(fake, caplog):
    def broken(tokens, limit):
        raise RuntimeError("no")

    model, llm = joined(fake, Scripted(broken))
    assert llm.write(b"one", b"two") == fake().write(b"one", b"two")
    assert ["RuntimeError: no" in line for line in model.errors] == [True]


def test_junk_costs_speed_only(fake):
    draw = np.random.default_rng(0)
    trees = [
        lambda t, limit: chain(*draw.integers(0, 262, limit.depth).tolist())(t, limit),
        lambda t, limit: chain(99_999)(t, limit),
        lambda t, limit: DraftTree.chain([1] * 50, source="deeper than allowed"),
        lambda t, limit: "no tree",
        lambda t, limit: DraftTree.chain([-1], source="s"),
        lambda t, limit: DraftTree.chain([2**40], source="s"),
    ]
    text = "what is said, caf\u00e9 and all".encode()
    for tree in trees:
        _, llm = joined(fake, Scripted(tree))
        assert llm.write(b"prompt", text) == fake().write(b"prompt", text)


def test_what_goes_wrong_in_here_ends_no_generation(fake, caplog):
    model, llm = joined(fake, Scripted(chain(7)))
    model.num_pred_tokens = "many"
    with caplog.at_level(logging.WARNING, "specdec"):
        assert llm.write(b"one", b"two") == fake().write(b"one", b"two")
    assert len(caplog.records) == 1
    assert "nothing is drafted: TypeError" in caplog.text


def test_without_a_host_nothing_is_drafted(caplog):
    model = SpecdecDraft(Scripted(chain(7)))
    with caplog.at_level(logging.WARNING, "specdec"):
        assert called(model, 1, 2) == called(model, 1, 2, 3) == []
    assert caplog.text.count("attach(llm)") == 1


def test_a_host_with_another_draft_model_is_refused(fake):
    with pytest.raises(SpecdecError, match=r"drafts with None.*draft_model=model"):
        SpecdecDraft(Scripted()).attach(fake())


def test_a_host_that_would_fail_on_long_prompts_is_refused(fake):
    model = SpecdecDraft(Scripted())
    with pytest.raises(SpecdecError, match=r"64 positions for a context of 200.*logits_all=True"):
        model.attach(fake(model, n_ctx=200, rows=64))


def test_a_chain_ends_before_a_token_that_is_hardly_likely(fake):
    def tree(tokens, limit):
        return DraftTree.from_sequences([(1, 2, 3)], source="s", limit=limit, scores=[0.5])

    model, _ = joined(fake, Scripted(tree), least=0.2)
    assert called(model, 5, 6) == [1, 2]


def test_least_is_a_probability():
    with pytest.raises(ValueError, match=r"from 0 to 1, got 1.5"):
        SpecdecDraft(Scripted(), least=1.5)


def test_no_tokens_are_no_draft():
    with pytest.raises(ValueError, match="num_pred_tokens must be at least 1, got 0"):
        SpecdecDraft(Scripted(), num_pred_tokens=0)


def test_what_is_known_of_a_request_reaches_the_next_one_alone(fake):
    drafter = Scripted()
    model, _ = joined(fake, drafter)
    tool = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    model.begin(tools=[tool], messages=[{"role": "user"}], prediction="p", tenant="t")
    called(model, 1, 2)
    called(model, 3, 4)
    first, second = (session.request for session in drafter.sessions)
    assert [t.name for t in first.tools] == ["f"]
    assert (first.prediction, first.tenant, len(first.messages)) == ("p", "t", 1)
    assert (second.tools, second.prediction, second.tenant) == ((), None, "")


def test_begin_separates_requests_that_look_like_one(fake):
    drafter = Scripted(chain(7))
    model, _ = joined(fake, drafter)
    called(model, 1, 2)
    model.begin()
    called(model, 1, 2, 7)
    assert [s.request.prompt for s in drafter.sessions] == [(1,), (1, 2)]


def test_a_malformed_tool_is_refused_at_once(fake):
    model, _ = joined(fake, Scripted())
    with pytest.raises(specdec.RequestError):
        model.begin(tools=[{"parameters": {}}])


def test_a_request_knows_the_host(fake):
    drafter = Scripted()
    model, llm = joined(fake, drafter, n_ctx=100)
    called(model, 1, 2, 3)
    request = drafter.sessions[0].request
    assert (request.vocabulary, request.stop_ids) == (llm.n_vocab(), {llm.token_eos()})
    assert request.max_new_tokens == 98
    assert request.codec.decode((104, 105)) == "hi"


def test_another_codec_may_be_given(fake):
    drafter = Scripted()
    model, llm = joined(fake, drafter)
    codec = LlamaCodec(fake(space=True))
    model.attach(llm, codec)
    called(model, 1, 2)
    assert drafter.sessions[0].request.codec is codec


def test_the_end_is_told_with_the_text(fake):
    drafter = Scripted(chain(*b"cd"))
    model, llm = joined(fake, drafter)
    written = llm.write(b"prompt", b"-cd")
    assert drafter.sessions[0].result is None
    model.end("-cd")
    result = drafter.sessions[0].result
    assert (result.tokens, result.finish) == (tuple(written), "stop_id")
    assert drafter.sessions[0].steps[-1].path == (0, 1)
    assert model.report.num_accepted_draft_tokens == 2


def test_an_end_inside_the_draft_has_no_token_of_the_targets_own(fake):
    drafter = Scripted(lambda t, limit: chain(*b"cd", llm.token_eos(), 1)(t, limit))
    model, llm = joined(fake, drafter)
    written = llm.write(b"prompt", b"-cd")
    model.end("-cd")
    assert drafter.sessions[0].result.tokens == tuple(written)
    assert drafter.sessions[0].steps[-1].path == (0, 1, 2)


@pytest.mark.parametrize("text", ["another text", "-cd and more than a pass can write", None])
def test_a_text_that_does_not_fit_is_no_end(fake, text):
    drafter = Scripted(chain(*b"cd"))
    model, llm = joined(fake, drafter)
    llm.write(b"prompt", b"-cd")
    model.end(text)
    model.end(text)
    assert drafter.sessions[0].result.finish == "length"
    assert drafter.sessions[0].result.tokens == tuple(b"-")


def test_likely_tokens_are_read_off_the_hosts_logits(fake):
    drafter = Scripted(chain(*b"bX"), top_k=2)
    _, llm = joined(fake, drafter)
    llm.write(b"prompt", b"bc!")
    llm.draft_model.end()
    steps = drafter.sessions[0].steps
    assert steps[0].top_ids.tolist() == [[ord("b"), 7]]
    assert steps[1].top_ids.shape == (3, 2)
    assert steps[1].top_ids[0].tolist() == [ord("c"), 7]
    assert steps[1].top_ids.dtype == np.int64


@needs_pld
def test_a_stack_drafts_what_it_should(fake):
    model, llm = joined(fake, "pld", num_pred_tokens=8)
    text = b"one two three four five six"
    assert llm.write(text + b" / ", text) == fake().write(text + b" / ", text)
    plain = fake()
    plain.write(text + b" / ", text)
    assert llm.passes < plain.passes / 2
    assert model.report.by_source["pld"].accepted > 10


@pytest.mark.skipif(
    "toolspec" not in default_registry().names("drafter"), reason="pip install -e plugins/toolspec"
)
def test_the_schema_is_read_off_the_prompt_and_calls_are_remembered(fake):
    model, llm = joined(fake, "toolspec(fallback=pld())", num_pred_tokens=16, n_ctx=2048)
    prompt = (
        b'<tools>\n{"type": "function", "function": {"name": "get_weather", "description": "", '
        b'"parameters": {"type": "object", "properties": {"city": {"type": "string"}}, '
        b'"required": ["city"]}}}\n</tools>\nFor each call return a json object: <tool_call>\n'
        b'{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>\nWeather?\n'
    )
    call = b'<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    for _ in range(2):
        assert llm.write(prompt, call) == fake(n_ctx=2048).write(prompt, call)
        model.end(call.decode())
    accepted = {name: count.accepted for name, count in model.report.by_source.items()}
    assert accepted["schema"] > 20
    assert accepted["retrieval"] > 20
    assert model.errors == ()
