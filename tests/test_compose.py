"""Compositions are drafters: Fallback, Merge, MachineDrafter."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec import (
    EMPTY,
    Continuation,
    Drafter,
    DraftSession,
    DraftTree,
    Engine,
    Fallback,
    Limit,
    MachineDrafter,
    Merge,
    Needs,
    Request,
    StateMachine,
    Step,
)
from specdec.guard import open_session
from specdec.machine import DOUBT
from specdec.stops import Stops
from specdec.testing import CharCodec, OracleTarget

WIDE = Limit(64, 64)


class Fixed(Drafter):
    """Always offers the same sequences; notes what it is told."""

    def __init__(self, *sequences, name="fixed", score=1.0, top_k=0, fails=""):
        self.sequences, self.name, self.score = sequences, name, score
        self.top_k, self.fails = top_k, fails
        self.log = []
        self.learned = 0

    @property
    def needs(self):
        return Needs(self.top_k, self.top_k > 4)

    def start(self, request, committed=()):
        outer = self

        class Session(DraftSession):
            def _note(self, verb):
                outer.log.append(verb)
                if outer.fails == verb:
                    raise RuntimeError(f"{outer.name} cannot {verb}")

            def prefilled(self, embedding):
                self._note("prefilled")

            def propose(self, tokens, limit):
                self._note("propose")
                scores = [outer.score] * len(outer.sequences)
                return DraftTree.from_sequences(
                    outer.sequences, source=outer.name, limit=limit, scores=scores
                )

            def observe(self, step):
                self._note("observe")

            def finish(self, result):
                self._note("finish")

        outer.log.append("start")
        if outer.fails == "start":
            raise RuntimeError(f"{outer.name} cannot start")
        return Session()

    def state(self):
        return {"learned": self.learned}

    def restore(self, state):
        self.learned = state["learned"]

    def __repr__(self):
        return f"Fixed({self.name!r})"


def request(**fields):
    return Request(prompt=(1, 2, 3), max_new_tokens=20, **fields)


def test_fallback_gives_the_first_draft_that_is_not_empty():
    nothing, first, second = Fixed(), Fixed([5]), Fixed([6])
    session = Fallback(nothing, first, second).start(request())
    assert session.propose((1, 2, 3), WIDE).tokens == (5,)
    assert "propose" in nothing.log
    assert "propose" not in second.log


def test_fallback_tells_everybody_what_was_committed():
    drafters = [Fixed(), Fixed([5]), Fixed([6])]
    session = Fallback(*drafters).start(request())
    session.propose((1, 2, 3), WIDE)
    session.observe(Step(1, EMPTY, (), (4,)))
    assert all("observe" in drafter.log for drafter in drafters)


def test_fallback_of_nothing_is_plain_decoding():
    assert Fallback().start(request()).propose((1,), WIDE) == EMPTY


def test_merge_unites_all_drafts_and_cuts_by_reach():
    merged = Merge(Fixed([5, 6], score=0.9, name="a"), Fixed([5, 7], [8], score=0.5, name="b"))
    draft = merged.start(request()).propose((1, 2, 3), Limit(3, 9))
    # 0.9 for 5 and 0.5 for 8 exceed 1 together, so the siblings share.
    assert draft.tokens == (5, 6, 8) or draft.tokens == (5, 6, 7)
    assert {vote.source for vote in draft.votes[0]} == {"a", "b"}


def test_merge_gives_the_budget_to_the_source_that_keeps_its_word():
    liar, honest = Fixed([5], score=0.9, name="liar"), Fixed([6], score=0.3, name="honest")
    merge = Merge(liar, honest)
    session = merge.start(request())
    assert session.propose((1, 2, 3), Limit(1, 9)).tokens == (5,)
    for _ in range(30):
        session.observe(Step(1, session.propose((1, 2, 3), WIDE), (1,), (6, 0)))
    assert session.propose((1, 2, 3), Limit(1, 9)).tokens == (6,)
    # The record outlives the request, but stays with its tenant.
    assert merge.start(request()).propose((1, 2, 3), Limit(1, 9)).tokens == (6,)
    other = merge.start(request(tenant="other"))
    assert other.propose((1, 2, 3), Limit(1, 9)).tokens == (5,)


def test_merge_state_round_trips():
    merge = Merge(Fixed([5], score=0.9), Fixed([6], score=0.3, name="b"))
    merge.drafters[0].learned = 7
    session = merge.start(request(tenant="t"))
    for _ in range(30):
        session.observe(Step(1, session.propose((1, 2, 3), WIDE), (), (9,)))
    copy = Merge(Fixed([5], score=0.9), Fixed([6], score=0.3, name="b"))
    copy.restore(merge.state())
    assert copy.drafters[0].learned == 7
    same = [m.start(request(tenant="t")).propose((1, 2, 3), WIDE) for m in (merge, copy)]
    assert same[0] == same[1]
    assert same[0].scores[0] < 0.5


def test_a_stack_needs_what_its_drafters_need():
    stack = Merge(Fixed(top_k=3), Fallback(Fixed(top_k=8)))
    assert stack.needs == Needs(8, True)
    assert stack.remembers


def test_stacks_nest():
    stack = Fallback(Merge(Fixed(), Fixed()), Merge(Fixed([4])))
    assert stack.start(request()).propose((1,), WIDE).tokens == (4,)
    assert repr(stack) == "Fallback(Merge(Fixed('fixed'), Fixed('fixed')), Merge(Fixed('fixed')))"


def test_a_stack_of_something_else_is_refused():
    with pytest.raises(TypeError, match="Merge is made of drafters, got 3"):
        Merge(3)


@pytest.mark.parametrize("verb", ["start", "propose", "observe", "prefilled", "finish"])
def test_a_drafter_that_raises_is_left_out_and_its_neighbours_go_on(verb, caplog):
    bad, good = Fixed([5], name="bad", fails=verb), Fixed([6], name="good")
    target = OracleTarget()
    result = Engine(target, Merge(bad, good)).generate(request())
    assert result.tokens == Engine(target).generate(request()).tokens
    assert good.log.count("finish") == 1
    assert result.errors == (f"Fixed('bad').{verb}: RuntimeError: bad cannot {verb}",)
    assert bad.log.count(verb) == 1, "it is not asked again"


@pytest.mark.parametrize("verb", ["start", "propose", "observe", "prefilled", "finish"])
def test_a_drafter_that_raises_ends_the_request_where_asked_to(verb):
    engine = Engine(OracleTarget(), Merge(Fixed([5], fails=verb)), on_error="raise")
    with pytest.raises(RuntimeError, match=f"cannot {verb}"):
        engine.generate(request())


def test_a_warning_is_given_once_per_kind_of_error(caplog):
    class Unique(Fixed):
        pass

    engine = Engine(OracleTarget(), Unique([5], fails="propose"))
    with caplog.at_level("WARNING", logger="specdec"):
        for _ in range(3):
            assert len(engine.generate(request()).errors) == 1
    assert len([r for r in caplog.records if "goes on without this drafter" in r.message]) == 1


class Greeting(StateMachine):
    """Expects "hello world" or "hello there" from the start, then nothing; lost after "x"."""

    TEXTS = (("hello world", 0.6), ("hello there", 0.3))

    def __init__(self):
        self.learned = []

    def start(self, request):
        return ""

    def advance(self, state, text):
        return state + text

    def continuations(self, state):
        for text, score in self.TEXTS:
            if text.startswith(state) and text != state:
                yield Continuation(text[len(state) :], score, "greeting")

    def learn(self, before, text, after):
        self.learned.append((before, text, after))


def machine_request():
    codec = CharCodec()
    return codec, Request(prompt=codec.encode(">", ()), max_new_tokens=20, codec=codec)


def test_a_machine_drafts_its_continuations_as_a_trie():
    codec, ask = machine_request()
    session = MachineDrafter(Greeting()).start(ask)
    draft = session.propose(ask.prompt, WIDE)
    texts = {codec.decode([draft.tokens[n] for n in draft.path_to(i)]) for i in range(len(draft))}
    assert {"hello world", "hello there", "hello "} <= texts
    assert len(draft) == len("hello ") + len("world") + len("there")
    assert draft.scores[0] == pytest.approx(0.9)  # the mass of both


def test_a_machine_follows_committed_text_and_learns_from_it():
    codec, ask = machine_request()
    machine = Greeting()
    session = MachineDrafter(machine).start(ask)
    session.observe(Step(0, EMPTY, (), codec.encode("hello w", ())))
    tokens = (*ask.prompt, *codec.encode("hello w", ()))
    draft = session.propose(tokens, WIDE)
    assert codec.decode(draft.tokens) == "orld"
    assert machine.learned == [("", "hello w", "hello w")]
    rebuilt = MachineDrafter(Greeting()).start(ask, codec.encode("hello w", ()))
    assert rebuilt.propose(tokens, WIDE) == draft


def test_a_machine_offers_nothing_when_lost_inside_a_character_or_without_a_codec():
    codec, ask = machine_request()
    session = MachineDrafter(Greeting()).start(ask)
    session.observe(Step(0, EMPTY, (), codec.encode("x", ())))
    assert session.propose((*ask.prompt, *codec.encode("x", ())), WIDE) == EMPTY
    plain = Request(prompt=ask.prompt, max_new_tokens=5)
    assert MachineDrafter(Greeting()).start(plain).propose(ask.prompt, WIDE) == EMPTY
    half = codec.encode("é", ())[:1]
    session = MachineDrafter(Greeting()).start(ask)
    session.observe(Step(0, EMPTY, (), half))
    assert session.propose((*ask.prompt, *half), WIDE) == EMPTY


def test_a_machine_keeps_to_the_limit_with_its_best_continuations():
    codec, ask = machine_request()
    session = MachineDrafter(Greeting()).start(ask)
    draft = session.propose(ask.prompt, Limit(8, 64))
    assert codec.decode(draft.tokens) == "hello wo"
    assert max(session.propose(ask.prompt, Limit(64, 3)).depths) == 3


def test_only_machines_become_machine_drafters():
    with pytest.raises(TypeError, match="follows a StateMachine"):
        MachineDrafter(Fixed())
    with pytest.raises(ValueError, match="at least 1"):
        MachineDrafter(Greeting(), most=0)


class Counting(CharCodec):
    """Notes what it is asked to encode; `shift` moves all ids."""

    def __init__(self, shift=0):
        self.shift = shift
        self.asked = []

    def encode(self, text, after=()):
        self.asked.append((text, tuple(after)))
        return tuple(i + self.shift for i in super().encode(text, after))


class Batching(Counting):
    """Encodes many texts at once, each the same behind the same last token."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def context(self, after):
        return tuple(after[-1:])

    def encode_all(self, texts, after):
        self.batches.append(list(texts))
        return [CharCodec().encode(text, after) for text in texts]


