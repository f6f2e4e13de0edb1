"""Proposer: the class that vLLM's ``custom_class`` loads."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import specdec
from specdec_vllm.batch import Batch
from specdec_vllm.counts import Counts, Publish, nowhere, publisher
from specdec_vllm.hook import check_hook
from specdec_vllm.host import Host, VllmConfig
from specdec_vllm.memories import Keeper, attach, save_at_exit
from specdec_vllm.reading import Reader
from specdec_vllm.settings import Settings

log = logging.getLogger("vllm.specdec_vllm")


class Proposer:
    """Drafts for vLLM with any stack of specdec's drafters.

    ``--speculative-config '{"method": "custom_class", "model": "specdec_vllm.Proposer",
    "num_speculative_tokens": 24}'`` loads it. Its own settings are those of `Settings`.

    Args:
        vllm_config: vLLM's configuration.

    Raises:
        HookError: If this vLLM calls proposers in another way than expected.
        SettingsError: If a setting is unknown or of no use.
        SpecdecError: If the drafter cannot be built or the memory not be loaded.
    """

    def __init__(self, vllm_config: VllmConfig) -> None:
        check_hook()
        host = Host.of(vllm_config)
        settings = Settings.read(vllm_config.additional_config, os.environ)
        drafter = specdec.parse(settings.drafter)
        self._keeper: Keeper | None = None
        if settings.memory is not None:
            keeper = attach(drafter, settings.memory, model=host.model)
            if host.first:
                self._keeper = keeper
                save_at_exit(keeper)
        publish: Publish = publisher() if host.first else nowhere
        self.counts = Counts(settings.log_every if host.first else 0.0, publish)
        self.batch = Batch(
            drafter,
            Reader.of(host),
            drafts=host.drafts,
            length=host.length,
            overhead=host.overhead if settings.overhead is None else settings.overhead,
            book=self.counts.book,
        )
        log.info("specdec drafts with %r", drafter)

    def load_model(self, *_args: Any, **_kwargs: Any) -> None:  # noqa: ANN401 - vLLM's
        """Nothing: there is no second model."""

    def propose(
        self,
        sampled_token_ids: Sequence[list[int]],
        num_tokens_no_spec: npt.NDArray[np.integer[Any]],
        token_ids_cpu: npt.NDArray[np.integer[Any]],
        slot_mappings: Any = None,  # noqa: ANN401, ARG002 - vLLM's
    ) -> list[list[int]]:
        """Drafts by row; an empty one where there is nothing to draft. Never raises.

        Args:
            sampled_token_ids: Tokens that the last pass committed, by row; none for a row whose
                prompt is not computed to its end.
            num_tokens_no_spec: (at least rows,) tokens in each row, without drafts.
            token_ids_cpu: (at least rows, most tokens) the rows.
            slot_mappings: Not used.
        """
        start = time.perf_counter()
        try:
            drafts = self.batch.propose(sampled_token_ids, num_tokens_no_spec, token_ids_cpu)
            if self._keeper is not None:
                self._keeper.tend(self.batch.ended, idle=not any(drafts))
            self.counts.call(time.perf_counter() - start)
        except Exception:
            # Whatever state is left may be wrong; requests are found again by their content.
            log.exception("specdec drafts nothing in this pass")
            self.batch.live.clear()
            return [[] for _ in sampled_token_ids]
        return drafts
