"""Induction: a model's call format, read off what its own chat template prints."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from specdec.calls.cuts import (
    Unclear,
    common,
    common_prefix,
    common_suffix,
    counted,
    split,
    with_ids,
)
from specdec.calls.formats import Arguments, Call, CallFormat
from specdec.calls.grammar import CLOSERS
from specdec.calls.turns import Render
from specdec.calls.values import Strings, Values

_log = logging.getLogger(__name__)

_CONTENT: Final = "Wait here."
_IDS: Final = ("qx7Kd2mA1", "qx7Kd2mB2", "qx7Kd2mC3")
_NAMES: Final = ("probe_alpha", "probe_omega", "probe_alpha")
_NAME, _OTHER = _NAMES[:2]
_COUNTS: Final = (("0", "1", "{index}"), ("1", "2", "{number}"))
_THOUGHT = re.compile(r"\s*(?:<think>)?\s*</think>\s*")
_OPENING = re.compile(r"[{(]\s*\Z")

_MANY: Final = {
    "z": "a \"b\" 'c' é <d> & \\",
    "t": True,
    "g": False,
    "f": -1.5,
    "i": 12,
    "o": {"q": {"p": "x"}, "a": [1, "y", True, {"w": []}]},
    "l": ["é", 2],
    "e": {},
}


def induce(
    render: Render, name: str = "induced", *, level: int = logging.WARNING
) -> CallFormat | None:
    """The format in which a chat template prints calls.

    A handful of calls is rendered, the literals between their names, keys and values are read
    off, and the format that results must print every probe byte for byte.

    Args:
        render: Prints the assistant's turn; called some ten times. Ids of the calls are nine
            letters and digits.
        name: Name of the format.
        level: Level of the log line that says why there is none.

    Returns:
        The format, or None, with one warning that says why.
    """
    reasons: list[Unclear] = []
    # Kimi writes no name but an id of this kind, which holds it.
    for ids in (_IDS, tuple(f"functions.{tool}:{i}" for i, tool in enumerate(_NAMES))):
        try:
            return _Induction(render, name, ids).format()
        except Unclear as reason:
            reasons.append(reason)
    _log.log(level, "no call format can be read off the chat template: %s", reasons[0])
    return None


class _Induction:
    """One template's probes and what they show."""

    def __init__(self, render: Render, name: str, ids: Sequence[str]) -> None:
        self._render = render
        self._name = name
        self._ids = ids
        # What a turn without calls prints around its text is no part of a call.
        before, found, after = self._print([], _CONTENT).partition(_CONTENT)
        turn = self._print(self._calls([{"qkey": 7401}]))
        self._before = common_prefix(before, turn) if found else ""
        self._after = common_suffix(after, turn) if found else ""

    def format(self) -> CallFormat:
        """The format, verified on every probe."""
        reason = "the template prints no call"
        for draft in self._drafts():
            wrong = next(self._wrong(draft), None)
            if wrong is None:
                return self._placed(self._with_null(draft))
            reason = f"it prints {wrong[0]!r}, not {wrong[1]!r}"
        raise Unclear(reason)

    def _print(self, calls: Sequence[Call], content: str | None = None) -> str:
        try:
            return self._render(calls, content)
        except Exception as error:
            raise Unclear(f"it fails with {type(error).__name__}: {error}") from error

    def _calls(self, arguments: Sequence[Mapping[str, Any]]) -> list[Call]:
        made = zip(_NAMES, arguments, self._ids, strict=False)
        return [Call(name, given, id) for name, given, id in made]

    def _core(self, turn: str) -> str:
        """A turn without what stands around calls."""
        turn = turn.removeprefix(self._before).removesuffix(self._after)
        thought = _THOUGHT.match(turn)
        return turn[thought.end() :] if thought else turn

    def _turn(self, *calls: Mapping[str, Any]) -> str:
        """The core of a turn with one call per mapping of arguments."""
        return self._core(self._print(self._calls(calls)))

    def _drafts(self) -> Iterator[CallFormat]:
        """Formats that the probes suggest, the likeliest first."""
        one = self._turn({"qkey": 7401})
        head, rest = split(one, _NAME)
        if "7401" in head:
            yield from self._arguments_first()
            return
        words = self._turn({"qkey": "vone"}), self._turn({"qkey": "vone", "wkey": "vtwo"})
        before_key, rest = split(rest, "qkey")
        to_number, behind_number = split(rest, "7401")
        rest = split(split(words[0], _NAME)[1], "qkey")[1]
        to_word, behind_word = split(rest, "vone")
        rest = split(split(words[1], _NAME)[1], "vone")[1]
        between_words = split(rest, "wkey")[0]
        none = split(self._turn({}), _NAME)[1]

        key_close, quote = _key_close(to_word, to_number)
        unquote = behind_word[: len(behind_word) - len(behind_number)]
        if not behind_word.endswith(behind_number) or not between_words.startswith(unquote):
            raise Unclear(f"a value ends in {behind_word!r} or {behind_number!r}")
        between_keys = between_words[len(unquote) :]
        key_open = common_suffix(between_keys, before_key)
        rest = between_keys[: len(between_keys) - len(key_open)]
        value_close = common_prefix(rest, behind_number)
        separator = rest[len(value_close) :]
        tail = behind_number[len(value_close) :]
        before = before_key[: len(before_key) - len(key_open)]
        opened = _OPENING.search(before)
        bracket = CLOSERS[opened[0][0]] if opened else ""
        open_, close = "", ""
        if opened and tail.lstrip().startswith(bracket):
            open_ = opened[0]
            close = tail[: tail.index(bracket) + 1]
        elif not value_close.strip():
            raise Unclear(f"arguments stand between {before!r} and {tail!r}")
        between, tail = before[: len(before) - len(open_)], tail[len(close) :]
        nothing = none.removeprefix(between).removesuffix(tail)
        if between + nothing + tail != none:
            raise Unclear(f"a call without arguments ends in {none!r}")
        sort = self._sorted()
        frame = self._frame(head, between, tail, (open_ + key_open, value_close + close))
        margin = key_open.rpartition("\n")[2].rstrip('"') if "\n" in key_open else ""
        for values in _values(quote, unquote, margin):
            arguments = Arguments(
                open=open_,
                key_open=key_open,
                key_close=key_close,
                value_close=value_close,
                separator=separator,
                close=close,
                empty=None if nothing == open_ + close else nothing,
                values=values,
                sort=sort,
            )
            yield attrs.evolve(frame, arguments=arguments)

    def _frame(self, head: str, between: str, tail: str, inside: tuple[str, str]) -> CallFormat:
        """What stands around names and arguments, with one call and with several.

        Args:
            head: What stands before the name of a turn's only call.
            between: What stands between its name and its arguments.
            tail: What stands behind its arguments.
            inside: What opens and closes arguments that are one number.
        """
        head, between, tail = (
            with_ids(part, self._ids[0], _NAME) for part in (head, between, tail)
        )
        frame = CallFormat(
            self._name, head, between, tail, several=False, envelope=_envelope(head, between)
        )
        try:
            two = self._turn({"qkey": 7401}, {"wkey": 7402})
            middle = split(split(two, "7401")[1].removeprefix(inside[1]), _OTHER)[0]
            linked = split(split(two, _OTHER)[1], "wkey")[0].removesuffix(inside[0])
        except Unclear:
            return _keyed(frame)
        middle = with_ids(with_ids(middle, self._ids[1], _OTHER), self._ids[0], _NAME)
        linked = with_ids(linked, self._ids[1], _OTHER)
        for first, second, placeholder in _COUNTS:
            made = counted(between, first, placeholder)
            if linked != between and linked == made.replace(placeholder, second):
                frame = attrs.evolve(frame, between=made)
        return _keyed(_repeated(frame, middle))

    def _arguments_first(self) -> Iterator[CallFormat]:
        """Formats with the arguments, as JSON, before the name."""
        one, none = self._turn({"qkey": 7401}), self._turn({})
        head = one[: one.find("7401")].rpartition("{")[0]
        between, tail = split(split(one, "7401}")[1], _NAME)
        if not none.startswith(head + "{}" + between):
            raise Unclear(f"a call without arguments is {none!r}")
        frame = CallFormat(self._name, head, between, tail, name_first=False, several=False)
        try:
            two = self._turn({"qkey": 7401}, {"wkey": 7402})
            middle = split(split(two, _NAME)[1], "7402")[0].rpartition("{")[0]
            frame = _repeated(frame, middle)
        except Unclear:
            pass
        for values in _values('"', '"', ""):
            space = values.key_separator[1:]
            arguments = Arguments(key_close='":' + space, separator="," + space, values=values)
            yield attrs.evolve(_keyed(frame), arguments=arguments)

    def _sorted(self) -> bool:
        turn = self._turn({"zkey": 1, "akey": 2})
        return -1 < turn.find("akey") < turn.find("zkey")

    def _wrong(self, form: CallFormat) -> Iterator[tuple[str, str]]:
        """What the template prints and the format does not."""
        probes: list[tuple[Mapping[str, Any], ...]] = [({},), ({"qkey": "vone"},), (_MANY,)]
        if form.several:
            probes += [({"qkey": "é"}, {}), ({}, _MANY), ({}, {"wkey": 1}, {})]
        for probe in probes:
            calls = self._calls(probe)
            printed, made = self._core(self._print(calls)), form.render(calls)
            if printed != made:
                at = len(common(printed, made))
                yield printed[at : at + 40], made[at : at + 40]

    def _with_null(self, form: CallFormat) -> CallFormat:
        """The format with the template's word for null, if it is not the expected one."""
        calls = self._calls([{"k": None, "o": {"n": [None]}}])
        try:
            printed = self._core(self._print(calls))
        except Unclear:
            return form
        for null in (None, "None", "null", ""):
            values = attrs.evolve(form.arguments.values, null=null)
            other = attrs.evolve(form, arguments=attrs.evolve(form.arguments, values=values))
            if other.render(calls) == printed:
                return other
        return form  # nothing but null is written in another way

    def _placed(self, form: CallFormat) -> CallFormat:
        """The format with what stands between text and calls."""
        calls = self._calls([{"qkey": 7401}])
        try:
            _, found, behind = self._print(calls, _CONTENT).partition(_CONTENT)
        except Unclear:
            return form
        between, at, _ = behind.partition(form.render(calls))
        # Anything but white space is the end of one message and the start of another.
        space = found and at and not between.strip()
        return attrs.evolve(form, after_text=between) if space else form