def propose(drafter, codec, before=">>"):
    ask = Request(prompt=CharCodec().encode(before), max_new_tokens=20, codec=codec)
    return drafter.start(ask).propose(ask.prompt, WIDE)


def test_a_batch_codec_is_asked_once_for_all_texts():
    batching, drafter = Batching(), MachineDrafter(Greeting())
    assert propose(drafter, batching) == propose(MachineDrafter(Greeting()), CharCodec())
    assert batching.batches == [["hello world", "hello there"]]
    assert batching.asked == []


def test_tokens_are_remembered_across_requests_by_text_and_context():
    batching, drafter = Batching(), MachineDrafter(Greeting())
    first = propose(drafter, batching, "one>")
    assert propose(drafter, batching, "another>") == first
    assert len(batching.batches) == 1, "the same text behind the same context"
    propose(drafter, batching, "one.")
    assert len(batching.batches) == 2


def test_a_codec_without_batches_is_asked_text_by_text():
    codec, drafter = Counting(), MachineDrafter(Greeting())
    before = "a longer text>"
    draft = propose(drafter, codec, before)
    tail = CharCodec().encode(before)[-8:]
    assert codec.asked == [("hello world", tail), ("hello there", tail)]
    assert propose(drafter, codec, "and a " + before) == draft
    assert len(codec.asked) == 2
    propose(drafter, codec, "other>")
    assert len(codec.asked) == 4


