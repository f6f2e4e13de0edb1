"""The class that vLLM loads: its configuration, its memory, its counts, its manners."""

import logging
import multiprocessing
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import specdec_vllm.proposer
from specdec_vllm import Proposer
from specdec_vllm.counts import Counts, publisher
from specdec_vllm.memories import Keeper, attach, save_at_exit
from specdec_vllm.settings import SettingsError

import specdec
from specdec import DraftTree, Episode, Step


class Model(SimpleNamespace):
    def get_vocab_size(self):
        return 259

    def try_get_generation_config(self):
        return {"eos_token_id": [1, 9]}


@pytest.fixture
def config(tokenizer, tmp_path, monkeypatch):
    """What vLLM hands over."""
    monkeypatch.setattr(specdec_vllm.proposer, "check_hook", lambda: None)
    folder = tmp_path / "model"
    tokenizer.save_pretrained(folder)

    def made(rank=0, device="cuda", **settings):
        return SimpleNamespace(
            model_config=Model(
                model=str(folder),
                tokenizer=str(folder),
                max_model_len=256,
                hf_text_config=SimpleNamespace(eos_token_id=1),
            ),
            speculative_config=SimpleNamespace(num_speculative_tokens=4),
            parallel_config=SimpleNamespace(
                rank=rank, data_parallel_rank=0, tensor_parallel_size=2
            ),
            device_config=SimpleNamespace(device_type=device),
            additional_config={"specdec": settings},
        )

    return made


def a_call(row=(40, 41, 42, 43, 40, 41, 42), new=1):
    tokens = np.zeros((4, 256), dtype=np.int32)
    tokens[0, : len(row)] = row
    return [[*row[len(row) - new :]]], np.array([len(row), 0, 0, 0]), tokens


def test_vllm_can_load_it_and_ask_for_drafts(config):
    proposer = Proposer(config(drafter="pld"))
    proposer.load_model(object())
    assert proposer.propose(*a_call(), slot_mappings=None) == [[43, 40, 41, 42]]


def test_ids_that_end_an_output_are_those_of_model_and_generation_config(config):
    proposer = Proposer(config(drafter="pld"))
    assert proposer.propose(*a_call((40, 9, 42, 40, 9))) == [[]]


def test_where_tokens_cost_more_fewer_are_drafted(config):
    """What a pass costs is the device's; a setting says it better."""
    lengths = [
        len(Proposer(config(drafter="pld", **told)).propose(*a_call())[0])
        for told in ({}, {"device": "cpu"}, {"device": "cpu", "overhead": 0.3}, {"overhead": 0})
    ]
    assert lengths == [4, 4, 1, 0]


@pytest.mark.parametrize(
    "nonsense",
    [
        ([[5]], np.array([]), np.zeros((0, 0), dtype=np.int32)),
        ([[5]], None, None),
        ([[5], None], np.array([3, 3]), np.zeros((2, 256), dtype=np.int32)),
    ],
)
def test_what_no_engine_should_hand_over_raises_nothing(config, nonsense, caplog):
    proposer = Proposer(config(drafter="pld"))
    with caplog.at_level(logging.ERROR, logger="vllm.specdec_vllm"):
        assert proposer.propose(*nonsense) == [[] for _ in nonsense[0]]
    assert "drafts nothing in this pass" in caplog.text
    assert proposer.propose(*a_call()) == [[43, 40, 41, 42]]


def test_without_a_tokenizer_the_drafters_of_tokens_go_on(config, caplog):
    told = config(drafter="fallback(schema, pld)")
    told.model_config.tokenizer = told.model_config.tokenizer + "-nowhere"
    with caplog.at_level(logging.WARNING, logger="vllm.specdec_vllm"):
        proposer = Proposer(told)
    assert "cannot load the tokenizer" in caplog.text
    assert proposer.propose(*a_call()) == [[43, 40, 41, 42]]


def test_an_expression_that_cannot_be_built_is_refused_when_vllm_starts(config):
    with pytest.raises(specdec.ExpressionError, match="plt"):
        Proposer(config(drafter="plt"))


@pytest.mark.parametrize("drafter", ["token-recycling", "toolspec", "samd", "merge(pld, schema)"])
def test_stacks_that_want_logits_do_without(config, drafter):
    proposer = Proposer(config(drafter=drafter))
    row = (40, 41, 42, 43, 40, 41, 42, 43, 40, 41, 42)
    for end in range(8, 12):
        (draft,) = proposer.propose(*a_call(row[:end]))
    assert len(draft) <= 4


def kept(path):
    drafter = specdec.parse("retrieval")
    save_at_exit(attach(drafter, path, model="a-model"))
    drafter.memory.store(Episode((1, 2, 3), (4, 5, 6)))


def test_what_a_worker_remembers_is_saved_when_it_ends(tmp_path):
    path = tmp_path / "new" / "memory.npz"
    worker = multiprocessing.get_context("spawn").Process(target=kept, args=(path,))
    worker.start()
    worker.join()
    drafter = specdec.parse("toolspec(fallback=pld)")
    attach(drafter, path, model="a-model")
    assert len(drafter.memory) == 1


