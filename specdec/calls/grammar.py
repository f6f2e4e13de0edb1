"""Grammar: the marks of one call format, prepared for following text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import attrs

from specdec.calls.formats import PLACEHOLDER, CallFormat

PARTIAL: Final = -1
"""The text ends inside the pattern."""

NO: Final = -2
"""The text does not follow the pattern."""

CLOSERS: Final = {"{": "}", "[": "]", "(": ")"}

_SPACE = re.compile(r"\s+|(?<=[>\])}])(?=[<\[{(])")
_KEY = re.compile(r'"([^"\\]+)"\s*:')
_FENCE = re.compile(r"(?:```(?:json)?|\[)\Z")

Pattern = tuple[str, ...]
"""Literals, a space in them for any white space or none; between two stands a placeholder."""


def solid(text: str) -> str:
    """`text` with one space wherever white space may stand: where it does, and between marks."""
    return _SPACE.sub(" ", text).strip()


def pattern(literal: str) -> Pattern:
    """The pattern of a format's literal; a space in it is any white space, or none."""
    return tuple(solid(part) for part in PLACEHOLDER.split(literal))


def match(literal: str, text: str, at: int = 0) -> int:
    """Where `literal` ends that begins at `at`, white space before it passed over.

    Returns:
        A position in `text`, `PARTIAL` or `NO`.
    """
    if text.startswith(literal, at):
        return at + len(literal)
    size = len(text)
    free = True
    for character in literal:
        if character == " ":
            free = True
            continue
        while free and at < size and text[at].isspace():
            at += 1
        if at == size:
            return PARTIAL
        if text[at] != character:
            return NO
        at += 1
        free = False
    return at


def follow(parts: Pattern, text: str, at: int = 0) -> tuple[int, tuple[str, ...]]:
    """Where a pattern ends that begins at `at`, and what its placeholders hold.

    A placeholder reaches to the first character of the literal behind it.

    Returns:
        A position in `text`, `PARTIAL` or `NO`; the texts of the placeholders passed.
    """
    at = match(parts[0], text, at)
    held: list[str] = []
    for part in parts[1:]:
        if at < 0:
            break
        end = text.find(part[0], at) if part else len(text)
        if end < 0:
            return PARTIAL, tuple(held)
        held.append(text[at:end])
        at = match(part, text, end)
    return at, tuple(held)


@attrs.frozen
class Grammar:
    """The marks of one format.

    Attributes:
        format: The format.
        openers: What announces a call; a space in it is any white space or none.
        restarts: What shows, inside of a call, that another begins.
        starts: Finds where an opener may begin.
        bare: Whether a call in a JSON object is announced by nothing but its brace.
        strict: Whether so little announces a call that its name must look like one.
        open: From a call's opener to its name, for calls in text.
        block_open: The same with what stands before the first call.
        name_ends: What may end a name, for calls in text.
        link: From the name to inside the arguments, for calls in text.
        bracket: What closes the arguments where they are a literal; empty otherwise.
        separator: Between two arguments whose values are marked.
        key_open: Before the name of such an argument.
        key_close: Between such a name and its value.
        value_end: What ends a marked value.
        end: What ends a call whose values are marked.
        close: From the end of the arguments to the end of the call.
        next: From the end of the arguments to the opener of the next call.
        last: From the end of the arguments to the end of the block.
        keys: The keys of the object, apart from those of name and arguments.
    """

    format: CallFormat
    openers: tuple[str, ...]
    restarts: tuple[str, ...]
    starts: re.Pattern[str]
    bare: bool
    strict: bool
    open: Pattern
    block_open: Pattern
    name_ends: tuple[str, ...]
    link: Pattern
    bracket: str
    separator: str
    key_open: str
    key_close: Pattern
    value_end: str
    end: Pattern
    close: Pattern
    next: Pattern
    last: Pattern
    keys: frozenset[str]

    @property
    def object(self) -> bool:
        """Whether a call is a JSON object."""
        return self.format.envelope == "object"

    @property
    def depth(self) -> int:
        """Open brackets inside the arguments, the arguments' own included."""
        return 2 if self.object else 1


@lru_cache(maxsize=256)
def grammar(form: CallFormat) -> Grammar:
    """The grammar of a format; the same record for equal formats."""
    arguments = form.arguments
    if form.envelope == "object":
        before = form.open.partition("{")[0]
        marks = [_trim(solid(form.block_open + before)), _trim(solid(before))]
        bare = not any(marks)
        openers = ["{"] if bare else marks
    else:
        bare = False
        openers = [pattern(form.block_open + form.open)[0], pattern(form.open)[0]]
    openers = sorted({opener for opener in openers if opener}, key=len, reverse=True)
    words = (opener.split(" ")[0] for opener in openers)
    inside = " ".join(
        (form.between, arguments.open, arguments.key_open, arguments.key_close, arguments.close)
    )
    restarts = dict.fromkeys(word for word in words if len(word) > 2 and word not in inside)
    bracket, link = "", form.between + arguments.open
    if not arguments.marked:
        opened = solid(arguments.open)[:1]
        bracket = CLOSERS.get(opened, "")
        # The literal may go on behind the bracket; what follows is read as arguments.
        link = form.between + opened
    end = arguments.close if arguments.close.strip() else form.close
    closing = (arguments.close if arguments.marked else "") + form.close
    ahead = form.open.partition("{")[0] + "{" if form.envelope == "object" else form.open
    linked = pattern(link)[0]
    ends = [linked] if linked else [solid(arguments.key_open), pattern(end)[0]]
    return Grammar(
        format=form,
        openers=tuple(openers),
        restarts=tuple(restarts),
        starts=re.compile(f"[{re.escape(''.join(o[0] for o in openers))}]" if openers else r"(?!)"),
        bare=bare,
        strict=bool(openers) and len(openers[0]) <= 2,
        open=pattern(form.open),
        block_open=pattern(form.block_open + form.open),
        name_ends=tuple(mark for mark in ends if mark),
        link=pattern(link),
        bracket=bracket,
        separator=solid(arguments.separator),
        key_open=solid(arguments.key_open),
        key_close=pattern(arguments.key_close),
        value_end=arguments.value_close.strip(),
        end=pattern(end),
        close=pattern(closing),
        next=pattern(closing + form.separator + ahead),
        last=pattern(closing + form.block_close),
        keys=frozenset(_KEY.findall(form.open + form.between + form.close)),
    )


def _trim(mark: str) -> str:
    """`mark` without the list or fence that may follow it."""
    while (shorter := _FENCE.sub("", mark)) != mark:
        mark = shorter
    return mark
