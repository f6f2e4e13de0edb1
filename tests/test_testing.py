"""The conformance kit, tried on components that keep their contract and on broken ones."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zlib
from collections import OrderedDict
from contextlib import suppress
from functools import cache
from itertools import cycle

import attrs
import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper

from specdec.compose import Fallback, Merge
from specdec.engine import Engine
from specdec.errors import ContractError, RequestError
from specdec.interfaces import (
    Continuation,
    Drafter,
    DraftSession,
    Episode,
    Memory,
    Needs,
    StateMachine,
    Verdict,
    Verifier,
)
from specdec.machine import MachineDrafter
from specdec.request import Request, Sampling
from specdec.tenants import PerTenant
from specdec.testing import (
    CharCodec,
    CheckFailed,
    CheckResult,
    OracleTarget,
    drafter_checks,
    machine_checks,
    memory_checks,
    run_checks,
    verifier_checks,
)
from specdec.testing.cases import CALL
from specdec.testing.chi_square import critical
from specdec.testing.replay import Neighbour
from specdec.tree import EMPTY, ROOT, DraftTree, Limit
from specdec.verify import ExactVerifier

pytest_plugins = ["pytester"]


def failing(factory, **options):
    """The names of the checks that fail."""
    return {row.check for row in run_checks(factory, **options) if not row.ok}


def message(factory, check, **options):
    """What a failing check says."""
    row = next(row for row in run_checks(factory, **options) if row.check == check)
    assert not row.ok
    return row.message


# --- drafters ----------------------------------------------------------------------------------


class Session(DraftSession):
    """Prompt lookup; the base of all that is broken below."""

    def __init__(self, drafter, request, committed):
        self.drafter = drafter
        self.request = request
        self.history = [*request.prompt, *committed]

    def observe(self, step):
        self.history += step.committed

    def propose(self, tokens, limit):
        found = behind(self.history, limit)
        return DraftTree.chain(found, source="lookup", score=0.5)


def behind(history, limit):
    """What stood behind the last two tokens, or the last, when they stood there before."""
    for size in (2, 1):
        tail = history[-size:]
        for start in range(len(history) - size - 1, max(len(history) - 200, -1), -1):
            if history[start : start + size] == tail:
                found = history[start + size :]
                return found[: min(limit.nodes, limit.depth)]
    return []


class Lookup(Drafter):
    """An honest drafter; subclasses break it by their session."""

    session = Session

    def start(self, request, committed=()):
        return self.session(self, request, committed)


class Learner(Lookup):
    """An honest drafter that remembers, by tenant: which token came after which."""

    class session(Session):
        def __init__(self, drafter, request, committed):
            super().__init__(drafter, request, committed)
            self.table = drafter.tables[request.tenant]

        def observe(self, step):
            before = self.history[-1]
            for token in step.committed:
                self.table[before] = before = token
            super().observe(step)

        def propose(self, tokens, limit):
            chain, token = [], self.history[-1]
            while len(chain) < min(limit.nodes, limit.depth) and token in self.table:
                token = self.table[token]
                chain.append(token)
            return DraftTree.chain(chain, source="learner")

    def __init__(self):
        self.tables = PerTenant(dict)

    @property
    def remembers(self):
        return True

    def state(self):
        return {tenant: dict(self.tables[tenant]) for tenant in self.tables}

    def restore(self, state):
        self.tables.clear()
        for tenant, table in state.items():
            self.tables[tenant].update(table)


class Ranked(Lookup):
    """An honest drafter that needs the target's most likely ids and the prompt's embedding."""

    class session(Session):
        def __init__(self, drafter, request, committed):
            super().__init__(drafter, request, committed)
            self.drafter = drafter

        def observe(self, step):
            super().observe(step)
            row = step.top_ids[0 if not step.path else step.path[-1] + 1]
            # The row belongs to the bonus's position: what else might have stood there.
            self.drafter.tables[self.request.tenant][step.committed[-1]] = [int(i) for i in row[:4]]

        def propose(self, tokens, limit):
            ids = self.drafter.tables[self.request.tenant].get(self.history[-1], [])
            pairs = [[token] for token in ids]
            return DraftTree.from_sequences(pairs, source="ranked", limit=limit, scores=[0.2] * 4)

    def __init__(self):
        self.tables = PerTenant(dict)

    needs = Needs(top_k=4, embedding=True)
    remembers = True
    state = Learner.state
    restore = Learner.restore


@cache
def grown(literal, size, character):
    """The most characters of `literal` that its first `size` and `character` end with."""
    seen = literal[:size] + character
    sizes = range(min(len(seen), len(literal)), -1, -1)
    return next(size for size in sizes if seen.endswith(literal[:size]))


class Literal(StateMachine):
    """An honest machine: it waits for the beginning of one literal and offers the rest of it.

    Its state is the number of characters of the literal that the text ends with.
    """

    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "s\u00e3o paulo"'

    def start(self, request):
        return 0

    def advance(self, state, text):
        for character in text:
            state = grown(self.text, state, character)
        return state

    def continuations(self, state):
        rest = self.text[state:]
        return [Continuation(rest, 0.9 if state else 0.1, "literal")] if rest else []


def literal_drafter():
    """A text drafter: its literal is what the oracle writes in the kit's tool call."""
    return MachineDrafter(Literal())


