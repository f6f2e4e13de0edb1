from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from specdec_vllm.batch import Batch
from specdec_vllm.reading import Reader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec import EMPTY, Drafter, DraftSession, DraftTree, Limit, Request, Result, Step

STOP = 1
VOCABULARY = 1000
TEMPLATE = (
    "{% if tools %}<s>system\nCall tools so:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>\n'
    "<tools>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools></s>\n{% endif %}"
    "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] or '' }}"
    "{% for call in message.get('tool_calls') or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


class Watched(Drafter):
    """Knows every output beforehand, and notes where it is told something else.

    Args:
        outputs: The outputs by prompt.
    """

    def __init__(self, outputs: dict[tuple[int, ...], tuple[int, ...]]) -> None:
        self.outputs = outputs
        self.started: list[tuple[Request, tuple[int, ...]]] = []
        self.finished: list[Result] = []
        self.wrong: list[str] = []

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        self.started.append((request, tuple(committed)))
        return WatchedSession(self, request, committed)


class WatchedSession(DraftSession):
    def __init__(self, drafter: Watched, request: Request, committed: Sequence[int]) -> None:
        self.drafter = drafter
        self.prompt = request.prompt
        self.output = [*committed]

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        if [*tokens] != [*self.prompt, *self.output]:
            self.drafter.wrong.append(f"{[*tokens]} is not {[*self.prompt]} + {self.output}")
        known = self.drafter.outputs.get(self.prompt, ())
        if [*known[: len(self.output)]] != self.output:
            return EMPTY
        return DraftTree.chain(known[len(self.output) :][: limit.depth], source="watched")

    def observe(self, step: Step) -> None:
        self.output += step.committed

    def finish(self, result: Result) -> None:
        self.drafter.finished.append(result)


@attrs.define(eq=False)
class Served:
    """A request of the engine below."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    chunks: int = 1
    at: int = 0
    draft: tuple[int, ...] = ()

    @property
    def content(self) -> tuple[int, ...]:
        return self.prompt + self.output[: self.at]

    @property
    def done(self) -> bool:
        return self.at >= len(self.output)


class Engine:
    """Calls a proposer with rows as vLLM's model runner does (0.32, 0.33).

    Rows live in one array that is used again; those of requests that are gone stay dirty, a
    request that ends is replaced by the last one.
    """

    def __init__(self, propose: Callable[..., list[list[int]]], *, rows: int, width: int) -> None:
        self.propose = propose
        self.tokens = np.full((rows, width), 7, dtype=np.int32)
        self.lengths = np.full(rows, 3, dtype=np.int32)
        self.rows: list[Served] = []
        self.calls = 0
        self.accepted = 0
        self.longest = 0

    def add(self, *requests: Served) -> None:
        for request in requests:
            request.draft = ()
            self.rows.append(request)
            self._write(len(self.rows) - 1)

    def _write(self, i: int) -> None:
        content = self.rows[i].content
        self.tokens[i, : len(content)] = content
        self.lengths[i] = len(content)

    def remove(self, request: Served) -> None:
        i = self.rows.index(request)
        last = self.rows.pop()
        if last is not request:
            self.rows[i] = last
            self._write(i)

    def swap(self, i: int, j: int) -> None:
        self.rows[i], self.rows[j] = self.rows[j], self.rows[i]
        self._write(i)
        self._write(j)

    def step(self, *, ask: bool = True) -> None:
        """One pass; requests that are done leave before the next."""
        for request in [r for r in self.rows if r.done]:
            self.remove(request)
        if not self.rows:
            return
        sampled = [self._decode(i) for i in range(len(self.rows))]
        drafts = self.propose(sampled, self.lengths, self.tokens) if ask else [[]] * len(sampled)
        assert len(drafts) == len(sampled)
        for request, new, draft in zip(self.rows, sampled, drafts, strict=True):
            assert all(type(token) is int for token in draft)
            assert new or not draft
            request.draft = tuple(draft)
            self.longest = max(self.longest, len(draft))
        self.calls += 1

    def _decode(self, i: int) -> list[int]:
        request = self.rows[i]
        if request.chunks > 1:
            request.chunks -= 1
            return []
        left = request.output[request.at :]
        taken = 0
        while taken < min(len(request.draft), len(left) - 1):
            if request.draft[taken] != left[taken]:
                break
            taken += 1
        self.accepted += taken
        request.at += taken + 1
        self._write(i)
        return [*left[: taken + 1]]

    def run(self) -> None:
        """To the end of all requests."""
        while self.rows and not all(r.done for r in self.rows):
            self.step()


@pytest.fixture
def served() -> type[Served]:
    return Served


@pytest.fixture
def batch() -> Callable[..., Batch]:
    """Makes a batch without a tokenizer."""

    def made(drafter: Drafter, **options: Any) -> Batch:
        reader = Reader(None, None, frozenset({STOP}), VOCABULARY)
        return Batch(drafter, reader, **{"drafts": 4, "length": 512, "overhead": 1e6, **options})

    return made


@pytest.fixture
def engine() -> Callable[..., Engine]:
    """Makes an engine around a batch."""

    def made(batch: Any, *, rows: int = 16, width: int = 512) -> Engine:
        return Engine(batch.propose, rows=rows, width=width)

    return made


@pytest.fixture
def watched() -> Callable[[Iterable[Served]], Watched]:
    """Makes a drafter that knows the outputs of these requests."""
    return lambda requests: Watched({r.prompt: r.output for r in requests})


@pytest.fixture
def serving(
    watched: Callable[..., Watched], batch: Callable[..., Batch], engine: Callable[..., Engine]
) -> Callable[..., tuple[Watched, Engine]]:
    """Makes a drafter that knows the outputs of these requests, and an engine that has them."""

    def made(*requests: Served, rows: int = 16) -> tuple[Watched, Engine]:
        drafter = watched(requests)
        host = engine(batch(drafter), rows=rows)
        host.add(*requests)
        return drafter, host

    return made


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes as tokens, with a template that prints tools and calls as Hermes does."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ("<pad>", "</s>", "<s>")
    vocab = {token: i for i, token in enumerate([*special, *alphabet])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    made.chat_template = TEMPLATE
    return made
