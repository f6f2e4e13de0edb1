"""Threads, the model, what is left out where nothing is timed, and the table at the end."""

import os
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

THREADS = int(os.environ.get("SPECDEC_BENCH_THREADS", "1"))
DTYPE = os.environ.get("SPECDEC_BENCH_DTYPE", "float32")

RESULTS = pytest.StashKey[dict]()


def pytest_configure(config):
    config.addinivalue_line("markers", "timed: left out where benchmarks are not timed")


def pytest_report_header(config):
    return f"benchmarks: torch {torch.__version__}, threads {THREADS}, model in {DTYPE}"


def pytest_collection_modifyitems(config, items):
    """Untimed, the suites only have to run: what takes long adds nothing then."""
    disabled = config.getoption("benchmark_disable", default=False)
    if not disabled or config.getoption("benchmark_enable", default=False):
        return
    left_out = [item for item in items if item.get_closest_marker("timed")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("timed")]


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(machine_info):
    packages = {name: version(name) for name in ("torch", "transformers")}
    machine_info |= {**packages, "threads": THREADS, "dtype": DTYPE}


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config, output_json):
    """Keep what is written, without every single timing, which takes megabytes."""
    for entry in output_json["benchmarks"]:
        entry["stats"].pop("data", None)
    config.stash[RESULTS] = output_json


def pytest_terminal_summary(terminalreporter, config):
    """With ``--benchmark-json FILE``: one table, also beside the file as Markdown."""
    results = config.stash.get(RESULTS, None)
    if results is None:
        return
    from bench import report

    given = config.getoption("benchmark_json")  # a path, or in older versions an open file
    path = Path(given if isinstance(given, os.PathLike) else given.name)
    page = path.with_suffix(".md")
    page.write_text(report.markdown(results), encoding="utf-8")
    terminalreporter.section("benchmarks")
    terminalreporter.write(report.text(results))
    terminalreporter.write_line(f"Written to {page} and {path}.")


@pytest.fixture(scope="module", autouse=True)
def threads():
    """One torch thread unless asked otherwise, so that another load does not ruin the figures.

    Put back afterwards: tests of other folders may run in the same session.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield THREADS
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def target():
    """The demo model; its tokenizer's chat template makes the prompts."""
    from specdec.hf import HFTarget

    try:
        import specdec_demo_model
    except ImportError as error:
        pytest.skip(f"the demo model is not installed: {error}")
    try:
        model, tokenizer = specdec_demo_model.load(getattr(torch, DTYPE))
    except specdec_demo_model.MissingWeights as error:
        pytest.skip(str(error))
    return HFTarget(model, tokenizer)


@pytest.fixture(scope="session")
def cases_of():
    """The cases of a data set by its name; skips where they are not there."""
    from bench import data

    def read(name):
        try:
            return data.named(name)
        except data.Missing as missing:
            pytest.skip(str(missing))

    return read
