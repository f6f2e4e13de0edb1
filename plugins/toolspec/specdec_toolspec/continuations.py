"""Continuations: what followed the matches, ranked and united in one tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from specdec import EMPTY, ROOT, DraftTree, Limit, Vote

SOURCE: Final = "retrieval"
"""The name in every vote."""

TRUST: Final = (0.45, 0.45, 0.6, 0.7, 0.75, 0.8, 0.82, 0.85, 0.9, 0.9, 0.9, 0.9, 0.95)
"""P(next token is what follows in a matched text) behind a match of 0, 1, 2, ... tokens.

Measured with `from_start` and lexical keys on the reference calls of API-Bank, BFCL and ToolAlpaca
(250, 250 and 214 in Hermes format, Qwen 2.5's tokenizer), a single match: 0.43 to 0.51 behind 1
token, 0.56 to 0.81 behind 2, 0.60 to 0.75 behind 3, 0.70 to 0.84 behind 4, 0.70 to 0.97 behind 5 to
7, 0.89 to 0.95 behind 10 and more. Accepted tokens lengthen the match, so a node's depth counts
like matched tokens.
"""

UNANIMOUS: Final = 2
"""Matched tokens that the consent of several matches is worth, at most, if none dissents: 0.74 to
0.81 behind 1 token, 0.79 to 0.86 behind 3, measured likewise.
"""

OPENING: Final = 8
"""Matched tokens that standing at the start of the output is worth: formats hardly vary there."""


class Match(NamedTuple):
    """A place in a text at which the output goes on, perhaps.

    Attributes:
        tokens: The text.
        at: The place: ``tokens[at]`` may be the next token.
        length: How many tokens before it are those that the output ends with.
    """

    tokens: Sequence[int]
    at: int
    length: int


class Continuation(NamedTuple):
    """What may follow.

    Attributes:
        tokens: At least one token.
        agreement: How many matches go on like this.
    """

    tokens: Sequence[int]
    agreement: int


def ranked(matches: Iterable[Match], lengths: Sequence[int]) -> list[Continuation]:
    """Different continuations, those that most matches agree on first.

    Two matches agree when they go on with the same tokens, as far as the shortest of `lengths`
    reaches. Among equals the earlier match is first.

    Args:
        matches: Closest text first, in a text the last place first.
        lengths: The most tokens of the first, the second, ... continuation. Those beyond are as
            long as the shortest, and tell only how much the others are worth.
    """
    shortest = min(lengths)
    groups: dict[tuple[int, ...], list[Match]] = {}
    for match in matches:
        groups.setdefault(tuple(match.tokens[match.at : match.at + shortest]), []).append(match)
    found = []
    for i, group in enumerate(sorted(groups.values(), key=len, reverse=True)):
        first, length = group[0], lengths[i] if i < len(lengths) else shortest
        found.append(Continuation(first.tokens[first.at : first.at + length], len(group)))
    return found


def tree_of(
    continuations: Sequence[Continuation], *, most: int, length: int, limit: Limit
) -> DraftTree:
    """The trie of the best continuations.

    A node's score is the trust in a match of its length, times the share of those matches that
    came this far which go on with its token.

    Args:
        continuations: Best first.
        most: How many of them are drafted; the others only count.
        length: Matched tokens behind the root.
        limit: The most nodes and depth.
    """
    tokens: list[int] = []
    parents: list[int] = []
    weights: list[int] = []
    depths: list[int] = []
    index: dict[tuple[int, int], int] = {}
    below: dict[int, int] = {}  # how many matches go on from a node
    for i, continuation in enumerate(continuations):
        weight, parent = continuation.agreement, ROOT
        for depth, token in enumerate(continuation.tokens[: limit.depth]):
            below[parent] = below.get(parent, 0) + weight
            node = index.get((parent, token))
            if node is None:
                if i >= most:
                    break
                node = index[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
                weights.append(0)
                depths.append(depth)
            weights[node] += weight
            parent = node
    if not tokens:
        return EMPTY
    scores = [
        _score(length + depth, weight, below[parent])
        for depth, weight, parent in zip(depths, weights, parents, strict=True)
    ]
    votes = tuple([(Vote(SOURCE, score),) for score in scores])
    return DraftTree(tuple(tokens), tuple(parents), tuple(scores), votes).top(limit.nodes)


def _score(length: int, agreeing: int, matches: int) -> float:
    """P(a token that `agreeing` of `matches` matches go on with is right)."""
    if agreeing == matches:
        length += min(agreeing - 1, UNANIMOUS)
    return TRUST[min(length, len(TRUST) - 1)] * agreeing / matches
