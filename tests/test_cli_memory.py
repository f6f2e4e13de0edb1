"""specdec memory: what a saved memory holds, less of it, and its episodes as lines."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from specdec import Episode, ExpressionError, SpecdecError, default_registry, parse
from specdec.cli.export import app as export_app
from specdec.cli.memory import app

pytestmark = pytest.mark.skipif(
    "episodes" not in default_registry().names("memory"),
    reason="needs specdec-toolspec: pip install -e plugins/toolspec",
)


@pytest.fixture
def file(tmp_path):
    """A memory file of four episodes of two tenants."""
    memory = parse("episodes(model='m')", kind="memory")
    for number, tenant in enumerate(("a", "b", "a", "a")):
        memory.store(
            Episode(
                (number, 5),
                (number, 9),
                np.array([number + 1, 1], np.float32) if number else None,
                f"caf\u00e9 {number} \u26c5\n\u2028\x1b[31m \ud800"[: 99 if number else -2],
                tenant,
            )
        )
    memory.credit(memory.recall(Episode((1, 5), (), tenant="b"), 1)[0], 7)
    path = tmp_path / "memory.npz"
    memory.save(path)
    return path


def loaded(file):
    memory = parse("episodes", kind="memory")
    memory.load(file)
    return memory


def run(*arguments):
    """What a command printed."""
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def error(*arguments):
    """The one line with which a command fails."""
    with pytest.raises(SpecdecError) as caught:
        CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    line = str(caught.value)
    assert "\n" not in line or isinstance(caught.value, ExpressionError), "those show the place"
    return line


def test_show_says_what_there_is(file):
    text = run("show", file)
    for part in ("entries", "tenants", "'a': 3, 'b': 1", "model", "tokenizer", "unknown"):
        assert part in text
    assert "\\x1b[31m" in text
    assert "\x1b[31m" not in text, "what a model wrote does not steer the terminal"


def test_show_prints_json(file):
    found = json.loads(run("show", file, "--json"))
    assert found["entries"] == 4
    assert found["tokens"] == 8
    assert found["tenants"] == {"a": 3, "b": 1}
    assert found["fingerprints"] == {"model": "m", "tokenizer": ""}
    assert found["file_bytes"] == file.stat().st_size
    assert found["most_useful"][0]["accepted"] == 7
    assert found["most_useful"][0]["tenant"] == "b"


def test_show_names_only_some_of_many_tenants(tmp_path):
    memory = parse("episodes", kind="memory")
    for number in range(30):
        memory.store(Episode((1,), (number,), tenant=f"t{number:02}"))
    memory.save(tmp_path / "many.npz")
    text = run("show", tmp_path / "many.npz")
    assert "'t00': 1" in text
    assert "'t29': 1" not in text
    assert "10 more" in text


def test_show_of_an_empty_memory(tmp_path):
    parse("episodes", kind="memory").save(tmp_path / "empty.npz")
    assert "entries" in run("show", tmp_path / "empty.npz")


def test_prune_keeps_the_most_recently_useful(file):
    assert "2 episodes dropped, 2 left" in run("prune", file, "--entries", 2)
    assert [e.output[0] for e in loaded(file)] == [3, 1]
    assert json.loads(run("show", file, "--json"))["most_useful"][0]["accepted"] == 7


def test_prune_drops_a_tenant(file):
    assert "3 episodes dropped, 1 left" in run("prune", file, "--tenant", "a")
    assert [e.tenant for e in loaded(file)] == ["b"]


def test_prune_refuses_what_it_cannot_do(file):
    before = file.read_bytes()
    assert "holds nothing of tenant 'c'; tenants: 'a', 'b'" in error("prune", file, "--tenant", "c")
    assert "either --entries N or --tenant T" in error("prune", file)
    assert "either" in error("prune", file, "--tenant", "a", "--entries", 1)
    assert file.read_bytes() == before


def test_export_and_import_make_the_memory_again(file, tmp_path):
    lines, again = tmp_path / "episodes.jsonl", tmp_path / "again.npz"
    assert "4 episodes written" in run("export", file, lines)
    assert "4 episodes read, 4 new, 4 in" in run("import", again, lines)
    old, new = loaded(file), loaded(again)
    assert list(new) == list(old)
    for one, other in zip(new, old, strict=True):
        assert (one.embedding is None) == (other.embedding is None)
        if one.embedding is not None:
            np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-6)
    assert new.describe()["fingerprints"] == {"model": "m", "tokenizer": ""}


def test_export_writes_the_same_lines(file):
    whole = CliRunner().invoke(export_app, ["memory", str(file)], catch_exceptions=False)
    assert whole.output == run("export", file)


def test_exported_lines_can_be_read(file):
    lines = run("export", file).rstrip("\n").split("\n")
    assert len(lines) == 4
    first = json.loads(lines[0])
    assert first["tenant"] == "a"
    assert first["output"] == [0, 9]
    assert first["prompt"] == [0, 5]
    assert first["embedding"] is None
    assert first["model"] == "m"


def test_import_adds_and_counts_what_is_known(file, tmp_path):
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"output": [0, 9], "prompt": [0, 5], "tenant": "a"}\n\n{"output": [7]}\n')
    assert "2 episodes read, 1 new, 5 in" in run("import", file, lines)
    assert loaded(file).describe()["duplicates"] == 1


def test_import_reads_standard_input(tmp_path):
    done = CliRunner().invoke(
        app, ["import", str(tmp_path / "new.npz"), "-"], input='{"output": [7]}'
    )
    assert "1 episodes read" in done.output


GOOD = '{"output": [7]}\n'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "Expecting property name"),
        ("[1]", "expected a JSON object"),
        ("{}", "'output' must hold at least one token id"),
        ('{"output": 3}', "'output' must be a list of token ids, got 3"),
        ('{"output": [1.5]}', "'output' must be a list of token ids"),
        ('{"output": [true]}', "'output' must be a list of token ids"),
        ('{"output": [-1]}', "token ids from 0"),
        ('{"output": [99999999999]}', "token ids from 0"),
        ('{"output": [1], "prompt": ["a"]}', "'prompt' must be a list of token ids"),
        ('{"output": [1], "prompt": [1e999]}', "'prompt' must be a list of token ids"),
        ('{"output": [1], "text": 3}', "'text' must be a text or null, got 3"),
        ('{"output": [1], "tenant": null}', "'tenant' must be a text, got None"),
        ('{"output": [1], "embedding": "?"}', "'embedding' must be finite float32"),
        ('{"output": [1], "embedding": "AAA="}', "'embedding' must be finite float32"),
        ('{"output": [1], "embedding": "AADAfw=="}', "'embedding' must be finite float32"),
        ('{"output": [1], "embeding": null}', "unknown key 'embeding'"),
        ('{"output": [1], "model": "other"}', "model 'other', this memory of 'm'"),
        ("[" * 100_000, "line 2"),
    ],
)
def test_import_is_all_or_nothing(file, tmp_path, line, says):
    before, lines = file.read_bytes(), tmp_path / "lines.jsonl"
    lines.write_text(GOOD + line + "\n" + GOOD)
    message = error("import", file, lines)
    assert says in message
    assert f"{lines}, line 2: " in message
    assert file.read_bytes() == before


def test_import_makes_no_file_when_it_fails(tmp_path):
    lines, new = tmp_path / "lines.jsonl", tmp_path / "new.npz"
    lines.write_text('{"output": [7], "model": "m"}\n{"output": [8], "model": "n"}\n')
    assert "line 2: the episodes to come are of the model 'n'" in error("import", new, lines)
    assert not new.exists()


@pytest.mark.parametrize("command", ["show", "export", "prune --entries 1", "import"])
def test_files_that_are_none_are_one_line(tmp_path, command):
    torn, lines = tmp_path / "torn.npz", tmp_path / "lines.jsonl"
    torn.write_bytes(b"PK\x03\x04 and so on")
    lines.write_text(GOOD)
    verb, *options = command.split()
    arguments = [lines] if verb == "import" else options
    assert "torn or is no memory file" in error(verb, torn, *arguments)
    if verb != "import":
        assert "cannot be read: No such file" in error(verb, tmp_path / "none.npz", *arguments)


def test_paths_that_cannot_be_used_are_one_line(file, tmp_path):
    nowhere = tmp_path / "nowhere" / "x"
    assert "cannot be written: No such file" in error("export", file, nowhere)
    assert "cannot be read: No such file" in error("import", file, nowhere)
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in error("import", file, tmp_path / "latin")


def test_a_large_memory_is_pruned_and_not_cut_by_loading(tmp_path):
    memory = parse("episodes(entries=3000)", kind="memory")
    for number in range(2500):
        memory.store(Episode((number,), (number, 1)))
    memory.save(tmp_path / "large.npz")
    assert json.loads(run("show", tmp_path / "large.npz", "--json"))["entries"] == 2500
    assert "1 episodes dropped, 2499" in run("prune", tmp_path / "large.npz", "--entries", 2499)


def test_another_memory_may_read_the_file(file):
    assert "this memory at most 3" in error("show", file, "--memory", "episodes(entries=3)")
    assert "no memory named 'episode'" in error("show", file, "--memory", "episode")


def test_the_core_does_not_import_the_plugin():
    source = Path(app.registered_commands[0].callback.__code__.co_filename).read_text()
    assert "toolspec" not in source
