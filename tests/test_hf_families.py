"""Each family of models is decoded exactly or refused, and docs/families.md says which."""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
import torch
import transformers as hf
from families import FAMILIES, Family, NotOffered, called, faults, tiny_family, try_out
from models import (
    CACHE,
    SWITCH,
    WINDOW,
    build,
    check_rows,
    junk,
    plain_rows,
    prompt_of,
    reference,
    tiny,
    tree_of,
)
from models import FAMILIES as SETTINGS

from specdec.engine import Engine
from specdec.errors import UnsupportedModel
from specdec.hf import HFTarget, session, speculate
from specdec.hf.attention import NAME, packed
from specdec.hf.compat import WAY_OUT, asks_for
from specdec.hf.masks import MaskPlan, tree_masks
from specdec.tree import ROOT, DraftTree

REPOSITORY = Path(__file__).parents[1]

EXACT = [family for family in FAMILIES if not family.refused]

FAULT = 0.1
"""The least that any fault of this file moves a logit, in standard deviations of the logits."""


def by_name(family: Family) -> str:
    return family.name


def model_of(family: Family) -> hf.PreTrainedModel:
    """Its model under the attention that transformers prefers."""
    if not family.known:
        pytest.skip(f"transformers {hf.__version__} has no {family.config}")
    try:
        return tiny_family(family, "sdpa")
    except NotOffered:
        return tiny_family(family, "eager")


def spread(model: hf.PreTrainedModel) -> float:
    return float(plain_rows(model, prompt_of(9), 5).std())


def worst(target: HFTarget) -> float:
    """The largest difference of any row from its plain pass, in standard deviations."""
    return check_rows(target, prompt_of(11), 8, nodes=12).worst / spread(target.model)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_a_family_is_exact_or_refused(family: Family, attention: str) -> None:
    if not family.known:
        pytest.skip(f"transformers {hf.__version__} has no {family.config}")
    outcome = try_out(family, attention)
    if outcome.verdict == "none":
        assert attention == "sdpa", "every family has eager attention"
        return
    assert outcome.faults == ()
    assert outcome.verdict == ("refused" if family.refused else "exact"), outcome.reason
    if family.refused:
        assert outcome.reason.startswith(type(tiny_family(family, attention)).__name__)
        assert family.refused in outcome.reason
        assert outcome.reason.endswith(WAY_OUT)


@pytest.mark.parametrize("family", EXACT, ids=by_name)
def test_a_family_goes_on_with_its_cache_inside_generate(family: Family) -> None:
    """Two turns with one cache, plainly and with drafts; the second begins beyond the window."""
    model = model_of(family)
    outputs: list[list[int]] = []
    for custom in (None, speculate(junk(nodes=10), budget=10, on_error="raise")):
        ids, held = torch.tensor([prompt_of(9)]), {}
        for turn in range(2):
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=5,
                do_sample=False,
                pad_token_id=0,
                return_dict_in_generate=True,
                custom_generate=custom,
                **held,
            )
            held = {CACHE: getattr(out, CACHE)}
            ids = torch.cat([out.sequences, torch.tensor([prompt_of(4, seed=turn)])], dim=1)
        outputs.append(ids[0].tolist())
    assert outputs[0] == outputs[1]


