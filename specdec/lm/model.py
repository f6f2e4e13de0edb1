"""LanguageModel: a model to talk to, decoded speculatively."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, Literal, Protocol, Unpack, runtime_checkable

from specdec.budget import FixedBudget, MeasuredBudget, measure_costs
from specdec.calls.parser import Event
from specdec.calls.tools import Tool
from specdec.engine import Engine, Target
from specdec.errors import RequestError
from specdec.interfaces import Budget, Drafter
from specdec.lm import openai
from specdec.lm.messages import readable
from specdec.lm.options import Options, check_text, fields_of
from specdec.lm.reply import Done, Reply
from specdec.lm.stacks import OFF, Stacks
from specdec.lm.transcript import Reading, Transcript
from specdec.registry import Registry, default_registry
from specdec.request import OnError, Request, Result
from specdec.text import TextCodec

Messages = Iterable[Mapping[str, Any]]
"""A conversation in OpenAI's form."""

AnyTool = Tool | Mapping[str, Any] | Callable[..., Any]
"""A tool: OpenAI's form, MCP's, or a Python function with types and a docstring."""


@runtime_checkable
class SpokenTarget(Target, Protocol):
    """A target that makes requests of text and messages, such as `specdec.hf.HFTarget`."""

    @property
    def codec(self) -> TextCodec | None:
        """Text to tokens and back."""

    def request(self, prompt: str | Sequence[int] | None = None, **fields: Any) -> Request:  # noqa: ANN401 - see `HFTarget.request`
        """A request of a prompt, or of ``messages=`` and ``tools=``; further fields as given."""


