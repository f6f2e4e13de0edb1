"""SpecdecDraft: any stack of drafters where llama-cpp-python wants a draft model."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec import Acceptance, CallFormat, Drafter, Request, TextCodec, Tool, parse
from specdec.calls import read_tools
from specdec.proposing import ChainSession
from specdec_llama_cpp.codec import LlamaCodec
from specdec_llama_cpp.following import Following
from specdec_llama_cpp.host import Host, check_host, positions, top_ids

log = logging.getLogger("specdec")


class SpecdecDraft:
    """Drafts for a `llama_cpp.Llama` with any stack; a `LlamaDraftModel` in all but ancestry.

    ``Llama`` takes its draft model before it has a tokenizer, so the two are joined afterwards::

        model = SpecdecDraft("toolspec")
        llm = Llama(path, draft_model=model, logits_all=True)
        model.attach(llm)

    Until then nothing is drafted. The host shows token ids and nothing else; a request begins
    where they do not continue what was known. It is called by one `Llama` only, one request at a
    time, as that is all that a `Llama` can do.

    Args:
        drafter: Expression of a stack, or a drafter.
        num_pred_tokens: The most tokens drafted for a pass.
        least: A draft ends before a token that is less likely than this to be accepted, by the
            drafters' own scores. Where a drafted token costs half as much as a pass of one, as on
            many CPUs, one that is accepted less than every second time is not worth it.

    Raises:
        ExpressionError: If the expression cannot be read or built.
        ValueError: If `num_pred_tokens` is less than 1, or `least` is no probability.
    """

    def __init__(
        self,
        drafter: str | Drafter = "toolspec",
        *,
        num_pred_tokens: int = 10,
        least: float = 0.1,
    ) -> None:
        if num_pred_tokens < 1:
            raise ValueError(f"num_pred_tokens must be at least 1, got {num_pred_tokens}")
        if not 0 <= least <= 1:
            raise ValueError(f"least must be a probability from 0 to 1, got {least}")
        self.drafter = parse(drafter) if isinstance(drafter, str) else drafter
        self.num_pred_tokens = num_pred_tokens
        self.least = least
        self._llm: Host | None = None
        self._codec: TextCodec | None = None
        self._asked: dict[str, Any] = {}
        self._current: Following | None = None
        self._past = Acceptance()
        self._errors: tuple[str, ...] = ()
        self._warned: set[str] = set()

    def attach(self, llm: Host, codec: TextCodec | None = None) -> None:
        """Take context length, vocabulary and tokenizer from the `Llama` this was given to.

        Args:
            llm: The `llama_cpp.Llama`.
            codec: Another tokenizer than its own, such as ``specdec.hf.HFCodec(tokenizer)``.

        Raises:
            SpecdecError: If `llm` has another draft model, or too few rows of logits.
        """
        check_host(llm, self)
        self.end()
        self._llm = llm
        self._codec = LlamaCodec(llm) if codec is None else codec

    def begin(
        self,
        *,
        tools: Iterable[Tool | Mapping[str, Any]] = (),
        messages: Iterable[Mapping[str, Any]] = (),
        prediction: str | None = None,
        call_format: CallFormat | None = None,
        tenant: str = "",
    ) -> None:
        """Say what is known of the next request, and that the one before is over.

        Never needed: tools and call format are looked for in the prompt.

        Args:
            tools: Functions that the model may call.
            messages: The conversation.
            prediction: A text that the output probably repeats.
            call_format: How the model writes calls.
            tenant: Owner of what is learned.

        Raises:
            RequestError: If a tool is malformed or two share a name.
        """
        asked = {
            "tools": read_tools(tools),
            "messages": tuple(messages),
            "prediction": prediction,
            "call_format": call_format,
            "tenant": tenant,
        }
        self.end()
        self._asked = asked

    def end(self, text: str | None = None) -> None:
        """Say that the request is over.

        The host never shows what the last pass wrote, so without `text` a memory cannot know
        whether a call is whole, and keeps nothing.

        Args:
            text: The whole answer, if the model came to an end of its own.
        """
        current, self._current = self._current, None
        if current is None:
            return
        rest = self._rest(current.session.output, text) if text is not None else None
        current.finish(rest or (), ended=rest is not None)
        self._errors = current.session.errors
        self._past += current.session.report

    def __call__(self, input_ids: npt.NDArray[np.intc], /, **_: Any) -> npt.NDArray[np.intc]:  # noqa: ANN401 - as the host's interface has it
        """Tokens that may follow `input_ids`; see `llama_cpp.llama_speculative`.

        Never raises, because that would end the host's generation.
        """
        try:
            # The host gives a view of its own buffer, and goes on writing to it.
            return np.array(self._propose(np.array(input_ids, dtype=np.intc)), dtype=np.intc)
        except Exception as error:
            self._current = None
            kind = type(error).__name__
            self._warn(kind, f"nothing is drafted: {kind}: {error}")
            return np.zeros(0, dtype=np.intc)

    @property
    def report(self) -> Acceptance:
        """How the drafts of all requests fared, but for passes that the host did not show.

        Those are the last pass of each request that did not `end` with its text.
        """
        return self._past + self._current.session.report if self._current else self._past

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong in drafters during the current or last request, one line each."""
        return self._current.session.errors if self._current else self._errors

    def __repr__(self) -> str:
        return (
            f"SpecdecDraft({self.drafter!r}, num_pred_tokens={self.num_pred_tokens}, "
            f"least={self.least})"
        )

    def _propose(self, ids: npt.NDArray[np.intc]) -> tuple[int, ...]:
        if self._llm is None:
            self._warn("attach", "nothing is drafted before attach(llm) is called")
            return ()
        if self._current is None or not self._current.take(ids):
            self.end()
            self._current = self._first(self._llm, ids)
        # The last position is for the target's own token.
        depth = min(self.num_pred_tokens, positions(self._llm) - len(ids) - 1)
        return self._current.session.propose(depth, least=self.least)

    def _first(self, llm: Host, ids: npt.NDArray[np.intc]) -> Following:
        """Follow a new request; its first call shows one token behind the prompt."""
        asked, self._asked = self._asked, {}
        eos = llm.token_eos()
        request = Request(
            prompt=ids[:-1].tolist(),
            max_new_tokens=max(positions(llm) - len(ids) + 1, 0),
            stop_ids=[eos] if eos >= 0 else [],
            codec=self._codec,
            vocabulary=llm.n_vocab(),
            **asked,
        )
        session = ChainSession(self.drafter, request, top_ids=partial(top_ids, llm))
        following = Following(session)
        following.take(ids)
        return following

    def _rest(self, output: Sequence[int], text: str) -> tuple[int, ...] | None:
        """The tokens of `text` behind `output`, and the end; None where `output` is not of it."""
        assert self._codec is not None
        assert self._llm is not None
        known = self._codec.decode(output)
        if not text.startswith(known):
            return None
        rest = self._codec.encode(text[len(known) :], output)
        eos = self._llm.token_eos()
        return (*rest, eos) if eos >= 0 else rest

    def _warn(self, kind: str, text: str) -> None:
        """One warning of each kind: the host calls for every pass."""
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s: %s", type(self).__name__, text)
