"""specdec export: the demo model as a folder that any engine reads."""

import json
import stat
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
from typer.testing import CliRunner

from specdec import SpecdecError
from specdec.cli import export, main
from specdec.cli.export import app, install

TOOL = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def run(*arguments):
    """What a command printed."""
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def error(*arguments):
    """The one line with which a command fails."""
    with pytest.raises(SpecdecError) as caught:
        CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def tiny_demo(tiny_folder, monkeypatch):
    """A tiny model in place of the demo model."""
    from specdec.hf import loading

    def load(dtype, device):
        return loading.load(str(tiny_folder), dtype, str(device))

    monkeypatch.setattr(loading, "load_demo", load)


@pytest.mark.usefixtures("tiny_demo")
def test_a_folder_is_made_whole(tmp_path, tiny_folder):
    folder = tmp_path / "model"
    assert run("demo", folder).startswith(f"the demo model in float32 written to {folder} (")
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "nothing is left beside it"
    model = hf.AutoModelForCausalLM.from_pretrained(folder)
    expected = hf.AutoModelForCausalLM.from_pretrained(tiny_folder).state_dict()
    assert all(torch.equal(t, expected[name]) for name, t in model.state_dict().items())
    assert (folder / "model.safetensors").exists()
    assert (folder / "chat_template.jinja").exists()
    modes = {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert len(modes) == 1, "others read the weights if they read the configuration"


@pytest.mark.usefixtures("tiny_demo")
def test_the_weights_are_of_the_dtype_asked_for(tmp_path):
    assert "in bfloat16" in run("demo", tmp_path / "model", "--dtype", "bfloat16")
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert config["dtype"] == "bfloat16"
    line = error("demo", tmp_path / "other", "--dtype", "bfloat61")
    assert "bfloat16" in line
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("tiny_demo")
def test_an_empty_folder_and_a_link_to_one_will_do(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    run("demo", tmp_path / "link")
    assert (tmp_path / "empty/config.json").exists()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.usefixtures("tiny_demo")
def test_a_model_that_is_there_is_replaced_on_demand_only(tmp_path):
    folder = tmp_path / "model"
    run("demo", folder)
    (folder / "leftover").touch()
    assert f"{folder} is not empty" in error("demo", folder)
    run("demo", folder, "--force")
    assert not (folder / "leftover").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_no_model_is_never_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").write_text("dear")
    assert "not empty" in error("demo", tmp_path / "home")
    assert "something else than a model" in error("demo", tmp_path / "home", "--force")
    (tmp_path / "home/config.json").touch()
    (tmp_path / "home/photos").mkdir()
    assert "something else than a model" in error("demo", tmp_path / "home", "--force")
    assert (tmp_path / "home/letter.txt").read_text() == "dear"


def test_a_place_that_cannot_be_written_is_refused_before_loading(tmp_path):
    (tmp_path / "file").touch()
    assert "is a file" in error("demo", tmp_path / "file")
    assert "no writable folder" in error("demo", tmp_path / "missing/model")


def test_a_failure_leaves_everything_as_it_was(tmp_path):
    place = tmp_path / "model"
    place.mkdir()
    (place / "config.json").write_text("old")

    def fail(into):
        (into / "half").touch()
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        install(place, fail)
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "config.json"]


def test_what_was_there_comes_back_if_its_successor_cannot_move_in(tmp_path, monkeypatch):
    place = tmp_path / "model"
    place.mkdir()
    (place / "config.json").write_text("old")
    rename = Path.rename

    def refuse(self, to):
        if (self / "new").exists():
            raise PermissionError(13, "Permission denied")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(PermissionError):
        install(place, lambda into: (into / "new").touch())
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "config.json"]


@pytest.mark.usefixtures("tiny_demo")
def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    def full(place, write):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "install", full)
    line = error("demo", tmp_path / "model")
    assert line == f"{tmp_path / 'model'} cannot be written: No space left on device"


def test_the_command_is_there(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["specdec", "export", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "demo" in capsys.readouterr().out


@pytest.fixture(scope="module")
def demo():
    """The demo package, if its weights are there."""
    package = pytest.importorskip("specdec_demo_model", reason="pip install -e contrib/demo_model")
    try:
        package.find_weights()
    except package.MissingWeights as missing:
        pytest.skip(str(missing))
    return package


@pytest.fixture(scope="module")
def exported(demo, tmp_path_factory):
    """The real demo model, exported."""
    folder = tmp_path_factory.mktemp("exported") / "demo"
    run("demo", folder)
    yield folder
    (folder / "model.safetensors").unlink()  # half a gigabyte, which pytest would keep


@pytest.mark.real_model
def test_the_folder_writes_what_the_demo_model_writes(demo, exported):
    ours, tokenizer = demo.load()
    model = hf.AutoModelForCausalLM.from_pretrained(exported).eval()
    assert model.dtype == torch.float32
    ids = tokenizer(rendered(tokenizer), add_special_tokens=False, return_tensors="pt")
    outputs = [one.generate(**ids, max_new_tokens=32) for one in (ours, model)]
    assert torch.equal(*outputs)


@pytest.mark.real_model
def test_the_chat_template_shows_tools_and_calls(demo, exported):
    tokenizer = hf.AutoTokenizer.from_pretrained(exported)
    text = rendered(tokenizer)
    assert '"name": "get_time"' in text
    assert "<tool_call>" in text
    assert text.endswith("<|im_start|>assistant\n")
    expected = demo.load()[1]
    assert text == rendered(expected)
    assert tokenizer(text)["input_ids"] == expected(text)["input_ids"]


def rendered(tokenizer):
    """A conversation with a tool, as a prompt."""
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": "What time is it in Oslo?"}],
        tools=[TOOL],
        add_generation_prompt=True,
        tokenize=False,
    )


@pytest.mark.real_model
def test_the_folder_runs_as_a_model(exported, monkeypatch, capsys, tmp_path):
    pytest.importorskip("specdec_pld")
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([TOOL]))
    arguments = ["run", "What time is it in Oslo?", "--model", exported, "--tools", tools]
    options = ["--drafter", "pld", "--budget", "8", "--max-new-tokens", "40", "--json"]
    monkeypatch.setattr(sys, "argv", ["specdec", *map(str, arguments), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["tool_calls"] == [{"name": "get_time", "arguments": {"city": "Oslo"}}]
