"""Generation against tool execution: where the time of a turn goes."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import attrs

from bench.coverage.cases import Missing, load, spread
from bench.paper.experiment import Data, Experiment
from bench.paper.lab import MOST, Lab
from bench.paper.results import GENERATE, PLAIN, row_at
from bench.paper.section import Grid, Section
from specdec.calls import Call
from specdec.compare.cases import Case
from specdec.compare.layouts.chat import calls_of
from specdec.compare.subject import ModelSubject

DATA_SET: Final = "bfcl_multi_turn"
COUNTS: Final = {"quick": 2, "standard": 8, "full": 60}
"""Turns by scope."""

REPEATS: Final = 5
"""Times that each turn's tools are run; the median counts."""

LONGEST: Final = 6144
"""The most tokens of a prompt; longer ones would take too long."""

PACKAGE: Final = "bfcl_eval"
INSTALL: Final = "pip install --no-deps bfcl-eval==2026.3.23"
SOURCES: Final = f"{PACKAGE}.eval_checker.multi_turn_eval.func_source_code"
MODULES: Final = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""Classes of the benchmark's tools, and the modules that hold them."""

PAPER_SHARE: Final = 0.80
PAPER: Final = (
    "on ToolBench with Qwen2.5-14B-Instruct, generating calls takes about 80 % of the end-to-end "
    "time, about 4 times as long as running the tools (web services); with Qwen2.5-72B-Instruct up "
    "to 96 %, as the tools' time hardly changes."
)


def measure(lab: Lab) -> Data:
    """Generation of turns, plain and with `toolspec`, and the same turns' tools, run here.

    Raises:
        Missing: If the data set or the package with the tools is not there.
    """
    configs = initial_configs()
    subject = ModelSubject(lab.target, MOST)
    skipped: Counter[str] = Counter()
    found: list[tuple[Case, dict[str, Any]]] = []
    lengths = {case.id: len(subject.request(case).prompt) for case in load(DATA_SET)}
    short = [case for case in load(DATA_SET) if lengths[case.id] <= LONGEST]
    if len(short) < len(lengths):
        skipped[f"the prompt has more than {LONGEST} tokens"] = len(lengths) - len(short)
    for case in spread(short, COUNTS[lab.scope.name]):
        try:
            run = timed(case, configs)
        except Unusable as error:
            skipped[str(error)] += 1
            continue
        found.append((case, {"request": case.id, "prompt": lengths[case.id], **attrs.asdict(run)}))
    if not found:
        raise Missing(f"no turn of {DATA_SET} could be run: {', '.join(skipped)}")
    asked = [case for case, _ in found]
    report = lab.study("tools-time", asked, ("toolspec",), fixed=False)
    return {
        "report": report,
        "tools": [run for _, run in found],
        "skipped": dict(skipped),
    }


class Unusable(Exception):
    """A turn's tools cannot be run here; the message says why."""


@attrs.frozen
class Timed:
    """A turn's tools, run.

    Attributes:
        calls: Calls of the turn.
        seconds: Time to run them; the median of `REPEATS` runs.
        before: Calls of earlier turns that were run first.
        agree: How many of those gave what the data set recorded.
    """

    calls: int
    seconds: float
    before: int
    agree: int


def initial_configs() -> dict[str, Mapping[str, Any]]:
    """The tools' initial state of every record, by the record's id.

    Raises:
        Missing: If the package is not installed.
    """
    # Found without being imported: the package asks for much that is not needed here.
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / "BFCL_v4_multi_turn_base.json"
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            rows = [json.loads(line) for line in lines if line.strip()]
            return {f"bfcl-{row['id']}": row["initial_config"] for row in rows}
    raise Missing(f"the benchmark's tools (package bfcl-eval) are not installed; run: {INSTALL}")


def timed(case: Case, configs: Mapping[str, Mapping[str, Any]]) -> Timed:
    """Run a turn's reference calls after those of the turns before it.

    Raises:
        Unusable: If they cannot be run here.
    """
    config = configs.get(case.id.rpartition("/")[0])
    if config is None:
        raise Unusable("the package has no initial state for it")
    classes = case.extra.get("involved_classes") or ()
    seconds = []
    agree = 0
    before = list(recorded(case.messages))
    for _ in range(REPEATS):
        methods = _methods(classes, config)
        given = [run(methods, call) for call, _ in before]
        agree = sum(agrees(value, text) for value, (_, text) in zip(given, before, strict=True))
        start = time.perf_counter()
        for call in case.calls:
            run(methods, call)
        seconds.append(time.perf_counter() - start)
    return Timed(len(case.calls), median(seconds), len(before), agree)


