"""Tiny random float64 models of every supported family, and drafters that know or guess."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
import transformers as hf

from specdec.engine import Engine
from specdec.interfaces import (
    Decide,
    Decision,
    Drafter,
    DraftSession,
    Needs,
    Verdict,
    Verifier,
)
from specdec.request import Request
from specdec.tree import EMPTY, ROOT, DraftTree, Limit, Vote

CACHE = (
    "cache"
    if "cache" in hf.generation.GenerateDecoderOnlyOutput.__annotations__
    else "past_key_values"
)
"""What this transformers calls a cache."""

VOCABULARY = 67
"""Odd on purpose: no power of two hides a wrong stride."""

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
WINDOW = 6
"""Sliding window of the models that have one: shorter than most prompts, a draft crosses it."""

SWITCH = 24
"""Length at which the models with changing rotary embeddings change them."""

TABLE = 48
"""Positions of the small GPT-2."""


def _llama(**changes: Any) -> hf.PretrainedConfig:
    return hf.LlamaConfig(**_SIZES | changes)


def _gpt2(**changes: Any) -> hf.PretrainedConfig:
    sizes = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 640}
    ends = {
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "tie_word_embeddings": False,
    }
    return hf.GPT2Config(**sizes | ends | changes)


def _gemma3() -> hf.PretrainedConfig:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    changes = {"num_hidden_layers": 3, "layer_types": kinds, "sliding_window": WINDOW}
    return hf.Gemma3TextConfig(**_SIZES | changes | {"head_dim": 8})


def _phi3() -> hf.PretrainedConfig:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [2.0, 3.0, 4.0, 5.0],
        "original_max_position_embeddings": SWITCH,
    }
    return hf.Phi3Config(
        **_SIZES, rope_parameters=rope, original_max_position_embeddings=SWITCH, head_dim=8
    )


def _dynamic() -> hf.PretrainedConfig:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    return _llama(max_position_embeddings=SWITCH, rope_parameters=rope)


FAMILIES: dict[str, Callable[[], hf.PretrainedConfig]] = {
    "llama": _llama,
    "llama-tied": lambda: _llama(tie_word_embeddings=True, num_key_value_heads=1),
    "qwen2": lambda: hf.Qwen2Config(**_SIZES),
    "qwen3": lambda: hf.Qwen3Config(**_SIZES, head_dim=8),
    "mistral-window": lambda: hf.MistralConfig(**_SIZES, sliding_window=WINDOW),
    "gemma3-mixed": _gemma3,
    "gpt2": _gpt2,
    "gpt2-short": lambda: _gpt2(n_positions=TABLE),
    "phi3-longrope": _phi3,
    "llama-dynamic": _dynamic,
}


def build(
    config: hf.PretrainedConfig,
    *,
    attention: str = "sdpa",
    seed: int = 0,
    auto: Any = hf.AutoModelForCausalLM,
) -> hf.PreTrainedModel:
    """A float64 model with weights large enough that positions and masks matter."""
    config = copy.deepcopy(config)
    config._attn_implementation = attention
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = auto.from_config(config).to(torch.float64).eval()
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.normal_(0.0, 0.6 if "emb" in name or "wte" in name else 0.3)
    model.generation_config = hf.GenerationConfig()
    return model


@cache
def tiny(family: str, attention: str = "sdpa") -> hf.PreTrainedModel:
    """The model of a family in FAMILIES; shared by all tests, so leave it as it is."""
    return build(FAMILIES[family](), attention=attention)


def prompt_of(length: int, *, seed: int = 0, vocabulary: int = VOCABULARY) -> list[int]:
    """A prompt with repeats, so that lookup drafters find something."""
    draw = random.Random(seed)
    period = [draw.randrange(vocabulary) for _ in range(min(length, 11))]
    return [
        draw.choice(period) if draw.random() < 0.3 else period[i % len(period)]
        for i in range(length)
    ]


FORGETS = "next_sequence_length" not in inspect.getsource(
    hf.Phi3ForCausalLM.prepare_inputs_for_generation
)
"""Older transformers drop Phi's cache at the switch but then feed the last token only."""


def _anew(model: hf.PreTrainedModel, prompt: Sequence[int], tokens: int) -> list[int]:
    """Greedy tokens, the whole text computed anew for each: what generate means to write."""
    ids = list(prompt)
    for _ in range(tokens):
        ids.append(int(plain_rows(model, ids, 1)[0].float().argmax()))
    return ids[len(prompt) :]


