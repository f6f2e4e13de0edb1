"""SamDecoding: the stack."""

import numpy as np
import pytest
from specdec_pld import PromptLookup
from specdec_samd import Context, SamDecoding
from specdec_token_recycling import TokenRecycling

from specdec import EMPTY, Engine, Limit, Needs, Request, Step, parse
from specdec.testing import OracleTarget

WIDE = Limit(80, 64)
MATCH = (1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5)


def started(stack, prompt):
    return stack.start(Request(prompt=prompt, max_new_tokens=99))


def sources(tree):
    return {vote.source for votes in tree.votes for vote in votes}


def test_a_long_match_is_drafted_from_and_a_short_one_left_to_the_auxiliary_drafter():
    stack = SamDecoding()
    assert stack.needs == Needs(top_k=8)
    assert stack.remembers
    for prompt, expected in ((MATCH, {"samd"}), ((9, 8), {"token-recycling"})):
        session = started(stack, prompt[:-1])
        session.observe(Step(0, EMPTY, (), prompt[-1:], top_ids=np.array([[prompt[-1], 7]])))
        started(stack, prompt[-1:]).observe(Step(0, EMPTY, (), (7,), top_ids=np.array([[7, 6]])))
        assert sources(session.propose(prompt, WIDE)) == expected


def test_without_an_auxiliary_drafter_a_short_match_gives_nothing():
    stack = parse("samd(auxiliary=none)")
    assert stack.needs == Needs()
    assert not stack.remembers
    assert len(stack.drafters) == 1
    assert started(stack, (9, 8, 9)).propose((9, 8, 9), WIDE) == EMPTY
    assert sources(started(stack, MATCH).propose(MATCH, WIDE)) == {"samd"}


def test_any_drafter_may_be_the_auxiliary_one():
    stack = parse("samd(auxiliary=pld(), static=context)")
    assert isinstance(stack.drafters[1], PromptLookup)
    assert isinstance(stack.suffix.static, Context)
    assert started(stack, (9, 8, 9)).propose((9, 8, 9), WIDE).tokens == (8, 9)


@pytest.mark.parametrize(
    "expression",
    [
        "samd",
        "samd(auxiliary=token-recycling)",
        "samd(auxiliary=token-recycling(top_k=4))",
        "samd(static='context', scale=none)",
        'samd(static="corpus.txt")',
        "samd(static=episodes(entries=100), store=false)",
        "fallback(sam(static=episodes), merge(sam, pld))",
    ],
)
def test_it_is_built_from_an_expression(expression):
    assert parse(expression).drafters


def test_the_default_auxiliary_drafter_is_a_new_one():
    one, other = SamDecoding().drafters[1], SamDecoding().drafters[1]
    assert isinstance(one, TokenRecycling)
    assert one is not other


def test_options_are_those_of_the_suffix_drafter():
    stack = parse("samd(length=8, threshold=3, bias=2, scale=1.5)")
    suffix = stack.suffix
    assert (suffix.length, suffix.threshold, suffix.bias, suffix.scale) == (8, 3, 2, 1.5)
    with pytest.raises(ValueError, match="threshold must be at least 1"):
        SamDecoding(threshold=0)


@pytest.mark.parametrize("auxiliary", ["pld", 3, True])
def test_an_auxiliary_drafter_of_another_kind_is_refused(auxiliary):
    with pytest.raises(TypeError, match="auxiliary must be a drafter or none"):
        SamDecoding(auxiliary=auxiliary)


def test_the_state_of_all_parts_round_trips():
    stack, copy = (parse("samd(static=episodes, threshold=2, bias=0)") for _ in range(2))
    script = tuple(i * i % 61 for i in range(80))
    engine = Engine(OracleTarget(script=script), stack, on_error="raise")
    request = Request(prompt=script[:3], max_new_tokens=60)
    engine.generate(request)
    copy.restore(stack.state())
    assert len(copy.suffix.static) == 1
    prompt = script[10:14]
    assert started(copy, prompt).propose(prompt, WIDE) == started(stack, prompt).propose(
        prompt, WIDE
    )


def test_what_it_saves_and_what_it_gives_are_the_targets_own():
    """A second request for the same output takes far fewer passes, and gives the same."""
    script = tuple(i * i * i % 61 for i in range(60))
    stack = parse("samd(static=episodes, auxiliary=none)")
    engine = Engine(OracleTarget(script=script), stack, on_error="raise")
    request = Request(prompt=(7, 7), max_new_tokens=60)
    first, second = engine.generate(request), engine.generate(request)
    assert first.tokens == second.tokens == script
    assert second.passes < first.passes / 2
    assert second.by_source["samd"].accepted > 40
