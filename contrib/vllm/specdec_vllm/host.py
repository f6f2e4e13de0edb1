"""Host: what the proposer knows of the engine it runs in, read from vLLM's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, Self

import attrs

OVERHEAD: Final = {"cpu": 20.0}
"""What a pass costs before its first token, in tokens, by device.

For the demo model in bfloat16 with one thread of an AMD EPYC, `make bench-vllm` prints 17 to 19.
"""

ELSEWHERE: Final = 200.0
"""The same on accelerators: what reading a weight costs there, in multiplications with it, by the
data sheets: 206 on an H200, 201 on an A100 80 GB."""


class SpeculativeConfig(Protocol):
    """Of vLLM's configuration of speculation, what is used."""

    num_speculative_tokens: int


class ModelConfig(Protocol):
    """Of vLLM's configuration of the model, what is used."""

    model: str
    tokenizer: str
    max_model_len: int

    def get_vocab_size(self) -> int:
        """Number of token ids."""


class VllmConfig(Protocol):
    """Of vLLM's configuration, what is used."""

    model_config: ModelConfig
    speculative_config: SpeculativeConfig
    additional_config: Any
    parallel_config: Any
    device_config: Any


@attrs.frozen
class Host:
    """The engine around the proposer.

    Attributes:
        model: Name or folder of the model.
        tokenizer: Name or folder of its tokenizer.
        revision: Revision of the tokenizer; None for the newest.
        trust: Whether code that comes with the tokenizer may run.
        drafts: The most tokens drafted for one request.
        length: The most tokens of prompt and output.
        vocabulary: Number of token ids.
        first: Whether this worker speaks for all of them: it logs, counts and saves.
        stop_ids: Ids that end an output.
        overhead: What a pass costs before its first token, in tokens.
    """

    model: str
    tokenizer: str
    revision: str | None
    trust: bool
    drafts: int
    length: int
    vocabulary: int
    first: bool
    stop_ids: frozenset[int]
    overhead: float

    @classmethod
    def of(cls, config: VllmConfig) -> Self:
        """What `config` says; what only some versions have is read with care."""
        model, parallel = config.model_config, config.parallel_config
        # With stages in a pipeline only the last one drafts, so ranks are counted in a stage.
        rank = getattr(parallel, "rank", 0) % getattr(parallel, "tensor_parallel_size", 1)
        return cls(
            model=str(model.model),
            tokenizer=str(model.tokenizer),
            revision=getattr(model, "tokenizer_revision", None),
            trust=bool(getattr(model, "trust_remote_code", False)),
            drafts=int(config.speculative_config.num_speculative_tokens),
            length=int(model.max_model_len),
            vocabulary=int(model.get_vocab_size()),
            first=rank == 0 and getattr(parallel, "data_parallel_rank", 0) == 0,
            stop_ids=frozenset(_stop_ids(model)),
            overhead=OVERHEAD.get(_device(config), ELSEWHERE),
        )


def _stop_ids(model: Any) -> Iterable[int]:  # noqa: ANN401 - vLLM's, see ModelConfig
    """The end-of-sequence ids of the generation config and of the model's own."""
    told = [getattr(getattr(model, "hf_text_config", None), "eos_token_id", None)]
    try:
        told.append((model.try_get_generation_config() or {}).get("eos_token_id"))
    except Exception:  # a model without one
        told.append(None)
    for ids in told:
        yield from ids if isinstance(ids, list | tuple) else () if ids is None else (int(ids),)


def _device(config: VllmConfig) -> str:
    """The type of the device that the model runs on, such as cpu or cuda."""
    return str(getattr(getattr(config, "device_config", None), "device_type", ""))
