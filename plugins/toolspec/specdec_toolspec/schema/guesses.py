"""Guesses: what an argument's value may be, from its schema, the conversation and habits."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from specdec import calls
from specdec_toolspec.schema.dates import normalised
from specdec_toolspec.schema.habits import Habits
from specdec_toolspec.schema.spans import copied
from specdec_toolspec.schema.toolset import words

SPANS: Final = 256
"""Spans of a conversation that are considered, the last ones."""

KNOWN: Final = 0.8
"""P(one of the guesses is right), before anything is written of the value."""

MISSED: Final = 0.85
"""What each character written leaves of the odds that no guess is right."""

SHARP: Final = 2.0
"""The power of a guess's weight that its odds grow with."""

NOTHING: Final = 0.03
"""The weight, so raised, of no guess being right."""

LEAST: Final = 0.06
"""P(a value ends), at least: guesses are never that sure."""

EMPTY: Final = 0.03
"""P(a string is empty)."""

NEAR: Final = 40
"""Characters behind a mention of an argument within which a span is near it."""

# P(a value ends | its last character), at the end of a token of a value that nothing in the
# conversation begins like. Measured on half of the calls of BFCL, API-Bank and ToolAlpaca, with two
# tokenizers: 0.14 of 3,982 behind a digit, 0.41 of 4,863 behind a letter (0.12 to 0.5 by data set),
# 0.96 of 96 behind a bracket, 0.02 of 2,057 behind other characters.
_DIGIT, _LETTER, _BRACKET, _OTHER = 0.14, 0.35, 0.95, 0.02

_NEAR: Final = tuple(1.0 + 3.0 * math.exp(-near / 15.0) for near in range(NEAR))
_FAR: Final = 1.0 + 3.0 * math.exp(-80 / 15.0)

# What a span looks like, a sign that every such span holds, and the expression that finds it.
_KINDS: Final = (
    ("email", "@", re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")),
    ("url", "://", re.compile(r"https?://[^\s\"'<>)\]]+")),
    ("date", "-", re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2})?)?")),
    ("date", "", re.compile(r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4}")),
    ("time", ":", re.compile(r"\b\d{1,2}:\d{2}(?::\d{2})?(?:\s?[ap]\.?m\.?)?", re.IGNORECASE)),
    ("time", "", re.compile(r"\b\d{1,2}\s?[ap]\.?m\b", re.IGNORECASE)),
    ("number", "", re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")),
    ("id", "", re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])[\w-]{3,40}\b")),
    ("quoted", "", re.compile(r"[\"\u201c]([^\"\u201c\u201d\n]{1,80})[\"\u201d]")),
    ("quoted", "'", re.compile(r"(?<!\w)'([^'\n]{1,80})'(?!\w)")),
    ("name", "", re.compile(r"\b[A-Z][\w\u2019-]*(?:[ ](?:of |the |and |de )?[A-Z][\w\u2019-]*)*")),
)


class Span(NamedTuple):
    """A piece of the conversation that may be a value.

    Attributes:
        text: The piece.
        kind: What it looks like.
        start: Where it stands.
    """

    text: str
    kind: str
    start: int


# What the words of an argument's name say about the look of its value.
_LOOKS: Final = {
    "email": "email",
    "mail": "email",
    "url": "url",
    "link": "url",
    "date": "date",
    "day": "date",
    "tim": "time",
    "start": "time",
    "end": "time",
    "token": "id",
    "cod": "id",
    "number": "number",
    "amount": "number",
    "count": "number",
    "city": "name",
    "person": "name",
    "location": "name",
    "country": "name",
}


