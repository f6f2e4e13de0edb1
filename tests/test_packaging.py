"""What is installed is this checkout, whole and light."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import specdec

ROOT = Path(__file__).parents[1]
PLUGINS = {
    "specdec-pld": "specdec_pld",
    "specdec-token-recycling": "specdec_token_recycling",
    "specdec-samd": "specdec_samd",
    "specdec-toolspec": "specdec_toolspec",
}


def test_the_package_under_test_is_this_checkout():
    """The name specdec belongs to another distribution on the package index."""
    assert Path(specdec.__file__).parent == ROOT / "specdec"


def test_the_version_is_that_of_the_distribution():
    assert importlib.metadata.version("specdec-core") == specdec.__version__


@pytest.mark.parametrize("package", ["specdec", *PLUGINS.values()])
def test_types_are_shipped(package):
    module = pytest.importorskip(package)
    assert (Path(module.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("distribution", PLUGINS)
def test_a_plugin_bounds_the_core_it_needs(distribution):
    try:
        needs = importlib.metadata.requires(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")
    assert any(need.startswith("specdec-core") and "<0.2" in need for need in needs)


@pytest.mark.parametrize("package", PLUGINS.values())
def test_a_plugin_imports_public_names_only(package):
    module = pytest.importorskip(package)
    for file in Path(module.__file__).parent.glob("*.py"):
        for line in file.read_text().splitlines():
            if line.startswith(("from specdec.", "import specdec.")):
                assert line.startswith(("from specdec.testing", "import specdec.testing")), line


@pytest.mark.parametrize("heavy", ["torch", "transformers", "specdec_pld"])
def test_importing_specdec_is_light(heavy):
    code = f"import sys, specdec; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_hf_and_the_tests_import_transformers():
    for file in (ROOT / "specdec").rglob("*.py"):
        inside = file.relative_to(ROOT / "specdec").parts[0]
        if inside not in ("hf", "cli"):
            assert "import transformers" not in file.read_text(), file
            assert "from transformers" not in file.read_text(), file


def test_the_loop_fits_on_one_screen():
    lines = (ROOT / "specdec/engine.py").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if "def stream" in line)
    assert len(lines) - start <= 50
