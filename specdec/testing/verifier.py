"""Checks for verifiers: what is committed is the target's choice, token by token."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import torch

from specdec.engine import Engine
from specdec.interfaces import Decision, Verdict, Verifier
from specdec.request import Sampling
from specdec.testing.cases import cases
from specdec.testing.checks import Check, Factory, during, fail_unless, parametrize
from specdec.testing.chi_square import chi_square, critical
from specdec.testing.replay import Neighbour
from specdec.tree import EMPTY, ROOT, DraftTree, Limit

if TYPE_CHECKING:
    import pytest

SIZE: Final = 5
"""Ids of the toy vocabulary."""

DRAWS: Final = 3000
"""Verdicts per tree. With fewer, verifiers that accept a little too much pass."""

ALPHA: Final = 1e-4
"""Chance that a correct verifier is called wrong; the seed is fixed, so it does not recur."""


def verifier_checks(
    *factories: Callable[[], Verifier], expected_failures: Mapping[str, str] | None = None
) -> pytest.MarkDecorator:
    """Parametrise a pytest function with every check of every verifier.

    Used as `specdec.testing.drafter_checks`.

    Args:
        *factories: Each builds a new verifier at every call; two of them share nothing.
        expected_failures: Checks known to fail, by name, each with the reason. One that passes
            after all is a failure.

    Raises:
        ValueError: If there is no factory, or an expected failure is unknown or without reason.
    """
    return parametrize(CHECKS, factories, expected_failures)


def path_is_a_path(factory: Factory) -> None:
    """The path leads from the root down; a bonus follows unless generation ended on a node."""
    verifier = factory()
    fail_unless(isinstance(verifier, Verifier), f"the factory built {verifier!r}, not a Verifier")
    for tree in _trees():
        for seed in range(8):
            verdict = verifier.verify(tree, _logits(tree, seed), _Greedy())
            fail_unless(
                isinstance(verdict, Verdict),
                f"{verifier!r} returned a {type(verdict).__name__}; expected a Verdict",
            )
            above = ROOT
            for node in verdict.path:
                fail_unless(
                    0 <= node < len(tree) and tree.parents[node] == above,
                    f"{verifier!r} returned {verdict.path}, which is no path of {tree}",
                )
                above = node
            fail_unless(
                verdict.bonus in range(SIZE),
                f"{verifier!r} returned the bonus {verdict.bonus} though nothing stopped; "
                f"expected a token below {SIZE}",
            )
            fail_unless(
                not verdict.stopped, f"{verifier!r} says that generation ends; nothing stopped it"
            )


def empty_tree_gives_one_token(factory: Factory) -> None:
    """Without a draft the verdict is the target's next token and nothing else."""
    verifier = factory()
    for seed in range(8):
        logits = _logits(EMPTY, seed)
        verdict = verifier.verify(EMPTY, logits, _Greedy())
        expected = Verdict((), int(logits[0].argmax()), stopped=False)
        fail_unless(
            verdict == expected, f"{verifier!r} returned {verdict} for no draft, not {expected}"
        )


def greedy_matches_argmax(factory: Factory) -> None:
    """With a greedy target the path is the one of the largest logits, as long as it lasts."""
    verifier = factory()
    for tree in _trees():
        for seed in range(16):
            logits = _logits(tree, seed)
            best = logits.argmax(dim=-1).tolist()
            path, node = [], ROOT
            while (child := _child(tree, node, best[node + 1])) is not None:
                path.append(child)
                node = child
            expected = Verdict(tuple(path), best[node + 1], stopped=False)
            verdict = verifier.verify(tree, logits, _Greedy())
            fail_unless(
                verdict == expected,
                f"{verifier!r} returned {verdict} where the largest logits say {expected}",
            )


def commits_every_decision(factory: Factory) -> None:
    """The target is asked once per visited node, about its row, and every answer is committed."""
    verifier = factory()
    for tree in _trees():
        for seed in range(16):
            logits = _logits(tree, seed)
            decide = _Greedy()
            verdict = verifier.verify(tree, logits.clone(), decide)
            committed = _committed(tree, verdict)
            fail_unless(
                decide.answers == list(committed),
                f"{verifier!r} commits {committed}, but the target decided {decide.answers}",
            )
            rows = [logits[node + 1].tolist() for node in (ROOT, *verdict.path)]
            fail_unless(
                decide.rows == rows, f"{verifier!r} asked about rows that are not its path's"
            )
            paths = [list(committed[:length]) for length in range(len(committed))]
            fail_unless(
                decide.paths == paths,
                f"{verifier!r} named the paths {decide.paths}; the tokens so far were {paths}",
            )


def stops_inside_a_path(factory: Factory) -> None:
    """Where the target stops on a node, the path ends with it, without a bonus."""
    verifier = factory()
    tree = DraftTree.chain(range(4), source="kit")
    logits = torch.eye(SIZE)  # row i prefers token i, so the whole chain would be accepted
    for last in range(SIZE):
        decide = _Greedy(stop_after=last + 1)
        verdict = verifier.verify(tree, logits, decide)
        on_node = last < len(tree)
        expected = Verdict(
            tuple(range(last + 1)) if on_node else tuple(range(last)),
            None if on_node else last,
            stopped=True,
        )
        fail_unless(
            verdict == expected,
            f"{verifier!r} returned {verdict} though the target stopped with its decision "
            f"{last + 1}; expected {expected}",
        )
        fail_unless(
            len(decide.answers) == last + 1,
            f"{verifier!r} asked {len(decide.answers)} times though decision {last + 1} stopped",
        )