def recorded(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Call, str]]:
    """Each call of a conversation with the result that was recorded for it."""
    results = {
        message.get("tool_call_id"): str(message.get("content"))
        for message in messages
        if message["role"] == "tool"
    }
    for message in messages:
        for call in calls_of(message):
            yield call, results.get(call.id, "")


def agrees(value: object, text: str) -> bool:
    """Whether a tool gave what was recorded, which may be cut short."""
    written = value if isinstance(value, str) else json.dumps(value, default=str)
    return written == text or (len(text) >= 600 and written.startswith(text[:590]))


def _methods(classes: Sequence[str], config: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """The public methods of fresh instances, by name."""
    methods: dict[str, Callable[..., Any]] = {}
    for name in classes:
        if name not in MODULES:
            raise Unusable(f"no module is known for the tools of {name}")
        try:
            module = importlib.import_module(f"{SOURCES}.{MODULES[name]}")
            instance = getattr(module, name)()
        except (ImportError, AttributeError) as error:
            raise Unusable(f"the tools of {name} do not load: {error}") from None
        if hasattr(instance, "_load_scenario"):
            instance._load_scenario(copy.deepcopy(config.get(name, {})))
        for method in dir(instance):
            if not method.startswith("_") and callable(getattr(instance, method)):
                methods[method] = getattr(instance, method)
    return methods


def run(methods: Mapping[str, Callable[..., Any]], call: Call) -> Any:
    """A tool's result; its error as the benchmark reports it."""
    try:
        return methods[call.name](**call.arguments)
    except Exception as error:  # what a tool raises is its answer
        return f"Error during execution: {error}"


def gained(speedup: float, share: float) -> float:
    """How many times as fast a whole turn is, if generation is that share of it (Amdahl's law)."""
    return 1 / (1 - share + share / speedup)


def tell(data: Mapping[str, Data]) -> Section:
    """Seconds of generation and of tools, and what the paper's share would make of them."""
    kept = data["tools-time"]
    tools = kept["tools"]
    turns = len(tools)
    seconds = sum(run["seconds"] for run in tools)
    calls = sum(run["calls"] for run in tools)
    rows = []
    spent = {}
    for name in (GENERATE, PLAIN, "toolspec"):
        row = row_at(kept["report"], name, measured=True)
        spent[name] = row["seconds"]
        each = row["seconds"] / max(row["requests"], 1)
        rows.append(
            (
                f"`{name}`",
                each,
                row["decode_seconds"] / max(row["requests"], 1),
                f"{1e6 * seconds / turns:.0f}",
                f"{100 * row['seconds'] / (row['seconds'] + seconds):.3f} %",
            )
        )
    plain = min(spent[GENERATE], spent[PLAIN])
    speedup = plain / spent["toolspec"]
    before, agree = (sum(run[key] for run in tools) for key in ("before", "agree"))
    skipped = "; ".join(f"{count} where {why}" for why, count in kept["skipped"].items())
    columns = (
        "method",
        "s of generation a turn",
        "s of it behind the prompt's pass",
        "µs of tools a turn",
        "generation's share",
    )
    return Section(
        found=(
            f"Over {turns} turns, {calls} calls of BFCL's own tools take "
            f"{1e6 * seconds / calls:.0f} µs "
            f"each, and generating a turn {plain / turns:.2f} s plain and "
            f"{spent['toolspec'] / turns:.2f} s with `toolspec` ({speedup:.2f}x, prompts "
            "included): here generation is all of the time, which says nothing about real "
            "services. Were it "
            "80 % of a turn, as in the paper, whole turns would be "
            f"{gained(speedup, PAPER_SHARE):.2f} "
            f"times as fast with `toolspec`; tools would have to take {plain / turns / 4:.2f} s "
            "a turn for that."
        ),
        paper=PAPER,
        differs=(
            "The paper's tools are web services that are asked over the network; these are Python "
            "classes that answer in the same process, so their time is a lower bound and the "
            "paper's ratio cannot be repeated with them. Reference calls are run, after those of "
            f"the turns before ({agree} of {before} of these gave what the data set recorded)"
            f"{'; left out: ' + skipped if skipped else ''}. The model is asked for the same "
            "turns; what it writes is not run."
        ),
        grids=[Grid(columns, rows)],
    )


EXPERIMENTS: Final = (Experiment("tools-time", "Generation against tool execution", tell, measure),)
