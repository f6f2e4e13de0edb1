"""Cuts: taking rendered turns apart, for induction."""

from __future__ import annotations

import re

_MARKS = re.compile(r"<[^<>\s]*>?|\[[A-Z_]+\]|\w+")


class Unclear(Exception):
    """Why a format cannot be read off; never leaves `induce`."""


def with_ids(text: str, id: str, name: str) -> str:
    """`text` with placeholders for a call's id and name."""
    return text.replace(id, "{id}").replace(name, "{name}")


def counted(text: str, count: str, placeholder: str) -> str:
    """`text` with a placeholder for the number `count`."""
    return re.sub(rf"(?<!\w){re.escape(count)}(?!\w)", placeholder, text)


def split(text: str, mark: str) -> tuple[str, str]:
    """What stands before and behind the first `mark`.

    Raises:
        Unclear: If it is not there.
    """
    at = text.find(mark)
    if at < 0:
        raise Unclear(f"{mark!r} is not printed in {text[:80]!r}")
    return text[:at], text[at + len(mark) :]


def common(first: str, second: str) -> str:
    """What both begin with."""
    size = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        size += 1
    return first[:size]


def common_prefix(first: str, second: str) -> str:
    """What both begin with, not cut inside a mark or a word of either."""
    size = len(common(first, second))
    while size and not (clean(first, size) and clean(second, size)):
        size -= 1
    return first[:size]


def common_suffix(first: str, second: str) -> str:
    """What both end with, not cut inside a mark or a word of either."""
    size = len(common(first[::-1], second[::-1]))
    while size and not (clean(first, len(first) - size) and clean(second, len(second) - size)):
        size -= 1
    return first[len(first) - size :]


def clean(text: str, at: int) -> bool:
    """Whether `text` may be cut at `at`."""
    return not any(mark.start() < at < mark.end() for mark in _MARKS.finditer(text))