def test_a_memory_is_saved_now_and_then_too(tmp_path):
    """A worker that is killed has no exit."""
    now = [0.0]
    path = tmp_path / "memory.npz"
    keeper = Keeper(specdec.parse("retrieval").memory, path, clock=lambda: now[0])

    def saved(at, ended, idle):
        path.unlink(missing_ok=True)
        now[0] = at
        keeper.tend(ended, idle=idle)
        return path.exists()

    assert not saved(11.0, 0, idle=False)  # nothing new
    assert saved(11.0, 1, idle=False)
    assert not saved(20.0, 2, idle=False)  # too soon, while others wait
    assert saved(20.0, 2, idle=True)
    assert not saved(20.5, 3, idle=True)
    assert saved(31.0, 3, idle=False)


def test_a_memory_that_cannot_be_saved_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    keeper = Keeper(specdec.parse("retrieval").memory, tmp_path / "file" / "memory.npz")
    with caplog.at_level(logging.WARNING, logger="vllm.specdec_vllm"):
        keeper.save()
    assert "cannot save what it remembers" in caplog.text


def test_a_request_that_ends_is_remembered_on_disk(config, tmp_path, monkeypatch):
    monkeypatch.setattr("specdec_vllm.memories.IDLE", 0.0)
    path = tmp_path / "memory.npz"
    proposer = Proposer(config(drafter="retrieval", memory=str(path)))
    proposer.propose(*a_call())
    assert not path.exists()
    proposer.propose(*a_call((40, 41, 42, 43, 40, 41, 42, 1)))
    assert path.exists()


def test_a_memory_of_another_model_is_refused_and_not_overwritten(tmp_path):
    drafter = specdec.parse("retrieval")
    drafter.memory.identify(model="one")
    drafter.memory.save(tmp_path / "memory.npz")
    with pytest.raises(specdec.SpecdecError, match="another"):
        attach(specdec.parse("retrieval"), tmp_path / "memory.npz", model="two")


def test_a_stack_without_a_memory_takes_no_file(tmp_path):
    with pytest.raises(SettingsError, match="has 0; use toolspec or retrieval"):
        attach(specdec.parse("pld"), tmp_path / "memory.npz", model="m")


def a_step():
    trees = [DraftTree.chain([1, 2, 3], source="schema"), DraftTree.chain([4], source="pld")]
    return (Step(0, trees[0], (0, 1), (1, 2, 9)), Step(1, trees[1], (), (9,)))


def test_the_log_tells_acceptance_by_source(caplog):
    now = [0.0]
    told = []
    counts = Counts(10.0, lambda *told_: told.append(told_), clock=lambda: now[0])
    with caplog.at_level(logging.INFO, logger="vllm.specdec_vllm"):
        for step in a_step():
            counts.book(step)
            counts.call(0.002)
        assert caplog.text == ""
        now[0] = 10.0
        counts.call(0.005)
    assert "accepted 2 of 4 drafted tokens (50.0%): pld 0/1, schema 2/3; 3.00 ms" in caplog.text
    assert told == [("schema", 3, 2), ("pld", 1, 0)]


def test_a_time_without_drafts_leaves_no_line(caplog):
    now = [0.0]
    counts = Counts(10.0, lambda *_: None, clock=lambda: now[0])
    with caplog.at_level(logging.INFO, logger="vllm.specdec_vllm"):
        now[0] = 60.0
        counts.call(0.001)
    assert caplog.text == ""


class Counter:
    made: ClassVar[dict] = {}

    def __init__(self, name, about, labelnames):
        self.counts = {}
        self.made[name] = self

    def labels(self, source):
        return SimpleNamespace(
            inc=lambda n: self.counts.__setitem__(source, self.counts.get(source, 0) + n)
        )


def test_prometheus_counts_by_source(monkeypatch):
    module = ModuleType("prometheus_client")
    module.Counter, module.REGISTRY = Counter, SimpleNamespace(_names_to_collectors=Counter.made)
    monkeypatch.setitem(sys.modules, "prometheus_client", module)
    for publish in (publisher(), publisher()):  # two engines in one process count together
        publish("schema", 3, 2)
    assert Counter.made["specdec:draft_tokens"].counts == {"schema": 6}
    assert Counter.made["specdec:accepted_tokens"].counts == {"schema": 4}


def test_without_prometheus_nothing_is_published(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    publisher()("schema", 3, 2)


@pytest.mark.parametrize("ranks", [(0, 1), (2, 3)], ids=["one stage", "the last of two stages"])
def test_only_one_of_several_workers_logs_and_saves(config, tmp_path, monkeypatch, ranks):
    saved = []
    monkeypatch.setattr("specdec_vllm.proposer.save_at_exit", saved.append)
    for rank in ranks:
        Proposer(config(rank=rank, memory=str(tmp_path / "memory.npz")))
    assert len(saved) == 1
