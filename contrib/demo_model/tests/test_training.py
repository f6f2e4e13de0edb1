from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from peft import PeftModel
from specdec_demo_model import bfcl, forms, train
from specdec_demo_model.bfcl import Example
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from typer.testing import CliRunner

from specdec.errors import SpecdecError

FUNCTION = {
    "name": "area",
    "description": "Area of a shape.",
    "parameters": {
        "type": "dict",
        "required": ["sides"],
        "properties": {
            "sides": {"type": "tuple", "items": {"type": "float"}},
            "type": {"type": "String", "enum": ["square", "dict"], "optional": True},
            "unit": {"type": "any", "description": "Unit."},
            "style": {"type": "HashMap", "properties": {"pen": {"type": "char"}}},
        },
    },
}
TRUTH = {
    "sides": [[2.0, 3.0], [3.0, 2.0]],
    "type": ["", "square"],
    "unit": ["cm", ""],
    "style": [{"pen": ["b", "c"], "width": ["", 2]}],
}


def write_set(
    folder: Path, name: str, truths: dict[str, Any], function: dict[str, Any] = FUNCTION
) -> None:
    (folder / "possible_answer").mkdir(parents=True, exist_ok=True)
    questions = [
        {
            "id": key,
            "question": [[{"role": "user", "content": f"Area of {key}?"}]],
            "function": [function],
        }
        for key in truths
    ]
    answers = [{"id": key, "ground_truth": truth} for key, truth in truths.items()]
    for path, rows in (
        (folder / f"BFCL_v4_{name}.json", questions),
        (folder / "possible_answer" / f"BFCL_v4_{name}.json", answers),
    ):
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")


def example(name: str = "area", *calls: str) -> Example:
    tool = {"type": "function", "function": {**FUNCTION, "name": name, "parameters": {}}}
    return Example(
        id=name,
        messages=({"role": "user", "content": "How big?"},),
        tools=(tool,),
        calls=tuple({"name": call, "arguments": {"n": 1}} for call in calls or (name,)),
    )


def test_examples_come_from_questions_and_answers(tmp_path: Path) -> None:
    write_set(tmp_path, "simple_python", {"a": [{"area": TRUTH}], "b": [{"area": TRUTH}] * 2})
    write_set(tmp_path, "live_multiple", {"c": [{"area": {"sides": [[1.0]]}}]})
    write_set(tmp_path, "multi_turn_base", {"d": [{"area": TRUTH}]})
    examples = bfcl.read_examples(tmp_path)
    assert [(e.id, len(e.calls)) for e in examples] == [("a", 1), ("b", 2), ("c", 1)]
    first = examples[0]
    assert first.messages == ({"role": "user", "content": "Area of a?"},)
    assert first.calls[0] == {
        "name": "area",
        "arguments": {"sides": [2.0, 3.0], "unit": "cm", "style": {"pen": "b"}},
    }
    (tool,) = first.tools
    assert tool["function"]["parameters"] == {
        "type": "object",
        "required": ["sides"],
        "properties": {
            "sides": {"type": "array", "items": {"type": "number"}},
            "type": {"type": "string", "enum": ["square", "dict"]},
            "unit": {"description": "Unit."},
            "style": {"type": "object", "properties": {"pen": {"type": "string"}}},
        },
    }


def test_a_required_argument_may_be_empty_text(tmp_path: Path) -> None:
    write_set(tmp_path, "simple_python", {"a": [{"area": {"sides": [""], "unit": []}}]})
    assert bfcl.read_examples(tmp_path)[0].calls[0]["arguments"] == {"sides": ""}


def test_a_folder_without_sets_is_reported(tmp_path: Path) -> None:
    with pytest.raises(bfcl.MissingData, match=r"pip install --no-deps bfcl-eval"):
        bfcl.read_examples(tmp_path)