class Guesses:
    """What the values of a request's calls may be.

    Args:
        conversation: What was said before the calls.
        habits: Those of the tenant.
        most: The most guesses for one value.
    """

    def __init__(self, conversation: str, habits: Habits, most: int) -> None:
        self.conversation = conversation
        self.habits = habits
        self.most = most
        self._last: tuple[str, tuple[dict[str, float], float]] | None = None
        self._said: dict[tuple[str, ...], frozenset[str]] = {}
        self._ranked: dict[tuple[str, str, bool], list[tuple[str, float]]] = {}

    def among(
        self, slot: calls.Slot, tool: str, key: str, written: Mapping[str, str]
    ) -> Mapping[str, float]:
        """P(choice) of a slot with few values: those used before and those mentioned first.

        Args:
            slot: What may stand there.
            tool: The tool.
            key: The argument.
            written: How each choice is written.
        """
        used = self.habits.values.of((tool, key))
        said = self._said.get(slot.choices)
        if said is None:
            if len(self._said) >= SPANS:
                self._said.clear()
            said = self._said[slot.choices] = frozenset(filter(self._mentioned, slot.choices))
        weights = {}
        for choice in slot.choices:
            weight = 1.0 + 3.0 * used.get(written[choice], 0.0) + 2.0 * (choice == slot.default)
            weights[choice] = weight + 3.0 * (choice in said)
        whole = sum(weights.values()) / 0.95
        best = sorted(weights, key=lambda choice: -weights[choice])
        return {choice: weights[choice] / whole for choice in best}

    def of(
        self, slot: calls.Slot, tool: str, key: str, quote: str, written: str, default: str | None
    ) -> dict[str, float]:
        """What a value that begins with `written` may be as a whole, with P(it).

        Args:
            slot: What may stand there.
            tool: The tool.
            key: The argument.
            quote: What ends the value; empty for a word.
            written: What is written of it, without its opening quote.
            default: The slot's default as it is written; None without one.
        """
        string = bool(quote) or not slot.kinds or "string" in slot.kinds
        found: dict[str, float] = {}
        for text, weight in self._candidates(default, tool, key, quote, string=string):
            if len(text) > len(written) and text.startswith(written):
                found[text] = found.get(text, 0.0) + weight
        if written.strip() and string:
            spans, _ = self._copied(written)
            for text, odds in spans.items():
                # Its square is what counts, see below.
                found[text] = max(found.get(text, 0.0), math.sqrt(odds))
        # Weights are squared: measured, a guess of twice the weight is right four times as often.
        sharp = {text: weight**SHARP for text, weight in found.items()}
        best = sorted(sharp, key=lambda text: -sharp[text])[: self.most]
        whole = sum(sharp.values())
        if not whole:
            return {}
        # The more is written, the surer it is that one of those that fit is meant.
        sure = 1.0 - (1.0 - KNOWN) * MISSED ** min(len(written), 12)
        sure *= whole / (whole + NOTHING)
        return {text: sharp[text] / whole * sure for text in best}

    def end(self, quote: str, written: str, found: Mapping[str, float]) -> float:
        """P(a value ends behind `written`); 0 where it cannot.

        Args:
            quote: What ends it; empty for a word.
            written: What is written of it.
            found: What else it may become.
        """
        if written.endswith("\\") and not written.endswith("\\\\"):
            return 0.0
        if not written:
            return EMPTY if quote else 0.0
        _, here = self._copied(written)
        if here > 0.0:
            # A copy may end here; what else was found shares the odds with that.
            here = min(here, 0.95)
            return max(sum(found.values()) * here / (1.0 - here), here / 2, LEAST)
        left, alone = 1.0 - sum(found.values()), _alone(written[-1])
        return max(min(left * alone * (1.0 if quote else 2.0), 0.95), min(alone, LEAST))

    def _mentioned(self, choice: str) -> bool:
        text = choice.strip('"')
        return len(text) > 1 and text.lower() in self._lower

    def _copied(self, written: str) -> tuple[dict[str, float], float]:
        """See `copied`; what a value may be and whether it ends ask for the same text in turn."""
        last = self._last
        if last is None or last[0] != written:
            last = self._last = (written, copied(self.conversation, written))
        return last[1]

    # Candidates.

    def _candidates(
        self, default: str | None, tool: str, key: str, quote: str, *, string: bool
    ) -> Iterator[tuple[str, float]]:
        """Values and their weights; 1 is a good reason."""
        for value, weight in self.habits.values.of((tool, key)).items():
            content = _content(value, quote)
            if content is not None:
                yield content, 0.7 * weight
        if default is not None:
            content = _content(default, quote)
            if content:
                yield content, 0.5
        ranked = self._ranked.get((key, quote, string))
        if ranked is None:
            if len(self._ranked) >= SPANS:
                self._ranked.clear()
            found = self._from_conversation(key, string=string)
            ranked = [(_escaped(text, quote), weight) for text, weight in found]
            self._ranked[key, quote, string] = ranked
        yield from ranked

    def _from_conversation(self, key: str, *, string: bool) -> list[tuple[str, float]]:
        """Spans of the conversation that may be the value of `key`, the likeliest first."""
        if not key:
            return []
        weights: dict[str, float] = {}
        # Most arguments are not mentioned, and an expression of their own is slow to make.
        if _spoken(key) in self._spoken:
            for text in _given(self.conversation, key):
                weights[text] = weights.get(text, 0.0) + 2.0
        wanted = words(key)
        looks = {_LOOKS[word] for word in wanted if word in _LOOKS}
        mentions = sorted(end for word in wanted for end in _ends(word, self._lower))
        for span, recent in self._spans:
            if not string and span.kind != "number":
                continue
            last = bisect_right(mentions, span.start) - 1
            near = span.start - mentions[last] if last >= 0 else NEAR
            weight = recent * (_NEAR[near] if near < NEAR else _FAR)
            weight *= 2.0 if span.kind in looks else 0.6 if looks else 1.0
            if weight > weights.get(span.text, 0.0):
                weights[span.text] = weight
        best = sorted(weights, key=weights.__getitem__, reverse=True)
        return [(text, weights[text]) for text in best[: 4 * self.most]]

    @cached_property
    def _lower(self) -> str:
        return self.conversation.lower()

    @cached_property
    def _spoken(self) -> str:
        return _spoken(self.conversation)

    @cached_property
    def _spans(self) -> list[tuple[Span, float]]:
        """What in the conversation looks like a value, in order, and what its place is worth."""
        said = self.conversation
        found = {
            Span(match[match.lastindex or 0], kind, match.start(match.lastindex or 0))
            for kind, sign, pattern in _KINDS
            if sign in said
            for match in pattern.finditer(said)
        }
        found |= {Span(text, kind, start) for text, kind, start in normalised(said)}
        spans = sorted(found, key=lambda span: (span.start, span.text))[-SPANS:]
        return [(span, math.exp(-(len(said) - span.start) / 800.0) * 0.5) for span in spans]


