"""Stack expressions, checked and built: text such as ``fallback(pld(ngram=3), samd)``.

The grammar is in `specdec.syntax`. Reading (`read`), checking (`check`) and building (`build`)
are separate; nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, overload

from specdec.errors import ContractError, ExpressionError, UnknownName
from specdec.interfaces import Drafter
from specdec.options import OptionError
from specdec.registry import Registry, default_registry
from specdec.syntax import Constant, Items, Node, Place, read

__all__ = ["build", "check", "parse", "read"]


def check(node: Node, registry: Registry | None = None, kind: str = "drafter") -> None:
    """Check that every name is registered and every option exists; builds nothing.

    Args:
        node: What `read` returned.
        registry: Where names are looked up; by default that of the installed plugins.
        kind: What the whole expression must be.

    Raises:
        ExpressionError: If a name is unknown or ambiguous, or an option does not exist.
    """
    registry = default_registry() if registry is None else registry
    _visit(node, registry, kind, registry.check)


def build(node: Node, registry: Registry | None = None, kind: str = "drafter") -> Any:  # noqa: ANN401
    """Build what `read` returned, after `check` has passed all of it.

    Args:
        node: What `read` returned.
        registry: Where names are looked up; by default that of the installed plugins.
        kind: What the whole expression must be.

    Returns:
        A new component of that kind.

    Raises:
        ExpressionError: If a name is unknown or ambiguous, an option does not exist, or a
            factory refuses a value; the factory's error is then the cause.
        ContractError: If a plugin's factory returns something that is not of its kind, or a
            composition is given something that is not a drafter.
    """
    registry = default_registry() if registry is None else registry
    # First: a slip in the last option must not cost building everything before it.
    check(node, registry, kind)
    return _visit(node, registry, kind, registry.build)


@overload
def parse(
    text: str, registry: Registry | None = None, kind: Literal["drafter"] = "drafter"
) -> Drafter: ...
@overload
def parse(text: str, registry: Registry | None = None, *, kind: str) -> Any: ...  # noqa: ANN401
@overload
def parse(text: str, registry: Registry | None, kind: str) -> Any: ...  # noqa: ANN401
def parse(text: str, registry: Registry | None = None, kind: str = "drafter") -> Any:
    """Build the component that a stack expression describes.

    Args:
        text: Such as ``"fallback(pld(ngram=3), token-recycling(top_k=8))"``; ``"none"`` is plain
            decoding. The module's docstring has the grammar.
        registry: Where names are looked up; by default that of the installed plugins.
        kind: What the whole expression must be.

    Returns:
        A new component of that kind.

    Raises:
        ExpressionError: If the expression cannot be read or built; the message points at the
            place.
        ContractError: If a plugin's factory returns something that is not of its kind, or a
            composition is given something that is not a drafter.
    """
    return build(read(text), registry, kind)


_Act = Callable[..., object]


def _visit(node: Node, registry: Registry, kind: str, act: _Act) -> object:
    """Call ``act(kind, name, *args, **options)`` for every component, the innermost first."""
    if node.name == "none":
        if kind != "drafter":
            raise node.place.error(f"'none' is plain decoding, a drafter; expected a {kind}")
        return act("drafter", "specdec/fallback")
    args: list[object] = []
    options: dict[str, object] = {}
    for argument in node.arguments:
        prefer = registry.expects(kind, node.name, argument.option)
        value = _evaluate(argument.value, registry, prefer, act)
        if argument.option is None:
            args.append(value)
        else:
            options[argument.option] = value
    try:
        return act(kind, node.name, *args, **options)
    except (ExpressionError, UnknownName) as error:
        raise _culprit(node, error).error(str(error)) from error.__cause__ or error
    except ContractError as error:
        raise ContractError(node.place.show(str(error))) from error


def _evaluate(
    value: Node | Constant | Items, registry: Registry, prefer: str | None, act: _Act
) -> object:
    if isinstance(value, Constant):
        return value.value
    if isinstance(value, Items):
        return [_evaluate(item, registry, prefer, act) for item in value.values]
    try:
        kind = registry.kind_of(value.name, prefer)
    except UnknownName as error:
        quote = "" if value.arguments else f"\nif it is meant as text, quote it: '{value.name}'"
        raise value.place.error(f"{error}{quote}") from error
    return _visit(value, registry, kind, act)


def _culprit(node: Node, error: Exception) -> Place:
    """Where the argument stands that `error` is about; the component itself if it is not one."""
    option = error.option if isinstance(error, OptionError) else None
    if isinstance(option, int):
        return [given.place for given in node.arguments if given.option is None][option]
    named = {given.option: given.place for given in node.arguments}
    return node.place if option is None else named[option]
