"""Bar: what is said where no bar can be drawn."""

import io
from types import SimpleNamespace

from rich.console import Console

from specdec.cli import bar as bars
from specdec.cli.bar import Bar


def test_without_a_terminal_a_line_now_and_then_says_how_long_it_takes(monkeypatch):
    now = 100.0
    monkeypatch.setattr(bars, "time", SimpleNamespace(monotonic=lambda: now))
    out = io.StringIO()
    with Bar(Console(file=out, width=100)) as bar:
        bar.ready(10)
        for number in range(4):
            now += 40
            bar.advance(f"request {number} [x]")
    lines = [line for line in out.getvalue().splitlines() if line.strip()]
    assert lines == [
        "2 of 10, about 5 min left; request 1 [x]",
        "4 of 10, about 4 min left; request 3 [x]",
    ]


def test_on_a_terminal_nothing_is_left_behind():
    out = io.StringIO()
    with Bar(Console(file=out, force_terminal=True, width=100)) as bar:
        bar.ready(2)
        bar.advance("a")
        bar.advance("b")
    assert "min left" not in out.getvalue()
