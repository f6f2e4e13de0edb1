"""A host that calls its draft model as llama-cpp-python 0.3.36 does, without being it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from specdec_llama_cpp import SpecdecDraft

from specdec import EMPTY, Drafter, DraftSession, DraftTree, Needs

WORDS = [b"ab", b'": "', b"  ", b"<tool_call>", b"<|im_end|>", b"\xf0\x9f"]
EOS = 256 + WORDS.index(b"<|im_end|>")
CONTROL = {EOS}


class FakeLlama:
    """Bytes and a few longer pieces as tokens, and a target that recites a script."""

    def __init__(self, draft_model=None, *, n_ctx: int = 256, rows: int = 0, space: bool = False):
        self.draft_model = draft_model
        self.input_ids = np.ndarray((n_ctx,), dtype=np.intc)
        self.scores = np.zeros((rows or n_ctx, self.n_vocab()), dtype=np.single)
        self.space = space
        self.n_tokens = 0
        self.passes = 0
        self.drafts: list[list[int]] = []

    def n_ctx(self) -> int:
        return -(-len(self.input_ids) // 256) * 256  # llama.cpp rounds up

    def n_vocab(self) -> int:
        return 256 + len(WORDS)

    def token_eos(self) -> int:
        return EOS

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        assert not add_bos
        text = b" " + text if self.space and text else text
        ids, at = [], 0
        while at < len(text):
            for i, word in enumerate(WORDS, start=256):
                if text.startswith(word, at) and (special or i not in CONTROL):
                    ids.append(i)
                    at += len(word)
                    break
            else:
                ids.append(text[at])
                at += 1
        return ids

    def detokenize(self, tokens: list[int], prev_tokens=None, special: bool = False) -> bytes:
        hidden = () if special else CONTROL
        return b"".join(
            bytes([t]) if t < 256 else WORDS[t - 256] for t in tokens if t not in hidden
        )

    def eval(self, tokens: Sequence[int], script: Sequence[int], start: int) -> None:
        self.passes += 1
        for token in tokens:
            self.input_ids[self.n_tokens] = token
            self.scores[self.n_tokens] = 0
            after = self.n_tokens + 1 - start
            if 0 <= after < len(script):
                self.scores[self.n_tokens, script[after]] = 9
                self.scores[self.n_tokens, 7] = 1
            self.n_tokens += 1

    def generate(self, prompt: Sequence[int], script: Sequence[int]) -> Iterator[int]:
        """The loop of `Llama.generate`, with a target that says `script` whatever happens."""
        self.n_tokens = 0
        tokens = list(prompt)
        start, at = len(prompt), len(prompt) - 1
        while True:
            self.eval(tokens, script, start)
            while at < self.n_tokens:
                token = script[at + 1 - start]
                at += 1
                yield token
                tokens = [token]
                if at < self.n_tokens and token != self.input_ids[at]:
                    self.n_tokens = at
                    break
            if self.draft_model is not None:
                self.input_ids[self.n_tokens] = tokens[0]
                view = self.input_ids[: self.n_tokens + 1]
                drafted = self.draft_model(view)
                assert isinstance(drafted, np.ndarray)
                assert drafted.dtype == np.intc
                drafted = drafted.astype(int)[: self.n_ctx() - self.n_tokens - 1]
                self.drafts.append(drafted.tolist())
                tokens.extend(drafted)

    def write(self, prompt: bytes, text: bytes) -> list[int]:
        """What comes of a prompt: the text and the end, as `create_completion` takes it."""
        ids = self.tokenize(prompt, add_bos=False, special=True)
        script = [*self.tokenize(text, add_bos=False, special=True), EOS]
        written = []
        room = len(self.input_ids) - len(ids)
        for token in self.generate(ids, [*script, *[EOS] * 40]):
            written.append(token)
            if token == EOS or len(written) == room:
                break
        return written


class Scripted(Drafter):
    """Offers what `tree(tokens, limit)` says, and keeps a record of what its sessions saw."""

    def __init__(self, tree=None, top_k=0):
        self.tree = tree or (lambda tokens, limit: EMPTY)
        self.top_k = top_k
        self.sessions = []

    @classmethod
    def chain(cls, *tokens, top_k=0):
        """One that always offers these tokens, as far as they may go."""
        return cls(lambda _, limit: DraftTree.chain(tokens[: limit.depth], source="s"), top_k)

    @property
    def needs(self):
        return Needs(self.top_k)

    def start(self, request, committed=()):
        self.sessions.append(session := ScriptedSession(self, request))
        return session


class ScriptedSession(DraftSession):
    def __init__(self, drafter, request):
        self.drafter, self.request, self.steps, self.result = drafter, request, [], None
        self.prefills = []

    def prefilled(self, embedding):
        self.prefills.append((len(self.steps), embedding))

    def propose(self, tokens, limit):
        assert tuple(tokens) == self.request.prompt + self.output
        return self.drafter.tree(tokens, limit)

    @property
    def output(self):
        return tuple(token for step in self.steps for token in step.committed)

    def observe(self, step):
        self.steps.append(step)

    def finish(self, result):
        self.result = result


@pytest.fixture
def fake() -> type[FakeLlama]:
    """The host's class."""
    return FakeLlama


@pytest.fixture
def scripted() -> type[Scripted]:
    """The drafter's class."""
    return Scripted


@pytest.fixture
def joined():
    """Makes a draft model and the host that it drafts for."""

    def made(drafter, *, num_pred_tokens=4, least=0.1, **host):
        model = SpecdecDraft(drafter, num_pred_tokens=num_pred_tokens, least=least)
        llm = FakeLlama(model, **host)
        model.attach(llm)
        return model, llm

    return made


@pytest.fixture
def called():
    """Calls a draft model as a host does, with the tokens so far; gives what it drafts."""
    return lambda model, *tokens: model(np.array(tokens, dtype=np.intc)).tolist()
