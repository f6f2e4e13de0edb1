"""Standing: at which places of a call an output may be, from a cursor's state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specdec import calls
from specdec_toolspec.schema.align import align
from specdec_toolspec.schema.language import Language
from specdec_toolspec.schema.nested import open_frames
from specdec_toolspec.schema.places import Frame, Kind, Place
from specdec_toolspec.schema.state import Track

START: Final = 64
"""Characters of an output within which its first call may begin as it did before."""

_LINE_ENDS: Final = ("\n", ">")

Standing = tuple[float, Place, str]
"""P(it), the place, and what is written since it began."""


def standing(language: Language, track: Track, said: str) -> Iterator[Standing]:
    """Where an output may stand in the calls of a language.

    Args:
        language: The calls.
        track: Where the output ends in them.
        said: The output.
    """
    at = track.at
    place = Place(Kind.OPENING, number=at.calls, previous=track.previous)
    if at.phase == "text":
        yield from _in_text(language, place, at, said)
    elif at.phase == "open":
        yield 1.0, place, at.raw.lstrip()
    elif at.phase in ("name", "link"):
        yield from _around_name(language, place, at)
    elif at.phase in ("argument", "value"):
        yield from _in_arguments(language, place, at)
    elif at.phase == "close":
        yield 1.0, place._replace(kind=Kind.CLOSE), at.tail
    else:
        behind = align(language.arguments.close, at.raw) if language.arguments.marked else None
        written = behind[1] if behind is not None and not behind[0] else at.raw
        yield 1.0, place._replace(kind=Kind.CLOSE, number=at.calls - 1), written


def _in_text(
    language: Language, place: Place, at: calls.CallState, said: str
) -> Iterator[Standing]:
    """Outside of calls: at the output's start, on a new line, or in what may announce a call."""
    if at.calls:
        # Another call is offered once its mark has begun, not on any new line.
        if at.tail.strip():
            yield 1.0, place, at.tail.lstrip()
        return
    start = place._replace(kind=Kind.START)
    ways = language.options(start, said) if len(said) <= START else ()
    if any(align(way.text, said) is not None for way in ways):
        yield 1.0, start, said
    elif at.tail.strip():
        yield 1.0, place, at.tail.lstrip()
    elif said.rstrip(" ").endswith(_LINE_ENDS):
        yield 1.0, place, ""


def _around_name(language: Language, place: Place, at: calls.CallState) -> Iterator[Standing]:
    first = language.form.name_first
    kind = Kind.NAME if at.phase == "name" else Kind.LINK
    if first != (not at.closed):
        return  # the other order than the format's
    if first:
        yield 1.0, place._replace(kind=kind, tool=at.name), at.tail
        return
    for tool, odds in language.candidates(at.keys, place.previous):
        frames = (Frame(language.context.toolset.slot(tool), keys=at.keys),)
        yield odds, place._replace(kind=kind, tool=tool, frames=frames), at.tail


def _in_arguments(language: Language, place: Place, at: calls.CallState) -> Iterator[Standing]:
    if at.phase == "value" and at.key is None:
        return  # arguments that are no object
    owners = (
        [(at.name, 1.0)] if at.name is not None else language.candidates(at.keys, place.previous)
    )
    for tool, odds in owners:
        slot = language.context.toolset.slot(tool)
        key = at.key or "" if at.phase == "value" else ""
        top = Frame(slot, keys=at.keys, key=key)
        here = place._replace(tool=tool, frames=(top,))
        marked = language.arguments.marked
        if at.phase == "argument":
            yield odds, here._replace(kind=Kind.LEAD if marked else Kind.ITEM), at.tail
            continue
        inside = None
        if at.tail.lstrip()[:1] in ("{", "["):
            inside = open_frames(top.inner, at.tail.lstrip(), language.values.quote)
        frames, written = inside or ((), "")
        if frames:
            yield odds, here._replace(kind=Kind.ITEM, frames=(top, *frames)), written
        elif inside is not None and align(language.arguments.value_close, written) is not None:
            yield odds, here._replace(kind=Kind.ENDED), written
        else:
            yield odds, here._replace(kind=Kind.LEAD if marked else Kind.VALUE), at.tail