def test_codecs_never_share_tokens():
    drafter, other = MachineDrafter(Greeting()), Counting(shift=100)
    plain = propose(drafter, CharCodec())
    shifted = propose(drafter, other)
    assert shifted.tokens == tuple(token + 100 for token in plain.tokens)
    assert propose(drafter, CharCodec()) == plain


def test_the_memory_of_tokens_is_bounded(monkeypatch):
    monkeypatch.setattr("specdec.machine.KEPT", 3)
    batching, drafter = Batching(), MachineDrafter(Greeting())
    for before in ("a", "b", "b", "a"):
        propose(drafter, batching, before)
    assert [len(texts) for texts in batching.batches] == [2, 2, 2], "b was kept, a was dropped"


def test_requests_of_many_threads_share_the_memory_of_tokens(monkeypatch):
    monkeypatch.setattr("specdec.machine.KEPT", 5)
    codec, drafter = Counting(), MachineDrafter(Greeting())
    expected = propose(MachineDrafter(Greeting()), codec)
    with ThreadPoolExecutor(4) as pool:
        drafts = pool.map(lambda i: propose(drafter, codec, f"{i % 7}>"), range(2000))
        assert all(draft == expected for draft in drafts)


class Offers(StateMachine):
    """Offers what it is given, always."""

    def __init__(self, *offers):
        self.offers = [Continuation(*offer) for offer in offers]

    def start(self, request):
        return 0

    def advance(self, state, text):
        return state

    def continuations(self, state):
        return self.offers


