"""Cases: two answers token by token, with a request like them in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import attrs

from bench.paper.experiment import Data, Experiment
from bench.paper.experiments.passes import draw
from bench.paper.experiments.replayed import BLIND
from bench.paper.lab import NODES, Lab
from bench.paper.section import Grid, Picture, Section
from specdec import Engine, FixedBudget, Request, Result, Step, parse
from specdec.compare.cases import Case
from specdec.compare.subject import ReplaySubject

STACK: Final = "toolspec"

DATA_SET: Final = "API-Bank"

TURN: Final = re.compile(r"<user>(.*?)</user>", re.DOTALL)

LEAST: Final = 3
"""Arguments of a call that is worth drawing."""

PAPER_SIMILAR: Final = 33
PAPER_OTHER: Final = 16
"""The most tokens that a step accepted in the paper's two cases."""

KINDS: Final = {
    "similar": "(a) a similar query",
    "other-values": "(b) the same kind of query with other values",
}

PAPER: Final = (
    "For a similar query on API-Bank (figure 13) the schema's tokens come first, then the "
    f"retrieved call, of which a step accepts up to {PAPER_SIMILAR} tokens; with other values "
    f"(figure 14) the third step accepts {PAPER_OTHER} tokens of the earlier output, and the "
    "general drafter finishes the values that differ. Llama-3.1-8B."
)


@attrs.frozen
class Pair:
    """Two requests whose answers call the same tool with the same arguments.

    Attributes:
        first: Answered before.
        second: The one that is drawn.
        equal: Arguments with the same value.
        arguments: Arguments in all.
        words: Share of the words of their last messages that both have.
    """

    first: Case
    second: Case
    equal: int
    arguments: int
    words: float


def pairs(cases: Sequence[Case]) -> Iterator[Pair]:
    """All pairs that call the same tool with the same arguments, asked in other words."""
    by_tool: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        if len(case.calls) == 1 and len(case.calls[0].arguments) >= LEAST:
            call = case.calls[0]
            by_tool.setdefault((call.name, *sorted(call.arguments)), []).append(case)
    for group in by_tool.values():
        for first, second in combinations(group, 2):
            if asked(first) == asked(second):
                continue
            mine, theirs = second.calls[0].arguments, first.calls[0].arguments
            equal = sum(value == theirs[name] for name, value in mine.items())
            words = [set(asked(case).lower().split()) for case in (first, second)]
            common = len(words[0] & words[1]) / max(len(words[0] | words[1]), 1)
            yield Pair(first, second, equal, len(mine), common)


def asked(case: Case) -> str:
    """What the user said last."""
    said = [m.get("content") for m in case.messages if m["role"] == "user"]
    return str(said[-1]) if said else ""


def query(case: Case) -> str:
    """What is shown of a request: what the user said last.

    API-Bank's prompts hold the whole dialogue in one message, closed by an instruction.
    """
    turns = [turn.strip() for turn in TURN.findall(asked(case))]
    said = [turn for turn in turns if not turn.startswith("Based on our conversation")]
    return " ".join((said[-1] if said else asked(case)).split())


def similar(known: Iterable[Pair]) -> Pair | None:
    """Of the pairs with equal values, the one of most arguments, then of fewest common words."""
    fits = [pair for pair in known if pair.equal == pair.arguments]
    return max(fits, key=lambda pair: (pair.arguments, -pair.words), default=None)


def other_values(known: Iterable[Pair]) -> Pair | None:
    """Of the pairs with no value equal, the one of most common words."""
    fits = [pair for pair in known if not pair.equal]
    return max(fits, key=lambda pair: pair.words, default=None)


def measure(lab: Lab) -> Data:
    """The two pairs, and how the second request of each was answered."""
    known = list(pairs(lab.cases(DATA_SET, None)))
    chosen = {"similar": similar(known), "other-values": other_values(known)}
    return {
        kind: answered(pair, lab.replay([pair.first, pair.second], "qwen2_5"))
        for kind, pair in chosen.items()
        if pair is not None
    }