def _values(quote: str, unquote: str, margin: str) -> Iterator[Values]:
    """Ways of writing values, given what stands around a string."""
    marks: dict[str, Strings] = {'"': "json", "'": "python", "": "raw"}
    if quote != unquote:
        raise Unclear(f"a string stands between {quote!r} and {unquote!r}")
    strings = marks.get(quote, "bare")
    for scalars, ascii_ in itertools.product(("json", "python"), (False, True)):
        base = Values(strings, "json" if scalars == "json" else "python", ascii=ascii_)
        if strings == "bare":
            yield attrs.evolve(base, containers="bare", quote=quote)
        yield base
        yield attrs.evolve(base, item_separator=",", key_separator=":")
        yield attrs.evolve(base, containers="python")
        for indent, inner, key in itertools.product((2, 4), {margin, ""}, (": ", ":")):
            yield attrs.evolve(base, indent=indent, margin=inner, key_separator=key)
        if quote:
            yield attrs.evolve(base, strings="bare", quote=quote, containers="bare")


def _repeated(frame: CallFormat, middle: str) -> CallFormat:
    """The frame of one call and its block, told apart by what stands between two calls."""
    head, tail = frame.open, frame.close
    shared = common_suffix(head, middle)
    options = [(len(shared), shared)]
    for first, second, placeholder in _COUNTS:
        made = counted(head, first, placeholder), counted(middle, second, placeholder)
        both = common_suffix(*made)
        options.append((len(both) - both.count(placeholder) * (len(placeholder) - 1), both))
    size, shared = max(options, key=lambda option: option[0])
    rest = middle[: len(middle) - size]
    close = common_prefix(rest, tail)
    return attrs.evolve(
        frame,
        open=shared,
        close=close,
        separator=rest[len(close) :],
        block_open=head[: len(head) - size],
        block_close=tail[len(close) :],
        several=True,
    )