def offered(*offers, limit=WIDE):
    ask = Request(prompt=(0,), max_new_tokens=20, codec=CharCodec())
    return MachineDrafter(Offers(*offers)).start(ask).propose(ask.prompt, limit)


def test_a_node_holds_its_share_of_its_parents_mass():
    draft = offered(("abc", 0.5, "x"), ("abd", 0.25, "x"), ("b", 0.125, "x"))
    text = CharCodec().decode(draft.tokens)
    # A little of what ends in a node is doubted, unless the text is that one token.
    assert text == "abcdb"
    sure = 1.0 - DOUBT
    assert draft.scores == pytest.approx((0.75, 1.0, sure * 0.5 / 0.75, sure * 0.25 / 0.75, 0.125))
    assert offered(("abc", 0.5, "x"), limit=Limit(9, 2)).scores == (0.5, 1.0), "cut, not ended"


def test_a_node_has_one_vote_per_source_and_is_booked_to_its_best_continuation():
    offers = [("ab", 0.125, "late"), ("aba", 0.25, "late"), ("abc", 0.5, "best"), ("b", 0.1, "z")]
    draft = offered(*offers)
    votes = [[vote.source for vote in own] for own in draft.votes]
    assert CharCodec().decode(draft.tokens) == "abcab"
    assert votes == [["best", "late"], ["best", "late"], ["best"], ["late"], ["z"]]
    assert [draft.source(node) for node in range(5)] == ["best", "best", "best", "late", "z"]
    for own, score in zip(draft.votes, draft.scores, strict=True):
        assert {vote.score for vote in own} == {score}


def test_a_draft_of_offers_keeps_the_nodes_of_the_greatest_reach():
    draw = random.Random(5)
    for _ in range(300):
        offers = [
            ("".join(draw.choice("ab") for _ in range(draw.randint(1, 7))), draw.random(), "x")
            for _ in range(draw.randint(1, 12))
        ]
        limit = Limit(draw.randint(1, 9), draw.randint(1, 6))
        # All offers count, also where fewer nodes are asked for.
        best = sorted(offers, key=lambda offer: -offer[1])[: limit.nodes]
        whole = offered(*best, limit=Limit(99, limit.depth))
        assert offered(*offers, limit=limit) == whole.top(limit.nodes)
        assert max(whole.depths) <= limit.depth


