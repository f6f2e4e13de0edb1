"""Checks for state machines: pure, total, and never lost for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from specdec.interfaces import Continuation, State, StateMachine
from specdec.request import Request
from specdec.testing.cases import CALL, QUESTION, TOOLS
from specdec.testing.checks import (
    Check,
    CheckSkipped,
    Factory,
    during,
    fail_unless,
    parametrize,
)
from specdec.testing.codec import CharCodec

if TYPE_CHECKING:
    import pytest

REQUEST: Final = Request(
    prompt=CharCodec().encode(QUESTION),
    max_new_tokens=512,
    codec=CharCodec(),
    tools=TOOLS,
    messages=({"role": "user", "content": QUESTION},),
    on_error="raise",
    vocabulary=CharCodec.vocabulary,
    id="machine",
)

TEXTS: Final = (
    CALL,
    CALL.replace('"name": ', '"name":').replace(', "', ',"'),
    '[get_weather(city="s\u00e3o paulo", unit="celsius")]',
    "<function=get_weather>\n<parameter=city>\npisa\n</parameter>\n</function>",
    '[TOOL_CALLS][{"name": "book", "arguments": {"guests": ["eve", "bob"], "price": -1.5e3}}]',
    "It rains.",
)
"""Texts that a machine for tool calls may know; others are told theirs."""

NASTY: Final = (
    "\U0001f9d1\u200d\U0001f680\U0001f1eb\U0001f1ee",  # emoji joined of several code points
    "\x00\x07\x1b[31m\x7f\r\n\u2028",  # control characters
    "\ud83d",  # half a surrogate pair
    "\ufffd\ufeff e\u0301 \u202eabc",  # replacement, byte order mark, combining, right to left
    '\\"\\u12\\',  # broken escapes
    "<|im_end|></tool_call></tool_call>",
    "{" * 3000 + "[" * 3000,  # deeper than any stack
    "]}" * 50 + '":,' * 50,
    "a" * 20_000,
)
"""Texts outside of any language."""

MOST: Final = 10_000
"""Continuations of one state beyond which they count as endless."""


def machine_checks(
    *factories: Callable[[], StateMachine],
    texts: Sequence[str] = (),
    expected_failures: Mapping[str, str] | None = None,
) -> pytest.MarkDecorator:
    """Parametrise a pytest function with every check of every machine.

    Used as `specdec.testing.drafter_checks`.

    Args:
        *factories: Each builds a new machine at every call; two of them share nothing.
        texts: Texts of the machine's language, whole and well formed. Machines for tool calls
            of a usual format need none.
        expected_failures: Checks known to fail, by name, each with the reason. One that passes
            after all is a failure.

    Raises:
        ValueError: If there is no factory, or an expected failure is unknown or without reason.
    """
    return parametrize(machine_suite(texts), factories, expected_failures)


def machine_suite(texts: Sequence[str] = ()) -> tuple[Check, ...]:
    """The suite, for a machine that knows `texts`."""
    known = (*texts, *TEXTS)
    first = [continuations_are_ranked]
    values = [*first, states_are_hashable_values]
    pure = [*values, continuations_do_not_change_the_state]
    return (
        Check.of(continuations_are_ranked, texts=known),
        Check.of(states_are_hashable_values, texts=known, after=first),
        Check.of(continuations_do_not_change_the_state, texts=known, after=values),
        Check.of(advance_does_not_change_the_state, texts=known, after=pure),
        Check.of(
            learning_never_affects_advance,
            texts=known,
            after=[*pure, advance_does_not_change_the_state],
        ),
        Check.of(start_is_fresh, texts=known, after=pure),
        Check.of(advance_never_raises, texts=known, after=first),
        Check.of(following_a_continuation_leads_on, texts=known, after=first),
        Check.of(lost_then_found, texts=known, after=first),
    )


def continuations_are_ranked(factory: Factory, texts: Sequence[str]) -> None:
    """Continuations are texts with a probability and a source, finitely many, best first."""
    machine = factory()
    fail_unless(
        isinstance(machine, StateMachine), f"the factory built {machine!r}, not a StateMachine"
    )
    for text, state in _states(machine, texts):
        with during(f"the state after {_short(text)}"):
            offers = list(islice(machine.continuations(state), MOST + 1))
            fail_unless(len(offers) <= MOST, f"{machine!r} offers more than {MOST} continuations")
            for offer in offers:
                fail_unless(
                    isinstance(offer, Continuation),
                    f"{machine!r} offers a {type(offer).__name__}; expected a Continuation",
                )
                fail_unless(
                    bool(offer.text and offer.source) and 0.0 < offer.score <= 1.0,
                    f"{offer} needs a text, a source, and a score in (0, 1]",
                )
            scores = [offer.score for offer in offers]
            fail_unless(
                scores == sorted(scores, reverse=True),
                f"{machine!r} offers scores {scores[:8]}; the best comes first",
            )


def states_are_hashable_values(factory: Factory, texts: Sequence[str]) -> None:
    """States hash, and are equal after equal text, however it was cut into pieces."""
    machine = factory()
    for text in _walks(machine, texts):
        whole = machine.advance(machine.start(REQUEST), text)
        for size in (1, 2, 3, 7):
            state = machine.start(REQUEST)
            for start in range(0, len(text), size):
                state = machine.advance(state, text[start : start + size])
            state = machine.advance(state, "")
            fail_unless(
                state == whole and hash(state) == hash(whole),
                f"{machine!r} reaches {whole!r} with {_short(text)} at once, but {state!r} with "
                f"pieces of {size} characters",
            )


def start_is_fresh(factory: Factory, texts: Sequence[str]) -> None:
    """Every request begins in the same state, whatever was followed before."""
    machine = factory()
    begun = machine.start(REQUEST)
    offers = list(machine.continuations(begun))
    for text in _walks(machine, texts):
        machine.advance(machine.start(REQUEST), text)
        again = machine.start(REQUEST)
        fail_unless(
            again == begun and list(machine.continuations(again)) == offers,
            f"{machine!r}.start returns {again!r} after {_short(text)} was followed, and "
            f"{begun!r} before",
        )


def continuations_do_not_change_the_state(factory: Factory, texts: Sequence[str]) -> None:
    """Looking at continuations, wholly or in part, changes neither them nor what follows."""
    machine, untouched = factory(), factory()
    for text in _walks(factory(), texts):
        state, other = machine.start(REQUEST), untouched.start(REQUEST)
        for position, character in enumerate(text):
            first = list(machine.continuations(state))
            next(iter(machine.continuations(state)), None)
            fail_unless(
                list(machine.continuations(state)) == first,
                f"{machine!r} offers something else when asked again after "
                f"{_short(text[:position])}",
            )
            state, other = machine.advance(state, character), untouched.advance(other, character)
            fail_unless(
                state == other,
                f"{machine!r} reaches {state!r} after {_short(text[: position + 1])}, but "
                f"{other!r} when its continuations were not looked at",
            )


def advance_does_not_change_the_state(factory: Factory, texts: Sequence[str]) -> None:
    """A state that was advanced from is the same afterwards, so look-ahead is free."""
    machine = factory()
    for text, state in _states(machine, texts):
        before, offers = hash(state), list(machine.continuations(state))
        for ahead in ("x", '"}', *(offer.text for offer in offers[:3])):
            machine.advance(state, ahead)
        same = hash(state) == before and list(machine.continuations(state)) == offers
        fail_unless(same, f"{machine!r}.advance changes the state after {_short(text)}")


def learning_never_affects_advance(factory: Factory, texts: Sequence[str]) -> None:
    """A machine that was taught follows text through the same states as one that was not."""
    taught, untaught = factory(), factory()
    for text in _walks(factory(), texts):
        state = other = taught.start(REQUEST)
        for start in range(0, len(text), 3):
            piece = text[start : start + 3]
            after = taught.advance(state, piece)
            taught.learn(state, piece, after)
            state, other = taught.advance(state, piece), untaught.advance(other, piece)
            fail_unless(
                state == other == after,
                f"{taught!r} reaches {state!r} after learning, and {other!r} without, behind "
                f"{_short(text[: start + 3])}",
            )


def advance_never_raises(factory: Factory, texts: Sequence[str]) -> None:
    """Any text may follow in any state: emoji, control characters, endless brackets."""
    machine = factory()
    states = list(_states(machine, texts))
    # Every nasty text from the start, and each in turn from states along the way: all pairs
    # would take minutes and show nothing more.
    pairs = [("", machine.start(REQUEST), nasty) for nasty in NASTY]
    some = states[:: len(states) // 80 + 1]
    pairs += [(*given, NASTY[i % len(NASTY)]) for i, given in enumerate(some)]
    for text, state, nasty in pairs:
        with during(f"{_short(nasty)} after {_short(text)}"):
            list(islice(machine.continuations(machine.advance(state, nasty)), MOST))


def following_a_continuation_leads_on(factory: Factory, texts: Sequence[str]) -> str:
    """Inside the best continuation the rest of it is offered, or at least something is."""
    machine = factory()
    followed = 0
    for text, state in _states(machine, texts):
        offer = next(iter(machine.continuations(state)), None)
        if offer is None or len(offer.text) < 2:
            continue
        followed += 1
        for split in {1, len(offer.text) // 2}:
            inside = machine.advance(state, offer.text[:split])
            fail_unless(
                any(True for _ in machine.continuations(inside)),
                f"{machine!r} offers {offer.text!r} after {_short(text)}, but nothing after "
                f"{offer.text[:split]!r} of it; a draft that is cut there ends the help",
            )
    if not followed:
        raise CheckSkipped(_UNKNOWN)
    return f"{followed} continuations followed"


def lost_then_found(factory: Factory, texts: Sequence[str]) -> None:
    """After text outside the language it helps again with the next text inside it."""
    machine = factory()
    known = [text for text in _walks(machine, texts) if _helps(machine, "", text)]
    if not known:
        raise CheckSkipped(_UNKNOWN)
    for nonsense in ("?!\u00e9 }]) \n", "{" * 50 + "\n", "\x00\U0001f600\n", '"\n\n'):
        fail_unless(
            any(_helps(machine, nonsense, text) for text in known),
            f"{machine!r} offers nothing more after {_short(nonsense)}, not even along "
            f"{_short(known[0])}; a state must be able to recover",
        )


_UNKNOWN: Final = "it offers nothing along any known text; give texts=... of its language"


def _helps(machine: StateMachine, before: str, text: str) -> bool:
    """Whether anything is offered anywhere along `text`, written after `before`."""
    state = machine.advance(machine.start(REQUEST), before)
    for character in text:
        if any(True for _ in machine.continuations(state)):
            return True
        state = machine.advance(state, character)
    return False


def _walks(machine: StateMachine, texts: Sequence[str]) -> tuple[str, ...]:
    """`texts`, and texts made by following the machine's own offers, with filler between them."""
    made = []
    for choice in range(3):
        state, text = machine.start(REQUEST), ""
        for turn in range(24):
            offers = list(islice(machine.continuations(state), 3))
            piece = offers[choice % len(offers)].text if offers else 'a1"} \n'[turn % 6]
            state, text = machine.advance(state, piece), text + piece
        made.append(text)
    return (*texts, *dict.fromkeys(made))


def _states(machine: StateMachine, texts: Sequence[str]) -> Iterator[tuple[str, State]]:
    """Text followed and state reached, character by character along every walk."""
    for text in _walks(machine, texts):
        state = machine.start(REQUEST)
        yield "", state
        for position, character in enumerate(text, start=1):
            state = machine.advance(state, character)
            yield text[:position], state


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:20]} ... {text[-30:]}")
