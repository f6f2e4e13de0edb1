"""Passes: an output drawn token by token as an SVG, one row for each pass of the target."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.sax.saxutils import escape

import attrs

from specdec.compare.palette import DARK_GREY, GRID, HUES, INK, SURFACE, TARGET

WIDTH: Final = 980
LEFT: Final = 150
MARGIN: Final = 14
"""Pixels of the figure, of the names of its rows, and around it."""

LETTER: Final = 7.4
PAD: Final = 4
LINE: Final = 22
SPACE: Final = 10
"""Pixels of a letter, around a token, of a line of tokens, and between two passes."""

COLOURS: Final = {
    TARGET: "#d0d7de",
    "retrieval": HUES[0],
    "schema": HUES[5],
    "token-recycling": HUES[2],
}
"""Of the sources; others take what is left."""

ROOM: Final = WIDTH - LEFT - MARGIN
"""Pixels of a line of tokens."""

LETTERS: Final = int((ROOM - PAD) / LETTER)
"""Letters that fit on a line."""

_TEXT: Final = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12"'
_PROSE: Final = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12"'


@attrs.frozen
class Token:
    """A token in its place.

    Attributes:
        text: What is shown of it.
        source: Where it came from.
        line: Line of its pass.
        at: Pixels before it on the line.
        width: Pixels of it.
    """

    text: str
    source: str
    line: int
    at: float
    width: float


def draw(before: Mapping[str, str], passes: Sequence[Mapping[str, Any]]) -> str:
    """The figure.

    Args:
        before: Texts that stand above the passes, by what they are called.
        passes: What each pass committed: "nodes", and as "tokens" texts and sources.
    """
    sources = list(dict.fromkeys(source for one in passes for _, source in one["tokens"]))
    colours = colours_of(sources)
    parts: list[str] = []
    y = float(MARGIN)
    x = float(MARGIN)
    for source in sorted(sources, key=list(colours).index):
        label = "the target itself" if source == TARGET else source
        parts.append(_box(x, y, 14, colours[source]))
        parts.append(_prose(x + 20, y + 12, label))
        x += 40 + 7.2 * len(label)
    y += LINE + SPACE
    for name, text in before.items():
        parts.append(_prose(MARGIN, y + 14, name, DARK_GREY))
        lines = textwrap.wrap(_visible(text), LETTERS) or [""]
        for line in lines:
            parts.append(_mono(LEFT, y + 14, line, DARK_GREY))
            y += LINE - 4
        y += SPACE - 2
    for number, one in enumerate(passes, start=1):
        parts.append(f'<path d="M{MARGIN} {y:g}H{WIDTH - MARGIN}" stroke="{GRID}"/>')
        y += SPACE / 2
        count = len(one["tokens"])
        parts.append(_prose(MARGIN, y + 15, f"pass {number}", weight="bold"))
        parts.append(_prose(MARGIN + 56, y + 15, f"{count} token{'s' * (count != 1)}"))
        placed = list(lay_out(one["tokens"]))
        for token in placed:
            left, top = LEFT + token.at, y + token.line * LINE
            colour = colours[token.source]
            parts.append(_box(left, top, token.width - 1, colour, LINE - 3))
            parts.append(_mono(left + PAD / 2, top + 14, token.text, ink_on(colour)))
        y += (max((token.line for token in placed), default=0) + 1) * LINE + SPACE / 2
    height = y + MARGIN / 2
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" '
        f'width="{WIDTH}" height="{height:g}">'
    )
    back = f'<rect width="{WIDTH}" height="{height:g}" fill="{SURFACE}"/>'
    return "\n".join([head, back, *parts, "</svg>"]) + "\n"


def colours_of(sources: Sequence[str]) -> dict[str, str]:
    """A colour for each source; those that are known keep theirs."""
    free = [hue for hue in HUES if hue not in COLOURS.values()]
    others = [source for source in sources if source not in COLOURS]
    return COLOURS | {source: free[i % len(free)] for i, source in enumerate(others)}


def ink_on(colour: str) -> str:
    """What is read best on a colour."""
    return SURFACE if colour == HUES[0] else INK


def lay_out(tokens: Sequence[Sequence[str]]) -> Iterator[Token]:
    """The tokens of a pass on as many lines as they take; one that is too long is cut."""
    line, at = 0, 0.0
    for text, source in tokens:
        shown = _visible(text)[:LETTERS] or " "
        width = len(shown) * LETTER + PAD
        if at + width > ROOM:
            line, at = line + 1, 0.0
        yield Token(shown, source, line, at, width)
        at += width


def _visible(text: str) -> str:
    return "".join(
        {"\n": "↵", "\t": "⇥"}.get(c, c if c.isprintable() else "\N{REPLACEMENT CHARACTER}")
        for c in text
    )


def _box(x: float, y: float, width: float, colour: str, height: float = 14) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:g}" rx="2" '
        f'fill="{colour}"/>'
    )


def _mono(x: float, y: float, text: str, colour: str) -> str:
    # The length is told, so that text fits its box with any font.
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {_TEXT} fill="{colour}" xml:space="preserve" '
        f'textLength="{len(text) * LETTER:.1f}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(text)}</text>"
    )


def _prose(x: float, y: float, text: str, colour: str = INK, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" {_PROSE} font-weight="{weight}" fill="{colour}">'
        f"{escape(text)}</text>"
    )