@drafter_checks(
    Lookup,
    Fallback,
    Learner,
    Ranked,
    literal_drafter,
    lambda: Fallback(literal_drafter(), Lookup()),
    lambda: Merge(Learner(), literal_drafter(), Fallback(Ranked(), Lookup())),
)
def test_honest_drafters_conform(check):
    check()


class AdvancesInPropose(Session):
    asked = 0

    def propose(self, tokens, limit):
        self.asked += 1
        return super().propose(tokens, limit) if self.asked % 3 else EMPTY


class KeepsItsHistory(Session):
    def __init__(self, drafter, request, committed):
        drafter.__dict__.setdefault("history", []).extend([*request.prompt, *committed])
        self.history = drafter.history


class SharesItsHistory(Session):
    """Each request starts afresh, so only sessions open at once disturb each other."""

    def __init__(self, drafter, request, committed):
        super().__init__(drafter, request, committed)
        self.drafter.history = self.history

    def observe(self, step):
        self.drafter.history += step.committed

    def propose(self, tokens, limit):
        return DraftTree.chain(behind(self.drafter.history, limit), source="lookup")


class ReadsTopIds(Session):
    def observe(self, step):
        super().observe(step)
        assert step.top_ids.shape[1] > 0


class ReadsEmbedding(Session):
    def prefilled(self, embedding):
        assert embedding.shape


class RanksByColumn(Session):
    def observe(self, step):
        super().observe(step)
        np.zeros((len(step.top_ids), 8))[:] = step.top_ids


class ProposesV(Session):
    def propose(self, tokens, limit):
        return DraftTree.chain([self.request.vocabulary], source="broken")


class ProposesMinusOne(Session):
    def propose(self, tokens, limit):
        return DraftTree.chain([-1], source="broken")


class ExpectsABonus(Session):
    def observe(self, step):
        self.history += [*step.committed[: len(step.path)], step.committed[len(step.path)]]


class RaisesOnShortPrompts(Session):
    def propose(self, tokens, limit):
        tokens[-3]
        return super().propose(tokens, limit)


class ReturnsAList(Session):
    def propose(self, tokens, limit):
        return behind(self.history, limit)


class IgnoresTheNodes(Session):
    def propose(self, tokens, limit):
        return super().propose(tokens, Limit(limit.nodes + 1, limit.depth + 1))


class IgnoresTheDepth(Session):
    def propose(self, tokens, limit):
        return super().propose(tokens, Limit(limit.nodes, limit.nodes))


class Draws(Session):
    def propose(self, tokens, limit):
        return super().propose(tokens, limit) if random.random() < 0.5 else EMPTY


class DrawsWithTorch(Session):
    def propose(self, tokens, limit):
        return super().propose(tokens, limit) if torch.rand(1) < 0.5 else EMPTY


class DrawsWithNumpy(Session):
    def propose(self, tokens, limit):
        return super().propose(tokens, limit) if np.random.rand() < 0.5 else EMPTY


class SeedsTheGenerator(Session):
    """Deterministic, but the target draws the same numbers again and again."""

    def propose(self, tokens, limit):
        torch.default_generator.manual_seed(len(tokens))
        return super().propose(tokens, limit)


class ForgetsCommitted(Session):
    def __init__(self, drafter, request, committed):
        super().__init__(drafter, request, ())


class WritesToItsIds(Session):
    def observe(self, step):
        super().observe(step)
        step.top_ids[:] = 0


class NeedsAFinish(Session):
    """It has room for a few requests that were never finished."""

    def __init__(self, drafter, request, committed):
        super().__init__(drafter, request, committed)
        drafter.open = vars(drafter).get("open", 0) + 1
        if drafter.open > 5:
            raise MemoryError("too many open sessions")

    def finish(self, result):
        self.drafter.open -= 1


class RefusesSampling(Session):
    def __init__(self, drafter, request, committed):
        assert request.sampling is None
        super().__init__(drafter, request, committed)


def broken(session, **attributes):
    """A class of lookup drafters with this session."""
    return type(session.__name__, (Lookup,), {"session": session, **attributes})


class NotADrafter:
    pass


class NeedsNothingNamed(Lookup):
    needs = 8


class StartsNothing(Lookup):
    session = staticmethod(lambda drafter, request, committed: None)


class ForgetfulLearner(Learner):
    def restore(self, state):
        pass


class AddingLearner(Learner):
    """Restored in place of nothing: what it knew before stays."""

    def restore(self, state):
        for tenant, table in state.items():
            self.tables[tenant].update(table)


