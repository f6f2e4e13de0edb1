"""Makes the helpers beside the tests importable and keeps torch to one thread."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

import torch  # noqa: E402 - after the environment is set

torch.set_num_threads(1)
