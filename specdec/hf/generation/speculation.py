"""``model.generate(custom_generate=speculate(...))``: the output of `generate`, sooner."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, Literal

import attrs
import torch
from transformers import (
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
    StopStringCriteria,
)
from transformers.generation.streamers import BaseStreamer

from specdec.acceptance import Acceptance
from specdec.budget import FixedBudget, MeasuredBudget, measure_costs
from specdec.calls.tools import Tool
from specdec.engine import Engine
from specdec.errors import RequestError, UnsupportedModel
from specdec.hf.generation.cache import give_back, take_over
from specdec.hf.generation.caller import adapter_around, in_lockstep, kept_back
from specdec.hf.generation.given import Given, check_method, check_rotations, read_given
from specdec.hf.generation.output import gather
from specdec.hf.limits import ability
from specdec.hf.seat import Kept, Seat
from specdec.hf.session import SPARE, Session
from specdec.hf.target import HFTarget
from specdec.interfaces import Budget, Drafter, Needs
from specdec.lm.stacks import Stacks
from specdec.registry import default_registry
from specdec.request import OnError, Request, Result, Sampling

AnyTool = Tool | Mapping[str, Any] | Callable[..., Any]

log = logging.getLogger("specdec")


def speculate(
    drafter: Drafter | str = "toolspec",
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    tools: Iterable[AnyTool] = (),
    budget: Budget | int | Literal["measured"] = "measured",
    on_error: OnError = "plain",
    unsupported: OnError = "raise",
    hook: Any = None,  # noqa: ANN401 - pluggy's relay has no static type
) -> Speculation:
    """A decoding loop for ``model.generate(..., custom_generate=...)``.

    What else is given to `generate` keeps its meaning: logits processors, stopping criteria,
    sampling, streamer, scores, caches. Keep the object: what its drafter learns and what passes
    cost stays in it from one call to the next, and so do the models it has decoded.

    Args:
        drafter: A drafter, or a stack expression such as ``"merge(pld, token-recycling)"``.
        tokenizer: The model's tokenizer; text drafters and ``stop_strings`` need it.
        tools: Functions the model may call: OpenAI, MCP or bare mappings, or Python functions.
        budget: How many drafted nodes a pass may carry; "measured" times passes of the model
            first, some seconds once, and then drafts only what pays.
        on_error: What happens when the drafter raises: "plain" goes on without it for that
            sequence.
        unsupported: What happens with a model or an argument that cannot be decoded exactly with
            drafts: "raise" refuses before the first token; "plain" warns once and leaves the call
            to transformers' own loop.
        hook: Observers, such as ``specdec.default_registry().hook``.

    Raises:
        ExpressionError: If the stack expression is wrong.
    """
    return Speculation(
        Stacks(drafter, "prediction", default_registry()),
        Options(tokenizer, tuple(tools), budget, on_error, unsupported, hook),
    )


@attrs.frozen(eq=False)
class Options:
    """What `speculate` was given besides the drafter."""

    tokenizer: PreTrainedTokenizerBase | None
    tools: tuple[AnyTool, ...]
    budget: Budget | int | Literal["measured"]
    on_error: OnError
    unsupported: OnError
    hook: Any


class Speculation:
    """What `speculate` returns; `generate` calls it in place of its own loop.

    Attributes:
        drafter: The drafter; what it learns stays in it.
        results: One per sequence of the last call, in order; empty where it was left to
            transformers.
    """

    def __init__(self, stacks: Stacks, options: Options) -> None:
        self.drafter = stacks.default
        self.results: tuple[Result, ...] = ()
        self._stacks = stacks
        self._options = options
        self._lock = Lock()
        self._known: dict[int, tuple[HFTarget, Budget]] = {}  # by id of their models, which live on
        self._warned: set[str] = set()

    @property
    def report(self) -> Acceptance:
        """How the drafts of the last call fared."""
        return sum(map(Acceptance.of, self.results), Acceptance())

    # `generate` reads this signature: what is named here and no argument of its own loop, it hands
    # on untouched. So stop_strings arrive here, for which it would ask for a tokenizer that it
    # then drops.
    def __call__(
        self,
        model: Any,  # noqa: ANN401 - transformers' mixins are untyped
        input_ids: torch.Tensor,
        *,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: Any,  # noqa: ANN401 - transformers' configs are untyped
        stop_strings: str | list[str] | None = None,
        tools: Iterable[AnyTool] | None = None,
        prediction: str | None = None,
        tenant: str = "",
        **arguments: Any,  # noqa: ANN401 - for the model
    ) -> Any:  # noqa: ANN401 - token ids, or transformers' output record
        """Decode, called by `generate`, which documents the arguments that are not ours.

        Args:
            model: The model.
            input_ids: (B, P) prompts, padded on the left.
            logits_processor: Prepared by `generate`.
            stopping_criteria: Prepared by `generate`.
            generation_config: Prepared by `generate`.
            stop_strings: Texts that end a sequence.
            tools: Functions the model may call, in place of those given to `speculate`.
            prediction: Text that the output probably repeats: one more source of drafts, which
                plugins/pld brings.
            tenant: Owner of what is learned.
            **arguments: Attention mask, cache and the like.

        Raises:
            RequestError: If an argument asks for what drafts cannot give; it is named.
            UnsupportedModel: If the model's output could not be reproduced exactly.
        """
        if stop_strings is not None:
            stopping_criteria.append(self._stop_criterion(stop_strings))
        back = kept_back()
        check_method(generation_config, back.get("assistant_model"))
        lockstep = in_lockstep(model, back.get("synced_gpus"))
        try:
            target, budget = self._target(model, lockstep=lockstep)
            given = read_given(
                input_ids, stopping_criteria, generation_config, arguments, back.get("streamer")
            )
            check_rotations(target.ability, given)
            requests = self._requests(target, given, tools, prediction, tenant)
        except (RequestError, UnsupportedModel) as refusal:
            if self._options.unsupported == "raise":
                raise
            self._warn(str(refusal))
            self.results = ()
            return model._sample(
                input_ids,
                logits_processor=logits_processor,
                stopping_criteria=stopping_criteria,
                generation_config=generation_config,
                synced_gpus=lockstep,
                streamer=back.get("streamer"),
                **arguments,
            )
        seats = [_seat(target, given, row, logits_processor) for row in range(len(requests))]
        drafter = self.drafter
        if prediction is not None:
            drafter = self._stacks.beside_prediction(drafter)
        results = tuple(
            self._decode(Row(target, seat), drafter, budget, request)
            for request, seat in zip(requests, seats, strict=True)
        )
        if given.streamer is not None:
            given.streamer.end()
        if given.cache is not None:
            give_back(seats[0].layers, given.cache, len(given.paddings[0]))
        self.results = results
        return gather(given, results, [seat.kept for seat in seats])

    def _requests(
        self,
        target: HFTarget,
        given: Given,
        tools: Iterable[AnyTool] | None,
        prediction: str | None,
        tenant: str,
    ) -> list[Request]:
        """One request per row, all of them checked before the first token of any."""
        offered = self._options.tools if tools is None else tuple(tools)
        requests = [
            target.request(
                prompt,
                tools=offered,
                max_new_tokens=given.max_new_tokens,
                stop_ids=given.stop_ids,
                # Warpers are among the processors; this only says that tokens are drawn.
                sampling=Sampling() if given.samples else None,
                criteria=_own(given.criteria, target.model, len(given.prompts)),
                prediction=prediction,
                tenant=tenant,
            )
            for prompt in given.prompts
        ]
        for request in requests:
            target.check(request)
        return requests

    def _stop_criterion(self, texts: str | list[str]) -> StopStringCriteria:
        if self._options.tokenizer is None:
            raise RequestError(
                "stop_strings need a tokenizer, and generate does not hand on its own; give it to "
                "speculate(tokenizer=...) too"
            )
        return StopStringCriteria(self._options.tokenizer, texts)

    def _target(self, model: PreTrainedModel, *, lockstep: bool) -> tuple[HFTarget, Budget]:
        """The target of a model and its budget, made once."""
        if lockstep:
            raise RequestError(
                "synced_gpus (DeepSpeed ZeRO-3, FSDP) has all processes run the same number of "
                "passes, and drafts make it differ; leave custom_generate out"
            )
        with self._lock:
            # Both may change between two calls: how a model attends, and whether it trains.
            able = ability(adapter_around(model) or model)
            known = self._known.get(id(model))
            if known is None or known[0].ability != able:
                target = HFTarget(model, self._options.tokenizer)
                known = self._known[id(model)] = target, self._budget(target)
            return known

    def _budget(self, target: HFTarget) -> Budget:
        budget = self._options.budget
        if budget == "measured":
            return MeasuredBudget(measure_costs(target))
        return FixedBudget(budget) if isinstance(budget, int) else budget

    def _decode(
        self,
        row: Row,
        drafter: Drafter,
        budget: Budget,
        request: Request,
    ) -> Result:
        options = self._options
        engine = Engine(row, drafter, budget=budget, on_error=options.on_error, hook=options.hook)
        return engine.generate(request)

    def _warn(self, reason: str) -> None:
        with self._lock:
            if reason in self._warned:
                return
            self._warned.add(reason)
        log.warning("%s; transformers' own loop decodes instead, without drafts", reason)


class Row:
    """One row of a batch as a target; see `specdec.engine.Target`."""

    def __init__(self, target: HFTarget, seat: Seat) -> None:
        self._target = target
        self._seat = seat

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self._target.vocabulary

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The model's lock."""
        return self._target.lock

    def start(self, request: Request, needs: Needs) -> Session:
        """A session in the row's seat."""
        return self._target.start(request, needs, self._seat)