def _alone(character: str) -> float:
    """P(a value ends behind a character), where nothing else is known of it."""
    if character.isdigit():
        return _DIGIT
    if character.isalnum() or character == "_":
        return _LETTER
    return _BRACKET if character in ")]}" else _OTHER


def _spoken(text: str) -> str:
    """A text or a name as it may be said."""
    return text.lower().replace("_", " ")


def _ends(word: str, said: str) -> Iterator[int]:
    """The places behind a word, wherever it stands."""
    at = said.find(word)
    while at >= 0:
        yield at + len(word)
        at = said.find(word, at + len(word))


def _given(said: str, key: str) -> Iterable[str]:
    """What the conversation itself calls `key`: ``'key': 'value'``, ``key is value``."""
    name = re.escape(key).replace("_", "[_ ]")
    pattern = re.compile(
        rf"\b{name}['\"]?\s*(?:[:=]|\bis\b)\s*(?:\"([^\"\n]{{1,80}})\"|'([^'\n]{{1,80}})'|"
        rf"([^\s,;{{}}\[\]'\"]{{1,80}}))",
        re.IGNORECASE,
    )
    for match in list(pattern.finditer(said))[-4:]:
        text = match[1] or match[2] or match[3].rstrip(".!?)")
        if text:
            yield text


def _content(value: str, quote: str) -> str | None:
    """What stands between the quotes of a written value; None if it has others."""
    if quote:
        if len(value) > 2 * len(quote) and value.startswith(quote) and value.endswith(quote):
            return value[len(quote) : -len(quote)]
        return None
    return None if value[:1] in ('"', "'", "{", "[") else value


def _escaped(text: str, quote: str) -> str:
    """A text as it is written between quotes."""
    if quote == '"':
        return json.dumps(text, ensure_ascii=False)[1:-1]
    if quote == "'":
        return text.replace("\\", "\\\\").replace("'", "\\'")
    return text
