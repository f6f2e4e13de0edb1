"""SuffixAutomaton: every substring of a text, in linear space, extended token by token."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import Final

ROOT_STATE: Final = 0
"""The state of the empty string."""

BOUNDARY: Final = -1
"""Stands between texts. It is no token id, so nothing that was committed matches across it."""

_NONE: Final = -2  # marks a state without transitions, or a transition that is not there


class SuffixAutomaton:
    """The suffix automaton of a growing text (Blumer et al. 1985; arXiv 2411.10666, section 3).

    A state stands for the substrings that end at the same positions. They are suffixes of one
    another, so a state needs no more than the length of the longest; the suffix link leads to
    the state of the longest suffix that ends at further positions.

    A text of n tokens has at most 2n states and 3n transitions. No transition is ever removed, so
    setting and copying them is amortised O(1) per token, and so is redirecting them.

    A state also knows where it ended first; the first end, as in the paper, and not the most
    recent. A new token moves the most recent end of every repeated suffix of the text, of which
    there may be as many as tokens, and the first end of none.

    Columns are flat arrays. Most states have one transition, which is stored in them; only
    states with more have a dictionary.

    Args:
        tokens: The text to begin with; ids from 0 to 2**31 - 1, and BOUNDARY.

    Attributes:
        tokens: (n,) the text.
        operations: Transitions set, copied or redirected so far; the cost of building.
    """

    __slots__ = (
        "_end",
        "_last",
        "_length",
        "_link",
        "_more",
        "_target",
        "_token",
        "operations",
        "tokens",
    )

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self.tokens = array("i")
        self.operations = 0
        self._last = ROOT_STATE
        # By state: length of its longest substring, suffix link, and length of the text up to
        # where it ended first.
        self._length = array("i", [0])
        self._link = array("i", [_NONE])
        self._end = array("i", [0])
        # Its first transition, and the others if there are any.
        self._token = array("i", [_NONE])
        self._target = array("i", [_NONE])
        self._more: list[dict[int, int] | None] = [None]
        self.extend(tokens)

    @classmethod
    def of(cls, texts: Iterable[Sequence[int]]) -> SuffixAutomaton:
        """The automaton of several texts; no substring of it spans two of them."""
        automaton = cls()
        for text in texts:
            automaton.extend(text)
            automaton.extend((BOUNDARY,))
        return automaton

    def extend(self, tokens: Iterable[int]) -> None:
        """Append to the text; amortised O(1) per token.

        Raises:
            OverflowError: If a token does not fit into 32 bits.
        """
        # Locals: this is the loop that a long prompt waits for.
        lengths, links, ends = self._length, self._link, self._end
        firsts, targets, more = self._token, self._target, self._more
        operations = 0
        for token in tokens:
            self.tokens.append(token)
            new = self._add(len(self.tokens), len(self.tokens))
            state, self._last = self._last, new
            # Every suffix of the text so far goes on with the token now.
            while state >= ROOT_STATE:
                if (first := firsts[state]) == token:
                    known = targets[state]
                    break
                rest = more[state]
                if first == _NONE:
                    firsts[state], targets[state] = token, new
                elif rest is None:
                    more[state] = {token: new}
                elif (known := rest.get(token, _NONE)) != _NONE:
                    break
                else:
                    rest[token] = new
                operations += 1
                state = links[state]
            else:  # the token is new to the text
                links[new] = ROOT_STATE
                continue
            # From here on they did before.
            if lengths[known] == lengths[state] + 1:
                links[new] = known
                continue
            # Only the shorter substrings of `known` end here too: they get a state of their own.
            clone = self._add(lengths[state] + 1, ends[known])
            links[clone] = links[known]
            firsts[clone], targets[clone] = firsts[known], targets[known]
            if (rest := more[known]) is not None:
                more[clone] = rest.copy()
                operations += len(rest)
            operations += 1
            links[known] = links[new] = clone
            while state >= ROOT_STATE:
                if firsts[state] == token:
                    if targets[state] != known:
                        break
                    targets[state] = clone
                else:
                    rest = more[state]
                    assert rest is not None
                    if rest[token] != known:
                        break
                    rest[token] = clone
                operations += 1
                state = links[state]
        self.operations += operations

    def _add(self, length: int, end: int) -> int:
        self._length.append(length)
        self._link.append(ROOT_STATE)
        self._end.append(end)
        self._token.append(_NONE)
        self._target.append(_NONE)
        self._more.append(None)
        return len(self._length) - 1

    def __len__(self) -> int:
        """Number of states."""
        return len(self._length)

    def repeated(self) -> tuple[int, int]:
        """The longest suffix of the text that occurred before.

        Returns:
            Its state and its length in tokens; the root and 0 if there is none.
        """
        # By definition of the suffix link: no cursor has to be led through the text.
        state = self._link[self._last]
        return (state, self._length[state]) if state > ROOT_STATE else (ROOT_STATE, 0)

    def follow(self, state: int, length: int, tokens: Iterable[int]) -> tuple[int, int]:
        """The longest suffix of a match and `tokens` that occurs in the text.

        Amortised O(1) per token: every suffix link shortens the match, every token lengthens it
        by one. The text must not have grown since `state` was found.

        Args:
            state: State of the match.
            length: Its length.
            tokens: What was committed behind it.

        Returns:
            State and length of the new match; the root and 0 if there is none.
        """
        links, firsts, targets, more = self._link, self._token, self._target, self._more
        for token in tokens:
            while True:
                if firsts[state] == token:
                    state, length = targets[state], length + 1
                    break
                rest = more[state]
                if rest is not None and token in rest:
                    state, length = rest[token], length + 1
                    break
                if state == ROOT_STATE:
                    break
                state = links[state]
                length = self._length[state]
        return state, length

    def behind(self, state: int, most: int) -> tuple[int, ...]:
        """What followed where a state ended first, up to the end of its text.

        Where nothing followed, because a text ended there, another end of the state is taken.

        Args:
            state: A state.
            most: The most tokens.

        Returns:
            (at most `most`,) tokens; empty if the state ends where texts end only.
        """
        at = self._end[state]
        if at >= len(self.tokens) or self.tokens[at] == BOUNDARY:
            ways = {self._token[state]: self._target[state]} | (self._more[state] or {})
            ends = [self._end[target] - 1 for token, target in ways.items() if token >= 0]
            if not ends:
                return ()
            at = min(ends)
        found = tuple(self.tokens[at : at + most])
        return found[: found.index(BOUNDARY)] if BOUNDARY in found else found

    def onward(self, state: int, most: int) -> tuple[int, ...]:
        """What followed where a suffix of the text ended first, going on with itself.

        An earlier end may be near. Behind the text up to its end stands, then, what was copied so
        far, as in LZ77: the same draft that the text would give when extended by it.

        Args:
            state: State of a suffix that occurred before, as `repeated` returns it.
            most: The number of tokens.

        Returns:
            (most,) tokens.
        """
        at = self._end[state]
        found = tuple(self.tokens[at : at + most])
        return found if len(found) == most else tuple(islice(cycle(found), most))