def test_the_page_of_families_is_what_make_docs_writes() -> None:
    pinned = re.search(r"^transformers==(.*)$", (REPOSITORY / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    if hf.__version__ != pinned[1]:
        pytest.skip(f"the page is about transformers {pinned[1]}, this is {hf.__version__}")
    spec = importlib.util.spec_from_file_location("page", REPOSITORY / "docs/families.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (REPOSITORY / "docs/families.md").read_text(encoding="utf-8") == module.page()


# The comparisons above prove something only if they notice what could be wrong in each family.


def causal(plan: MaskPlan, cached: int, pending: int, tree: DraftTree, *rest: object) -> object:
    """Masks for a chain of as many nodes as the tree has."""
    chain = DraftTree.chain(range(len(tree)), source="causal")
    return tree_masks(plan, cached, pending, chain, *rest)  # type: ignore[arg-type]


def endless(plan: MaskPlan, *rest: object) -> object:
    """Masks without a window, and with chunks that never end."""
    wide = attrs.evolve(plan, window=None, chunk=plan.chunk and 10**6)
    return tree_masks(wide, *rest)  # type: ignore[arg-type]


def flat(cached: int, pending: int, tree: DraftTree) -> torch.Tensor:
    """Positions by index instead of by depth."""
    return torch.arange(cached, cached + pending + len(tree))[None]


@pytest.mark.parametrize("family", EXACT, ids=by_name)
def test_rows_show_wrong_masks_and_positions(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = HFTarget(model_of(family))
    with monkeypatch.context() as broken:
        broken.setattr(session, "positions", flat)
        assert worst(target) > FAULT
    with monkeypatch.context() as broken:
        broken.setattr(session, "tree_masks", causal)
        assert worst(target) > FAULT
    plan = target.ability.masks
    if plan.window or plan.chunk:
        monkeypatch.setattr(session, "tree_masks", endless)
        assert worst(target) > FAULT


@pytest.mark.parametrize("part", [r"sinks$", r"router|\.gate\.(wg\.)?weight$"])
def test_sinks_and_routers_weigh(part: str) -> None:
    """With weights too small to matter, a family would be exact whatever is done to them."""
    tried = 0
    for family in EXACT:
        if not family.known:
            continue
        model = model_of(family)
        found = [name for name, _ in model.named_parameters() if re.search(part, name)]
        if not found:
            continue
        lame = copy.deepcopy(model)
        with torch.no_grad():
            for name in found:
                lame.get_parameter(name).fill_(-1e9 if "sinks" in part else 0.0)
        rows = [plain_rows(each, prompt_of(12), 5) for each in (model, lame)]
        assert float((rows[0] - rows[1]).abs().max()) / spread(model) > FAULT, family.name
        tried += 1
    assert tried > 3


def test_every_comparison_notices_a_missing_window(monkeypatch: pytest.MonkeyPatch) -> None:
    target = HFTarget(model_of(called("Mistral")))
    assert list(faults(target)) == []
    monkeypatch.setattr(session, "tree_masks", endless)
    found = " ".join(faults(target))
    for part in ("rows are off", "honest", "mixed", "sampled output", "end of the positions"):
        assert part in found


# What the matrix found, each as small as it gets.


def test_a_setting_counts_only_where_the_code_asks_for_it() -> None:
    """GPT-NeoX has inherited `is_decoder = False` and is a decoder all the same."""
    neox = model_of(called("GPT-NeoX"))
    assert neox.config.is_decoder is False
    assert not asks_for(neox, "is_decoder")
    bert = hf.BertConfig(
        vocab_size=67,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    model = build(bert)
    assert asks_for(model, "is_decoder")
    with pytest.raises(UnsupportedModel, match="BertLMHeadModel looks at later tokens"):
        HFTarget(model)


@pytest.mark.parametrize(
    ("name", "inside"), [("Llama", NAME), ("EXAONE", NAME), ("Qwen 2 VL", NAME), ("Falcon", "sdpa")]
)
def test_attention_is_renamed_only_where_it_is_looked_up_by_name(name: str, inside: str) -> None:
    """Falcon asks whether the name is "sdpa"; EXAONE 3 is a Llama with another configuration."""
    config = model_of(called(name)).config.get_text_config()
    with packed(config):
        assert config._attn_implementation == inside
    assert config._attn_implementation == "sdpa"


def test_a_window_that_only_the_cache_knows_is_refused() -> None:
    """`generate` would drop what the prompt's pass has seen, from the first token on."""
    config = SETTINGS["llama"]()
    config.sliding_window = WINDOW
    model, prompt = build(config), prompt_of(20)
    assert reference(model, prompt, 12) != reference(tiny("llama"), prompt, 12)
    with pytest.raises(UnsupportedModel, match=f"forgets what stands more than {WINDOW} tokens"):
        HFTarget(model)


def test_a_chunk_ends_for_each_node_at_its_own_position() -> None:
    """Hand-made: 3 cached, 1 pending, nodes a -> c and b; chunks of 4 positions."""
    tree = tree_of([(ROOT, 5), (ROOT, 6), (0, 7)])
    plan = MaskPlan(chunk=4, mapped=True)
    masks = tree_masks(plan, 3, 1, tree, torch.float64, torch.device("cpu"))
    assert isinstance(masks, dict)
    assert seen(masks["chunked_attention"]) == [
        [1, 1, 1, 1, 0, 0, 0],  # root at position 3, the last of its chunk
        [0, 0, 0, 0, 1, 0, 0],  # a at 4
        [0, 0, 0, 0, 0, 1, 0],  # b at 4
        [0, 0, 0, 0, 1, 0, 1],  # c at 5
    ]
    assert seen(masks["full_attention"])[3] == [1, 1, 1, 1, 1, 0, 1]


def seen(mask: torch.Tensor) -> list[list[int]]:
    rows: list[list[int]] = (mask[0, 0] == 0).int().tolist()
    return rows


def test_a_model_that_loses_its_cache_is_refused_by_the_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first rows are kept instead of the accepted ones."""
    honest = session.Session.commit

    def keep_first(self: session.Session, path: Sequence[int]) -> None:
        honest(self, range(len(path)))

    monkeypatch.setattr(session.Session, "commit", keep_first)
    with pytest.raises(UnsupportedModel, match="does not follow what its cache holds"):
        HFTarget(tiny("llama"))


def test_the_language_model_of_a_composite_says_which_attention_it_uses() -> None:
    model = copy.deepcopy(model_of(called("Gemma 3 with images")))
    model.config.get_text_config()._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(UnsupportedModel, match="flash_attention_2"):
        HFTarget(model)


def test_a_layer_that_attends_with_the_keys_of_another_needs_no_rows_of_its_own() -> None:
    """Gemma 3n and the small Gemma 4 share keys: two of four layers never write to the cache."""
    target = HFTarget(model_of(called("Gemma 4, small")))
    result = Engine(target, on_error="raise").generate(target.request(prompt_of(9)))
    assert len(result.tokens) == 256


@pytest.mark.parametrize("name", ["Llama, dynamic NTK", "Gemma 3, dynamic NTK"])
def test_rotations_forget_a_longer_request(name: str) -> None:
    """Also where each type of layer has rotations of its own."""
    model = model_of(called(name))
    truth = reference(copy.deepcopy(model), prompt_of(SWITCH), 8)
    engine = Engine(HFTarget(model), on_error="raise")
    for length in (3 * SWITCH, SWITCH):
        request = engine.target.request(prompt_of(length), max_new_tokens=8)
        result = engine.generate(request)
    assert list(result.tokens) == truth
