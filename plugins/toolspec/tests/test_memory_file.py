"""Memory files: whole, versioned, of one model, and refused otherwise."""

import json
import os
import stat
import zipfile

import numpy as np
import pytest
from specdec_toolspec import EpisodeMemory, MemoryFileError

from specdec import Episode, SpecdecError


def small(**options):
    memory = EpisodeMemory(**options)
    memory.store(Episode((1, 2), (3, 4), np.array([1, 2], np.float32), "text \u26c5 \ud800", "a"))
    memory.store(Episode((1, 5), (6,), None, None, "b\udfff"))
    memory.store(Episode((), (7, 7), np.array([0, 0, 3], np.float32), ""))
    memory.store(Episode((1, 2), (3, 4), np.array([1, 2], np.float32), "text", "a"))
    return memory


def contents(memory):
    keys = [None if e.embedding is None else e.embedding.tolist() for e in memory]
    return list(memory), keys, memory.describe()["most_useful"]


def other():
    memory = EpisodeMemory()
    memory.store(Episode((9,), (9, 9)))
    return memory


def refused(path, match, **options):
    """Loading raises one line, and the old contents stay."""
    memory = EpisodeMemory(**options)
    memory.store(Episode((9,), (9, 9)))
    before = contents(memory), memory.describe()
    with pytest.raises(MemoryFileError, match=match) as caught:
        memory.load(path)
    assert isinstance(caught.value, SpecdecError)
    assert "\n" not in str(caught.value)
    assert (contents(memory), memory.describe()) == before


def rewrite(path, change):
    """Save the file's arrays again, after `change` has had them."""
    with np.load(path) as file:
        arrays = dict(file)
    meta = json.loads(arrays["meta"].tobytes())
    change(meta, arrays)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.npz"


def test_everything_comes_back(path):
    memory = small(model="m", tokenizer="t")
    memory.credit(next(iter(memory)), 4)
    memory.save(path)
    again = EpisodeMemory()
    again.load(path)
    assert contents(again) == contents(memory)
    assert again.describe() == memory.describe()
    again.save(path.with_name("again.npz"))
    assert path.with_name("again.npz").read_bytes() == path.read_bytes()


def test_an_empty_memory_comes_back(path):
    EpisodeMemory().save(path)
    memory = other()
    memory.load(path)
    assert len(memory) == 0


def test_recall_and_eviction_go_on_as_before(path):
    rng = np.random.default_rng(3)
    memory = EpisodeMemory(entries=40)
    episodes = [
        Episode((n,), (n, 1), rng.standard_normal(8).astype(np.float32) if n % 3 else None)
        for n in range(80)
    ]
    for kept in episodes[:60]:
        memory.store(kept)
    for kept in memory.recall(episodes[50], 5):
        memory.credit(kept, 1)
    memory.save(path)
    again = EpisodeMemory(entries=40)
    again.load(path)
    for kept in episodes:
        assert again.recall(kept, 7) == memory.recall(kept, 7)
        again.store(kept)
        memory.store(kept)
        assert contents(again) == contents(memory)


def test_every_truncation_is_refused(path):
    small().save(path)
    whole = path.read_bytes()
    assert len(whole) < 10_000
    memory = other()
    before = contents(memory)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(MemoryFileError):
            memory.load(path)
    assert contents(memory) == before


def test_a_changed_byte_is_refused_or_makes_no_difference(path):
    small(model="m").save(path)
    whole = path.read_bytes()
    expected = contents(small(model="m"))
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        memory = EpisodeMemory()
        try:
            memory.load(path)
        except MemoryFileError:
            assert len(memory) == 0
        else:
            assert contents(memory) == expected


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"[remote]\n", bytes(range(256)), b"\x93NUMPY", b"{}" * 5000]
)
def test_foreign_bytes_are_refused(path, content):
    path.write_bytes(content)
    refused(path, "torn or is no memory file")


def test_what_is_no_file_is_refused(path):
    refused(path, "cannot be read: No such file")
    refused(path.parent, "cannot be read: Is a directory")


def test_another_npz_is_refused(path):
    with open(path, "wb") as file:
        np.savez(file, weights=np.ones(3))
    refused(path, "is no memory file")
    small().save(path)
    rewrite(path, lambda meta, arrays: meta.update(format="cost-curve"))
    refused(path, "holds 'cost-curve', not 'specdec-episodes'")