def leaves_the_logits_alone(factory: Factory) -> None:
    """The logits are as they were: the most likely ids are read from them afterwards."""
    verifier = factory()
    for tree in _trees():
        logits = _logits(tree, 1)
        before = logits.clone()
        verifier.verify(tree, logits, _Greedy())
        fail_unless(torch.equal(logits, before), f"{verifier!r} writes to the logits")


def distribution_matches(factory: Factory) -> str:
    """With a sampling target, tokens are committed as often as the target alone would draw them.

    What a verdict commits is compared with the target's own distribution by a chi-square test,
    over trees with several children per node, where biased rules of acceptance show.
    """
    remarks = []
    for number, tree in enumerate(_trees()):
        logits = _logits(tree, 100 + number)
        decide = _Sampled(seed=number)
        verifier = factory()
        counts: Counter[tuple[int, ...]] = Counter()
        for _ in range(DRAWS):
            counts[_committed(tree, verifier.verify(tree, logits, decide))] += 1
        expected = {
            tokens: odds * DRAWS for tokens, odds in _outcomes(tree, torch.softmax(logits, -1))
        }
        strange = set(counts) - set(expected)
        fail_unless(not strange, f"{verifier!r} commits {strange}, where the walk cannot end")
        statistic, cells = chi_square(counts, expected)
        most = critical(cells - 1, ALPHA)
        fail_unless(
            statistic <= most,
            f"{verifier!r} does not keep the target's distribution: chi-square {statistic:.0f} on "
            f"{cells - 1} degrees of freedom, at most {most:.0f} expected; at every visited "
            "node draw one token with decide and follow the child that carries it",
        )
        remarks.append(f"{statistic:.0f}/{most:.0f}")
    return f"chi-square / critical value: {', '.join(remarks)}"


def output_is_unchanged(factory: Factory) -> None:
    """The engine writes with this verifier what the oracle writes alone, greedy and sampled."""
    verifier = factory()
    for given in cases():
        plain = given.target.plain(given.request)
        for change in (
            {},
            {"sampling": Sampling(temperature=0.4, seed=7)},
            {"stop_ids": {plain[7]}},
        ):
            request = attrs.evolve(given.request, **change)
            engine = Engine(
                given.target, Neighbour(given.target), verifier=verifier, on_error="raise"
            )
            with during(f"the prompt {given.name!r} and {change}"):
                tokens = engine.generate(request).tokens
            expected = given.target.plain(request)
            fail_unless(
                tokens == expected,
                f"{verifier!r} changed the output of {given.name!r} with {change}",
            )


_FIRST: Final = [path_is_a_path]

CHECKS: Final = (
    Check.of(path_is_a_path),
    Check.of(empty_tree_gives_one_token, after=_FIRST),
    Check.of(greedy_matches_argmax, after=_FIRST),
    Check.of(commits_every_decision, after=_FIRST),
    Check.of(stops_inside_a_path, after=_FIRST),
    Check.of(leaves_the_logits_alone, after=_FIRST),
    Check.of(distribution_matches, after=_FIRST),
    Check.of(output_is_unchanged, after=_FIRST),
)
"""The suite; a check is skipped when one it builds on did not pass."""


class _Greedy:
    """The largest logit; writes down what it was asked and what it answered."""

    def __init__(self, stop_after: int | None = None) -> None:
        self._stop_after = stop_after
        self.paths: list[list[int]] = []
        self.rows: list[list[float]] = []
        self.answers: list[int] = []

    def __call__(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        self.paths.append(list(path_tokens))
        self.rows.append(row.tolist())
        self.answers.append(int(row.argmax()))
        return Decision(self.answers[-1], len(self.answers) == self._stop_after)


class _Sampled:
    """A draw from the softmax, with a generator of its own."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, _: Sequence[int], row: torch.Tensor) -> Decision:
        odds = torch.softmax(row, dim=-1)
        return Decision(int(torch.multinomial(odds, 1, generator=self._generator)), stop=False)


def _trees() -> tuple[DraftTree, ...]:
    """A chain, a bush in which every token may follow, and something in between."""
    limit = Limit(64, 3)
    bush = itertools.product(range(SIZE - 1), range(0, SIZE, 2))
    return (
        DraftTree.chain((1, 2, 3), source="kit"),
        DraftTree.from_sequences([(1, 0), (1, 2, 2), (3,), (0, 4, 1)], source="kit", limit=limit),
        DraftTree.from_sequences(list(bush), source="kit", limit=limit),
    )


def _logits(tree: DraftTree, seed: int) -> torch.Tensor:
    """(1 + N, SIZE) float32 logits; every token keeps a fair chance."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(tree) + 1, SIZE, generator=generator)


def _child(tree: DraftTree, node: int, token: int) -> int | None:
    for child, (parent, carried) in enumerate(zip(tree.parents, tree.tokens, strict=True)):
        if (parent, carried) == (node, token):
            return child
    return None


def _committed(tree: DraftTree, verdict: Verdict) -> tuple[int, ...]:
    bonus = () if verdict.bonus is None else (verdict.bonus,)
    return (*(tree.tokens[node] for node in verdict.path), *bonus)


def _outcomes(
    tree: DraftTree, odds: torch.Tensor, node: int = ROOT
) -> Iterator[tuple[tuple[int, ...], float]]:
    """What a pass may commit from `node` on, each with its probability under the target."""
    for token in range(SIZE):
        chance = float(odds[node + 1, token])
        child = _child(tree, node, token)
        if child is None:
            yield (token,), chance
        else:
            for rest, further in _outcomes(tree, odds, child):
                yield (token, *rest), chance * further
