"""ReplayTarget: writes recorded outputs, whatever is drafted, for measuring drafters on traces."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Protocol

import attrs
import numpy as np
import numpy.typing as npt
import torch

from specdec.budget import Timed
from specdec.engine import Target, TargetSession
from specdec.errors import RequestError
from specdec.interfaces import Decision, Needs
from specdec.replay.followers import Followers, first
from specdec.replay.nothing import NoModel
from specdec.request import Finish, Request
from specdec.stops import Stops
from specdec.tree import EMPTY, ROOT, DraftTree


class TimedTarget(Target, Timed, Protocol):
    """A target whose passes can also be timed without a request, such as `HFTarget`."""


class ReplayTarget:
    """Writes, for each request, the output recorded for it; see `specdec.engine.Target`.

    What is accepted of a draft is therefore what the recorded model would have accepted in greedy
    decoding, with any tokenizer and without weights. With `model`, every pass also runs on it, so
    that passes, choices and cache cost real time; what it computes is thrown away. Its hidden
    states mean nothing for the trace, so `embedding` is None with and without it.

    The most likely next tokens (`top_ids`) are not in a trace. In their place stand the token the
    output goes on with, then what has followed the row's token in this output so far, then what
    followed it in the outputs that come earlier in `outputs`, the latest first each, then small
    ids. All of that depends on the trace alone, not on which requests ran before or with which
    drafter, so drafters can take turns on one target.

    Args:
        outputs: By the id of a request, the (T,) tokens it writes; a stop id among them or the
            last one ends it.
        vocabulary: Number of token ids of the tokenizer that the outputs were encoded with.
        model: Runs the passes, such as ``HFTarget(random_model("qwen2.5-7b", ...))``. It may know
            fewer ids than `vocabulary`: what is fed to it is then folded into its own, as the
            time of a pass does not depend on which tokens are in it.

    Attributes:
        model: What runs the passes; None where nothing does.

    Raises:
        RequestError: If an output is empty or holds an id outside the vocabulary.
    """

    def __init__(
        self,
        outputs: Mapping[str, Sequence[int]],
        vocabulary: int,
        *,
        model: TimedTarget | None = None,
    ) -> None:
        self._outputs = {name: tuple(tokens) for name, tokens in outputs.items()}
        for name, tokens in self._outputs.items():
            if not tokens:
                raise RequestError(f"the output of {name!r} is empty; leave that request out")
            _known(f"the output of {name!r}", tokens, vocabulary)
        self.vocabulary = vocabulary
        self.label = f"replay of {len(self._outputs)} outputs"
        if model is not None:
            self.label += f" on passes of {model.label}"
        self.model = model
        self._runs: TimedTarget = NoModel(vocabulary) if model is None else model
        self.lock: AbstractContextManager[Any] = self._runs.lock
        self._places = {name: place for place, name in enumerate(self._outputs)}
        self._earlier = Followers(self._outputs.values())

    @property
    def longest(self) -> int:
        """Positions that a pass may use; without a model there is no end."""
        return self._runs.longest

    def pass_seconds(self, nodes: int, kv_length: int) -> float:
        """Wall-clock seconds of one pass of the model; see `specdec.budget.Timed`.

        Raises:
            RequestError: If there is no model.
        """
        return self._runs.pass_seconds(nodes, kv_length)

    def start(self, request: Request, needs: Needs) -> ReplaySession:  # noqa: ARG002
        """See `specdec.engine.Target.start`.

        Raises:
            RequestError: If no output is recorded for the request, its prompt holds an id outside
                the vocabulary, or prompt and output do not fit into the model's positions.
        """
        output = self._outputs.get(request.id)
        if output is None:
            raise RequestError(
                f"no output is recorded for {request.id!r}; give Request(id=...) the id of one of "
                f"the {len(self._outputs)} outputs"
            )
        _known(f"{request.id}: the prompt", request.prompt, self.vocabulary)
        # The last token written is never fed, so it takes no position.
        positions = len(request.prompt) + min(len(output), request.max_new_tokens) - 1
        if positions > self.longest:
            raise RequestError(
                f"{request.id}: prompt and output take {positions} positions, but the model has "
                f"{self.longest}; leave the request out or take a model with more"
            )
        fold = self._runs.vocabulary if self._runs.vocabulary < self.vocabulary else 0
        prompt = _folded(request.prompt, fold)
        # Stops, processors and sampling are about the trace's tokens, which the model does not see.
        passes = self._runs.start(Request(prompt, request.max_new_tokens, id=request.id), Needs())
        return ReplaySession(self, request, output, passes, fold)

    def earlier(self, request: str, token: int) -> tuple[int, ...]:
        """What followed `token` in the outputs before that of `request`, the latest first."""
        return self._earlier.before(self._places[request], token)


class ReplaySession:
    """One output as it is written; see `specdec.engine.TargetSession`."""

    embedding: npt.NDArray[np.float32] | None = None

    def __init__(
        self,
        target: ReplayTarget,
        request: Request,
        output: tuple[int, ...],
        passes: TargetSession,
        fold: int,
    ) -> None:
        self._target = target
        self._request = request.id
        self._output = output
        self._passes = passes
        self._fold = fold
        self._stops = Stops(request, sys.maxsize)
        self._written = 0
        self._before = 0  # tokens written before the pass
        self._root = request.prompt[-1]
        self._tree = EMPTY
        self._followers: dict[int, tuple[int, ...]] = {}  # in this output, the latest first

    @property
    def kv_length(self) -> int:
        """Tokens in the model's cache, or in the one there would be."""
        return self._passes.kv_length

    @property
    def finish(self) -> Finish:
        """Why the request ended; "length" where the recording just ends."""
        return self._stops.finish

    def depth(self, pending: int) -> int:
        """What the model allows; where the output ends is not told."""
        return self._passes.depth(pending)

    def forward(self, pending: Sequence[int], tree: DraftTree) -> torch.Tensor:
        """(1 + N, V) logits of the model, once they are there; V is 0 without one."""
        self._root, self._tree, self._before = pending[-1], tree, self._written
        if self._fold:
            pending = _folded(pending, self._fold)
            # Counting nodes keeps siblings apart, which folding their tokens might not.
            tree = attrs.evolve(tree, tokens=_folded(range(len(tree)), self._fold))
        logits = self._passes.forward(pending, tree)
        if logits.device.type != "cpu":
            # Nobody reads the logits for their values: wait here, for the pass's time to be real.
            torch.accelerator.synchronize(logits.device)
        return logits

    def decide(self, path_tokens: Sequence[int], row: torch.Tensor) -> Decision:
        """The next token of the output. The model chooses as well, for the time it takes."""
        self._passes.decide(path_tokens, row)
        token = self._output[self._written]
        above = path_tokens[-1] if path_tokens else self._root
        self._followers[above] = first(token, self._followers.get(above, ()))
        self._written += 1
        stop = self._stops.ends(token)
        return Decision(token, stop or self._written == len(self._output))

    def commit(self, path: Sequence[int]) -> None:
        """Keep the pending tokens and the nodes of `path` in the model's cache."""
        self._passes.commit(path)

    def top_ids(self, k: int) -> npt.NDArray[np.int64]:
        """(1 + N, k) ids, no row with one twice; see `ReplayTarget`."""
        self._passes.top_ids(k)  # for the time it takes
        size = self._target.vocabulary
        k = min(k, size)
        tree = self._tree
        places = enumerate(zip(tree.parents, tree.tokens, strict=True))
        children = {place: child for child, place in places}
        right: dict[int, tuple[int]] = {}
        node = ROOT
        for token in self._output[self._before : self._written]:
            right[node] = (token,)
            node = children.get((node, token), len(tree))
        rows = []
        for node, token in enumerate((self._root, *tree.tokens), start=ROOT):
            known = (
                *right.get(node, ()),
                *self._followers.get(token, ()),
                *self._target.earlier(self._request, token),
                *range(min(2 * k, size)),
            )
            rows.append(list(islice(dict.fromkeys(known), k)))
        return np.array(rows, dtype=np.int64)

    def close(self) -> None:
        """Give the model's cache back."""
        self._passes.close()


def _known(what: str, tokens: Sequence[int], vocabulary: int) -> None:
    low, high = min(tokens), max(tokens)
    if low < 0 or high >= vocabulary:
        raise RequestError(
            f"{what} holds token {low if low < 0 else high}, outside the vocabulary of "
            f"{vocabulary}; was it encoded with another tokenizer?"
        )


def _folded(tokens: Sequence[int], fold: int) -> tuple[int, ...]:
    """`tokens` modulo `fold`, or as they are where it is 0."""
    return tuple(token % fold for token in tokens) if fold else tuple(tokens)
