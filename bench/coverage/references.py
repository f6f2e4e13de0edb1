"""References: the outputs that answer the cases, as tokens of a real tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import attrs
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from bench.coverage.cases import SHARED, Case, Missing, calls_of
from bench.coverage.spans import outside, render
from specdec import Request
from specdec.calls import CallFormat
from specdec.hf.codec import HFCodec

TOKENIZERS: Final = ("qwen2_5", "llama3_1", "mistral_nemo", "smollm2")

BUDGET: Final = 64
"""Nodes per pass; also room behind the output, so that no drafter is told where it ends."""

_PROMPTS: Final = 4096


@attrs.frozen
class Reference:
    """A request and the output that answers it.

    Attributes:
        request: The request.
        tokens: (T,) the whole output; the last one is the end token.
        structural: (T,) whether a token is structural; the end token is not.
        calls: How many calls the output holds.
    """

    request: Request
    tokens: tuple[int, ...]
    structural: tuple[bool, ...]
    calls: int


class Encoder:
    """Makes references with one tokenizer.

    Args:
        name: The tokenizer's name in reports.
        tokenizer: A fast tokenizer that knows its end token.
    """

    def __init__(self, name: str, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.eos_token_id is None:
            raise ValueError(f"tokenizer {name!r} has no end token; outputs must end with one")
        self.name = name
        self.codec = HFCodec(tokenizer)
        self.vocabulary = len(tokenizer)
        self._tokenizer = tokenizer
        # The prompts are the same for every format, apart from calls in the conversation.
        self._prompt: Callable[[str], tuple[int, ...]] = lru_cache(_PROMPTS)(self._ids)

    def reference(self, case: Case, form: CallFormat) -> Reference:
        """The reference of `case` in a format; where a turn holds one call, that of the first."""
        calls = case.calls if form.several else case.calls[:1]
        text, values = render(form, calls)
        encoded = self._encode(text)
        end = self._tokenizer.eos_token_id
        tokens = (*encoded["input_ids"], end)
        request = Request(
            prompt=self._prompt(conversation(case.messages, form)),
            max_new_tokens=len(tokens) + BUDGET,
            stop_ids=end,
            codec=self.codec,
            tools=case.tools,
            messages=case.messages,
            call_format=form,
            id=case.id,
        )
        structural = outside(encoded["offset_mapping"], values)
        return Reference(request, tokens, (*structural, False), len(calls))

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._encode(text)["input_ids"])

    def _encode(self, text: str) -> Mapping[str, Any]:
        encoded: Mapping[str, Any] = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True
        )
        return encoded


def conversation(messages: Sequence[Mapping[str, Any]], form: CallFormat) -> str:
    """A conversation as plain text that ends where the assistant's turn begins.

    Calls in it are written in the format, as the model would have written them.
    """
    turns = []
    for message in messages:
        content = str(message.get("content") or "")
        if calls := calls_of(message):
            written = form.render(calls if form.several else calls[:1])
            content += (form.after_text if content else "") + written
        turns.append(f"{message['role']}:\n{content}\n\n")
    return "".join(turns) + "assistant:\n"


@lru_cache(maxsize=len(TOKENIZERS))
def load(name: str, folder: Path = SHARED / "tokenizers") -> Encoder:
    """The encoder of a tokenizer.

    Args:
        name: One of `TOKENIZERS`, or any other folder in `folder`.
        folder: Where the tokenizers lie; "smollm2" comes with the demo model.

    Raises:
        Missing: If the tokenizer or the demo model is not there.
    """
    return Encoder(name, _smollm2() if name == "smollm2" else _from_files(folder / name))


def _from_files(folder: Path) -> PreTrainedTokenizerBase:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise Missing(f"no tokenizer {folder.name!r}: there is no file {path}")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    return PreTrainedTokenizerFast(
        tokenizer_file=str(path),
        chat_template=config.get("chat_template"),
        eos_token=config["eos_token"],
    )


def _smollm2() -> PreTrainedTokenizerBase:
    try:
        import specdec_demo_model

        # Its tokenizer does not come alone; a cached model is only mapped into memory.
        tokenizer: PreTrainedTokenizerBase = specdec_demo_model.load()[1]
    except ImportError as error:
        raise Missing(
            f"no tokenizer 'smollm2': {error}; pip install -e contrib/demo_model"
        ) from None
    except specdec_demo_model.MissingWeights as error:
        raise Missing(f"no tokenizer 'smollm2': {error}") from None
    return tokenizer
