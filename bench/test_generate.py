"""Stack by data set, end to end, on the demo model: what a user gets.

Each round begins with a fresh stack, so what a memory gains within a round is in the figures, and
what it keeps from earlier ones is not.
"""

import math
import statistics
from importlib.metadata import version

import attrs
import pytest
import torch

from bench import data
from specdec import Engine, FixedBudget, Run, default_registry, parse
from specdec.compare.subject import ModelSubject
from specdec.hf import baseline

GENERATE, PLAIN = "generate()", "none"
STACKS = {  # expression: the drafters that it needs
    GENERATE: (),
    PLAIN: (),
    "pld": ("pld",),
    "samd": ("samd",),
    "token-recycling": ("token-recycling",),
    "toolspec": ("toolspec",),
    "merge(retrieval(from_start=true), schema, token-recycling)": (
        "retrieval",
        "schema",
        "token-recycling",
    ),
}
WIDEST = tuple(STACKS)[-1]
ROUNDS = 3
NODES = 64
NEW_TOKENS, NEW_TOKENS_UNTIMED = 256, 8
LONGEST = 4_000  # characters of messages and tools, so that prompts stay below some 1,000 tokens


def parameters():
    for name in data.DATA_SETS:
        for stack in STACKS:
            # Untimed, every stack on one data set and every data set with one stack will do.
            needed = stack == WIDEST or (name == data.DATA_SETS[0] and stack != GENERATE)
            marks = () if needed else pytest.mark.timed
            yield pytest.param(name, stack, id=f"{name}-{stack}", marks=marks)


@pytest.fixture(scope="module")
def plain_outputs():
    """The plain loop's tokens by request, decoded once for all stacks."""
    return {}


def asked(cases, disabled):
    """A handful of cases; untimed, one with little to read."""
    if not disabled:
        return data.fitting(cases, LONGEST, data.number_of_requests(3))
    short = min(cases, key=data.size)
    return [attrs.evolve(short, tools=short.tools[:2])]


@pytest.mark.real_model
@pytest.mark.parametrize(("name", "stack"), list(parameters()))
def test_generate(benchmark, name, stack, cases_of, target, plain_outputs):
    for drafter in STACKS[stack]:
        if drafter not in default_registry().names("drafter"):
            pytest.skip(f"no drafter named {drafter}")
    benchmark.group = f"generate: {name}"
    subject = ModelSubject(target, NEW_TOKENS_UNTIMED if benchmark.disabled else NEW_TOKENS)
    requests = [subject.request(case) for case in asked(cases_of(name), benchmark.disabled)]
    plain = baseline.plain(target)
    for request in requests:
        if request.id not in plain_outputs:
            plain_outputs[request.id] = plain.generate(request).tokens
    outputs = [plain_outputs[request.id] for request in requests]
    runs = []

    def fresh():
        if stack == GENERATE:
            return (subject.generate,), {}
        drafter = None if stack == PLAIN else parse(stack)
        return (Engine(target, drafter, budget=FixedBudget(NODES), on_error="raise").generate,), {}

    def answer(generate):
        runs.append(Run.of(stack, map(generate, requests), outputs))

    benchmark.pedantic(answer, setup=fresh, rounds=ROUNDS)
    run = runs[-1]
    benchmark.extra_info |= figures(run, runs)
    benchmark.extra_info["dtype"] = str(target.model.dtype).removeprefix("torch.")
    # The promise: other tokens than the plain loop's only where rounding decides between two that
    # are equally likely; in float32 not even there.
    differences = [
        baseline.first_difference(target, request, own, result.tokens)
        for request, own, result in zip(requests, outputs, run.results, strict=True)
    ]
    assert all(found is None or found.near_tie for found in differences), differences
    if target.model.dtype == torch.float32:
        assert run.identical == len(requests), differences


def figures(run, runs):
    """What the table and the saved figures hold besides times."""
    counts = run.by_source
    proposed = sum(count.proposed for count in counts.values())
    accepted = sum(count.accepted for count in counts.values())
    nodes = sum(sum(result.nodes[1:]) for result in run.results)
    packages = ("specdec-core", "torch", "transformers")
    return {
        "row": run.drafter,
        "plain": run.drafter in (GENERATE, PLAIN),
        "requests": len(run.results),
        "tokens": run.tokens,
        "passes": run.passes,
        "steps": run.steps,
        "mat": None if math.isnan(run.mat) else run.mat,
        "nodes_per_step": nodes / run.steps if run.steps else None,
        "acceptance": accepted / proposed if proposed else None,
        "by_source": {
            source: {**attrs.asdict(count), "acceptance": count.accepted / count.proposed}
            for source, count in counts.items()
        },
        "decode_seconds": statistics.median(one.decode_seconds for one in runs),
        "identical": f"{run.identical}/{len(run.results)}",
        "threads": torch.get_num_threads(),
        "versions": {package: version(package) for package in packages},
    }
