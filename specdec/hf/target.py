"""HFTarget: a transformers causal LM as the target of speculative decoding."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache

from specdec.calls.tools import Tool, read_tools
from specdec.errors import RequestError
from specdec.hf.attention import lock_of, packed
from specdec.hf.codec import HFCodec
from specdec.hf.compat import (
    TreeLayer,
    config_processors,
    drifting_modules,
    reset_frequencies,
)
from specdec.hf.decide import Decider
from specdec.hf.limits import Ability, ability
from specdec.hf.masks import positions, tree_masks
from specdec.hf.probe import check_rows
from specdec.hf.tops import top_ids
from specdec.interfaces import Decision, Needs
from specdec.request import Finish, Request, Sampling
from specdec.tree import EMPTY, DraftTree

RIDE = 32
"""Prompt tokens that share the pass of the first draft, where the whole prompt cannot.

A mask over a long prompt costs more (quadratic) than one more pass, so the prompt's head goes
ahead without one. Prompts of 640 tokens with a draft, bfloat16, 2 threads: 0.40 s for 32 or 128,
0.43 s for 512, 0.40 s without a draft."""

SPARE = 512
"""Rows of cache allocated ahead of the prompt; the cache grows by half beyond that."""


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
        self.ability: Ability = ability(model)
        self.config = model.config.get_text_config(decoder=True)
        self.lock = lock_of(model)
        self.drifting = drifting_modules(model) if self.ability.drifts else []
        self.short_masks = False
        self._rehearsal: _Session | None = None
        if probe:
            check_rows(self)

    @property
    def vocabulary(self) -> int:
        """Number of token ids that the model takes."""
        weight: Any = self.model.get_input_embeddings().weight
        return int(weight.shape[0])

    @property
    def label(self) -> str:
        """Model, dtype, device and threads, for the record of a measurement."""
        dtype = str(self.model.dtype).removeprefix("torch.")
        threads = torch.get_num_threads()
        return f"{self.ability.name} {dtype} {self.device} {threads} threads"

    @property
    def device(self) -> torch.device:
        """Where token ids enter the model."""
        weight = self.model.get_input_embeddings().weight
        assert isinstance(weight, torch.Tensor)
        return weight.device

    def request(
        self,
        prompt: str | Sequence[int] | None = None,
        *,
        messages: Iterable[Mapping[str, Any]] = (),
        tools: Iterable[Tool | Mapping[str, Any]] = (),
        max_new_tokens: int = 256,
        stop_strings: Iterable[str] = (),
        sampling: Sampling | None = None,
        **fields: Any,  # noqa: ANN401 - further fields of Request, checked by it
    ) -> Request:
        """A request for this model, rendered and encoded, with its own end-of-sequence ids.

        Args:
            prompt: Text or token ids; or leave it out and give `messages`.
            messages: A conversation in the OpenAI form, rendered with the model's chat template.
            tools: Functions the model may call, in the OpenAI form.
            max_new_tokens: The most tokens to emit.
            stop_strings: Texts that end generation.
            sampling: How tokens are drawn; greedy by default.
            **fields: Further fields of `Request`, such as ``tenant`` or ``stop_ids``.

        Raises:
            RequestError: If neither or both of prompt and messages are given, no tokenizer is
                known where one is needed, or the chat template refuses the messages.
        """
        messages = tuple(messages)
        known = read_tools(tools)
        if (prompt is None) == (not messages):
            raise RequestError("a request needs either a prompt or messages, not both and not none")
        if prompt is None or isinstance(prompt, str):
            if self.tokenizer is None:
                raise RequestError(
                    "text needs a tokenizer; build the target with HFTarget(model, tokenizer)"
                )
            prompt = self._render(messages, known) if prompt is None else self._encode(prompt)
        fields.setdefault("stop_ids", self.stop_ids())
        # What the model's generation config asks for comes first, as in generate().
        processors = (
            *config_processors(self.model, len(prompt)),
            *fields.pop("processors", ()),
        )
        return Request(
            prompt=prompt,
            processors=processors,
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
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[tool.to_openai() for tool in tools] or None,
                add_generation_prompt=True,
                tokenize=False,
            )
        except Exception as error:
            raise RequestError(
                f"the chat template of {self.ability.name} cannot render these messages: {error}"
            ) from error
        assert isinstance(text, str)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def stop_ids(self) -> frozenset[int]:
        """The model's end-of-sequence ids, from its generation config."""
        config = getattr(self.model, "generation_config", None)
        ids = getattr(config, "eos_token_id", None)
        if ids is None:
            ids = getattr(self.config, "eos_token_id", None)
        return frozenset() if ids is None else frozenset([ids] if isinstance(ids, int) else ids)

    def start(self, request: Request, needs: Needs) -> _Session:
        """See `specdec.engine.Target.start`.

        Raises:
            RequestError: If the prompt leaves no room in the model's context or holds an id
                outside its vocabulary.
        """
        length = len(request.prompt)
        if length > self.ability.context:
            raise RequestError(
                f"{request.id}: the prompt has {length} tokens, but {self.ability.name} has "
                f"{self.ability.context} positions; shorten the prompt"
            )
        low, high = min(request.prompt), max(request.prompt)
        if low < 0 or high >= self.vocabulary:
            raise RequestError(
                f"{request.id}: the prompt holds token {low if low < 0 else high}, outside the "
                f"vocabulary of {self.vocabulary}; was it encoded with another model's tokenizer?"
            )
        return _Session(self, request, needs)

    def pass_seconds(self, nodes: int, kv_length: int) -> float:
        """Wall-clock seconds of one pass of a root and `nodes` nodes.

        The cache is filled by length only: what its rows hold does not matter for the time.
        """
        nodes = max(min(nodes, self.ability.context - 2), 0)
        kv_length = max(min(kv_length, self.ability.context - nodes - 2), 0)
        with self.lock:
            if self._rehearsal is None:
                self._rehearsal = _Session(self, Request((0,), 1), Needs())
                self._rehearsal.forward((0,), EMPTY)
            session = self._rehearsal
            session.pretend(kv_length)
            tree = DraftTree.chain(range(nodes), source="rehearsal")
            start = time.perf_counter()
            logits = session.forward((0,), tree)
            logits[-1, 0].item()  # waits for the device
            return time.perf_counter() - start


