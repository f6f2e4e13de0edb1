"""The measurement, on a stand-in for the host."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from specdec_llama_cpp import measure
from typer.testing import CliRunner


@pytest.fixture
def host(fake, monkeypatch):
    """A module llama_cpp whose models recite."""

    class Reciting(fake):
        def __init__(self, path, *, draft_model=None, n_ctx, **options):
            assert options.pop("logits_all", False) == (draft_model is not None)
            assert options == {"n_threads": 1, "n_threads_batch": 1, "verbose": False}
            super().__init__(draft_model, n_ctx=n_ctx)

        def generate(self, prompt, temp):
            assert temp == 0
            said = self.tokenize(b"one two three " * 3, add_bos=False)
            return super().generate(prompt, [*said, *[self.token_eos()] * 40])

    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=Reciting))


@pytest.mark.usefixtures("host")
def test_outputs_and_times_are_compared(tmp_path):
    pytest.importorskip("specdec_pld", reason="pip install -e plugins/pld")
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps(["one two three", "count"]))
    app = measure.typer.Typer()
    app.command()(measure.main)
    done = CliRunner().invoke(app, ["model.gguf", str(prompts), "--drafter", "pld"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "2 of 2 outputs are equal"
    assert [line.split(":")[0] for line in lines[1:3]] == ["plain", "drafted"]
    assert lines[-1].startswith("  pld: ")


class Rows:
    """A host whose logits for passes of one token are known."""

    def __init__(self, single):
        self.single = np.array(single, dtype=np.single)
        self.scores = self.single + np.single(0.25)
        self.at = 0

    def reset(self):
        self.at = 0

    def eval(self, tokens):
        self.scores[self.at : self.at + len(tokens)] = self.single[self.at : self.at + len(tokens)]
        self.at += len(tokens)


@pytest.mark.parametrize(("best", "near"), [(3.4, True), (9.0, False)])
def test_a_difference_is_a_near_tie_if_rounding_explains_it(best, near):
    llm = Rows([[0, 1, 2], [0, 1, 2], [0, 3, best]])
    found = measure.difference(llm, (5, 6), (2, 2, 0), (2, 1, 1))
    assert found.place == 1
    assert found.margin == pytest.approx(best - 3)
    assert found.rounding == pytest.approx(0.25)
    assert found.near_tie == near


def test_equal_outputs_have_no_difference():
    assert measure.difference(Rows([[0]]), (5,), (1, 2), (1, 2)) is None
