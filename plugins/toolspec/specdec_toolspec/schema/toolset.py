"""Toolset: the tools of a request, compiled, and how likely each is to be called."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from specdec import Tool, calls

RECENT: Final = 400
"""Characters at the end of what was asked that say most."""

SAID, ASKED, LATELY = 0.4, 1.0, 1.0
"""Weights of a word in a tool's log-odds: said at all, asked for last, at the end of that."""

CALLED: Final = -0.7
"""Log-odds of a tool for each call of it that the conversation holds: the next is another."""

KEPT: Final = 32
"""Toolsets kept compiled; a server's requests share their tools."""

MADE_UP: Final = 64
"""Names that are no tool's for which a slot is kept."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ENDINGS: Final = ("ings", "ing", "ied", "ies", "ed", "es", "s", "e")
_COMMON: Final = frozenset(
    _WORD.findall(
        "the a an of to in for and or is are be by with on from this that it as at i you my me "
        "please can could what how do use using get api given user name id"
    )
)
# What a tool's words are worth: those of its name, its description, its arguments' names.
_WORTH: Final = (2.0, 0.7, 0.5)


def words(text: str) -> set[str]:
    """The words of a text or an identifier, without their endings and without common ones."""
    return {_stem(word.lower()) for word in _WORD.findall(text)} - _COMMON - {""}


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    if len(word) < 2 or word in _COMMON:
        return ""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


class Toolset:
    """Tools by name, each compiled when it is first asked for.

    Args:
        tools: Tools of different names.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self.names = tuple(self.tools)
        self._slots: dict[str, calls.Slot] = {}
        self._owners: dict[str, tuple[tuple[str, float], ...]] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def slot(self, name: str | None) -> calls.Slot:
        """The slot of a tool's arguments.

        A tool that is unknown, which models make up now and then, gets that of the known one with
        the most words of its name in common; `FREE` if they share none.
        """
        if name is None:
            return calls.FREE
        slot = self._slots.get(name)
        if slot is None:
            slot = self._compiled(name)
            if len(self._slots) < len(self.tools) + MADE_UP:
                self._slots[name] = slot
        return slot

    def _compiled(self, name: str) -> calls.Slot:
        if name in self.tools:
            return calls.compile_tool(self.tools[name])
        mine = words(name)
        shared = {known: len(mine & words(known)) for known in self.names}
        nearest = max(shared, key=shared.__getitem__, default=None)
        if nearest is None or not shared[nearest]:
            return calls.FREE
        return self.slot(nearest)

    def mentions(self, conversation: str, asked: str) -> dict[str, float]:
        """The log-odds of the tools that the words of a conversation point to.

        A word counts by how few of the tools share it, and most where it was asked for last.

        Args:
            conversation: All that was said.
            asked: What the user asked last; part of the conversation.
        """
        if self._owners is None:
            self._owners = self._index()
        weights: Counter[str] = Counter()
        for part, weight in ((conversation, SAID), (asked, ASKED), (asked[-RECENT:], LATELY)):
            weights.update(dict.fromkeys(words(part) & self._owners.keys(), weight))
        odds = dict.fromkeys(self.names, 0.0)
        for word, weight in weights.items():
            for name, worth in self._owners[word]:
                odds[name] += weight * worth
        quoted = Counter((*conversation.split('"')[1:-1], *conversation.split("'")[1:-1]))
        for name in quoted.keys() & self.tools.keys():
            odds[name] += CALLED * min(quoted[name], 3)
        return odds

    def _index(self) -> dict[str, tuple[tuple[str, float], ...]]:
        """The tools that each word points to, and how clearly."""
        bags = {name: self._bags(tool) for name, tool in self.tools.items()}
        shared = Counter(word for bag in bags.values() for word in set().union(*bag))
        clarity = {w: max(math.log((len(self) + 1) / (n + 0.5)), 0.0) for w, n in shared.items()}
        owners: dict[str, dict[str, float]] = {}
        for name, bag in bags.items():
            for part, worth in zip(bag, _WORTH, strict=True):
                whole = 3.0 + sum(clarity[word] for word in part)
                for word in part:
                    known = owners.setdefault(word, {})
                    known[name] = known.get(name, 0.0) + worth * clarity[word] / whole
        return {word: tuple(known.items()) for word, known in owners.items()}

    def _bags(self, tool: Tool) -> Sequence[set[str]]:
        keys = " ".join(item.name for item in self.slot(tool.name).properties)
        return words(tool.name), words(tool.description), words(keys)


class Toolsets:
    """The toolsets of recent requests, so that equal tools are compiled once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, Toolset] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, tools: Sequence[Tool]) -> Toolset:
        """The toolset of `tools`."""
        key = tuple((tool.name, tool.description, _text(tool.parameters)) for tool in tools)
        with self._lock:
            found = self._kept.pop(key, None) or Toolset(tools)
            self._kept[key] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found


def _text(schema: object) -> str:
    try:
        return repr(schema)  # in half the time of JSON
    except RecursionError:
        return repr(id(schema))  # too deep: equal to itself only