class LanguageModel:
    """A model that answers, speculatively: the same output, sooner.

    Many threads may use one at once; each gets what it would get alone. The passes themselves take
    turns. Drafters are kept with what they learn, for as long as this object lives.

    Args:
        target: The model, such as ``HFTarget(model, tokenizer)``; `load` makes one of a folder.
        drafter: Expression of a stack, or a drafter; None decodes plainly.
        budget: Nodes per pass: a number, a budget, or "measured" for as many as pay. What passes
            cost is then measured once, when the first request comes; it takes some seconds.
        on_error: What happens when a drafter raises; see `Engine`.
        registry: Where names of drafters are looked up, and whose observers are told; that of the
            installed plugins by default.
        prediction_drafter: Expression of the drafter that follows ``prediction=``.

    Raises:
        ExpressionError: If the stack's expression cannot be read or built.
        RequestError: If the target has no tokenizer, or the budget is none.
    """

    def __init__(
        self,
        target: SpokenTarget,
        drafter: str | Drafter | None = "toolspec",
        *,
        budget: Literal["measured"] | int | Budget = "measured",
        on_error: OnError = "plain",
        registry: Registry | None = None,
        prediction_drafter: str = "prediction",
    ) -> None:
        if target.codec is None:
            raise RequestError("a language model needs a tokenizer; give tokenizer= with the model")
        registry = default_registry() if registry is None else registry
        self.target = target
        self._codec = target.codec
        self._stacks = Stacks(drafter, prediction_drafter, registry)
        self._hook = registry.hook
        self._on_error: OnError = on_error
        self._budget = _budget(budget, target)
        self._measuring = threading.Lock()

    @property
    def drafter(self) -> Drafter:
        """The drafter of requests that ask for none in particular."""
        return self._stacks.default

    @property
    def budget(self) -> Budget:
        """Chooses how many nodes a pass carries; measured when it is first asked for."""
        with self._measuring:  # no two at once: each would measure the other
            if self._budget is None:
                self._budget = MeasuredBudget(measure_costs(self.target))  # type: ignore[arg-type]
            return self._budget

    def chat(
        self, messages: Messages, *, tools: Iterable[AnyTool] = (), **options: Unpack[Options]
    ) -> Reply:
        """The answer to a conversation.

        Args:
            messages: The conversation in OpenAI's form.
            tools: Functions that the model may call.
            **options: See `Options`.

        Raises:
            RequestError: If an option is unknown, or the target cannot serve the request.
            ExpressionError: If ``drafter=`` cannot be read or built.
        """
        return _last(self._start(self._asked(readable(messages), tools, options), options))

    def generate(self, prompt: str | Sequence[int], **options: Unpack[Options]) -> Reply:
        """What follows a prompt.

        Args:
            prompt: Text, or token ids.
            **options: See `Options`.

        Raises:
            RequestError: If an option is unknown, or the target cannot serve the request.
            ExpressionError: If ``drafter=`` cannot be read or built.
        """
        return _last(self._start(self._asked(prompt, (), options), options))

    def stream(
        self,
        messages_or_prompt: Messages | str | Sequence[int],
        *,
        tools: Iterable[AnyTool] = (),
        **options: Unpack[Options],
    ) -> Iterator[Event | Done]:
        """The answer as it is written: `specdec.calls` events, then `Done`.

        Events come token by token, also where one pass wrote many tokens. A generator: closing it
        ends the request, and what had come of it is forgotten.

        Args:
            messages_or_prompt: A conversation, a text, or token ids.
            tools: Functions that the model may call.
            **options: See `Options`.

        Raises:
            RequestError: At once, if an option is unknown or the request makes no sense.
            ExpressionError: At once, if ``drafter=`` cannot be read or built.
        """
        return self._start(self._asked(messages_or_prompt, tools, options), options)

    def chunks(
        self,
        messages_or_prompt: Messages | str | Sequence[int],
        *,
        tools: Iterable[AnyTool] = (),
        model: str = "specdec",
        **options: Unpack[Options],
    ) -> Iterator[dict[str, Any]]:
        """The answer as it is written, in OpenAI's streaming shape; see `specdec.lm.openai`.

        Args:
            messages_or_prompt: A conversation, a text, or token ids.
            tools: Functions that the model may call.
            model: The model's name in the chunks.
            **options: See `Options`.

        Raises:
            RequestError: At once, if an option is unknown or the request makes no sense.
            ExpressionError: At once, if ``drafter=`` cannot be read or built.
        """
        request = self._asked(messages_or_prompt, tools, options)
        reading = Reading.of(request, self._codec)
        events = self._start(request, options, reading)
        return openai.chunks(
            events, model=model, id=request.id, form=reading.form, tools=reading.tools
        )

    def _asked(
        self,
        said: Messages | str | Sequence[int],
        tools: Iterable[AnyTool],
        options: Mapping[str, Any],
    ) -> Request:
        """The request."""
        fields = fields_of(options)
        if callable(tools) or isinstance(tools, str | Mapping):
            raise RequestError(f"tools must be a list of tools, got {tools!r}; write tools=[...]")
        if tools:
            fields["tools"] = tools
        if isinstance(said, str):
            check_text("the prompt", said)
            return self.target.request(said, **fields)
        if not isinstance(said, Iterable):
            raise RequestError(f"expected messages, a text or token ids, got {said!r}")
        parts: tuple[Any, ...] = tuple(said)
        if parts and not isinstance(parts[0], Mapping):
            return self.target.request(parts, **fields)
        return self.target.request(messages=readable(parts), **fields)

    def _drafter(self, request: Request, options: Mapping[str, Any]) -> Drafter:
        """The stack that drafts for a request."""
        asked = options.get("drafter", self.drafter)
        base = asked if isinstance(asked, Drafter) else self._stacks.named(asked)
        off = "drafter" in options and base is self._stacks.named(OFF)
        if request.prediction is None or off:
            return base
        return self._stacks.beside_prediction(base)

    def _start(
        self, request: Request, options: Mapping[str, Any], reading: Reading | None = None
    ) -> Generator[Event | Done, None, None]:
        """The events of a request; what can be refused is refused before the first one."""
        engine = Engine(
            self.target,
            self._drafter(request, options),
            budget=self.budget,
            on_error=self._on_error,
            hook=self._hook,
        )
        reading = Reading.of(request, self._codec) if reading is None else reading
        transcript = Transcript(request, self._codec, reading, self._special)
        return _events(engine, request, transcript)

    @cached_property
    def _special(self) -> dict[int, str]:
        """Special tokens by id, where the target has a tokenizer that tells."""
        tokenizer = getattr(self.target, "tokenizer", None)
        ids = getattr(tokenizer, "all_special_ids", ())
        return {token: self._codec.decode((token,)) for token in ids}


def _events(
    engine: Engine, request: Request, transcript: Transcript
) -> Generator[Event | Done, None, None]:
    with closing(engine.stream(request)) as steps:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                break
            for token in step.committed:
                yield from transcript.push(token)
    yield from transcript.finish()
    yield Done(transcript.reply(result))


def _last(events: Iterable[Event | Done]) -> Reply:
    for event in events:
        if isinstance(event, Done):
            return event.reply
    raise AssertionError("a stream ends with Done")


def _budget(budget: str | int | Budget, target: Target) -> Budget | None:
    """The budget; None for one that is measured later."""
    if isinstance(budget, Budget):
        return budget
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return FixedBudget(budget)
    if budget != "measured":
        raise RequestError(
            f"budget must be a number of nodes, a Budget or 'measured', got {budget!r}"
        )
    if not hasattr(target, "pass_seconds"):
        raise RequestError(
            f"the passes of {type(target).__name__} cannot be timed; give a number of nodes "
            "instead of budget='measured'"
        )
    return None
