r"""vLLM without drafts, with its own drafters and with specdec's: tokens per second, in turns.

Every run is a process of its own; a round runs all methods one after the other, and what is said of
two methods is the median of what the rounds say::

    python contrib/vllm/tests/real/compare.py --rounds 3 --in-flight 1 --in-flight 8
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer
import workloads
from check_engine import DATA, departures
from conftest import demo_model
from engine import METHODS
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent

DRAFTS: Mapping[str, int] = {"plain": 0, "ngram": 8, "suffix": 24, "specdec": 24}
"""num_speculative_tokens with which each is fastest, one request at a time: `ngram` is slower with
12 and 16, `suffix` with 8 (24 is as deep as it looks), `specdec` with 8, 12 and 16."""

Report = dict[str, Any]


@attrs.frozen
class Runner:
    """Runs engines, each in a process of its own.

    Attributes:
        model: The model's folder.
        folder: Where files may be written.
        threads: OpenMP threads.
        caching: Whether prefixes of prompts are kept.
    """

    model: Path
    folder: Path
    threads: int
    caching: bool

    def run(self, requests: Path, method: str, *options: str) -> Any:
        """What one engine wrote.

        Raises:
            typer.Exit: If it failed; what it said is shown.
        """
        threads = str(self.threads)
        # Numba sets the number of threads that everything else in the process has.
        environ = {**os.environ, "OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads}
        out = self.folder / "out.json"
        command = [sys.executable, str(HERE / "engine.py"), "--model", str(self.model)]
        command += ["--requests", str(requests), "--out", str(out), "--method", method, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            typer.echo(done.stdout[-3000:] + done.stderr[-3000:], err=True)
            raise typer.Exit(1)
        return json.loads(out.read_text(encoding="utf-8"))

    def report(self, requests: Path, method: str, in_flight: int) -> Report:
        """How the requests fared with one method."""
        kept = json.dumps({"enable_prefix_caching": self.caching})
        options = ("--in-flight", str(in_flight), "--drafts", str(DRAFTS[method] or 1))
        report: Report = self.run(requests, method, *options, "--engine", kept)
        return report

    def apart(self, plain: Report, other: Report) -> float:
        """How far apart, in log-probability, tokens are where outputs differ; at most."""
        differ = departures(plain, other)
        if not differ:
            return 0.0
        asked = workloads.write(self.folder / "prefixes.jsonl", differ)
        margins: list[float] = self.run(asked, "plain", "--margins")
        return max(margins)


def ratio(mine: Sequence[Report], other: Sequence[Report]) -> float:
    """How many times as many tokens per second, in the median round."""
    speeds = [[report["tokens_per_second"][0] for report in reports] for reports in (mine, other)]
    return statistics.median(a / b for a, b in zip(*speeds, strict=True))


def row(
    in_flight: int, method: str, reports: Mapping[str, Sequence[Report]], apart: float
) -> list[str]:
    """One method's line of the table."""
    mine = reports[method]
    speeds = [report["tokens_per_second"][0] for report in mine]
    drafted, accepted = (
        sum(report["drafts"].get(f"vllm:spec_decode_num_{what}_tokens", 0) for report in mine)
        for what in ("draft", "accepted")
    )
    asked = [report["proposals"] for report in mine if report["proposals"]]
    same = sum(
        a == b for a, b in zip(mine[0]["outputs"], reports["plain"][0]["outputs"], strict=True)
    )
    return [
        str(in_flight),
        method,
        f"{statistics.median(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f})",
        *(f"{ratio(mine, reports[other]):.2f}x" for other in reports),
        f"{accepted / drafted:.0%}" if drafted else "",
        *(
            f"{statistics.median(each[part] for each in asked):.2f} ms" if asked else ""
            for part in ("median_ms", "p99_ms")
        ),
        f"{statistics.median(each['cost']['overhead'] for each in mine):.0f}" if drafted else "",
        f"{same} of {len(mine[0]['outputs'])}",
        f"{apart:.2f}" if apart else "",
    ]


def main(
    model: Annotated[
        Path | None, typer.Option(help="A model's folder; else the demo model.")
    ] = None,
    requests: Annotated[Path, typer.Option(help="JSON lines.")] = DATA / "api_bank_60.jsonl",
    method: Annotated[list[str], typer.Option(help="May be given several times.")] = [*METHODS],  # noqa: B006
    in_flight: Annotated[list[int], typer.Option(help="May be given several times.")] = [1, 8],  # noqa: B006
    rounds: Annotated[int, typer.Option(help="Rounds of all methods.")] = 3,
    threads: Annotated[int, typer.Option(help="OpenMP threads.")] = 1,
    prefix_caching: Annotated[
        bool, typer.Option(help="Keep prefixes, as vLLM does by itself.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="Where to keep the reports.")] = None,
) -> None:
    """Decode the requests with each method, and compare."""
    if not requests.is_file():
        raise typer.BadParameter(f"{requests} is not there; SPECDEC_DATA may name its folder")
    methods = list(dict.fromkeys(["plain", *method]))
    told = f"{requests.stem}, {threads} thread(s), bfloat16, {rounds} round(s)"
    table = Table(
        title=told,
        caption="overhead: what a pass costs before its first token, in tokens; equal: outputs "
        "that are those of plain vLLM; apart: how far apart, in log-probability, tokens are at "
        "most where outputs differ",
    )
    for column in ("in flight", "method", "tokens/s (range)", *(f"/ {name}" for name in methods)):
        table.add_column(column)
    for column in ("accepted", "proposal, median", "p99", "overhead", "equal", "apart"):
        table.add_column(column)
    kept: dict[str, dict[str, list[Report]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runner = Runner(model or demo_model(folder / "model"), folder, threads, prefix_caching)
        for rows in in_flight:
            reports: dict[str, list[Report]] = {each: [] for each in methods}
            for turn in range(rounds):
                for each in methods:
                    report = runner.report(requests, each, rows)
                    reports[each].append(report)
                    speed = report["tokens_per_second"][0]
                    typer.echo(f"round {turn + 1}, {rows} in flight, {each}: {speed:.1f} tokens/s")
            for each in methods:
                apart = runner.apart(reports["plain"][0], reports[each][0])
                table.add_row(*row(rows, each, reports, apart))
            kept[str(rows)] = reports
    if out is not None:
        out.write_text(json.dumps(kept), encoding="utf-8")
    Console(width=160).print(table)


if __name__ == "__main__":
    typer.run(main)
