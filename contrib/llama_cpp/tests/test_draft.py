"""What the draft model drafts, and what it makes of trouble."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from specdec_llama_cpp import SpecdecDraft

from specdec import DraftTree, SpecdecError, default_registry

needs_pld = pytest.mark.skipif(
    "pld" not in default_registry().names("drafter"), reason="pip install -e plugins/pld"
)


def test_the_hosts_buffer_is_left_alone(scripted, joined, called):
    model, _ = joined(scripted.chain(7))
    buffer = np.array([1, 2, 3], dtype=np.intc)
    buffer.setflags(write=False)
    drafted = model(buffer)
    drafted[:] = 0
    assert called(model, 1, 2, 3, 7) == [7], "what is handed out is the host's to change"


def test_of_a_tree_the_most_promising_path_is_drafted(scripted, joined, called):
    def tree(tokens, limit):
        return DraftTree.from_sequences(
            [(1, 2), (3, 4, 5)], source="s", limit=limit, scores=[0.9, 0.2]
        )

    drafter = scripted(tree)
    model, _ = joined(drafter)
    assert called(model, 1, 2) == [1, 2]
    called(model, 1, 2, 1, 6)
    assert drafter.sessions[0].steps[1].tree.tokens == (1, 2), "what was verified, no more"


def test_a_draft_is_capped_and_leaves_the_last_position_to_the_target(scripted, joined, called):
    model, _ = joined(scripted.chain(*[7] * 99), n_ctx=10)
    assert len(called(model, *range(1, 4))) == 4
    assert len(called(model, *range(1, 8))) == 2
    assert called(model, *range(1, 10)) == []
    assert called(model, *range(1, 11)) == []


@pytest.mark.parametrize("n_ctx", range(8, 14))
def test_output_at_the_end_of_the_context_is_the_same(scripted, joined, fake, n_ctx):
    _, llm = joined(scripted.chain(*b"wxyz"), n_ctx=n_ctx)
    plain = fake(n_ctx=n_ctx)
    assert llm.write(b"start", b"wxyzwxyzwxyz") == plain.write(b"start", b"wxyzwxyzwxyz")


def test_a_drafter_that_raises_costs_speed_only(scripted, joined, fake, caplog):
    def broken(tokens, limit):
        raise RuntimeError("no")

    model, llm = joined(scripted(broken))
    assert llm.write(b"one", b"two") == fake().write(b"one", b"two")
    assert ["RuntimeError: no" in line for line in model.errors] == [True]
    during = model.errors
    model.end()
    assert model.errors == during


def test_junk_costs_speed_only(scripted, joined, fake):
    draw = np.random.default_rng(0)
    trees = [
        lambda t, limit: DraftTree.chain(draw.integers(0, 262, limit.depth).tolist(), source="s"),
        lambda t, limit: DraftTree.chain([99_999], source="s"),
        lambda t, limit: DraftTree.chain([1] * 50, source="deeper than allowed"),
        lambda t, limit: "no tree",
        lambda t, limit: DraftTree.chain([-1], source="s"),
        lambda t, limit: DraftTree.chain([2**40], source="s"),
    ]
    text = "what is said, caf\u00e9 and all".encode()
    for tree in trees:
        _, llm = joined(scripted(tree))
        assert llm.write(b"prompt", text) == fake().write(b"prompt", text)


def test_what_goes_wrong_in_here_ends_no_generation(scripted, joined, fake, caplog):
    model, llm = joined(scripted.chain(7))
    model.num_pred_tokens = "many"
    with caplog.at_level(logging.WARNING, "specdec"):
        assert llm.write(b"one", b"two") == fake().write(b"one", b"two")
    assert len(caplog.records) == 1
    assert "nothing is drafted: TypeError" in caplog.text


def test_without_a_host_nothing_is_drafted(scripted, called, caplog):
    model = SpecdecDraft(scripted.chain(7))
    with caplog.at_level(logging.WARNING, "specdec"):
        assert called(model, 1, 2) == called(model, 1, 2, 3) == []
    assert caplog.text.count("attach(llm)") == 1


def test_a_host_with_another_draft_model_is_refused(scripted, fake):
    with pytest.raises(SpecdecError, match=r"drafts with None.*draft_model=model"):
        SpecdecDraft(scripted()).attach(fake())


def test_a_host_that_would_fail_on_long_prompts_is_refused(scripted, fake):
    model = SpecdecDraft(scripted())
    with pytest.raises(SpecdecError, match=r"64 positions for a context of 200.*logits_all=True"):
        model.attach(fake(model, n_ctx=200, rows=64))


def test_a_chain_ends_before_a_token_that_is_hardly_likely(scripted, joined, called):
    def tree(tokens, limit):
        return DraftTree.from_sequences([(1, 2, 3)], source="s", limit=limit, scores=[0.5])

    model, _ = joined(scripted(tree), least=0.2)
    assert called(model, 5, 6) == [1, 2]


def test_least_is_a_probability(scripted):
    with pytest.raises(ValueError, match=r"from 0 to 1, got 1.5"):
        SpecdecDraft(scripted(), least=1.5)


def test_no_tokens_are_no_draft(scripted):
    with pytest.raises(ValueError, match="num_pred_tokens must be at least 1, got 0"):
        SpecdecDraft(scripted(), num_pred_tokens=0)


@needs_pld
def test_a_stack_drafts_what_it_should(joined, fake):
    model, llm = joined("pld", num_pred_tokens=8)
    text = b"one two three four five six"
    assert llm.write(text + b" / ", text) == fake().write(text + b" / ", text)
    plain = fake()
    plain.write(text + b" / ", text)
    assert llm.passes < plain.passes / 2
    assert model.report.by_source["pld"].accepted > 10


@pytest.mark.skipif(
    "toolspec" not in default_registry().names("drafter"), reason="pip install -e plugins/toolspec"
)
def test_the_schema_is_read_off_the_prompt_and_calls_are_remembered(joined, fake):
    model, llm = joined("toolspec(fallback=pld())", num_pred_tokens=16, n_ctx=2048)
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