class UnsavableLearner(Learner):
    def state(self):
        return {"tables": self.tables}


class SecretLearner(Learner):
    """Undeclared memory."""

    remembers = False


class LeakingLearner(Learner):
    """One table for all tenants."""

    class Shared(dict):
        def __missing__(self, tenant):
            return self.setdefault("all", {})

    def __init__(self):
        self.tables = self.Shared()


LEAKS = {"requests_do_not_leak", "tenants_do_not_leak"}


@pytest.mark.parametrize(
    ("factory", "caught"),
    [
        (broken(ReturnsAList), {"returns_a_tree"}),
        (broken(RaisesOnShortPrompts), {"returns_a_tree"}),
        (broken(WritesToItsIds), {"returns_a_tree"}),
        (NeedsNothingNamed, {"returns_a_tree"}),
        (StartsNothing, {"returns_a_tree"}),
        (broken(ReadsTopIds), {"declares_its_needs"}),
        (broken(ReadsEmbedding), {"declares_its_needs"}),
        (broken(RanksByColumn, needs=Needs(top_k=8)), {"declares_its_needs"}),
        (broken(IgnoresTheNodes), {"keeps_to_the_limit"}),
        (broken(IgnoresTheDepth), {"keeps_to_the_limit"}),
        (broken(ProposesV), {"stays_in_the_vocabulary"}),
        (broken(ProposesMinusOne), {"stays_in_the_vocabulary"}),
        (broken(Draws), {"leaves_global_random_state_alone", "is_deterministic"}),
        (broken(DrawsWithTorch), {"leaves_global_random_state_alone", "is_deterministic"}),
        (broken(DrawsWithNumpy), {"leaves_global_random_state_alone", "is_deterministic"}),
        (broken(SeedsTheGenerator), {"leaves_global_random_state_alone"}),
        (broken(AdvancesInPropose), {"follows_committed_tokens_only"}),
        (broken(ForgetsCommitted), {"can_be_rebuilt"}),
        (
            broken(KeepsItsHistory),
            {"can_be_rebuilt", "requests_do_not_leak", "tenants_do_not_leak"},
        ),
        (broken(SharesItsHistory), {"requests_do_not_leak", "tenants_do_not_leak"}),
        (SecretLearner, {"requests_do_not_leak"}),
        (LeakingLearner, {"tenants_do_not_leak"}),
        (ForgetfulLearner, {"state_round_trips"}),
        (AddingLearner, {"state_round_trips"}),
        (UnsavableLearner, {"state_round_trips"}),
        (broken(RefusesSampling), {"output_is_unchanged"}),
        (broken(ExpectsABonus), {"survives_being_cut_off"}),
        (broken(NeedsAFinish), {"survives_being_cut_off"}),
    ],
    ids=lambda value: getattr(value, "__name__", "-"),
)
def test_a_broken_drafter_is_caught(factory, caught):
    assert failing(factory) == caught


def test_a_drafter_without_trees_ends_the_suite():
    rows = run_checks(broken(ReturnsAList))

    assert "proposed a list; expected a DraftTree, with the prompt 'tool_call'" in rows[0].message
    assert all(row.skipped and "returns_a_tree comes first" in row.message for row in rows[1:])


def test_an_error_is_told_with_its_prompt_and_place():
    told = message(broken(RaisesOnShortPrompts), "returns_a_tree")

    assert told.startswith("IndexError: ")
    assert "with the prompt 'two_tokens' (test_testing.py:" in told


def test_speed_is_reported():
    row = next(row for row in run_checks(Lookup) if row.check == "is_quick")

    assert row.ok
    assert "us per draft" in row.message
    assert "4,096 tokens" in row.message


# --- state machines ----------------------------------------------------------------------------


@machine_checks(Literal)
def test_an_honest_machine_conforms(check):
    check()


@machine_checks(lambda: Select(), texts=["select * from users;"])
def test_a_machine_is_tried_with_texts_of_its_language(check):
    check()


class Select(Literal):
    """It offers nothing at the start, and knows no format of tool calls."""

    text = "select * from users;"

    def continuations(self, state):
        return super().continuations(state) if state else []


class Silent(Literal):
    def continuations(self, state):
        return []


class WorstFirst(Literal):
    def continuations(self, state):
        return [Continuation("x", 0.1, "worst"), *super().continuations(state)]


class OffersNoText(Literal):
    def continuations(self, state):
        return [Continuation("", 0.5, "nothing")]


class OffersStrings(Literal):
    def continuations(self, state):
        return [self.text[state:]]


class OffersForever(Literal):
    def continuations(self, state):
        return cycle(super().continuations(0))


class ListState(Literal):
    def start(self, request):
        return [0]

    def advance(self, state, text):
        return [super().advance(state[0], text)]

    def continuations(self, state):
        return super().continuations(state[0])