def reference(
    model: hf.PreTrainedModel, prompt: Sequence[int], tokens: int, **options: Any
) -> list[int]:
    """What `model.generate` writes after `prompt`; greedy unless `options` say otherwise."""
    forgetful = FORGETS and isinstance(model, hf.Phi3ForCausalLM | hf.PhimoeForCausalLM)
    if forgetful and len(prompt) <= SWITCH and not options.get("do_sample"):
        return _anew(model, prompt, tokens)
    ids = torch.tensor([list(prompt)])
    out = model.generate(
        ids,
        # Without a mask, generate would guess one from padding tokens inside the prompt.
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        **{"do_sample": False, "pad_token_id": 0} | options,
    )
    return out[0, len(prompt) :].tolist()


@torch.no_grad()
def plain_rows(model: hf.PreTrainedModel, ids: Sequence[int], last: int) -> torch.Tensor:
    """(last, V) logits of the last rows of one plain pass over `ids`, without a cache."""
    return model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -last:]


def tree_of(nodes: Iterable[tuple[int, int]], source: str = "test") -> DraftTree:
    """A tree from (parent, token) pairs, parents first."""
    rows = tuple(nodes)
    n = len(rows)
    return DraftTree(
        tuple(token for _, token in rows),
        tuple(parent for parent, _ in rows),
        (0.9,) * n,
        ((Vote(source, 0.9),),) * n,
    )


def random_tree(draw: random.Random, nodes: int, depth: int, vocabulary: int) -> DraftTree:
    """A random tree of at most `nodes` nodes and `depth` depth."""
    rows: list[tuple[int, int]] = []
    depths: list[int] = []
    for _ in range(nodes):
        parent = draw.randrange(ROOT, len(rows))
        below = 1 if parent == ROOT else depths[parent] + 1
        row = parent, draw.randrange(vocabulary)
        if below <= depth and row not in rows:
            rows.append(row)
            depths.append(below)
    return tree_of(rows, "junk")


def among_wrong(truth: Sequence[int], wrong: int, vocabulary: int) -> DraftTree:
    """`truth` as a path, at every node behind `wrong` siblings that carry other tokens.

    The nodes of the true path are not next to each other: cache rows must really move.
    """
    rows: list[tuple[int, int]] = []
    above = ROOT
    for token in truth:
        first = len(rows)
        rows += [(above, (token + 1 + i) % vocabulary) for i in range(wrong)]
        # A wrong branch goes on below its first node, with the token that would be right.
        if wrong:
            rows.append((first, token))
        rows.append((above, token))
        above = len(rows) - 1
    return tree_of(rows, "oracle")


class Scripted(Drafter):
    """Proposes what `offer(output so far, limit)` says; pure, so it keeps the contract."""

    def __init__(
        self, offer: Callable[[tuple[int, ...], Limit], DraftTree], needs: Needs | None = None
    ) -> None:
        self.offer = offer
        self.wanted = needs or Needs()
        self.embeddings: list[Any] = []
        self.steps: list[Any] = []

    @property
    def needs(self) -> Needs:
        return self.wanted

    def start(self, request: Request, committed: Sequence[int] = ()) -> DraftSession:
        return _ScriptedSession(self, len(request.prompt))


class _ScriptedSession(DraftSession):
    def __init__(self, drafter: Scripted, prompt: int) -> None:
        self._drafter = drafter
        self._prompt = prompt

    def prefilled(self, embedding: Any) -> None:
        self._drafter.embeddings.append(embedding)

    def observe(self, step: Any) -> None:
        self._drafter.steps.append(step)

    def propose(self, tokens: Sequence[int], limit: Limit) -> DraftTree:
        return self._drafter.offer(tuple(tokens[self._prompt :]), limit)


