"""Measure: what a drafter had in its drafts along the references, counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from bench.coverage.cases import Case, spread
from bench.coverage.references import BUDGET, Encoder, Reference
from specdec import Drafter, Engine, FixedBudget, ReplayTarget, Result
from specdec.calls import FORMATS, CallFormat

FAMILIES = (
    "hermes",
    "hermes-arguments-first",
    "api-bank",
    "llama-3",
    "mistral-v3",
    "mistral-v13",
    "deepseek-v3.1",
    "kimi-k2",
    "functionary-v3.1",
    "qwen3-coder",
    "glm-4.5",
    "granite-3",
    "apertus",
    "gemma-4",
    "pythonic",
    "react",
)
"""One format of each family."""


@attrs.frozen
class Walk:
    """One reference as it was written with a drafter.

    Attributes:
        reference: What was written.
        drafted: (T,) whether a token was accepted as a node of a draft.
        result: The engine's result.
    """

    reference: Reference
    drafted: tuple[bool, ...]
    result: Result

    @property
    def missed(self) -> Iterator[int]:
        """The places of the structural tokens that are not covered."""
        pairs = zip(self.reference.structural, self.drafted, strict=True)
        return (i for i, (structural, drafted) in enumerate(pairs) if structural and not drafted)


@attrs.frozen
class Tally:
    """Sums over walks.

    Attributes:
        requests: Requests.
        calls: Calls in their outputs.
        tokens: Tokens of the outputs, the end tokens included.
        structural: Structural tokens.
        covered: Structural tokens that were accepted as nodes of a draft.
        passes: Passes, the prompts' included.
        nodes: Nodes of all passes.
        step_nodes: Nodes of the steps, so without those that rode on the prompts' passes.
        seconds: Time of all passes; as no model runs, nearly all of it is the drafter's.
    """

    requests: int = 0
    calls: int = 0
    tokens: int = 0
    structural: int = 0
    covered: int = 0
    passes: int = 0
    nodes: int = 0
    step_nodes: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, walk: Walk) -> Tally:
        """The tally of one walk."""
        reference, result = walk.reference, walk.result
        structural = sum(reference.structural)
        return cls(
            requests=1,
            calls=reference.calls,
            tokens=len(reference.tokens),
            structural=structural,
            covered=structural - sum(1 for _ in walk.missed),
            passes=result.passes,
            nodes=sum(result.nodes),
            step_nodes=sum(result.nodes[1:]),
            seconds=result.seconds,
        )

    def __add__(self, other: Tally) -> Tally:
        pairs = zip(attrs.astuple(self), attrs.astuple(other), strict=True)
        return Tally(*(mine + theirs for mine, theirs in pairs))

    @property
    def steps(self) -> int:
        """Passes after the prompts' own."""
        return self.passes - self.requests

    @property
    def coverage(self) -> float:
        """Share of the structural tokens that are covered."""
        return _ratio(self.covered, self.structural)

    @property
    def passes_per_call(self) -> float:
        """Passes per call, the prompts' included."""
        return _ratio(self.passes, self.calls)

    @property
    def steps_per_call(self) -> float:
        """Steps per call."""
        return _ratio(self.steps, self.calls)

    @property
    def nodes_per_step(self) -> float:
        """Nodes per step."""
        return _ratio(self.step_nodes, self.steps)

    def row(self) -> dict[str, Any]:
        """Everything as plain values for JSON; None for a ratio that has no meaning."""
        ratios = ("coverage", "passes_per_call", "steps_per_call", "nodes_per_step")
        named = ((name, getattr(self, name)) for name in ratios)
        shown = {name: None if math.isnan(value) else value for name, value in named}
        return {**attrs.asdict(self), "steps": self.steps, **shown}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def walk(drafter: Drafter, reference: Reference, vocabulary: int) -> Walk:
    """Decode one reference with `drafter`; an error of the drafter is raised."""
    target = ReplayTarget({reference.request.id: reference.tokens}, vocabulary)
    engine = Engine(target, drafter, budget=FixedBudget(BUDGET), on_error="raise")
    drafted: list[bool] = []
    result = engine.generate(
        reference.request,
        each=lambda step: drafted.extend(
            place < len(step.path) for place in range(len(step.committed))
        ),
    )
    return Walk(reference, tuple(drafted), result)


def total(walks: Iterable[Walk]) -> Tally:
    """The tally of several walks."""
    return sum(map(Tally.of, walks), Tally())


def misses(walks: Iterable[Walk], context: int = 24) -> Counter[tuple[str, str]]:
    """How often which structural token was not covered behind which text.

    Args:
        walks: What to look at.
        context: Characters of text before the token.

    Returns:
        Counts by the text before a token and the token's own text.
    """
    found: Counter[tuple[str, str]] = Counter()
    for one in walks:
        codec, tokens = one.reference.request.codec, one.reference.tokens
        assert codec is not None
        for place in one.missed:
            before = codec.decode(tokens[:place])[-context:]
            found[before, codec.decode(tokens[place : place + 1])] += 1
    return found


def sample(
    encoder: Encoder, cases: tuple[Case, ...], corner: int, each: int
) -> Iterator[tuple[CallFormat, list[Reference]]]:
    """A quarter of `FAMILIES`, each with cases of its own, at even distances.

    Over four data sets and four tokenizers, `corner` being the sum of their numbers, every data
    set and every tokenizer meets every format, and every tokenizer and format meet once.

    Args:
        encoder: The tokenizer.
        cases: A data set.
        corner: Which quarter.
        each: Cases for each format.
    """
    names = FAMILIES[corner % 4 :: 4]
    some = spread(cases, each * len(names))
    for i, name in enumerate(names):
        form = FORMATS[name]
        yield form, [encoder.reference(case, form) for case in some[i :: len(names)]]