class CountsPieces(Literal):
    def start(self, request):
        return 0, 0

    def advance(self, state, text):
        return super().advance(state[0], text), state[1] + 1

    def continuations(self, state):
        return super().continuations(state[0])


class GoesOn(Literal):
    """A request begins where the last one ended."""

    last = 0

    def start(self, request):
        return self.last

    def advance(self, state, text):
        after = super().advance(state, text)
        if len(text) > 30:  # whole texts only, so that looking ahead does not matter
            self.last = after
        return after


class OffersEachStateOnce(Literal):
    last = None

    def continuations(self, state):
        again, self.last = state == self.last, state
        return [] if again else super().continuations(state)


@attrs.define(eq=True, unsafe_hash=True)
class Place:
    seen: int


class InPlace(Literal):
    def start(self, request):
        return Place(0)

    def advance(self, state, text):
        state.seen = super().advance(state.seen, text)
        return state

    def continuations(self, state):
        return super().continuations(state.seen)


class LearnsToMove(Literal):
    taught = 0

    def learn(self, before, text, after):
        self.taught += 1

    def advance(self, state, text):
        return 0 if self.taught > 5 else super().advance(state, text)


class CannotEncode(Literal):
    def advance(self, state, text):
        text.encode()
        return super().advance(state, text)


class Recursive(Literal):
    def advance(self, state, text):
        def depth(brackets):
            return 1 + depth(brackets[1:]) if brackets.startswith("{") else 0

        depth(text)
        return super().advance(state, text)


class OffersOnce(Literal):
    def continuations(self, state):
        return [] if state else super().continuations(state)


class StaysLost(Literal):
    def advance(self, state, text):
        for character in text:
            after = super().advance(state, character) if state >= 0 else -1
            state = -1 if after == 0 else after
        return state

    def continuations(self, state):
        return [] if state < 0 else super().continuations(state)


@pytest.mark.parametrize(
    ("factory", "caught"),
    [
        (WorstFirst, {"continuations_are_ranked"}),
        (OffersNoText, {"continuations_are_ranked"}),
        (OffersStrings, {"continuations_are_ranked"}),
        (OffersForever, {"continuations_are_ranked"}),
        (ListState, {"states_are_hashable_values"}),
        (CountsPieces, {"states_are_hashable_values"}),
        (GoesOn, {"start_is_fresh"}),
        (OffersEachStateOnce, {"continuations_do_not_change_the_state"}),
        (InPlace, {"advance_does_not_change_the_state"}),
        (LearnsToMove, {"learning_never_affects_advance"}),
        (CannotEncode, {"advance_never_raises"}),
        (Recursive, {"advance_never_raises"}),
        (OffersOnce, {"following_a_continuation_leads_on"}),
        (StaysLost, {"lost_then_found"}),
    ],
    ids=lambda value: getattr(value, "__name__", "-"),
)
def test_a_broken_machine_is_caught(factory, caught):
    assert failing(factory) == caught


def test_a_machine_that_never_offers_is_not_said_to_conform():
    rows = {row.check: row for row in run_checks(Silent)}

    for check in ("following_a_continuation_leads_on", "lost_then_found"):
        assert rows[check].skipped
        assert "give texts=" in rows[check].message


# --- memories ----------------------------------------------------------------------------------


class Shelf(Memory):
    """An honest memory: the nearest embedding, the oldest dropped, JSON with a checksum."""

    capacity = 100

    def __init__(self):
        self.episodes = OrderedDict()

    def store(self, episode):
        key = (episode.tenant, episode.prompt, episode.output)
        self.episodes[key] = episode
        while len(self.episodes) > self.capacity:
            self.drop()

    def drop(self):
        self.episodes.popitem(last=False)

    def recall(self, query, k):
        own = [episode for episode in self.episodes.values() if episode.tenant == query.tenant]
        return self.nearest(query, own)[:k]

    def nearest(self, query, own):
        return sorted(own, key=lambda episode: -float(episode.embedding @ query.embedding))

    def forget(self, tenant=None):
        for key in list(self.episodes):
            if tenant is None or key[0] == tenant:
                del self.episodes[key]

    def __len__(self):
        return len(self.episodes)

    def save(self, path):
        rows = []
        for episode in self.episodes.values():
            row = attrs.asdict(episode)
            rows.append({**row, "embedding": episode.embedding.tolist()})
        text = json.dumps(rows)
        new = path.with_suffix(".new")
        new.write_text(f"{zlib.crc32(text.encode())} {text}")
        new.replace(path)

    def load(self, path):
        episodes = self.read(path)
        self.episodes.clear()
        for episode in episodes:
            self.store(episode)

    def read(self, path):
        check, _, text = path.read_text().partition(" ")
        if int(check) != zlib.crc32(text.encode()):
            raise ValueError(f"{path} is torn")
        return [
            Episode(
                tuple(row["prompt"]),
                tuple(row["output"]),
                np.array(row["embedding"], dtype=np.float32),
                row["text"],
                row["tenant"],
            )
            for row in json.loads(text)
        ]


