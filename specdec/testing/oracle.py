"""OracleTarget: a target without a model, which checks the engine's bookkeeping itself."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from specdec.errors import ContractError, RequestError
from specdec.interfaces import Decision, Needs
from specdec.request import Finish, Request
from specdec.stops import Stops
from specdec.testing.codec import CharCodec
from specdec.tree import EMPTY, ROOT, DraftTree

HIDDEN: Final = 16
"""Size of the prompt embeddings."""

SURPRISE: Final = 11
"""Where the text's length is a multiple of this, the next token breaks the period."""


class OracleTarget:
    """A target whose next token is a function of the tokens so far; see `specdec.engine.Target`.

    The text repeats what stood `period` tokens before, so that lookup drafters hit, except at
    every eleventh position: there the token depends on all tokens before it. The logits fall
    with the distance from that token, without ties. Arguments that only a wrong engine or a
    wrong verifier could pass are refused with ContractError.

    Args:
        vocabulary: Number of token ids.
        period: Tokens after which the text repeats.
        script: Tokens with which every output begins, such as ``CharCodec().encode(call)``. A
            draft that leaves the script is followed by what the period says.
        context: Positions in the model; None for no end.
    """

    def __init__(
        self,
        *,
        vocabulary: int = CharCodec.vocabulary,
        period: int = 13,
        script: Sequence[int] = (),
        context: int | None = None,
    ) -> None:
        if vocabulary < 2 or period < 1:
            raise ValueError(
                "an oracle needs a vocabulary of at least 2 tokens and a period of at least 1, got "
                f"{vocabulary} and {period}"
            )
        self.vocabulary = vocabulary
        self.period = period
        self.script = tuple(script)
        self.context = sys.maxsize if context is None else context
        self.lock = threading.RLock()

    def start(self, request: Request, needs: Needs) -> OracleSession:
        """See `specdec.engine.Target.start`.

        Raises:
            RequestError: If the prompt is too long or holds an unknown id, or the sampling asks
                for more than a temperature.
        """
        low, high = min(request.prompt), max(request.prompt)
        if low < 0 or high >= self.vocabulary:
            raise RequestError(
                f"{request.id}: the prompt holds token {low if low < 0 else high}, outside the "
                f"oracle's vocabulary of {self.vocabulary}"
            )
        if len(request.prompt) >= self.context:
            raise RequestError(
                f"{request.id}: the prompt has {len(request.prompt)} tokens, the oracle's context "
                f"only {self.context}"
            )
        if request.sampling and (request.sampling.top_k or request.sampling.top_p < 1.0):
            raise RequestError(f"{request.id}: the oracle knows no top_k or top_p")
        return OracleSession(self, request, needs)

    def following(self, prompt: Sequence[int], output: Sequence[int]) -> int:
        """The most likely token after `prompt` and `output`."""
        written = len(output)
        if written < len(self.script) and tuple(output) == self.script[:written]:
            return self.script[written]
        tokens = (*prompt, *output)
        length = len(tokens)
        if length % SURPRISE == 0 or length <= self.period:
            return (3 * sum(tokens) + 7 * length + tokens[-1]) % self.vocabulary
        return tokens[-self.period]

    def logits(self, prompt: Sequence[int], outputs: Iterable[Sequence[int]]) -> torch.Tensor:
        """(rows, V) float32 logits of the token after `prompt` and each of `outputs`."""
        best = np.array([self.following(prompt, output) for output in outputs])
        distance = (np.arange(self.vocabulary) - best[:, None]) % self.vocabulary  # (rows, V)
        return torch.from_numpy((-0.25 * distance).astype(np.float32))

    def embedding(self, prompt: Sequence[int]) -> npt.NDArray[np.float32]:
        """(HIDDEN,) float32 of length 1, read-only: how often each id, modulo HIDDEN, occurs."""
        counts = np.bincount(np.array(prompt) % HIDDEN, minlength=HIDDEN).astype(np.float32)
        counts[prompt[-1] % HIDDEN] += len(prompt)
        counts /= np.linalg.norm(counts)
        counts.setflags(write=False)
        return counts

    def plain(self, request: Request) -> tuple[int, ...]:
        """The output of `request`, decoded token by token without engine, verifier or drafter."""
        choice = OracleChoice(request, self.context - len(request.prompt))
        output: list[int] = []
        stopped = not request.max_new_tokens
        while not stopped:
            decision = choice(self.logits(request.prompt, [output])[0])
            output.append(decision.token)
            stopped = decision.stop
        return tuple(output)


