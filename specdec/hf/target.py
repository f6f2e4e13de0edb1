"""HFTarget: a transformers causal LM as the target of speculative decoding."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from specdec.calls.formats import CallFormat
from specdec.calls.tools import Tool
from specdec.errors import RequestError, UnsupportedModel
from specdec.hf.attention import attention_of, lock_of
from specdec.hf.codec import HFCodec
from specdec.hf.compat import base_model, drifting_modules
from specdec.hf.limits import Ability, ability
from specdec.hf.probe import check_rows
from specdec.hf.prompts import encode_prompt
from specdec.hf.seat import Seat
from specdec.hf.session import Session
from specdec.hf.tools import read_any_tools, tokenizer_format
from specdec.interfaces import Needs
from specdec.request import Request, Sampling
from specdec.tree import EMPTY, DraftTree


class HFTarget:
    """A transformers causal LM, as it is: any device map, quantisation or adapter.

    Args:
        model: A decoder-only model in eval mode with sdpa or eager attention.
        tokenizer: Its tokenizer, for messages, stop strings and text drafters.
        probe: Whether to compare a small tree pass with plain passes at once, so that a model
            that does not follow masks or positions is refused before the first token.

    Raises:
        UnsupportedModel: If the model's output could not be reproduced exactly.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        probe: bool = True,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.codec = HFCodec(tokenizer) if tokenizer is not None else None
        self.lock = lock_of(base_model(model))
        self.ability: Ability = ability(model)
        self.config = model.config.get_text_config(decoder=True)
        self.drifting = drifting_modules(model) if self.ability.drifts else []
        self.short_masks = False
        self._format: CallFormat | None = None
        self._format_tried = logging.NOTSET
        self._format_lock = Lock()
        if probe:
            check_rows(self)

    @property
    def vocabulary(self) -> int:
        """Number of token ids that the model takes."""
        weight: Any = self.model.get_input_embeddings().weight
        return int(weight.shape[0])

    @property
    def label(self) -> str:
        """Model, size, dtype, device and threads, for the record of a measurement."""
        dtype = str(self.model.dtype).removeprefix("torch.")
        size = f"{self.ability.layers}x{self.config.hidden_size}, {self.vocabulary} ids"
        threads = torch.get_num_threads()
        return f"{self.ability.name} ({size}) {dtype} {self.device} {threads} threads"

    @property
    def device(self) -> torch.device:
        """Where token ids enter the model."""
        weight: Any = self.model.get_input_embeddings().weight
        if weight.is_meta:  # offloaded by accelerate, which brings it in for each pass
            hook: Any = getattr(self.model, "_hf_hook", None)
            return torch.device(getattr(hook, "execution_device", None) or "cpu")
        device: torch.device = weight.device
        return device

    def request(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Iterable[Mapping[str, Any]] = (),
        tools: Iterable[Tool | Mapping[str, Any] | Callable[..., Any]] = (),
        max_new_tokens: int = 256,
        stop_strings: Iterable[str] = (),
        sampling: Sampling | None = None,
        **fields: Any,  # noqa: ANN401 - further fields of Request, checked by it
    ) -> Request:
        """A request for this model, rendered and encoded, with its own end-of-sequence ids.

        How the model writes calls is read off its chat template, once for all requests.

        Args:
            prompt: Text or token ids; or leave it out and give `messages`.
            messages: A conversation in the OpenAI form, rendered with the model's chat template.
            tools: Functions the model may call: OpenAI, MCP or bare mappings, or Python functions
                with typed, documented arguments.
            max_new_tokens: The most tokens to emit.
            stop_strings: Texts that end generation.
            sampling: How tokens are drawn; greedy by default.
            **fields: Further fields of `Request`, such as ``tenant``, ``stop_ids`` or
                ``call_format``.

        Raises:
            RequestError: If neither or both of prompt and messages are given, no tokenizer is
                known where one is needed, or the chat template refuses the messages.
        """
        messages = tuple(messages)
        known = read_any_tools(tools)
        if (prompt is None) == (not messages):
            raise RequestError("a request needs either a prompt or messages, not both and not none")
        if prompt is None or isinstance(prompt, str):
            if self.tokenizer is None:
                raise RequestError(
                    "text needs a tokenizer; build the target with HFTarget(model, tokenizer)"
                )
            prompt = self._render(messages, known) if prompt is None else self._encode(prompt)
        fields.setdefault("stop_ids", self.stop_ids())
        if "call_format" not in fields:
            fields["call_format"] = self._call_format(aloud=bool(known))
        return Request(
            prompt=prompt,
            max_new_tokens=max_new_tokens,
            stop_strings=tuple(stop_strings),
            sampling=sampling,
            codec=self.codec,
            tools=known,
            messages=messages,
            **fields,
        )

    def _encode(self, text: str) -> list[int]:
        assert self.tokenizer is not None
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def _render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> list[int]:
        assert self.tokenizer is not None
        return encode_prompt(self.tokenizer, messages, tools, self.ability.name)

    def _call_format(self, *, aloud: bool) -> CallFormat | None:
        """The format that the chat template prints; None where it shows none.

        Args:
            aloud: Whether a failure is worth a warning: only where calls are expected.
        """
        level = logging.WARNING if aloud else logging.DEBUG
        with self._format_lock:
            if self._format is None and self.tokenizer is not None and level > self._format_tried:
                self._format_tried = level
                self._format = tokenizer_format(self.tokenizer, level=level)
            return self._format

    def stop_ids(self) -> frozenset[int]:
        """The model's end-of-sequence ids, from its generation config."""
        config = getattr(self.model, "generation_config", None)
        ids = getattr(config, "eos_token_id", None)
        if ids is None:
            ids = getattr(self.config, "eos_token_id", None)
        return frozenset() if ids is None else frozenset([ids] if isinstance(ids, int) else ids)

    def start(self, request: Request, needs: Needs, seat: Seat | None = None) -> Session:
        """See `specdec.engine.Target.start`.

        Args:
            request: What to decode.
            needs: What the drafter wants from the model.
            seat: Where `generate` has the request, if it comes from there.

        Raises:
            RequestError: See `check`.
        """
        self.check(request)
        return Session(self, request, needs, seat)

    def check(self, request: Request) -> None:
        """Refuse what cannot be decoded.

        Raises:
            UnsupportedModel: If the model was changed since the target was built.
            RequestError: If the prompt leaves no room in the model's context or holds an id
                outside its vocabulary.
        """
        attention = attention_of(self.config)
        if self.model.training or attention != self.ability.attention:
            now = "is in training mode" if self.model.training else f"uses {attention} attention"
            raise UnsupportedModel(
                f"{self.ability.name} {now}, unlike when its target was built; change it back, or "
                "build another target"
            )
        length = len(request.prompt)
        if length > self.ability.context:
            raise RequestError(
                f"{request.id}: the prompt has {length} tokens, but {self.ability.name} has "
                f"{self.ability.context} positions; shorten the prompt"
            )
        if max(request.prompt) >= self.vocabulary:
            raise RequestError(
                f"{request.id}: the prompt holds token {max(request.prompt)}, outside the "
                f"vocabulary of {self.vocabulary}; was it encoded with another model's tokenizer?"
            )

    def pass_seconds(self, nodes: int, kv_length: int) -> float:
        """Wall-clock seconds of one pass of a root and `nodes` nodes.

        The cache is filled by length only: what its rows hold does not matter for the time.

        Args:
            nodes: Drafted nodes; cut to what fits.
            kv_length: Tokens in the cache; cut to what fits into `longest` with the nodes.
        """
        nodes = max(min(nodes, self.longest - 2), 0)
        kv_length = max(min(kv_length, self.longest - nodes - 2), 0)
        with self.lock:
            session = Session(self, Request((0,), 1), Needs())
            session.forward((0,), EMPTY)
            session.pretend(kv_length)
            tree = DraftTree.chain([0] * nodes, source="rehearsal")
            start = time.perf_counter()
            session.forward((0,), tree)[-1, 0].item()  # waits for the device
            return time.perf_counter() - start

    @property
    def longest(self) -> int:
        """Positions that a timed pass may use."""
        return self.ability.context