class Roomy(Shelf):
    capacity = 1000


@memory_checks(Shelf, Roomy)
def test_an_honest_memory_conforms(check):
    check()


class RecallsTheLast(Shelf):
    def nearest(self, query, own):
        return own[::-1]


class SortsTheFirstOnly(Shelf):
    def nearest(self, query, own):
        first, *rest = super().nearest(query, own) or [None]
        return [first, *rest[::-1]] if first else []


class RecallsOneAtLeast(Shelf):
    def recall(self, query, k):
        return super().recall(query, max(k, 1))


class RecallIsUse(Shelf):
    def recall(self, query, k):
        found = super().recall(query, k)
        for episode in found:
            self.episodes.move_to_end((episode.tenant, episode.prompt, episode.output))
        return found


class Creeps(Shelf):
    def drop(self):
        if len(self.episodes) % 2:
            self.episodes.popitem(last=False)
            self.episodes.popitem(last=False)
        self.capacity += 1


class DropsTheNewest(Shelf):
    def drop(self):
        self.episodes.popitem()


class ForgetsAll(Shelf):
    def forget(self, tenant=None):
        self.episodes.clear()


class ForgetsNothing(Shelf):
    def forget(self, tenant=None):
        pass


class ShowsAll(Shelf):
    def recall(self, query, k):
        return self.nearest(query, list(self.episodes.values()))[:k]

    def nearest(self, query, own):
        ranked = super().nearest(query, own)
        return sorted(ranked, key=lambda episode: episode.tenant != query.tenant)


class AddsWhatItLoads(Shelf):
    def load(self, path):
        for episode in self.read(path):
            self.store(episode)


class LeavesItsDraft(Shelf):
    def save(self, path):
        super().save(path)
        path.with_suffix(".new").write_text("")


class ClearsFirst(Shelf):
    def load(self, path):
        self.episodes.clear()
        super().load(path)


class LoadsAnything(Shelf):
    def load(self, path):
        with suppress(ValueError, OSError):
            super().load(path)


@pytest.mark.parametrize(
    ("factory", "caught"),
    [
        (RecallsTheLast, {"recalls_what_it_stored"}),
        (SortsTheFirstOnly, {"recall_is_sorted"}),
        (RecallsOneAtLeast, {"recall_is_bounded"}),
        (RecallIsUse, {"recall_is_pure"}),
        (Creeps, {"capacity_holds"}),
        (DropsTheNewest, {"capacity_holds"}),
        (ForgetsAll, {"forget_empties"}),
        (ForgetsNothing, {"forget_empties"}),
        (ShowsAll, {"tenants_are_apart", "forget_empties"}),
        (AddsWhatItLoads, {"save_and_load_round_trip"}),
        (LeavesItsDraft, {"save_and_load_round_trip"}),
        (ClearsFirst, {"torn_file_is_refused"}),
        (LoadsAnything, {"torn_file_is_refused"}),
    ],
    ids=lambda value: getattr(value, "__name__", "-"),
)
def test_a_broken_memory_is_caught(factory, caught):
    assert failing(factory) == caught


def test_a_memory_too_large_to_fill_is_not_said_to_be_bounded():
    row = next(row for row in run_checks(Roomy) if row.check == "capacity_holds")

    assert row.skipped
    assert "give the factory a smaller capacity" in row.message


# --- verifiers ---------------------------------------------------------------------------------


@verifier_checks(ExactVerifier)
def test_the_exact_verifier_conforms(check):
    check()


class Walk(Verifier):
    """The exact verifier, with places to break it."""

    retries = 0
    heat = 1.0
    heeds_stops = True

    def verify(self, tree, logits, decide):
        path, tokens, node = [], [], ROOT
        while True:
            for _ in range(self.retries + 1):
                decision = decide(tokens, logits[node + 1] / self.heat)
                child = self.child(tree, node, decision.token)
                if child is not None:
                    break
            stop = decision.stop and self.heeds_stops
            if child is None:
                return self.verdict(path, decision.token, stop)
            path.append(child)
            tokens.append(decision.token)
            if stop:
                return self.verdict(path, None, stop)
            node = child

    def child(self, tree, node, token):
        pairs = list(zip(tree.parents, tree.tokens, strict=True))
        return pairs.index((node, token)) if (node, token) in pairs else None

    def verdict(self, path, bonus, stop):
        return Verdict(tuple(path), bonus, stop)


class ReturnsATuple(Walk):
    def verdict(self, path, bonus, stop):
        return tuple(path), bonus, stop


class CountsFromOne(Walk):
    def verdict(self, path, bonus, stop):
        return Verdict(tuple(node + 1 for node in path), bonus, stop)