class OracleSession:
    """One request on an OracleTarget; see `specdec.engine.TargetSession`."""

    def __init__(self, target: OracleTarget, request: Request, needs: Needs) -> None:
        self._target = target
        self._prompt = request.prompt
        self._needs = needs
        self._output: list[int] = []  # everything decided so far
        self._before = 0  # length of the output before the pass
        self._cached = 0
        self._fed = 0
        self._tree = EMPTY
        self._logits: torch.Tensor | None = None  # set between forward and commit
        self._rows = torch.empty(0)
        self._closed = False
        self._stopped = False
        self._choice = OracleChoice(request, target.context - len(request.prompt))
        self._embedding: npt.NDArray[np.float32] | None = None

    @property
    def kv_length(self) -> int:
        """Tokens in the imagined cache."""
        return self._cached

    @property
    def embedding(self) -> npt.NDArray[np.float32] | None:
        """The prompt's embedding after its pass, if a drafter needs it."""
        return self._embedding

    @property
    def finish(self) -> Finish:
        """Why the request ended."""
        return self._choice.stops.finish

    def depth(self, pending: int) -> int:
        """Positions left behind the root."""
        return max(self._target.context - self._cached - pending, 0)

    def forward(self, pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
        """(1 + N, V) logits, each row from its own path's prefix.

        Raises:
            ContractError: If `pending` is not exactly what the cache lacks, the last pass was
                not committed, or the tree does not fit.
        """
        _require(not self._closed, "forward was called on a closed session")
        _require(self._logits is None, "forward was called again before commit")
        missing = (*self._prompt, *self._output)[self._cached :]
        _require(
            tuple(pending) == missing,
            f"forward got the pending tokens {tuple(pending)}, but the cache lacks {missing}",
        )
        if tree.tokens:
            deepest, room = int(tree.depths.max()), self.depth(len(pending))
            _require(deepest <= room, f"a draft of depth {deepest} got room for {room}")
            _require(
                min(tree.tokens) >= 0 and max(tree.tokens) < self._target.vocabulary,
                f"the draft {tree.tokens} leaves the vocabulary of {self._target.vocabulary}",
            )
        outputs: list[tuple[int, ...]] = [tuple(self._output)]  # row 0; row i + 1 is node i
        for token, parent in zip(tree.tokens, tree.parents, strict=True):
            outputs.append((*outputs[parent + 1], token))
        if not self._cached and self._needs.embedding:
            self._embedding = self._target.embedding(self._prompt)
        self._before, self._fed = len(self._output), self._cached + len(pending)
        self._tree, self._rows = tree, self._target.logits(self._prompt, outputs)
        self._logits = self._rows
        return self._rows

    def decide(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        """The choice from `row`.

        Raises:
            ContractError: If asked outside a pass or after generation ended, or `path_tokens` is
                not what was decided in the pass so far.
        """
        _require(self._logits is not None, "decide was called outside a pass")
        _require(not self._stopped, "decide was called again after its answer ended generation")
        decided = tuple(self._output[self._before :])
        _require(
            tuple(path_tokens) == decided,
            f"decide was told the path {tuple(path_tokens)}, but decided {decided} in this pass",
        )
        decision = self._choice(row)
        self._output.append(decision.token)
        self._stopped = decision.stop
        return decision

    def commit(self, path: Sequence[int]) -> None:
        """Keep the pending tokens and the nodes of `path`.

        Raises:
            ContractError: If `path` is no path of the tree, its tokens were not decided, or the
                cache would not hold everything but the last token.
        """
        _require(self._logits is not None, "commit was called without a pass")
        decided, above = self._output[self._before :], ROOT
        for node, token in zip(path, decided, strict=False):
            _require(
                0 <= node < len(self._tree) and self._tree.parents[node] == above,
                f"commit got {tuple(path)}, which is no path of {self._tree}",
            )
            _require(
                self._tree.tokens[node] == token,
                f"commit got node {node} with token {self._tree.tokens[node]}; decided was {token}",
            )
            above = node
        cached = self._fed + len(path)
        known = len(self._prompt) + len(self._output)
        _require(
            cached == known - 1,
            f"after commit the cache holds {cached} tokens of {known}; all but the last belong in",
        )
        self._cached, self._logits = cached, None

    def top_ids(self, k: int) -> npt.NDArray[np.int64]:
        """(1 + N, k) most likely next tokens of the last pass, read-only."""
        ids = self._rows.topk(min(k, self._target.vocabulary), dim=-1).indices.numpy()
        ids.setflags(write=False)
        return ids

    def close(self) -> None:
        """Give the cache back.

        Raises:
            ContractError: If called twice.
        """
        _require(not self._closed, "close was called twice")
        self._closed = True


class OracleChoice:
    """The choice of each next token: the same stops, in the same order, as on a real target."""

    def __init__(self, request: Request, room: int) -> None:
        self._request = request
        self._ids = list(request.prompt)
        self.stops = Stops(request, room)
        seed = request.sampling.seed if request.sampling else None
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)

    def __call__(self, row: torch.Tensor) -> Decision:
        """The token chosen from the (V,) logits `row`, and whether generation ends with it."""
        scores, sampling = row.to(torch.float32), self._request.sampling
        for processor in self._request.processors:
            scores = processor(torch.tensor([self._ids]), scores[None])[0]
        if sampling is None:
            token = int(scores.argmax())
        else:
            odds = torch.softmax(scores / sampling.temperature, dim=-1)
            token = int(torch.multinomial(odds, 1, generator=self._generator))
        self._ids.append(token)
        return Decision(token, self.stops.ends(token))


def _require(condition: bool, breach: str) -> None:
    if not condition:
        raise ContractError(f"oracle: {breach}")
