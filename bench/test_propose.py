"""What a drafter's own work costs: drafters alone, without a model.

Its steps are made beforehand by the engine on a replay. What is timed is one proposal and the
observing of the step that followed it, nothing else: one round is one step, so median and iqr are
those of a proposal. How long a request takes to begin, when drafters read the prompt, is noted
apart.
"""

import math
import time
from itertools import chain, count

import attrs
import pytest

from bench import data
from specdec import (
    Drafter,
    DraftSession,
    Engine,
    FixedBudget,
    Limit,
    Request,
    Run,
    default_registry,
    parse,
)
from specdec.testing import OracleTarget

STACKS = {  # expression: the drafters that it needs
    "pld": ("pld",),
    "sam": ("sam",),
    "samd": ("samd",),
    "token-recycling": ("token-recycling",),
    "retrieval(from_start=true)": ("retrieval",),
    "schema": ("schema",),
    "toolspec": ("toolspec",),
    "merge(retrieval(from_start=true), schema, token-recycling)": (
        "retrieval",
        "schema",
        "token-recycling",
    ),
}
PROPOSALS = 300  # timed at least
NODES = 64


def built(stack, needed):
    for drafter in needed:
        if drafter not in default_registry().names("drafter"):
            pytest.skip(f"no drafter named {drafter}")
    return parse(stack)


@attrs.frozen(eq=False)
class Turn:
    """What a session was asked and told in one step.

    Attributes:
        asked: Tokens and limit of the proposal; None where nothing could be drafted.
        tree: What it proposed.
        step: What followed.
    """

    asked: tuple
    tree: object
    step: object


@attrs.define(eq=False)
class Tape:
    """One request as a session saw it."""

    request: Request
    turns: list = attrs.field(factory=list)
    result: object = None


class Recorder(Drafter):
    """Passes everything on to a drafter and keeps it."""

    def __init__(self, drafter):
        self.drafter = drafter
        self.tapes = []

    @property
    def needs(self):
        return self.drafter.needs

    def start(self, request, committed=()):
        self.tapes.append(Tape(request))
        return _Recording(self.drafter.start(request, committed), self.tapes[-1])


class _Recording(DraftSession):
    def __init__(self, session, tape):
        self._session, self._tape = session, tape
        self._asked = self._tree = None

    def propose(self, tokens, limit):
        self._asked, self._tree = (tokens, limit), self._session.propose(tokens, limit)
        return self._tree

    def observe(self, step):
        self._tape.turns.append(Turn(self._asked, self._tree, step))
        self._asked = self._tree = None
        self._session.observe(step)

    def prefilled(self, embedding):
        self._session.prefilled(embedding)

    def finish(self, result):
        self._tape.result = result
        self._session.finish(result)


def take(session, turn):
    """A drafter's part in a step."""
    tree = None if turn.asked is None else session.propose(*turn.asked)
    session.observe(turn.step)
    if turn.step.index == 0:
        session.prefilled(None)
    return tree


class Player:
    """Hands out sessions and turns of the tapes, one after another, over and over.

    Each time round begins with a new drafter, as the recording did.
    """

    def __init__(self, stack, tapes):
        self._stack, self._tapes = stack, tapes
        self.starts = []
        self._turns = chain.from_iterable(self._round() for _ in count())

    def __call__(self):
        return next(self._turns), {}

    def _round(self):
        drafter = parse(self._stack)
        for tape in self._tapes:
            before = time.perf_counter()
            session = drafter.start(tape.request)
            self.starts.append(time.perf_counter() - before)
            for turn in tape.turns:
                yield session, turn
            session.finish(tape.result)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", ["self-made", "api_bank"])
def test_a_step_of_a_drafter_alone(benchmark, name, stack):
    recorder = Recorder(built(stack, STACKS[stack]))
    benchmark.group = f"propose: {name}"
    try:
        trace = data.trace(name, 4 if benchmark.disabled else data.number_of_requests(12))
    except data.Missing as missing:
        pytest.skip(str(missing))
    engine = Engine(trace.target, recorder, budget=FixedBudget(NODES), on_error="raise")
    run = Run.of(stack, map(engine.generate, trace.requests))
    turns = [turn for tape in recorder.tapes for turn in tape.turns]

    rehearsal = Player(stack, recorder.tapes)
    for turn in turns:  # a drafter played to proposes what it proposed to the engine
        (session, same), _ = rehearsal()
        assert same is turn
        assert take(session, same) == turn.tree

    player = Player(stack, recorder.tapes)
    rounds = len(turns) * math.ceil(PROPOSALS / len(turns))
    benchmark.pedantic(take, setup=player, rounds=rounds)
    counts = run.by_source.values()
    proposed, accepted = (sum(getattr(c, k) for c in counts) for k in ("proposed", "accepted"))
    benchmark.extra_info |= {
        "row": stack,
        "tokenizer": trace.tokenizer,
        "requests": len(run.results),
        "steps": run.steps,
        "mat": None if math.isnan(run.mat) else run.mat,
        "nodes_per_step": sum(sum(r.nodes[1:]) for r in run.results) / max(run.steps, 1),
        "acceptance": accepted / proposed if proposed else None,
        "start_seconds": sum(player.starts) / len(player.starts),
    }
    if benchmark.stats:  # None with --benchmark-disable
        times = sorted(benchmark.stats.stats.data)
        benchmark.extra_info["p99_seconds"] = times[int(0.99 * (len(times) - 1))]
    assert run.steps


PERIODIC = (
    "pld",
    "token-recycling",
    "merge(pld, token-recycling)",
    "fallback(pld, token-recycling)",
)
LENGTH = 4096


@pytest.mark.benchmark(group="propose")
@pytest.mark.parametrize("stack", [*PERIODIC, "samd"])
def test_propose_behind_4096_tokens(benchmark, stack):
    """The text is periodic, so that there is something to find."""
    prompt = tuple(i * i % 61 for i in range(LENGTH))
    target = OracleTarget(script=prompt)
    drafter = built(stack, ("samd",) if stack == "samd" else ("pld", "token-recycling"))
    engine = Engine(target, drafter, on_error="raise")
    engine.generate(Request(prompt=prompt, max_new_tokens=64))  # fills what outlives a request
    session = drafter.start(Request(prompt=prompt, max_new_tokens=64))
    tree = benchmark(session.propose, prompt, Limit(64, 64))
    benchmark.extra_info["nodes"] = len(tree)
    assert tree