class NeedsADraft(Walk):
    def verify(self, tree, logits, decide):
        max(tree.tokens)
        return super().verify(tree, logits, decide)


class NeverAccepts(Walk):
    def child(self, tree, node, token):
        return None


class AsksTwice(Walk):
    retries = 1


class Heats(Walk):
    heat = 1.3


class IgnoresStops(Walk):
    heeds_stops = False


class WritesToLogits(Walk):
    def verify(self, tree, logits, decide):
        verdict = super().verify(tree, logits, decide)
        logits.mul_(0.5)
        return verdict


class DrawsItself(Walk):
    """The textbook rule for drafts that were sampled, on drafts that were not."""

    def verify(self, tree, logits, decide):
        path, node, tokens = [], ROOT, []
        while True:
            odds = logits[node + 1].softmax(-1)
            for child, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True)):
                if parent == node and torch.rand(()) < odds[token]:
                    path.append(child)
                    tokens.append(token)
                    node = child
                    break
            else:
                decision = decide(tokens, logits[node + 1])
                return self.verdict(path, decision.token, decision.stop)


EXACT = {"commits_every_decision", "distribution_matches"}


@pytest.mark.parametrize(
    ("factory", "caught"),
    [
        (ReturnsATuple, {"path_is_a_path"}),
        (CountsFromOne, {"path_is_a_path"}),
        (NeedsADraft, {"empty_tree_gives_one_token", "output_is_unchanged"}),
        (NeverAccepts, {"greedy_matches_argmax", "stops_inside_a_path", "distribution_matches"}),
        (AsksTwice, {*EXACT, "stops_inside_a_path", "output_is_unchanged"}),
        (Heats, {*EXACT, "output_is_unchanged"}),
        (IgnoresStops, {"stops_inside_a_path", "output_is_unchanged"}),
        (WritesToLogits, {"leaves_the_logits_alone"}),
        (
            DrawsItself,
            {*EXACT, "greedy_matches_argmax", "stops_inside_a_path", "output_is_unchanged"},
        ),
    ],
    ids=lambda value: getattr(value, "__name__", "-"),
)
def test_a_broken_verifier_is_caught(factory, caught):
    torch.manual_seed(0)
    assert failing(factory) == caught


@pytest.mark.parametrize(
    ("freedom", "exact", "error"), [(1, 15.137, 0.08), (4, 23.513, 0.03), (24, 58.613, 0.01)]
)
def test_the_critical_value_of_chi_square_is_close(freedom, exact, error):
    assert exact <= critical(freedom, 1e-4) <= exact * (1 + error)


# --- the kit's own manners ---------------------------------------------------------------------


def test_a_failure_that_was_expected_is_a_success():
    rows = run_checks(SecretLearner, expected_failures={"requests_do_not_leak": "a cache, for now"})
    row = next(row for row in rows if row.check == "requests_do_not_leak")

    assert all(row.ok for row in rows)
    assert row.message.startswith("fails as expected (a cache, for now): ")


def test_an_expected_failure_that_passes_is_a_failure():
    reason = {"can_be_rebuilt": "not yet"}

    assert failing(Lookup, expected_failures=reason) == {"can_be_rebuilt"}
    assert "passes, but was expected to fail (not yet)" in message(
        Lookup, "can_be_rebuilt", expected_failures=reason
    )


def test_an_expected_failure_that_is_skipped_stays_skipped():
    rows = run_checks(Learner, expected_failures={"requests_do_not_leak": "it remembers"})

    assert next(row for row in rows if row.check == "requests_do_not_leak").skipped


@pytest.mark.parametrize(
    ("expected", "hint"),
    [
        ({"can_be_rebuild": "typo"}, "did you mean 'can_be_rebuilt'?"),
        ({"is_quick": ""}, "no reason"),
    ],
)
def test_an_expected_failure_needs_a_known_check_and_a_reason(expected, hint):
    with pytest.raises(ValueError, match="expected_failures") as caught:
        drafter_checks(Lookup, expected_failures=expected)
    assert hint in str(caught.value)


def test_the_kit_wants_something_to_check():
    with pytest.raises(ValueError, match="at least one factory"):
        drafter_checks()
    with pytest.raises(ContractError, match="there are checks for a Drafter, a StateMachine"):
        run_checks(NotADrafter)
    with pytest.raises(ValueError, match="texts are for state machines"):
        run_checks(Lookup, texts=["select 1"])


def test_rows_are_records_in_the_order_of_the_suite():
    rows = run_checks(ExactVerifier)

    assert all(isinstance(row, CheckResult) and row.seconds >= 0 for row in rows)
    assert rows[0].check == "path_is_a_path"


