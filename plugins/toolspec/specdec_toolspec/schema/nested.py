"""Nested values: which containers are open where a value's text ends."""

from __future__ import annotations

from specdec import calls
from specdec_toolspec.schema.places import Frame

MAX_DEPTH = 16
"""Containers followed; what lies deeper is not offered."""

MAX_TEXT = 4_096
"""Characters of a value that are followed."""


def open_frames(slot: calls.Slot, written: str, quote: str) -> tuple[tuple[Frame, ...], str] | None:
    """The containers that are open at the end of a value's text.

    Args:
        slot: What the value may be.
        written: The value so far, from its first bracket on.
        quote: What marks a string, besides ``"`` and ``'``.

    Returns:
        The frames, outermost first, and what is written since the last of them was opened or
        since its last item was complete. No frames where the value is complete, and what is
        written behind it. None where that cannot be told.
    """
    if len(written) > MAX_TEXT:
        return None
    frames: list[Frame] = []
    anchor = at = 0
    token: str | None = None  # a string or word that has just ended
    while at < len(written):
        character = written[at]
        mark = _mark(written, at, quote)
        if mark:
            end = _string_end(written, at, mark)
            if end < 0:
                break
            token, at = written[at + len(mark) : end - len(mark)], end
            if frames and _complete(frames[-1]):
                frames[-1], anchor = frames[-1].done(), at
        elif character in "{[":
            inner = frames[-1].inner if frames else slot
            if len(frames) >= MAX_DEPTH:
                return None
            frames.append(Frame(inner, list=character == "["))
            at += 1
            anchor = at
        elif character in "}]":
            frames.pop()
            at += 1
            if not frames:
                return (), written[at:]
            frames[-1], anchor = frames[-1].done(), at
        elif character in ":=" and frames and not frames[-1].list and not frames[-1].key:
            key = token if token is not None else written[anchor:at].strip(" ,\n\t")
            frames[-1] = frames[-1]._replace(key=key)
            at += 1
            token = None
        elif character == ",":
            if frames and _ends_word(frames[-1], written, anchor, at):
                frames[-1], anchor = frames[-1].done(), at
            token = None
            at += 1
        else:
            at += 1
    # Its key is not yet part of what the frame holds: the text since the anchor tells it.
    frames[-1] = frames[-1]._replace(key="")
    return tuple(frames), written[anchor:]


def _complete(frame: Frame) -> bool:
    """Whether a string that ends here is a value, and not a key."""
    return frame.list or bool(frame.key)


def _ends_word(frame: Frame, written: str, anchor: int, at: int) -> bool:
    """Whether a comma ends a word without quotes."""
    since = written[anchor:at].lstrip(" ,\n\t")
    if frame.list:
        return bool(since.strip())
    return bool(frame.key)


def _mark(written: str, at: int, quote: str) -> str:
    """The quote that stands at a place; empty if none does."""
    if len(quote) > 1:
        return quote if written.startswith(quote, at) else ""
    return written[at] if written[at] in "\"'" else ""


def _string_end(written: str, at: int, mark: str) -> int:
    """Behind the string that begins at a place; negative if it does not end."""
    if len(mark) > 1:
        end = written.find(mark, at + len(mark))
        return end + len(mark) if end >= 0 else -1
    place = at + 1
    while place < len(written):
        if written[place] == "\\":
            place += 2
        elif written[place] == mark:
            return place + 1
        else:
            place += 1
    return -1