def _seat(target: HFTarget, given: Given, row: int, processors: LogitsProcessorList) -> Seat:
    """The seat of one row."""
    rows, padding = len(given.prompts), given.paddings[row]
    processors = LogitsProcessorList(_own(processors, target.model, rows))
    layers = []
    if given.cache is not None:
        room = given.input_ids.shape[1] + min(given.max_new_tokens, SPARE) + 128
        layers = take_over(given.cache, target.ability.layers, room, len(padding))
    kept = Kept([] if given.scores else None, [] if given.logits else None)
    return Seat(processors, padding, rows, row, layers, kept, _put_into(given.streamer))


def _own(watchers: Iterable[Any], model: Any, rows: int) -> list[Any]:  # noqa: ANN401
    """Processors or criteria for one of `rows` rows.

    In a batch each row has copies: what keeps a state then starts anew, as if the row were alone.
    What cannot be copied, such as a criterion that waits for a thread's event, sees all rows.
    """

    def copied(watcher: Any) -> Any:  # noqa: ANN401
        try:
            return copy.deepcopy(watcher, {id(model): model})
        except Exception:  # whatever a class raises that cannot be copied
            return watcher

    return [copied(watcher) for watcher in watchers] if rows > 1 else list(watchers)


def _put_into(streamer: BaseStreamer | None) -> Callable[[int], None]:
    """Where tokens go as they come."""

    def put(token: int) -> None:
        if streamer is not None:
            streamer.put(torch.tensor([token]))

    return put