def test_a_file_in_another_form_is_reported(tmp_path: Path) -> None:
    write_set(tmp_path, "simple_python", {"a": [{"other": {}}]})
    with pytest.raises(bfcl.MissingData, match="KeyError") as caught:
        bfcl.read_examples(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_function_is_called_on_both_sides() -> None:
    names = [f"function_{number}" for number in range(200)]
    mixed = [example("mixed", *names[:40])]
    learned, kept = bfcl.split([example(name) for name in names] + mixed)
    assert {e.id for e in learned}.isdisjoint(e.id for e in kept)
    assert len(learned) + len(kept) == 200
    assert 40 <= len(kept) <= 80


def test_the_hermes_form(tokenizer: PreTrainedTokenizerFast) -> None:
    prompt, answer = forms.hermes(example("area", "area", "area"), tokenizer)
    assert "<tools>\n" in prompt
    assert prompt.endswith("<|im_start|>assistant\n")
    one = '<tool_call>\n{"name": "area", "arguments": {"n": 1}}\n</tool_call>'
    assert answer == f"{one}\n{one}<|im_end|>"


def test_the_api_bank_form(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    write_set(tmp_path, "simple_python", {"a": [{"area": {"sides": [[1.0]]}}] * 2})
    prompt, answer = forms.api_bank(bfcl.read_examples(tmp_path)[0], tokenizer)
    assert (
        "1. Name: area\nDescription: Area of a shape.\nParameters: {'sides': {'type': 'list'"
        in (prompt)
    )
    assert "**Dialogue Records History**\n<user>Area of a?</user>\n" in prompt
    one = '{"name": "area", "parameters": {"sides": [1.0]}}'
    assert answer == f"<tool_call>\n{one}\n{one}\n</tool_call><|im_end|>"


def test_encoding_alternates_the_forms_and_drops_the_long(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    encoded = forms.encode([example(), example()], tokenizer, longest=5000)
    texts = [tokenizer.decode(row.ids[-row.answer :]) for row in encoded]
    assert ['"arguments"' in text for text in texts] == [True, False]
    assert all(text.startswith("<tool_call>") and text.endswith("<|im_end|>") for text in texts)
    assert forms.encode([example()], tokenizer, longest=100) == []


def test_three_steps_lower_the_loss_and_the_adapter_reloads(
    tiny: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    offline: None,
    recwarn: pytest.WarningsRecorder,
) -> None:
    plain = {name: tensor.clone() for name, tensor in tiny.state_dict().items()}
    examples = [example(name) for name in ("a", "longer", "b", "c")]
    encoded = forms.encode(examples, tokenizer, longest=5000)
    adapted = train.add_adapter(tiny, rank=4)
    seen: list[int] = []
    losses = train.train(
        adapted,
        encoded,
        steps=3,
        batch=4,
        pad_id=2,
        peak_rate=0.02,
        report=lambda step, loss: seen.append(step),
    )
    assert seen == [1, 2, 3]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]
    assert not adapted.training

    train.save(adapted, tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
    base = LlamaForCausalLM(tiny.config)
    base.load_state_dict(plain)
    ids = torch.tensor([encoded[0].ids[:50]])
    before = base.eval()(ids).logits
    reloaded = PeftModel.from_pretrained(base, str(tmp_path)).eval()
    assert torch.allclose(reloaded(ids).logits, adapted.float()(ids).logits, atol=1e-5)
    assert not torch.allclose(reloaded(ids).logits, before, atol=1e-5)


def test_padding_does_not_change_the_loss(
    tiny: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    rows = forms.encode([example("a"), example("a"), example("longer")], tokenizer, longest=5000)
    short, long = rows[0], rows[1]
    device = torch.device("cpu")
    alone = [train._loss(tiny, [row], 2, device).item() * row.answer for row in (short, long)]
    both = train._loss(tiny, [short, long], 2, device).item()
    assert both == pytest.approx(sum(alone) / (short.answer + long.answer), rel=1e-4)
    ids = torch.tensor([short.ids])
    labels = ids.clone()
    labels[:, : -short.answer] = -100
    expected = tiny(input_ids=ids, labels=labels).loss.item()
    assert alone[0] / short.answer == pytest.approx(expected, rel=1e-4)


def test_the_rate_rises_and_falls() -> None:
    rates = [train._rate(step, 100) for step in range(101)]
    assert rates[0] < rates[4] == max(rates) == 1.0
    assert rates[100] == pytest.approx(0)
    assert sorted(rates[5:], reverse=True) == rates[5:]


def test_training_on_nothing_is_an_error(tiny: LlamaForCausalLM) -> None:
    with pytest.raises(SpecdecError, match="no training example"):
        train.train(train.add_adapter(tiny), [], steps=1, pad_id=2)


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(train.main)
    return made


def test_the_command_names_the_missing_package(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert result.stderr == (
        "error: the training data (package bfcl-eval) is not installed; run: "
        "pip install --no-deps bfcl-eval==2026.3.23\n"
    )
    assert not (tmp_path / "out").exists()


def test_the_command_trains_and_saves(
    app: typer.Typer,
    tmp_path: Path,
    tiny: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    name = next(name for name in "abcdefgh" if not bfcl.split([example(name)])[1])
    named = {**FUNCTION, "name": name, "parameters": {"type": "dict", "properties": {}}}
    write_set(data, "simple_python", {"a": [{name: {}}], "b": [{name: {}}]}, named)
    monkeypatch.setattr(bfcl, "find_data", lambda: data)
    monkeypatch.setattr(train, "find_weights", lambda: tmp_path)
    monkeypatch.setattr(train, "read_base", lambda path: (tiny, tokenizer))
    monkeypatch.setattr(train, "LONGEST", 5000)
    threads = torch.get_num_threads()
    try:
        result = CliRunner().invoke(app, ["--out", str(out), "--steps", "1"])
    finally:
        torch.set_num_threads(threads)
    assert result.exit_code == 0, result.output
    assert "2 examples to train on, 0 held out" in result.output
    assert "step 1/1" in result.output
    assert (out / "adapter_config.json").is_file()


def test_the_published_sets_make_examples_of_both_kinds() -> None:
    try:
        examples = bfcl.read_examples(bfcl.find_data())
    except bfcl.MissingData as missing:
        pytest.skip(str(missing))
    learned, kept = bfcl.split(examples)
    assert len(examples) > 2000
    assert len(learned) > len(kept) > 300
    names = {call["name"] for example in learned for call in example.calls}
    assert not names & {call["name"] for example in kept for call in example.calls}
