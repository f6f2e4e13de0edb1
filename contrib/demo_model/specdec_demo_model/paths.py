"""Where the package keeps its data files."""

from __future__ import annotations

from pathlib import Path

# A plain path, not importlib.resources: peft wants a folder, so the package is never zipped.
_DATA = Path(__file__).parent / "data"

ADAPTER = _DATA / "adapter"
CHAT_TEMPLATE = _DATA / "chat_template.jinja"
REQUESTS_FILE = _DATA / "requests.json"
