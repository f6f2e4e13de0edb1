from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest
from specdec_demo_model import cache


class Thing:
    """A value that is a text in a file; counts how often it is built."""

    def __init__(self) -> None:
        self.built = 0

    def fetch(self, folder: Path, key: str = "key") -> str:
        return cache.fetch(folder, key, read=self.read, build=self.build, write=self.write)

    def read(self, entry: Path) -> str:
        text = (entry / "thing.txt").read_text()
        if text == "broken":
            raise ValueError("cannot be read")
        return text

    def build(self) -> str:
        self.built += 1
        return "value"

    def write(self, value: str, folder: Path) -> None:
        (folder / "thing.txt").write_text(value)


@pytest.fixture
def thing() -> Thing:
    return Thing()


def test_builds_once(thing: Thing, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    assert [thing.fetch(folder), thing.fetch(folder)] == ["value", "value"]
    assert thing.built == 1
    assert [path.name for path in folder.iterdir()] == ["key"]


@pytest.mark.parametrize("damage", ["shorter", "missing", "unlisted", "unreadable"])
def test_damage_is_repaired_with_one_line(
    thing: Thing, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    thing.fetch(tmp_path)
    entry = tmp_path / "key"
    if damage == "shorter":
        (entry / "thing.txt").write_text("val")
    elif damage == "missing":
        (entry / "thing.txt").unlink()
    elif damage == "unlisted":
        (entry / "complete.json").unlink()
    else:
        (entry / "thing.txt").write_text("broken")
        (entry / "complete.json").write_text('{"thing.txt": 6}')
    assert thing.fetch(tmp_path) == "value"
    assert thing.built == 2
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "rebuilding the damaged cache entry" in record.message
    assert "\n" not in record.message
    assert thing.fetch(tmp_path) == "value"
    assert thing.built == 2
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_folder_that_cannot_be_made_costs_only_time(
    thing: Thing, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "cache"
    assert [thing.fetch(folder), thing.fetch(folder)] == ["value", "value"]
    assert thing.built == 2
    assert not caplog.records  # nothing at the level that reaches a console


def test_a_folder_without_permission_costs_only_time(thing: Thing, tmp_path: Path) -> None:
    if os.name != "posix" or os.geteuid() == 0:
        pytest.skip("permissions do not bind this user")
    tmp_path.chmod(0o500)
    try:
        assert thing.fetch(tmp_path / "cache") == "value"
    finally:
        tmp_path.chmod(0o700)


def test_a_write_that_fails_half_way_leaves_nothing(
    thing: Thing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(value: str, folder: Path) -> None:
        (folder / "thing.txt").write_text(value[:2])
        raise RuntimeError("disk full")

    monkeypatch.setattr(thing, "write", fail)
    assert thing.fetch(tmp_path) == "value"
    assert list(tmp_path.iterdir()) == []


def test_an_entry_appears_only_when_complete(
    thing: Thing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = thing.write

    def watch(value: str, folder: Path) -> None:
        write(value, folder)
        assert not (tmp_path / "key").exists()

    monkeypatch.setattr(thing, "write", watch)
    thing.fetch(tmp_path)
    assert (tmp_path / "key").is_dir()


def test_an_entry_made_meanwhile_by_another_process_is_replaced(
    thing: Thing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, other = thing.write, Thing()

    def race(value: str, folder: Path) -> None:
        other.fetch(tmp_path)
        write(value, folder)

    monkeypatch.setattr(thing, "write", race)
    assert thing.fetch(tmp_path) == "value"
    assert Thing().fetch(tmp_path) == "value"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_old_entries_and_dead_writers_go(thing: Thing, tmp_path: Path) -> None:
    (tmp_path / ".new-dead").mkdir()
    (tmp_path / ".new-busy").mkdir()
    (tmp_path / "not ours").mkdir()
    os.utime(tmp_path / ".new-dead", (0, 0))
    for age, key in ((300, "a"), (200, "b"), (100, "c")):
        thing.fetch(tmp_path, key)
        os.utime(tmp_path / key, (time.time() - age,) * 2)
    thing.fetch(tmp_path, "d")
    assert {path.name for path in tmp_path.iterdir()} == {"c", "d", ".new-busy", "not ours"}


def test_the_digest_follows_contents_and_words(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("a")
    other.write_text("a")
    assert cache.digest([one], ["x"]) == cache.digest([other], ["x"])
    assert cache.digest([one], ["x"]) != cache.digest([one], ["y"])
    other.write_text("b")
    assert cache.digest([one]) != cache.digest([other])


def test_the_default_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    assert cache.default_folder() == tmp_path / "demo-model"
    monkeypatch.delenv("SPECDEC_CACHE")
    assert "specdec" in cache.default_folder().parts
