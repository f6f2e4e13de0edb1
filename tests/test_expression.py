"""Stack expressions: the grammar, what is built, and where errors point."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import specdec.expression
from specdec.compose import Fallback, Merge
from specdec.errors import ContractError, ExpressionError
from specdec.expression import build, check, parse, read
from specdec.hookspecs import hookimpl
from specdec.interfaces import Drafter, Memory, StateMachine
from specdec.registry import Registry
from specdec.syntax import MAX_DEPTH, MAX_LENGTH, Argument, Constant, Items, Node, Place

NOWHERE = Place("", 0)
built: list[str] = []


def stub(base: Any, **attributes: object) -> Any:
    """An instance of `base` whose abstract methods do nothing."""
    methods = dict.fromkeys(base.__abstractmethods__, lambda self, *_: None)
    return type(f"Stub{base.__name__}", (base,), {**methods, **attributes})()


def pld(ngram: int = 3, *, length: float = 10) -> Any:
    if not isinstance(ngram, int) or ngram < 1:
        raise ValueError(f"ngram must be at least 1, got {ngram!r}")
    built.append("pld")
    return stub(Drafter, ngram=ngram, length=length)


def toolspec(**options: object) -> Any:
    return stub(Drafter, options=options)


def embedding(capacity: int = 100) -> Any:
    built.append("embedding")
    return stub(Memory, capacity=capacity)


@pytest.fixture
def registry() -> Registry:
    """Drafters pld, token-recycling, toolspec, both, wrong; memories embedding, both; and more."""
    built.clear()
    module = ModuleType("in_process")

    @hookimpl
    def register_drafters(register: Callable[[str, object], None]) -> None:
        register("pld", pld)
        register("token-recycling", lambda *, top_k=8: stub(Drafter, top_k=top_k))
        register("toolspec", toolspec)
        register("both", lambda: stub(Drafter))
        register("wrong", lambda: "not a drafter")

    @hookimpl
    def register_memories(register: Callable[[str, object], None]) -> None:
        register("embedding", embedding)
        register("both", lambda: stub(Memory))

    @hookimpl
    def register_state_machines(register: Callable[[str, object], None]) -> None:
        register("schema", lambda: stub(StateMachine))

    @hookimpl
    def register_call_formats(register: Callable[[str, object], None]) -> None:
        register("hermes", "the record")

    for hook in (
        register_drafters,
        register_memories,
        register_state_machines,
        register_call_formats,
    ):
        setattr(module, hook.__name__, hook)
    registry = Registry(None)
    registry.register(module, name="mine")
    return registry


def options(text: str, registry: Registry) -> dict[str, Any]:
    """The options that ``toolspec(<text>)`` receives."""
    return parse(f"toolspec({text})", registry).options  # type: ignore[attr-defined,no-any-return]


def fault(text: str, registry: Registry) -> tuple[str, str]:
    """The message of the error for `text`, and what the caret points at."""
    with pytest.raises(ExpressionError) as caught:
        parse(text, registry)
    *message, line, caret = str(caught.value).split("\n")
    assert caret.strip() == "^"
    return "\n".join(message), line[caret.index("^") :]


# Reading


def test_reading_gives_names_arguments_and_values_without_looking_anything_up() -> None:
    node = read("any(thing(a=1), b=[true, 'x'], c=none)")
    assert node == Node(
        "any",
        (
            Argument(
                None,
                Node("thing", (Argument("a", Constant(1, NOWHERE), NOWHERE),), NOWHERE),
                NOWHERE,
            ),
            Argument(
                "b", Items((Constant(True, NOWHERE), Constant("x", NOWHERE)), NOWHERE), NOWHERE
            ),
            Argument("c", Constant(None, NOWHERE), NOWHERE),
        ),
        NOWHERE,
    )


def test_nodes_know_where_they_stand() -> None:
    node = read(" fallback( pld )")
    assert node.place.start == 1
    assert node.arguments[0].value.place.start == 11


def test_white_space_line_breaks_and_a_last_comma_do_not_matter() -> None:
    assert read("\n merge(\n  pld ,\n  samd( a = [ 1 , ] , ) ,\n)\n") == read(
        "merge(pld,samd(a=[1]))"
    )


def test_empty_brackets_are_a_component_with_default_options() -> None:
    assert read("pld()") == read("pld")


@pytest.mark.parametrize("word", ["none", "None", "null", " none "])
def test_none_alone_is_read_as_a_component(word: str) -> None:
    assert read(word) == Node("none", (), NOWHERE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("+3", 3),
        ("0.5", 0.5),
        (".5", 0.5),
        ("-2.", -2.0),
        ("1e3", 1000.0),
        ("2.5E-3", 0.0025),
        ("true", True),
        ("True", True),
        ("false", False),
        ("False", False),
        ("none", None),
        ("None", None),
        ("null", None),
        ("'a b'", "a b"),
        ('"a, (b)"', "a, (b)"),
        ("''", ""),
        (r"'it\'s'", "it's"),
        (r'"a\\b\n\t\""', 'a\\b\n\t"'),
        ("'none'", "none"),
        ("'é→'", "é→"),
        ("[]", []),
        ("[1, 'a', [true]]", [1, "a", [True]]),
    ],
)
def test_a_value_is_what_it_looks_like(text: str, value: object, registry: Registry) -> None:
    got = options(f"x={text}", registry)["x"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("", "found the end of the expression, expected the name of a component", ""),
        ("  ", "found the end of the expression, expected the name of a component", ""),
        ("3", "found '3', expected the name of a component", "3"),
        ("'pld'", "found 'pld', expected the name of a component", "'pld'"),
        ("true", "found 'true', expected the name of a component", "true"),
        ("(pld)", "found '(', expected the name of a component", "(pld)"),
        ("pld)", "found ')', expected the end of the expression", ")"),
        ("pld pld", "found 'pld', expected the end of the expression", "pld"),
        ("none()", "found '(', expected the end of the expression", "()"),
        ("pld, pld", "found ',', expected the end of the expression", ", pld"),
        ("pld(", "found the end of the expression, expected a value: ", ""),
        ("pld(ngram=3", "found the end of the expression, expected ',' or ')'", ""),
        ("pld(ngram=)", "found ')', expected a value: ", ")"),
        ("pld(ngram=3 length=4)", "found 'length', expected ',' or ')'", "length=4)"),
        ("pld(,)", "found ',', expected a value: ", ",)"),
        ("pld(3,,4)", "found ',', expected a value: ", ",4)"),
        ("pld(=3)", "found '=', expected a value: ", "=3)"),
        ("pld(3=4)", "found '3', expected an option name of letters, digits and '_'", "3=4)"),
        (
            "pld(n-gram=3)",
            "found 'n-gram', expected an option name of letters, digits and '_'; "
            "did you mean 'n_gram'?",
            "n-gram=3)",
        ),
        ("pld(a=1, a=2)", "option 'a' is given twice", "a=2)"),
        ("pld(a=[1, 2)", "found ')', expected ',' or ']'", ")"),
        ("pld(a=[b=1])", "found '=', expected ',' or ']'", "=1])"),
        ("pld(a=7b)", "found '7b', expected a value: ", "7b)"),
        ("pld(a=3+4)", "found '3+4', expected a value: ", "3+4)"),
        ("pld(a=--3)", "found '--3', expected a value: ", "--3)"),
        ("pld(a='x)", "found \"'x\", expected a closing ' on the same line", "'x)"),
        ("pld(a='x\n')", "found \"'x\", expected a closing ' on the same line", "'x"),
        (r"pld(a='x\q')", r"found the escape \q, expected one of ", r"\q')"),
        ("pld(a=1e999)", "found '1e999', expected a number within range", "1e999)"),
        ("pld(a={})", "found '{}', expected a value: ", "{})"),
        ("pld(a=b.c/d/e)", "found '/e', expected ',' or ')'", "/e)"),
        ("pld.__class__()(3)", "found '(', expected the end of the expression", "(3)"),
        ("lambda: 0", "found ':', expected the end of the expression", ": 0"),
    ],
)
def test_a_fault_of_grammar_is_pointed_at(text: str, message: str, at: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        read(text)
    said, line, caret = str(caught.value).split("\n")
    assert said.startswith(message)
    assert line[len(caret) - 1 :].rstrip() == at


def test_the_caret_stands_below_the_column() -> None:
    with pytest.raises(ExpressionError) as caught:
        read("fallback(pld(ngram=), samd)")
    assert str(caught.value).split("\n")[1:] == [
        "  fallback(pld(ngram=), samd)",
        "                     ^",
    ]


def test_of_several_lines_the_one_with_the_fault_is_shown() -> None:
    with pytest.raises(ExpressionError) as caught:
        read("merge(\n\tpld,\n\tsamd(=),\n)")
    assert str(caught.value).split("\n")[1:] == ["   samd(=),", "        ^"]


@pytest.mark.parametrize("before", [10, 70, 500])
@pytest.mark.parametrize("after", [0, 70, 500])
def test_of_a_long_line_the_part_around_the_fault_is_shown(before: int, after: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        read(f"pld({'1,' * before}={',1' * after})")
    line, caret = str(caught.value).split("\n")[1:]
    assert line[len(caret) - 1] == "="
    assert len(line) <= 100


def test_a_long_token_is_cut_in_the_message() -> None:
    with pytest.raises(ExpressionError) as caught:
        read(f"pld({'x' * 5_000} y)")
    assert all(len(line) <= 100 for line in str(caught.value).split("\n"))


def test_an_expression_may_be_as_long_as_the_limit_and_no_longer() -> None:
    text = "pld(" + " " * (MAX_LENGTH - 5) + ")"
    assert read(text) == read("pld")
    with pytest.raises(ExpressionError, match=r"has 10001 characters, 10000 are allowed"):
        read(text + " ")


def test_components_and_lists_nest_as_deep_as_the_limit_and_no_deeper() -> None:
    def nested(depth: int) -> str:
        return "merge(" * (depth - 1) + "pld" + ")" * (depth - 1)

    read(nested(MAX_DEPTH))
    read("pld(a=" + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + ")")
    with pytest.raises(ExpressionError, match="more than 32 components and lists inside one"):
        read(nested(MAX_DEPTH + 1))
    with pytest.raises(ExpressionError, match="more than 32"):
        read("pld(a=" + "[" * MAX_DEPTH + "]" * MAX_DEPTH + ")")
    with pytest.raises(ExpressionError, match="more than 32"):
        read("a(" * 4_900)


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ExpressionError, match="expected a number within range"):
        read(f"pld(a={'9' * 5_000})")


def test_something_that_is_not_text_is_refused() -> None:
    with pytest.raises(ExpressionError, match="got NoneType"):
        read(None)  # type: ignore[arg-type]


def test_reading_takes_time_in_proportion_to_the_length() -> None:
    # A pattern that backtracks would never end on these.
    for text in ("'" + "\\'" * 4_000, "pld(" + "a-" * 4_000 + "!", "1" * 9_000 + "x", " " * 9_000):
        with pytest.raises(ExpressionError):
            read(text)


# Building


def test_compositions_hold_their_drafters_in_order(registry: Registry) -> None:
    stack = parse("fallback(pld(ngram=5), merge(token-recycling(top_k=4), pld))", registry)
    assert isinstance(stack, Fallback)
    first, second = stack.drafters
    assert first.ngram == 5  # type: ignore[attr-defined]
    assert isinstance(second, Merge)
    assert second.drafters[0].top_k == 4  # type: ignore[attr-defined]
    assert second.drafters[1].ngram == 3  # type: ignore[attr-defined]


def test_none_is_plain_decoding(registry: Registry) -> None:
    stack = parse("none", registry)
    assert isinstance(stack, Fallback)
    assert stack.drafters == ()


def test_none_stays_plain_decoding_when_a_plugin_claims_the_name_fallback(
    registry: Registry,
) -> None:
    other = ModuleType("in_process")
    other.register_drafters = hookimpl(  # type: ignore[attr-defined]
        lambda register: register("fallback", pld)
    )
    registry.register(other, name="other")
    assert isinstance(parse("none", registry), Fallback)


def test_none_is_not_a_memory(registry: Registry) -> None:
    with pytest.raises(
        ExpressionError, match="'none' is plain decoding, a drafter; expected a mem"
    ):
        parse("none", registry, "memory")


def test_an_option_may_be_a_component_of_any_kind(registry: Registry) -> None:
    given = options(
        "memory=embedding(capacity=1000), fallback=pld(), machine=schema, format=hermes, "
        "schema=False, stop=none",
        registry,
    )
    assert given["memory"].capacity == 1000
    assert isinstance(given["memory"], Memory)
    assert isinstance(given["fallback"], Drafter)
    assert isinstance(given["machine"], StateMachine)
    assert (given["format"], given["schema"], given["stop"]) == ("the record", False, None)


def test_a_list_may_hold_components(registry: Registry) -> None:
    first, second = options("drafters=[pld(ngram=1), pld(ngram=2)]", registry)["drafters"]
    assert (first.ngram, second.ngram) == (1, 2)


def test_quoted_text_is_never_a_component(registry: Registry) -> None:
    assert options("x='pld'", registry) == {"x": "pld"}


def test_plugin_slash_name_chooses_the_owner(registry: Registry) -> None:
    other = ModuleType("in_process")
    other.register_drafters = hookimpl(  # type: ignore[attr-defined]
        lambda register: register("pld", lambda: stub(Drafter, ngram="the other's"))
    )
    registry.register(other, name="other-one")
    assert parse("other-one/pld()", registry).ngram == "the other's"  # type: ignore[attr-defined]
    assert parse("mine/pld(ngram=7)", registry).ngram == 7  # type: ignore[attr-defined]
    message, at = fault("fallback(token-recycling, pld)", registry)
    assert message.endswith("ask for one of them: mine/pld, other-one/pld")
    assert at == "pld)"


def test_a_positional_argument_goes_where_the_factory_takes_one(registry: Registry) -> None:
    assert parse("pld(5)", registry).ngram == 5  # type: ignore[attr-defined]


def test_the_kind_of_the_whole_expression_can_be_chosen(registry: Registry) -> None:
    assert parse("embedding(capacity=7)", registry, kind="memory").capacity == 7
    assert isinstance(parse("both", registry, kind="memory"), Memory)
    assert isinstance(parse("both", registry), Drafter)


def test_a_name_of_several_kinds_is_a_drafter_as_a_positional_argument(registry: Registry) -> None:
    stack = parse("fallback(both)", registry)
    assert isinstance(stack.drafters[0], Drafter)  # type: ignore[attr-defined]


def test_a_name_of_several_kinds_as_an_option_is_refused(registry: Registry) -> None:
    message, at = fault("toolspec(memory=both)", registry)
    assert "several kinds: drafter mine/both, memory mine/both" in message
    assert at == "both)"


def test_without_a_registry_the_installed_plugins_are_asked(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specdec.expression, "default_registry", lambda: registry)
    assert parse("pld").ngram == 3  # type: ignore[attr-defined]
    assert build(read("pld")).ngram == 3
    check(read("pld"))


def test_a_tree_read_once_can_be_built_many_times(registry: Registry) -> None:
    node = read("pld")
    assert build(node, registry) is not build(node, registry)


# Errors of names and options


def test_an_unknown_name_is_pointed_at_with_the_near_one(registry: Registry) -> None:
    message, at = fault("fallback(token-recycling, pdl(ngram=3))", registry)
    assert message.startswith("no component named 'pdl'; registered: ")
    assert message.endswith("did you mean 'pld'?")
    assert at == "pdl(ngram=3))"


def test_an_unknown_whole_expression_is_looked_for_in_its_kind(registry: Registry) -> None:
    message, at = fault("embedding", registry)
    assert message.startswith("no drafter named 'embedding'; there is a memory of that name")
    assert at == "embedding"


def test_an_unknown_bare_word_may_have_been_meant_as_text(registry: Registry) -> None:
    message, at = fault("toolspec(mode=fast)", registry)
    assert message.startswith("no component named 'fast'")
    assert message.endswith("if it is meant as text, quote it: 'fast'")
    assert at == "fast)"


def test_an_unknown_option_is_pointed_at_with_the_near_one_and_the_defaults(
    registry: Registry,
) -> None:
    message, at = fault("merge(pld(length=2, ngrm=3))", registry)
    assert message == (
        "drafter 'pld' has no option 'ngrm'; it takes: ngram=3, length=10; did you mean 'ngram'?"
    )
    assert at == "ngrm=3))"


def test_a_positional_argument_too_many_is_pointed_at(registry: Registry) -> None:
    message, at = fault("pld(length=1, 2, 3)", registry)
    assert message.startswith("drafter 'pld' takes at most 1 positional argument, got 2")
    assert at == "3)"
    message, at = fault("token-recycling(8)", registry)
    assert message.startswith("drafter 'token-recycling' takes no positional arguments, got 1")
    assert at == "8)"


def test_a_value_given_by_place_and_by_name_is_refused(registry: Registry) -> None:
    message, at = fault("merge(pld(1, ngram=2))", registry)
    assert message.startswith("drafter 'pld': multiple values for argument 'ngram'")
    assert at == "pld(1, ngram=2))"


def test_a_value_that_the_factory_refuses_is_pointed_at_and_keeps_its_cause(
    registry: Registry,
) -> None:
    message, at = fault("merge(pld, pld(ngram=0))", registry)
    assert (message, at) == ("drafter 'pld': ngram must be at least 1, got 0", "pld(ngram=0))")
    with pytest.raises(ExpressionError) as caught:
        parse("pld(ngram=0)", registry)
    assert type(caught.value.__cause__) is ValueError


@pytest.mark.parametrize("text", ["merge(wrong)", "fallback(3)", "fallback(none)"])
def test_a_breach_of_contract_shows_the_expression(text: str, registry: Registry) -> None:
    with pytest.raises((ContractError, ExpressionError)) as caught:
        parse(text, registry)
    assert f"\n  {text}\n" in str(caught.value)


def test_a_slip_anywhere_is_found_before_anything_is_built(registry: Registry) -> None:
    fault("toolspec(memory=embedding(capacity=5), fallback=pld(ngrm=3))", registry)
    assert built == []


def test_checking_builds_nothing_and_refuses_what_building_would(registry: Registry) -> None:
    check(read("toolspec(memory=embedding, fallback=pld(ngram=4), x=[schema])"), registry)
    check(read("none"), registry)
    check(read("embedding"), registry, kind="memory")
    assert built == []
    for text in ("pdl", "merge(pdl)", "pld(ngrm=3)", "embedding", "toolspec(memory=both)"):
        with pytest.raises(ExpressionError, match=r"\^$"):
            check(read(text), registry)


def test_an_option_says_which_kind_it_takes_where_a_name_has_several():
    registry = Registry(None)
    registry.register(Both(), "both")
    assert isinstance(parse("machine(both)", registry).machine, BothMachine)
    assert isinstance(parse("fallback(both)", registry).drafters[0], Fallback)
    assert isinstance(parse("takes(part=both)", registry).part, Fallback)
    assert isinstance(parse("takes(machine=both)", registry).machine, BothMachine)
    with pytest.raises(ExpressionError, match="several kinds"):
        parse("takes(anything=both)", registry)


class BothMachine(StateMachine):
    def start(self, request):
        return ""

    def advance(self, state, text):
        return text

    def continuations(self, state):
        return []


class Takes(Fallback):
    def __init__(
        self,
        *,
        part: bool | Drafter = True,
        machine: StateMachine | None = None,
        anything: object = None,
    ):
        super().__init__()
        self.part, self.machine, self.anything = part, machine, anything


class Both:
    @hookimpl
    def register_drafters(self, register):
        register("both", Fallback)
        register("takes", Takes)

    @hookimpl
    def register_state_machines(self, register):
        register("both", BothMachine)