def test_pytest_shows_checks_by_component_and_name(pytester):
    pytester.makepyfile(
        """
        from specdec.compose import Fallback
        from specdec.interfaces import Drafter, DraftSession
        from specdec.testing import drafter_checks

        class Session(DraftSession):
            def propose(self, tokens, limit):
                return []

        class Bad(Drafter):
            def start(self, request, committed=()):
                return Session()

        @drafter_checks(Fallback, lambda: Fallback())
        def test_good(check):
            check()

        @drafter_checks(Bad, expected_failures={"returns_a_tree": "a list will do"})
        def test_expected(check):
            check()

        @drafter_checks(Fallback, expected_failures={"can_be_rebuilt": "I thought"})
        def test_passes_after_all(check):
            check()

        @drafter_checks(Bad)
        def test_bad(check):
            check()
        """
    )
    pytester.makeini("[pytest]\nstrict_parametrization_ids = true")
    result = pytester.runpytest_inprocess("-v", "-p", "no:cacheprovider")

    result.stdout.fnmatch_lines(
        [
            "*::test_good?Fallback-returns_a_tree? PASSED*",
            "*::test_good?Fallback2-returns_a_tree? PASSED*",
            "*::test_expected?Bad-returns_a_tree? XFAIL*",
            "*::test_expected?Bad-is_quick? SKIPPED*",
            "*::test_passes_after_all?Fallback-can_be_rebuilt? FAILED*",
            "*::test_bad?Bad-returns_a_tree? FAILED*",
            "*::test_bad?Bad-declares_its_needs? SKIPPED*",
        ]
    )
    assert result.parseoutcomes()["failed"] == 2


