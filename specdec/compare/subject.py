"""Subject: what answers in a comparison; a model, or the replay of recorded outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from specdec.calls import HERMES, CallFormat
from specdec.compare.cases import Case, offered
from specdec.compare.departure import Gap
from specdec.errors import RequestError
from specdec.hf import HFCodec, HFTarget, baseline
from specdec.hf.prompts import Tokenizer, encode_prompt
from specdec.hf.tools import tokenizer_format
from specdec.replay import ReplayTarget, TimedTarget
from specdec.request import Request, Result


class Subject(Protocol):
    """What answers in a comparison."""

    @property
    def target(self) -> TimedTarget:
        """What decides."""

    @property
    def label(self) -> str:
        """What it is, for the report."""

    @property
    def generate(self) -> Callable[[Request], Result] | None:
        """The loop of transformers itself; None where there is none."""

    @property
    def replay(self) -> bool:
        """Whether outputs were recorded before."""

    def request(self, case: Case) -> Request:
        """The request of a case."""

    def explain(self, case: Case, own: tuple[int, ...], other: tuple[int, ...]) -> Gap | None:
        """What the logits say where two outputs part."""


class ModelSubject:
    """A model that answers.

    Args:
        target: The model.
        max_new_tokens: The most tokens per request.
        tools: Whether the chat template is given the tools; see `offered`.
    """

    replay = False

    def __init__(self, target: HFTarget, max_new_tokens: int, *, tools: bool | None = None) -> None:
        self.target = target
        self.label = target.label
        self.generate = partial(baseline.generate, target)
        self._most = max_new_tokens
        self._tools = tools

    def request(self, case: Case) -> Request:
        """See `Subject.request`."""
        return self.target.request(
            messages=case.messages,
            tools=offered(case, self._tools),
            max_new_tokens=self._most,
            id=case.id,
        )

    def explain(self, case: Case, own: tuple[int, ...], other: tuple[int, ...]) -> Gap | None:
        """See `Subject.explain`."""
        found = baseline.first_difference(self.target, self.request(case), own, other)
        # Logits that are not numbers explain nothing.
        if found is None or not math.isfinite(found.margin + found.noise):
            return None
        return Gap(found.margin, found.noise)


class ReplaySubject:
    """Recorded outputs, written again with a real tokenizer.

    A case's output is its recorded text, or its reference calls as the format writes them.

    Args:
        cases: What will be asked.
        tokenizer: Its chat template makes the prompts; it must know its end token.
        max_new_tokens: The most tokens per request.
        tools: Whether the chat template is given the tools; see `offered`.
        form: How calls are written; None takes what the chat template prints, else Hermes.
        model: Whose passes are run, for real time; None runs none.

    Raises:
        RequestError: If the tokenizer has no end token.
    """

    replay = True
    generate = None

    def __init__(
        self,
        cases: Sequence[Case],
        tokenizer: Tokenizer,
        max_new_tokens: int,
        *,
        tools: bool | None = None,
        form: CallFormat | None = None,
        model: HFTarget | None = None,
    ) -> None:
        if tokenizer.eos_token_id is None:
            raise RequestError("a replay needs a tokenizer that knows its end token")
        self._tokenizer = tokenizer
        self._codec = HFCodec(tokenizer)
        self._most = max_new_tokens
        self._tools = tools
        self._form = form or tokenizer_format(tokenizer) or HERMES
        outputs = {case.id: self._encoded(case) for case in cases if _answered(case)}
        self.target = ReplayTarget(outputs, len(tokenizer), model=model)
        self.label = self.target.label

    def request(self, case: Case) -> Request:
        """See `Subject.request`.

        Raises:
            RequestError: If the case has nothing recorded.
        """
        if not _answered(case):
            raise RequestError(
                f"{case.id} has neither a recorded output nor reference calls, so there is "
                "nothing to replay; leave it out, or give --model"
            )
        tools = offered(case, self._tools)
        return Request(
            prompt=encode_prompt(self._tokenizer, case.messages, tools, "the tokenizer"),
            max_new_tokens=self._most,
            stop_ids=self._tokenizer.eos_token_id,
            codec=self._codec,
            tools=tools,
            messages=case.messages,
            call_format=self._form,
            id=case.id,
        )

    def explain(self, case: Case, own: tuple[int, ...], other: tuple[int, ...]) -> Gap | None:  # noqa: ARG002
        """Nothing is known: no model wrote the outputs."""
        return None

    def _encoded(self, case: Case) -> tuple[int, ...]:
        text = recorded(case, self._form)
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return (*ids, self._tokenizer.eos_token_id)


def _answered(case: Case) -> bool:
    """Whether there is something to replay."""
    return bool(case.output or case.calls)


def recorded(case: Case, form: CallFormat) -> str:
    """The output of a case: its recorded text, or its calls as the format writes them.

    Where a format's turn holds one call, it is the first.
    """
    return case.output or form.render(case.calls if form.several else case.calls[:1])
