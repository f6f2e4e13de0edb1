"""The model that real engines run.

``SPECDEC_VLLM_MODEL`` names its folder; without it the demo model is written to one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder."""
    if told := os.environ.get("SPECDEC_VLLM_MODEL"):
        return Path(told)
    return demo_model(tmp_path_factory.mktemp("model"))


def demo_model(folder: Path) -> Path:
    """Write the demo model to `folder`, which is given back."""
    import torch
    from specdec_demo_model import load

    loaded, tokenizer = load(torch.bfloat16)
    loaded.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
