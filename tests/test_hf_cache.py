"""The cache: in place, accepted rows only, and no mask where none is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from models import among_wrong, junk, mixed, oracle, prompt_of, reference, tiny

from specdec.engine import Engine
from specdec.hf import HFTarget
from specdec.hf.compat import TreeLayer
from specdec.interfaces import Needs


def states(first: int, count: int) -> torch.Tensor:
    """(1, 2, count, 3) states that carry their own number in every cell."""
    numbers = torch.arange(first, first + count, dtype=torch.float64)
    return numbers[None, None, :, None].expand(1, 2, count, 3).clone()


def filled(capacity: int, count: int) -> TreeLayer:
    layer = TreeLayer(capacity)
    layer.update(states(0, count), -states(0, count))
    return layer


def held(layer: TreeLayer) -> list[int]:
    """The numbers kept, read from the keys; the values must be their negatives."""
    assert torch.equal(layer.keys, -layer.values)
    assert layer.keys.shape[-2] == layer.get_seq_length()
    return layer.keys[0, 1, :, 2].int().tolist()


def test_update_returns_everything_kept_so_far() -> None:
    layer = filled(8, 3)
    keys, values = layer.update(states(3, 2), -states(3, 2))
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert torch.equal(values, -keys)


def test_a_layer_keeps_keys_and_values_of_different_sizes() -> None:
    layer = TreeLayer(4)
    keys, values = layer.update(torch.ones(1, 2, 3, 5), torch.ones(1, 2, 3, 7))
    assert (keys.shape, values.shape) == ((1, 2, 3, 5), (1, 2, 3, 7))


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ((), [0, 1, 2]),
        ((3, 4), [0, 1, 2, 3, 4]),
        ((5,), [0, 1, 2, 5]),
        ((4, 5, 6), [0, 1, 2, 4, 5, 6]),
        ((3, 6, 9), [0, 1, 2, 3, 6, 9]),
    ],
)
def test_keep_moves_the_accepted_rows_behind_the_committed(
    rows: Sequence[int], kept: list[int]
) -> None:
    """Also where source and destination overlap."""
    layer = filled(16, 10)
    layer.keep(3, rows, {})
    assert held(layer) == kept
    layer.update(states(100, 2), -states(100, 2))
    assert held(layer) == [*kept, 100, 101]


def test_keep_nothing_on_a_layer_that_never_saw_a_token() -> None:
    """Layers that a model skips, such as cross-attention without an image."""
    layer = TreeLayer(8)
    layer.keep(0, (), {})
    assert layer.get_seq_length() == 0


def test_growth_keeps_what_is_held_and_is_rare() -> None:
    layer = TreeLayer(4)
    buffers = set()
    for i in range(200):
        layer.update(states(i, 1), -states(i, 1))
        buffers.add(layer._keys.data_ptr())
    assert held(layer) == list(range(200))
    assert len(buffers) < 13, "grown by half each time, not at every token"


def test_a_jump_beyond_half_of_the_capacity_is_one_growth() -> None:
    layer = filled(4, 4)
    layer.update(states(4, 100), -states(4, 100))
    assert held(layer) == list(range(104))


def test_reserve_keeps_what_is_held_and_never_shrinks() -> None:
    layer = filled(4, 3)
    layer.reserve(2)
    assert layer.capacity == 4
    layer.reserve(50)
    assert (layer.capacity, held(layer)) == (50, [0, 1, 2])


@pytest.mark.parametrize("tokens", [1, -4, -100])
def test_crop_takes_a_negative_count_within_what_is_held(tokens: int) -> None:
    layer = filled(8, 3)
    with pytest.raises(ValueError, match=f"negative count of at most 3 tokens, got {tokens}"):
        layer.crop(tokens)
    assert held(layer) == [0, 1, 2]


def test_crop_drops_the_last_tokens() -> None:
    layer = filled(8, 5)
    layer.crop(-2)
    assert held(layer) == [0, 1, 2]
    layer.crop(0)
    assert held(layer) == [0, 1, 2]


def test_mask_sizes_count_the_query_as_number_or_tensor() -> None:
    layer = filled(8, 5)
    assert layer.get_mask_sizes(3) == (8, 0)
    assert layer.get_mask_sizes(torch.arange(3)) == (8, 0)


def test_a_session_never_copies_its_whole_cache() -> None:
    """Two hundred tokens along accepted branches stay in the buffers allocated at the start."""
    model = HFTarget(tiny("llama"))
    prompt = prompt_of(40)
    session = model.start(model.request(prompt, max_new_tokens=200), Needs())
    pending: tuple[int, ...] = tuple(prompt)
    places = set()
    for step in range(50):
        tree = among_wrong([step % 60, (step + 7) % 60, (step + 9) % 60], 3, 67)
        session.forward(pending, tree)
        path = tree.path_to(len(tree) - 1)
        session.commit(path)
        pending = (11,)
        places.add(tuple(b.data_ptr() for x in session._layers for b in (x._keys, x._values)))
    assert session.kv_length == 40 + 50 * 3 + 49
    assert len(places) == 1


def test_growth_in_the_middle_of_a_request_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = TreeLayer.__init__
    monkeypatch.setattr(TreeLayer, "__init__", lambda layer, _: honest(layer, 2))
    model, prompt = HFTarget(tiny("llama")), prompt_of(9)
    truth = reference(model.model, prompt, 40)
    for drafter in (None, oracle(truth), junk(), mixed(truth)):
        request = model.request(prompt, max_new_tokens=40)
        assert list(Engine(model, drafter, on_error="raise").generate(request).tokens) == truth


class Spy:
    """Stands in for a model's forward and notes its arguments."""

    def __init__(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[dict[str, Any]] = []
        self._forward = model.forward
        monkeypatch.setattr(model, "forward", self, raising=False)

    def __call__(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        return self._forward(**arguments)


def test_a_plain_pass_carries_no_mask_and_a_draft_does(monkeypatch: pytest.MonkeyPatch) -> None:
    target = HFTarget(tiny("llama"))
    spy = Spy(target.model, monkeypatch)
    Engine(target).generate(target.request(prompt_of(9), max_new_tokens=4))
    assert ["attention_mask" in call for call in spy.calls] == [False] * 4
    spy.calls.clear()
    Engine(target, junk(), on_error="raise").generate(
        target.request(prompt_of(9), max_new_tokens=4)
    )
    first, second, *_ = spy.calls
    # On the prompt's pass only the root and the nodes have rows; later the root is all there is.
    assert first["attention_mask"].shape[-2] == first["input_ids"].shape[1] - 8
    assert first["attention_mask"].shape[-1] == first["input_ids"].shape[1]
    assert second["attention_mask"].shape[-2] == second["input_ids"].shape[1]


def test_logits_are_asked_for_the_root_and_the_nodes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    target = HFTarget(tiny("llama"))
    spy = Spy(target.model, monkeypatch)
    steps = list(
        Engine(target, junk(), on_error="raise").stream(
            target.request(prompt_of(90), max_new_tokens=6)
        )
    )
    assert [c["logits_to_keep"] for c in spy.calls] == [1 + len(step.tree) for step in steps]


def test_a_draft_rides_along_with_the_end_of_a_long_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where masks cannot be short, the head goes ahead without one; the mask stays small."""
    monkeypatch.setattr("specdec.hf.session.RIDE", 16)
    target = HFTarget(tiny("mistral-window"))
    assert not target.short_masks
    spy = Spy(target.model, monkeypatch)
    Engine(target, junk(nodes=5), on_error="raise").generate(
        target.request(prompt_of(50), max_new_tokens=2)
    )
    first, second, *_ = spy.calls
    assert "attention_mask" not in first
    assert first["input_ids"].shape[1] == 50 - 16
    mask = second["attention_mask"]
    assert mask.shape[-2] <= 16 + 5
    assert mask.shape[-1] == second["input_ids"].shape[1] + 34


def test_closing_a_session_gives_its_cache_back() -> None:
    target = HFTarget(tiny("llama"))
    session = target.start(target.request(prompt_of(9), max_new_tokens=4), Needs())
    session.forward(tuple(prompt_of(9)), among_wrong([1], 1, 67))
    session.close()
    assert not session._layers
    assert not session._cache.layers
    assert session._logits.numel() == 0


@pytest.mark.parametrize("family", ["gpt2-short", "phi3-longrope", "llama"])
def test_passes_of_any_size_can_be_timed_on_any_model(family: str) -> None:
    """Also where nodes or cache lengths exceed a small model's positions."""
    target = HFTarget(tiny(family))
    for nodes, kv_length in [(0, 0), (7, 24), (63, 256), (63, 2048)]:
        assert target.pass_seconds(nodes, kv_length) > 0


def test_timing_leaves_later_requests_alone() -> None:
    for family in ("llama", "llama-dynamic"):
        target, prompt = HFTarget(tiny(family)), prompt_of(20)
        truth = reference(target.model, prompt, 20)
        target.pass_seconds(7, 300)
        request = target.request(prompt, max_new_tokens=20)
        assert list(Engine(target, oracle(truth)).generate(request).tokens) == truth