class Breach(Drafter):
    def __init__(self, draft):
        self.draft = draft

    def start(self, request, committed=()):
        outer = self

        class Session(DraftSession):
            def propose(self, tokens, limit):
                return outer.draft

        return Session()


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ([5], "proposed a list; expected a DraftTree"),
        (DraftTree.chain(range(9), source="a"), "proposed 9 nodes for a budget of 4"),
        (DraftTree.chain(range(4), source="a"), "a path of 4 tokens where at most 3 may follow"),
        (DraftTree.chain([99], source="a"), "token 99, outside the target's vocabulary of 50"),
        (DraftTree.chain([-1], source="a"), "token -1, outside"),
    ],
)
def test_a_breach_of_contract_is_named(draft, message):
    session = open_session(Breach(draft), request(on_error="raise", vocabulary=50))
    with pytest.raises(Exception, match=message):
        session.propose((1, 2, 3), Limit(4, 3))
    lenient = open_session(Breach(draft), request(vocabulary=50))
    assert lenient.propose((1, 2, 3), Limit(4, 3)) == EMPTY
    assert message in lenient.errors[0]


class Mute(Fixed):
    """Cannot even say what it needs, or what it is called."""

    @property
    def needs(self):
        raise RuntimeError("no idea")

    def __repr__(self):
        raise RuntimeError("no name")


def test_a_drafter_that_cannot_say_what_it_needs_is_left_out():
    result = Engine(OracleTarget(), Mute([5])).generate(request())
    assert result.tokens == Engine(OracleTarget()).generate(request()).tokens
    assert result.errors == ("Mute.needs: RuntimeError: no idea",)
    with pytest.raises(RuntimeError, match="no idea"):
        Engine(OracleTarget(), Mute([5]), on_error="raise").generate(request())


def test_an_error_in_finish_reaches_the_result():
    result = Engine(OracleTarget(), Merge(Fixed([5], fails="finish"))).generate(request())
    assert result.errors == ("Fixed('fixed').finish: RuntimeError: fixed cannot finish",)


def test_merge_lets_siblings_that_disagree_share_the_odds():
    merge = Merge(Fixed([5], score=0.9, name="a"), Fixed([6], score=0.9, name="b"))
    assert merge.start(request()).propose((1, 2, 3), WIDE).scores == (0.5, 0.5)


def test_a_stop_string_that_the_prompt_already_holds_ends_nothing():
    codec = CharCodec()
    prompt = codec.encode("ab", ())
    stops = Stops(Request(prompt, 9, stop_strings=("ab", "long one"), codec=codec), 99)
    assert not stops.ends(codec.encode("c", ())[0])
    assert [stops.ends(token) for token in codec.encode("ab", ())] == [False, True]


def test_what_the_consumer_of_a_stream_does_is_not_in_the_seconds():
    naps = []

    def nap(step):
        naps.append(step)
        time.sleep(0.02)

    result = Engine(OracleTarget()).generate(request(), each=nap)
    assert result.seconds < 0.5 * 0.02 * len(naps)


def test_a_fallback_that_is_sure_enough_asks_no_further():
    def drafted(sure):
        one, two = Fixed([1, 2], name="one", score=0.6), Fixed([3], name="two", score=0.5)
        session = Fallback(one, two, sure=sure).start(Request((9,), 4))
        return set(session.propose((9,), Limit(8, 8)).tokens)

    assert drafted(0.0) == drafted(0.6) == {1, 2}
    assert drafted(0.61) == {1, 2, 3}
    with pytest.raises(ValueError, match="sure must be a probability"):
        Fallback(sure=1.5)


def test_a_sure_fallback_keeps_its_records():
    drafter = Fallback(Fixed([1], score=0.9), sure=0.5)
    session = drafter.start(Request((9,), 4))
    tree = session.propose((9,), Limit(8, 8))
    for index in range(20):  # it is never right
        session.observe(Step(index, tree, (), (5,)))
    other = Fallback(Fixed([1], score=0.9), sure=0.5)
    other.restore(drafter.state())
    assert drafter.remembers
    again = other.start(Request((9,), 4)).propose((9,), Limit(8, 8))
    assert again.scores[0] < 0.5 < tree.scores[0]
