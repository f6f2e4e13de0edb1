"""Alignment: how far written text has come along a literal."""

from __future__ import annotations

from typing import Final

from specdec import calls

WILD: Final = "\0"
"""Stands in a literal for what only the model knows, such as a call's id."""

STRAY: Final = 0.5
"""What each character written for an option leaves of the odds that something else is meant."""


def wild(literal: str) -> str:
    """`literal` with `WILD` for every placeholder that is left."""
    return calls.PLACEHOLDER.sub(WILD, literal)


def align(literal: str, written: str, *, exact: bool = False) -> tuple[str, str] | None:
    """What is left of a literal, and of what was written.

    White space is free: what the model wrote more or less of it than the literal has is passed
    over.

    Args:
        literal: What is expected; `WILD` in it stands for any text up to the character behind it.
        written: What stands there so far.
        exact: Whether white space counts, as inside a value.

    Returns:
        The rest of the literal, or the rest of what was written: one of them is empty. None where
        they differ, and where the writing ends inside a wild part.
    """
    if literal.startswith(written):
        return literal[len(written) :], ""
    if written.startswith(literal):
        return "", written[len(literal) :]
    if exact:
        return None
    at = 0
    for place, expected in enumerate(literal):
        while True:
            if at == len(written):
                left = literal[place:]
                return (left.lstrip() if written[-1].isspace() else left), ""
            if expected == WILD:
                at = written.find(literal[place + 1 : place + 2], at)
                if at < 0:
                    return None
                break
            if written[at] == expected:
                at += 1
                break
            if written[at].isspace():
                at += 1
            elif expected.isspace():
                break
            else:
                return None
    return "", written[at:]
