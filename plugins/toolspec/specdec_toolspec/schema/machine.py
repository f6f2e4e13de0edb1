"""SchemaMachine: tool calls as a state machine over text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from specdec import (
    CallFormat,
    Continuation,
    PerTenant,
    Request,
    State,
    StateMachine,
    Tool,
    calls,
    default_registry,
)
from specdec_toolspec.schema.ahead import Beginning, look_ahead
from specdec_toolspec.schema.context import Context, content_of
from specdec_toolspec.schema.habits import Habits
from specdec_toolspec.schema.language import Language
from specdec_toolspec.schema.order import as_written, other_order
from specdec_toolspec.schema.standing import standing
from specdec_toolspec.schema.state import MAX_SAID, SchemaState, Track
from specdec_toolspec.schema.toolset import Toolsets

SOURCE: Final = "schema"

MAX_TRIES: Final = 8
"""Times that an output is searched for calls of an unknown format."""

MAX_TRACKS: Final = 3
"""Formats followed at once."""

MAX_BEFORE: Final = 32
"""Characters before an output's first call that may be a habit."""

_ENDINGS: Final = frozenset("}])>")


class SchemaMachine(StateMachine):
    """The schema-aware state machine of ToolSpec (Xia et al., arXiv 2604.13519, section 3).

    F = (Q, Sigma, delta, q0) with states for the tool's name, argument names, argument values
    and anything else; here over text, pure and total, for any call format and typed schemas.
    Names, keys, separators and what opens a typed value are offered, and the few values of an
    enum, a boolean or a constant. Schema order comes first, every argument not yet written and
    the end are offered too. What the tenant's model did before counts.

    Args:
        values: How many guesses to offer for a value that may be anything, from its default, the
            conversation and earlier calls, along with the ways to end it and to go on; 0, as in
            the paper, leaves such a value to another drafter.
        most: The most texts offered.
        formats: Call formats by name that the model may use, besides the request's own and those
            that its prompt shows.
        least: Nothing is offered where not even the first character of a text is this likely.
    """

    def __init__(
        self,
        *,
        values: int = 5,
        most: int = 32,
        formats: Sequence[str] = (),
        least: float = 0.05,
    ) -> None:
        if values < 0 or most < 1:
            raise ValueError(
                f"values must be at least 0 and most at least 1, got {values} and {most}"
            )
        if not 0.0 <= least < 1.0:
            raise ValueError(f"least must be a probability below 1, got {least}")
        self.values = values
        self.most = most
        self.least = least
        self.formats = tuple(_format(name) for name in formats)
        self._habits = PerTenant(Habits)
        self._toolsets = Toolsets()

    # The machine.

    def start(self, request: Request) -> SchemaState:
        """The state before the first character; without tools it never offers anything."""
        habits = self._habits[request.tenant]
        prompt = ""
        if request.messages:
            prompt = "\n".join(map(content_of, request.messages))
        elif request.codec is not None:
            prompt = request.codec.decode(request.prompt)
        tools = _named(request.tools or calls.tools_in_prompt(prompt))
        context = Context(request, self._toolsets.of(tools), habits, self.values)
        if not tools:
            return SchemaState((), context, tried=MAX_TRIES)
        own = (request.call_format,) if request.call_format is not None else ()
        shown = calls.shown_formats(prompt)
        # A template that was given the tools says how they are called; else the prompt does.
        hints = (*own, *shown) if request.tools else (*shown, *own)
        forms = dict.fromkeys((*habits.formats, *hints, *self.formats))
        tracks = tuple(map(Track.begin, forms))
        return SchemaState(tracks[:MAX_TRACKS], context)

    def advance(self, state: State, text: str) -> SchemaState:
        """The state after `text`."""
        assert isinstance(state, SchemaState)
        start = 0
        # A format is looked for behind each character that may end a call, wherever the text
        # was cut.
        while state.tried < MAX_TRIES and all(track.quiet for track in state.tracks):
            at = next((i for i in range(start, len(text)) if text[i] in _ENDINGS), None)
            if at is None:
                break
            state = self._recognise(self._follow(state, text[start : at + 1]))
            start = at + 1
        return self._follow(state, text[start:])

    def _follow(self, state: SchemaState, text: str) -> SchemaState:
        if not text or not len(state.context.toolset):
            return state
        tracks = tuple(track.follow(text)[0] for track in state.tracks)
        return attrs.evolve(state, tracks=tracks, said=(state.said + text)[-MAX_SAID:])

    def _recognise(self, state: SchemaState) -> SchemaState:
        """Look for a call in what was said, if no format has seen one so far."""
        quiet = all(track.quiet for track in state.tracks)
        if not quiet or not any(name in state.said for name in state.context.toolset.names):
            return state
        state = attrs.evolve(state, tried=state.tried + 1)
        form = calls.recognise(state.said)
        if form is None:
            return state
        track, _ = Track.begin(form).follow(state.said)
        return attrs.evolve(state, tracks=(track, *state.tracks)[:MAX_TRACKS])

    # What may follow.

    def continuations(self, state: State) -> Iterable[Continuation]:
        """Texts that may follow, the likeliest first."""
        assert isinstance(state, SchemaState)
        live = [track for track in state.tracks if not track.quiet] or list(state.tracks)
        # A format that reads the text as part of a call is right, if it knows how to go on.
        reading = [track for track in live if track.at.phase != "text"]
        found = self._ahead(state, reading)
        if not found and len(reading) < len(live):
            found = self._ahead(state, live)
        if sum(found.values()) < self.least:
            return []
        return [Continuation(text, score, SOURCE) for text, score in found.items()]

    def _ahead(self, state: SchemaState, tracks: Sequence[Track]) -> dict[str, float]:
        """What may follow in these formats, the first being the likeliest."""
        latest = state.context.habits.formats
        if latest and any(track.format == latest[0] for track in tracks):
            tracks = [track for track in tracks if track.format == latest[0]]
        weight = 1.0
        beginnings: list[Beginning] = []
        for track in tracks:
            share = weight if track is tracks[-1] else weight * 0.7
            weight -= share
            beginnings += self._beginnings(state, track, share)
        return look_ahead(beginnings, self.most)

    def _beginnings(self, state: SchemaState, track: Track, odds: float) -> Iterator[Beginning]:
        """Where in a call of one format the output may be."""
        context = state.context
        form = as_written(context.habits.style(track.format), track.at)
        language = context.languages.get(form)
        if language is None:
            language = context.languages[form] = Language(form, context)
        for share, place, written in standing(language, track, state.said):
            yield Beginning(odds * share, language, place, written)

    # Habits.

    def learn(self, before: State, text: str, after: State) -> None:
        """Pick up how the calls that ended in `text` were written."""
        assert isinstance(before, SchemaState)
        assert isinstance(after, SchemaState)
        habits = after.context.habits
        old = {track.format: track for track in before.tracks}
        told: list[tuple[Track, tuple[calls.CallState, ...]]] = []
        for now in after.tracks:
            # A format that was recognised on the way has seen nothing of the output yet.
            then, new = old.get(now.format), text
            if then is None:
                then, new = Track.begin(now.format), after.said
            _, ended = then.follow(new)
            if ended:
                told.append((then, ended))
            elif now.at.calls and now.at.phase == "text" and then.at.phase != "text":
                habits.learn_end()
                return
        if told:
            self._learn_calls(after, told)
        elif not before.said and all(t.quiet and not t.at.tail for t in after.tracks):
            habits.learn_start(None)

    def _learn_calls(
        self, state: SchemaState, told: Sequence[tuple[Track, tuple[calls.CallState, ...]]]
    ) -> None:
        """Note calls that several formats may have read; the one that writes them so is right."""
        habits, toolset = state.context.habits, state.context.toolset
        styles = [_style(track.format, ended[0].raw) for track, ended in told]
        right = next((i for i, style in enumerate(styles) if style is not None), 0)
        track, ended = told[right]
        previous = track.previous
        for call in ended:
            if not call.calls:
                style = styles[right] or track.format
                habits.learn_style(track.format, style)
                before = state.said.partition(call.raw.lstrip())[0]
                opened = style.block_open + style.open
                before = before.removesuffix(opened[: len(opened) - len(opened.lstrip())])
                habits.learn_start(before if len(before) <= MAX_BEFORE else None)
            habits.learn_call(call, previous, toolset.slot(call.name))
            previous = call.name or ""

    @property
    def remembers(self) -> bool:
        """True: habits outlive a request, for its tenant."""
        return True

    def state(self) -> Mapping[str, Any]:
        """The habits by tenant."""
        return self._habits.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state`."""
        self._habits.restore(state)

    def __repr__(self) -> str:
        return f"SchemaMachine(values={self.values})"


def _named(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """The tools that have a name."""
    return tuple(tool for tool in tools if tool.name)


def _style(form: CallFormat, text: str) -> CallFormat | None:
    """The format as a call of it is written: its white space, its order; None if it is not."""
    other = other_order(form)
    return calls.style_of(form, text) or (calls.style_of(other, text) if other else None)


def _format(name: str) -> CallFormat:
    """The call format of a name, from the catalogue or from a plugin.

    Raises:
        ValueError: If there is none.
    """
    known = {**calls.FORMATS, **default_registry().call_formats}
    if name not in known:
        raise ValueError(f"no call format named {name!r}; known are: {', '.join(sorted(known))}")
    found: CallFormat = known[name]
    return found