def test_pickles_are_never_opened(path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    small().save(path)
    rewrite(path, lambda meta, arrays: arrays.update(outputs=np.array([Trap()], dtype=object)))
    refused(path, "is no memory file")


def test_compressed_members_are_refused(path):
    """They could be larger than the file by any factor."""
    small().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    refused(path, "compressed")


def test_a_shape_larger_than_its_array_is_refused(path):
    small().save(path)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    members["outputs.npy"] = members["outputs.npy"].replace(b"(5,), ", b"(9**9,)")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    refused(path, "is no memory file")


def test_a_newer_version_is_refused(path):
    small().save(path)
    rewrite(path, lambda meta, arrays: meta.update(version=2))
    refused(path, "is of version 2; this specdec-toolspec reads up to 1")


def test_a_file_that_holds_more_is_refused(path):
    memory = EpisodeMemory()
    for number in range(20):
        memory.store(Episode((number,), tuple(range(number, number + 30))))
    memory.save(path)
    refused(path, "holds 20 entries, this memory at most 19", entries=19)
    refused(path, "holds 600 tokens, this memory at most 599", tokens=599)
    EpisodeMemory(entries=20, tokens=600).load(path)


def test_a_file_larger_than_anything_the_memory_may_hold_is_not_even_opened(path):
    small().save(path)
    os.truncate(path, 3 << 20)  # a hole, on most file systems
    refused(path, "has 3145728 bytes", entries=1, tokens=8)


@pytest.mark.parametrize("name", ["model", "tokenizer"])
def test_the_file_of_another_fingerprint_is_refused(path, name):
    small(**{name: "theirs"}).save(path)
    refused(path, f"{name} 'theirs', this memory of 'ours'", **{name: "ours"})


def test_an_unknown_fingerprint_agrees_with_any(path):
    small(model="m").save(path)
    memory = EpisodeMemory(tokenizer="t")
    memory.load(path)
    assert memory.describe()["fingerprints"] == {"model": "m", "tokenizer": "t"}
    small(model="n").save(path)
    memory.load(path)  # what a file said is gone with what it held
    assert memory.describe()["fingerprints"] == {"model": "n", "tokenizer": "t"}


def set_column(name, values, dtype=np.int64):
    return lambda meta, arrays: arrays.update({name: np.array(values, dtype)})


@pytest.mark.parametrize(
    "change",
    [
        lambda meta, arrays: meta.update(entries=2),
        lambda meta, arrays: meta.update(tokens=4),
        lambda meta, arrays: meta.update(entries=-1),
        lambda meta, arrays: meta.update(version=0),
        lambda meta, arrays: meta.update(model=None),
        lambda meta, arrays: meta.update(tenants=[1, 2, 3]),
        lambda meta, arrays: meta.update(tenants=["a"]),
        lambda meta, arrays: arrays.pop("texts"),
        set_column("outputs", [3, 4, -1, 7, 7], np.int32),
        set_column("outputs", [3, 4, 6, 7, 7]),
        set_column("output_tokens", [2, 2, 2]),
        set_column("output_tokens", [5, 0, 0]),
        set_column("output_tokens", [7, -1, -1]),
        set_column("output_tokens", [2**62, 2**62, 2**62]),
        set_column("tail_tokens", [4, 1, 0]),
        set_column("text_bytes", [-1, -1, -1]),
        set_column("texts", [255] * 12, np.uint8),
        set_column("kind", [2, 0, 2]),
        set_column("kind", [2, 0, 10**15]),
        set_column("stored", [0, 1, 1]),
        set_column("used", [1, 2]),
        set_column("digests", np.zeros((3, 8)), np.uint8),
        set_column("keys_2", [[np.nan, 0]], np.float32),
        set_column("keys_2", [[3, 4]], np.float32),
        set_column("keys_2", [[1, 0], [0, 1]], np.float32),
    ],
)
def test_contradictions_are_refused(path, change):
    small().save(path)
    rewrite(path, change)
    refused(path, "is no memory file")


def test_a_rewritten_file_is_otherwise_fine(path):
    small().save(path)
    rewrite(path, lambda meta, arrays: None)
    memory = EpisodeMemory()
    memory.load(path)
    assert contents(memory) == contents(small())


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    small().save(path)
    before = path.read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(MemoryFileError, match="cannot be written: No space left on device"):
        other().save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(MemoryFileError, match="cannot be written: No such file"):
        small().save(tmp_path / "nowhere" / "memory.npz")


def test_a_link_stays_a_link_and_others_cannot_read(path):
    real = path.with_name("real.npz")
    real.touch()
    path.symlink_to(real)
    small().save(path)
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    EpisodeMemory().load(path)


def test_numpy_opens_it(path):
    small().save(path)
    with np.load(path, allow_pickle=False) as file:
        assert file["outputs"].tolist() == [3, 4, 6, 7, 7]