def test_checks_run_without_pytest():
    script = """
import sys
sys.modules["pytest"] = None
from specdec.testing import run_checks
from specdec.compose import Fallback
assert all(row.ok for row in run_checks(Fallback))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# --- the oracle --------------------------------------------------------------------------------


def request(**fields):
    return Request(
        **{"prompt": (1, 2, 3, 1, 2), "max_new_tokens": 40, "codec": CharCodec()} | fields
    )


@pytest.mark.parametrize("drafter", [Fallback, Lookup, lambda: Neighbour(OracleTarget())])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_new_tokens": 0},
        {"max_new_tokens": 1},
        {"stop_ids": {5, 50}},
        {"sampling": Sampling(temperature=0.5, seed=3)},
    ],
)
def test_the_engine_writes_what_the_oracle_writes_alone(drafter, fields):
    target = OracleTarget()
    result = Engine(target, drafter(), on_error="raise").generate(request(**fields))

    assert result.tokens == target.plain(request(**fields))


def test_the_oracle_follows_its_script_as_long_as_the_output_does():
    script = CharCodec().encode(CALL)
    target = OracleTarget(script=script)

    assert target.plain(request(max_new_tokens=200))[: len(script)] == script
    assert target.following((1, 2, 3), script[:4]) == script[4]
    assert target.following((1, 2, 3), (script[0], 63)) == OracleTarget().following(
        (1, 2, 3), (script[0], 63)
    )


def test_lookup_hits_on_the_oracle():
    result = Engine(OracleTarget(), Lookup(), on_error="raise").generate(request(max_new_tokens=96))

    assert result.mat > 1.3


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({"max_new_tokens": 10}, "length"),
        ({"stop_ids": {CharCodec().encode("w")[0]}}, "stop_id"),
        ({"stop_strings": ("so",)}, "stop_string"),
        ({"stop_strings": ("e\u0301", "\u00e9")}, "stop_string"),
        ({"max_new_tokens": 10_000}, "context"),
        ({"max_new_tokens": 10, "stop_strings": ("w w",)}, "length"),
    ],
)
def test_the_oracle_stops_as_a_real_target_does(fields, finish):
    decide = pytest.importorskip("specdec.hf.decide")
    seat = pytest.importorskip("specdec.hf.seat")
    script = CharCodec().encode("how so? caf\u00e9 noir")
    target = OracleTarget(script=script, context=60)
    given = request(**fields)
    result = Engine(target, Neighbour(target), on_error="raise").generate(given)
    room, stopped, output = 60 - len(given.prompt), False, []
    real = decide.Decider(given, seat.Seat(LogitsProcessorList()), room)
    while not stopped:
        decision = real((), target.logits(given.prompt, [output])[0])
        output.append(decision.token)
        stopped = decision.stop

    assert (result.finish, result.tokens) == (finish, tuple(output))
    assert real.stops.finish == finish


def test_the_oracle_draws_as_a_real_target_does():
    decide = pytest.importorskip("specdec.hf.decide")
    seat = pytest.importorskip("specdec.hf.seat")
    given = request(sampling=Sampling(temperature=0.7, seed=11))
    warpers = LogitsProcessorList([TemperatureLogitsWarper(0.7)])
    target, real, output = OracleTarget(), decide.Decider(given, seat.Seat(warpers), 1000), []
    for _ in range(given.max_new_tokens):
        output.append(real((), target.logits(given.prompt, [output])[0]).token)

    assert target.plain(given) == tuple(output)


def test_processors_see_the_path_they_are_on():
    def no_repeat(ids, scores):
        return scores.index_fill(1, ids[0, -3:], -torch.inf)

    target, given = OracleTarget(), request(processors=(no_repeat,))
    tokens = Engine(target, Neighbour(target), on_error="raise").generate(given).tokens

    assert tokens == target.plain(given)
    assert all(token not in tokens[max(i - 3, 0) : i] for i, token in enumerate(tokens))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"prompt": (64,)}, "outside the oracle's vocabulary of 64"),
        ({"prompt": (1,) * 100}, "context only 100"),
        ({"sampling": Sampling(top_k=5)}, "no top_k"),
    ],
)
def test_the_oracle_refuses_what_it_cannot_serve(fields, complaint):
    with pytest.raises(RequestError, match=complaint):
        OracleTarget(context=100).start(request(**fields), Needs())


RIGHT = OracleTarget().following(request().prompt, ())
DRAFT = DraftTree.from_sequences(
    [(RIGHT, 1), ((RIGHT + 1) % 64, 2)], source="test", limit=Limit(8, 8)
)


def opened(needs):
    """A session in its first pass, over a draft whose first node is right."""
    session = OracleTarget().start(request(), needs)
    return session, session.forward(request().prompt, DRAFT)


def test_the_oracle_counts_its_cache():
    session, logits = opened(Needs(top_k=2, embedding=True))
    first = session.decide((), logits[0])
    session.decide((first.token,), logits[1])
    session.commit((0,))

    assert logits.shape == (5, 64)
    assert session.kv_length == len(request().prompt) + 1
    assert session.top_ids(2).shape == (5, 2)
    assert session.top_ids(2)[0, 0] == first.token == RIGHT
    assert np.linalg.norm(session.embedding) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("breach", "complaint"),
    [
        (lambda s, row: s.forward((1, 2), EMPTY), "called again before commit"),
        (lambda s, row: s.commit(()), "cache holds 5 tokens of 5"),
        (lambda s, row: (s.decide((), row), s.commit((1,))), "no path of"),
        (lambda s, row: (s.decide((), row), s.commit((2,))), "decided was"),
        (lambda s, row: (s.decide((), row), s.commit((0,))), "cache holds 6 tokens of 6"),
        (lambda s, row: s.decide((3,), row), "was told the path"),
        (
            lambda s, row: (s.decide((), row), s.commit(()), s.forward((9,), EMPTY)),
            "but the cache lacks",
        ),
        (lambda s, row: (s.decide((), row), s.commit(()), s.decide((), row)), "outside a pass"),
        (lambda s, row: (s.decide((), row), s.commit(()), s.commit(())), "without a pass"),
        (lambda s, row: (s.close(), s.close()), "close was called twice"),
    ],
)
def test_the_oracle_catches_wrong_bookkeeping(breach, complaint):
    session, logits = opened(Needs())
    with pytest.raises(ContractError, match=complaint):
        breach(session, logits[0])


def test_the_oracle_catches_trees_that_do_not_fit():
    for tree, complaint in (
        (DraftTree.chain((1, 2, 3), source="test"), "depth 3 got room for 2"),
        (DraftTree.chain((64,), source="test"), "leaves the vocabulary"),
    ):
        session = OracleTarget(context=7).start(request(), Needs())
        with pytest.raises(ContractError, match=complaint):
            session.forward(request().prompt, tree)


# --- the codec ---------------------------------------------------------------------------------


TEXTS = ["", "plain text", "S\u00e3o Paulo \u26c5", "\U0001f9d1\u200d\U0001f680", "\x00"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_from_the_codec(text):
    codec = CharCodec()
    ids = codec.encode(text)
    decoder = codec.decoder()

    assert codec.decode(ids) == text
    assert "".join(decoder.push([token]) for token in ids) == text
    assert not decoder.pending
    assert all(0 <= token < 64 for token in ids)


def test_the_decoder_is_pending_inside_a_character():
    codec = CharCodec()
    decoder = codec.decoder()
    ids = codec.encode("\u00e9a")

    assert [(decoder.push([token]), decoder.pending) for token in ids] == [
        *[("", True)] * 5,
        ("\u00e9", False),
        ("a", False),
    ]


def test_ids_that_spell_nothing_are_shown_as_replacement_characters():
    codec = CharCodec()

    assert codec.decode(codec.encode("\u00e9")[:4]) == "\ufffd\ufffd"
    assert codec.decode([63, 63, 63, 0]) == "\ufffda"
    assert codec.decode([*codec.encode("\u00e9")[:1], 0]) == "\ufffda"
    assert codec.decode(codec.encode("\ud83d")) == "?"
    with pytest.raises(ValueError, match="token 64 is outside"):
        codec.decode([64])


def test_a_failed_check_is_an_assertion():
    assert issubclass(CheckFailed, AssertionError)