class _Session:
    """One request on an HFTarget; see `specdec.engine.TargetSession`."""

    def __init__(self, target: HFTarget, request: Request, needs: Needs) -> None:
        able = target.ability
        self._target = target
        self._able = able
        self._needs = needs
        room = len(request.prompt) + min(request.max_new_tokens, SPARE) + 128
        self._layers = [TreeLayer(room) for _ in range(able.layers)]
        self._cache = Cache(layers=list(self._layers))
        self._cached: list[int] = []  # the tokens whose keys and values are kept
        self._fed: Sequence[int] = ()  # what the last pass added to them
        self._logits = torch.empty(0)
        # The last token emitted needs no position of its own: it is never fed.
        self._decider = Decider(request, able.table - len(request.prompt) + 1)
        self.embedding: npt.NDArray[np.float32] | None = None

    @property
    def kv_length(self) -> int:
        return len(self._cached)

    @property
    def finish(self) -> Finish:
        return self._decider.stops.finish

    def depth(self, pending: int) -> int:
        root = len(self._cached) + pending - 1
        split = pending > RIDE and not self._whole()
        return self._able.depth(root, root - RIDE + 1 if split else None)

    def _whole(self) -> bool:
        """Whether a draft can ride on a whole prompt: its rows need no mask of their own."""
        return self._target.short_masks and not self._cached

    @torch.inference_mode()
    def decide(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        return self._decider(path_tokens, row)

    @torch.inference_mode()
    def forward(self, pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
        if self._cached and len(self._cached) + len(pending) - 1 == self._able.recompute_at:
            pending = [*self._cached, *pending]
            self._keep((), 0, ())
        if tree.tokens and len(pending) > RIDE and not self._whole():
            ahead, pending = pending[:-RIDE], pending[-RIDE:]
            self._pass(ahead, EMPTY)
            self._keep(ahead, len(self._cached) + len(ahead), ())
        self._fed = (*pending, *tree.tokens)
        self._logits = self._pass(pending, tree)
        return self._logits

    def _pass(self, ids: Sequence[int], tree: DraftTree) -> torch.Tensor:
        """(1 + N, V) logits of one call of the model."""
        target, able, rows = self._target, self._able, 1 + len(tree)
        device, cached = target.device, len(self._cached)
        arguments: dict[str, Any] = {
            able.cache_name: self._cache,
            "input_ids": torch.tensor([[*ids, *tree.tokens]], device=device),
            "position_ids": positions(cached, len(ids), tree).to(device),
            "use_cache": True,
        }
        if tree.tokens:
            # With a short mask, only the last prompt token (the root) and the nodes have rows.
            before = len(ids) - 1 if self._whole() else 0
            arguments["attention_mask"] = tree_masks(
                able.masks, cached + before, len(ids) - before, tree, target.model.dtype, device
            )
        if able.keeps_logits:
            arguments["logits_to_keep"] = rows
        # The prompt's first pass holds its last token too, unless its head went ahead.
        watch = self._needs.embedding and self._decider.stops.emitted == 0
        hook = self._watch(rows) if watch else None
        reset_frequencies(target.drifting)
        try:
            with packed(target.config):
                output = target.model(**arguments)
        finally:
            if hook is not None:
                hook.remove()
        logits: torch.Tensor = output.logits[0, -rows:]
        return logits

    def _watch(self, rows: int) -> torch.utils.hooks.RemovableHandle:
        """Take the root's hidden state where it enters the output embedding."""
        head: torch.nn.Module = self._target.model.get_output_embeddings()

        def take(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            hidden = inputs[0][0, -rows]
            self.embedding = hidden.to(device="cpu", dtype=torch.float32).numpy().copy()

        return head.register_forward_pre_hook(take)

    @torch.inference_mode()
    def commit(self, path: Sequence[int]) -> None:
        pending = len(self._fed) - (len(self._logits) - 1)
        rows = [pending + node for node in path]
        base = len(self._cached)
        kept = [*self._fed[:pending], *(self._fed[row] for row in rows)]
        self._keep(kept, base + pending, [base + row for row in rows])

    def _keep(self, tokens: Sequence[int], length: int, rows: Sequence[int]) -> None:
        """Keep `length` cache rows and, behind them, `rows`; `tokens` are the newly kept ones."""
        for layer in self._layers:
            layer.keep(length, rows)
        if length:
            self._cached += tokens
        else:
            self._cached.clear()

    def pretend(self, kv_length: int) -> None:
        """Act as if the cache held `kv_length` tokens."""
        for layer in self._layers:
            layer.reserve(kv_length + 128)
            layer.length = kv_length
        self._cached = [0] * kv_length

    def top_ids(self, k: int) -> npt.NDArray[np.int64]:
        return top_ids(self._logits, k)

    def close(self) -> None:
        self._layers.clear()
        self._cache = Cache(layers=[])
        self._logits = torch.empty(0)