def _key_close(to_word: str, to_number: str) -> tuple[str, str]:
    """What stands between key and value, and the mark that opens a string."""
    if to_word.startswith(to_number):
        return to_number, to_word[len(to_number) :]
    for word, number, placeholder in (
        ("true", "false", "{string}"),
        ("string", "number", "{type}"),
        ("string", "integer", "{type}"),
    ):
        for place in re.finditer(rf"\b{word}\b", to_word):
            made = to_word[: place.start()] + placeholder + to_word[place.end() :]
            if made.replace(placeholder, number) == to_number:
                return made, ""
    raise Unclear(f"{to_word!r} stands before a string and {to_number!r} before a number")


def _keyed(frame: CallFormat) -> CallFormat:
    """The frame with the keys that its literals show."""
    if frame.envelope == "text":
        return frame
    name, arguments = (
        (frame.open, frame.between) if frame.name_first else (frame.between, frame.open)
    )
    names = re.findall(r'"([^"]+)"\s*:\s*"\Z', name)
    keys = re.findall(r'"([^"]+)"\s*:\s*\Z', arguments)
    return attrs.evolve(
        frame,
        name_key=names[-1] if names else "",
        arguments_key=keys[-1] if keys else "arguments",
    )


def _envelope(head: str, between: str) -> Any:  # noqa: ANN401 - one of two words
    return "object" if re.search(r'\{.*"\Z', head, re.DOTALL) and between[:1] == '"' else "text"