def answered(pair: Pair, subject: ReplaySubject) -> dict[str, Any]:
    """What each pass of the second request brought, with the first in memory."""
    drafter = parse(STACK)
    engine = Engine(subject.target, drafter, budget=FixedBudget(NODES), on_error="raise")
    first, second = subject.request(pair.first), subject.request(pair.second)
    earlier = engine.generate(first)
    steps: list[Step] = []
    later = engine.generate(second, each=steps.append)
    fresh = Engine(subject.target, parse(STACK), budget=FixedBudget(NODES), on_error="raise")
    return {
        "first": {"id": pair.first.id, "query": query(pair.first), "output": _text(first, earlier)},
        "second": {"id": pair.second.id, "query": query(pair.second)},
        "equal": pair.equal,
        "arguments": pair.arguments,
        "tokens": len(later.tokens),
        "passes": _passes(second, steps),
        "passes_without": fresh.generate(second).passes,
    }


def _passes(request: Request, steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Nodes, and texts and sources of the tokens, of each pass."""
    assert request.codec is not None
    decoder = request.codec.decoder()
    return [
        {
            "nodes": len(step.tree),
            # A token inside a character shows nothing; the one that ends it shows all of it.
            "tokens": [
                [decoder.push((token,)), source]
                for token, source in zip(step.committed, step.sources, strict=True)
            ],
        }
        for step in steps
    ]


def _text(request: Request, result: Result) -> str:
    assert request.codec is not None
    return request.codec.decode([t for t in result.tokens if t not in request.stop_ids])


def tell(data: Mapping[str, Data]) -> Section:
    """Both cases: what the passes brought in numbers, and drawn."""
    known = data["cases"]
    lines, pictures, found = [], [], []
    for kind, case in known.items():
        title = KINDS[kind]
        lengths = [len(one["tokens"]) for one in case["passes"]]
        by_source: dict[str, int] = {}
        for one in case["passes"]:
            for _, source in one["tokens"]:
                by_source[source] = by_source.get(source, 0) + 1
        accepted = max(sum(s != "target" for _, s in one["tokens"]) for one in case["passes"])
        theirs = PAPER_SIMILAR if kind == "similar" else PAPER_OTHER
        side = "behind" if accepted < theirs else "no fewer than"
        sources = ", ".join(f"{count} {source}" for source, count in by_source.items())
        found.append(
            f"{title}: {case['tokens']} tokens in {len(lengths)} passes "
            f"({case['passes_without']} with nothing in memory); the best accepts {accepted} "
            f"tokens, {side} the paper's {theirs}"
        )
        lines.append(
            (
                title,
                f"{case['first']['id']}, then {case['second']['id']}",
                f"{case['equal']} of {case['arguments']}",
                case["tokens"],
                len(lengths),
                case["passes_without"],
                sum(one["nodes"] for one in case["passes"]),
                accepted,
                sources,
            )
        )
        before = {
            "asked before": case["first"]["query"],
            "answered before": case["first"]["output"],
            "asked now": case["second"]["query"],
        }
        pictures.append(
            Picture(
                f"cases-{kind}",
                f"Case {title}. One row per pass of the model, the prompt's pass first; each box "
                "is a token, its colour the drafter that proposed it. Grey tokens are the model's "
                "own, one per pass.",
                draw(before, case["passes"]),
            )
        )
    columns = (
        "case",
        "requests",
        "equal values",
        "tokens",
        "passes",
        "passes, nothing in memory",
        "nodes verified",
        "most accepted",
        "tokens by source",
    )
    return Section(
        found="; ".join(found) + ".",
        paper=PAPER,
        differs=(
            "The cases are picked by rule from all pairs of API-Bank requests that call the same "
            f"tool with the same arguments, {LEAST} or more, in different words: (a) of those with "
            "all values equal the one of most arguments, then of fewest common words; (b) of those "
            "with no value equal the one of most common words. The first of a pair is answered, "
            "then the second. The `schema` part guesses values as well and drafts whole calls, so "
            "tokens that the paper retrieves may be its. " + BLIND
        ),
        grids=[Grid(columns, lines)],
        pictures=pictures,
        replay=True,
    )


EXPERIMENTS: Final = (Experiment("cases", "Two cases, token by token", tell, measure),)
