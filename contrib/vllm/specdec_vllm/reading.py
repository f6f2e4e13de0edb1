"""Reading: prompts as drafters want them, from tokens alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Self

import attrs
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from specdec import CallFormat, Request
from specdec.hf.codec import HFCodec
from specdec.hf.tools import tokenizer_format
from specdec.lm.transcript import Reading
from specdec_vllm.host import Host

log = logging.getLogger("vllm.specdec_vllm")


class PromptCodec(HFCodec):
    """A codec that decodes a prompt once, however many drafters ask for its text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._last: tuple[Sequence[int], str] = ((), "")
        super().__init__(tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; special tokens appear verbatim."""
        last, text = self._last
        if ids != last:
            text = super().decode(ids)
            if type(ids) is tuple:  # unlike a list, it stays as it is
                self._last = (ids, text)
        return text


@attrs.frozen
class Reader:
    """Makes requests of prompts.

    Attributes:
        codec: The model's tokenizer; None where there is none that transformers can load. Then
            drafters that read text stay silent.
        form: How the model's chat template writes calls; None if it says nothing.
        stop_ids: Ids that end an output.
        vocabulary: Number of token ids.
    """

    codec: PromptCodec | None
    form: CallFormat | None
    stop_ids: frozenset[int]
    vocabulary: int

    @classmethod
    def of(cls, host: Host) -> Self:
        """A reader with the host's tokenizer."""
        # A handful of short texts at a time: threads cost more than they bring, on a busy machine
        # ten times as much.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                host.tokenizer, revision=host.revision, trust_remote_code=host.trust
            )
        except Exception as error:  # transformers raises several kinds of its own
            log.warning(
                "specdec cannot load the tokenizer %s (%s); drafters that read text, such as "
                "schema, stay silent",
                host.tokenizer,
                error,
            )
            return cls(None, None, host.stop_ids, host.vocabulary)
        end = {tokenizer.eos_token_id} - {None}
        form = tokenizer_format(tokenizer, level=logging.DEBUG)
        return cls(PromptCodec(tokenizer), form, host.stop_ids | end, host.vocabulary)

    def request(self, prompt: Sequence[int], most: int) -> Request:
        """The request of a prompt: with the tools it describes and the call format it shows.

        Args:
            prompt: Its token ids.
            most: The most tokens that may follow.
        """
        request = Request(
            tuple(prompt),
            max(most, 0),
            stop_ids=self.stop_ids,
            codec=self.codec,
            call_format=self.form,
            vocabulary=self.vocabulary,
        )
        if self.codec is None:
            return request
        reading = Reading.of(request, self.codec)
        return attrs.evolve(
            request, tools=reading.tools, call_format=reading.form or self.form, id=request.id
        )