def oracle(
    truth: Sequence[int], *, depth: int = 4, wrong: int = 2, vocabulary: int = VOCABULARY
) -> Scripted:
    """Drafts the next tokens of `truth` among wrong branches."""

    def offer(output: tuple[int, ...], limit: Limit) -> DraftTree:
        deep = min(depth, limit.depth, limit.nodes // (wrong + 2))
        # A wrong branch reaches one node below its level, so it may not start at the last.
        ahead = truth[len(output) : len(output) + deep]
        if not ahead:
            return EMPTY
        tree = among_wrong(ahead, wrong, vocabulary)
        fits = [node for node in range(len(tree)) if tree.depths[node] <= limit.depth]
        return tree.keep(fits)

    return Scripted(offer)


def junk(*, nodes: int = 12, vocabulary: int = VOCABULARY) -> Scripted:
    """Random trees, the same for the same output so far."""

    def offer(output: tuple[int, ...], limit: Limit) -> DraftTree:
        draw = random.Random(f"{output}")
        return random_tree(draw, min(nodes, limit.nodes), limit.depth, vocabulary)

    return Scripted(offer)


def mixed(truth: Sequence[int], *, vocabulary: int = VOCABULARY) -> Scripted:
    """By turns the truth among wrong branches, junk, a half-right chain, and nothing."""
    right, wrong = oracle(truth, vocabulary=vocabulary), junk(vocabulary=vocabulary)

    def offer(output: tuple[int, ...], limit: Limit) -> DraftTree:
        turn = random.Random(len(output)).randrange(4)
        if turn == 0:
            return right.offer(output, limit)
        if turn == 1:
            return wrong.offer(output, limit)
        if turn == 2:
            ahead = list(truth[len(output) : len(output) + 3])
            chain = [*ahead, (ahead[-1] + 1) % vocabulary] if ahead else []
            return DraftTree.chain(chain[: min(limit.depth, limit.nodes)], source="half")
        return EMPTY

    return Scripted(offer)


class RowCheck(Verifier):
    """Compares every row of every pass with a plain pass over that row's own path.

    Then it walks a random path, one that is not the first branch if there is a choice, and goes
    on with a random token that no node carries, whatever the model prefers. `worst` is the
    largest difference seen, `rows` the number of rows compared, `moved` the number of commits
    whose rows had to move in the cache.
    """

    def __init__(self, model: hf.PreTrainedModel, prompt: Sequence[int], *, seed: int = 0) -> None:
        self._model = model
        self._ids = list(prompt)
        self._draw = random.Random(seed)
        self._wanted = 0
        self._vocabulary = model.config.get_text_config().vocab_size
        self.worst = 0.0
        self.rows = 0
        self.moved = 0

    def steer(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """A logits processor that leaves only the token wanted next."""
        assert ids[0].tolist() == self._ids, "a processor must see the path's own prefix"
        return torch.full_like(scores, -torch.inf).index_fill_(
            1, torch.tensor([self._wanted], device=scores.device), 0.0
        )

    def verify(self, tree: DraftTree, logits: torch.Tensor, decide: Decide) -> Verdict:
        self._compare(tree, logits)
        path = self._choose(tree)
        for node in path:
            decision = self._take(decide, tree.tokens[node], logits[node])
            if decision.stop:
                return Verdict(path[: path.index(node) + 1], None, stopped=True)
        last = path[-1] if path else ROOT
        taken = {t for t, p in zip(tree.tokens, tree.parents, strict=True) if p == last}
        free = sorted(set(range(self._vocabulary)) - taken)
        decision = self._take(decide, self._draw.choice(free), logits[last + 1])
        return Verdict(path, decision.token, decision.stop)

    def _take(self, decide: Decide, token: int, row: torch.Tensor) -> Decision:
        self._wanted = token
        decision = decide((), row)
        assert decision.token == token
        self._ids.append(token)
        return decision

    def _choose(self, tree: DraftTree) -> tuple[int, ...]:
        if not tree:
            return ()
        path = tree.path_to(max(self._draw.sample(range(len(tree)), min(2, len(tree)))))
        self.moved += path != tuple(range(len(path)))
        return path

    def _compare(self, tree: DraftTree, logits: torch.Tensor) -> None:
        paths = [self._ids] + [
            self._ids + [tree.tokens[node] for node in tree.path_to(leaf)]
            for leaf in range(len(tree))
        ]
        # One pass for all paths of a length: padding would move the switch of a long-rope.
        for length in {len(path) for path in paths}:
            rows = [row for row, path in enumerate(paths) if len(path) == length]
            batch = torch.tensor([paths[row] for row in rows])
            with torch.no_grad():
                plain = self._model(input_ids=batch, use_cache=False).logits[:, -1]
            self.worst = max(self.worst, float((logits[rows] - plain).abs().max()))
            self.rows += len(rows)


def check_rows(
    target: Any, prompt: Sequence[int], tokens: int, *, seed: int = 0, nodes: int = 9
) -> RowCheck:
    """Decode `tokens` tokens along random branches of random trees, comparing every row."""
    check = RowCheck(target.model, prompt, seed=seed)
    request = target.request(prompt, max_new_tokens=tokens, processors=(check.steer,), stop_ids=())
    drafter = junk(nodes=nodes, vocabulary=target.vocabulary)
    Engine(target, drafter, verifier=check, on_error="raise").generate(request)
    return check
