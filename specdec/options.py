"""Options of a component, checked against its factory before it is called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from specdec.errors import ExpressionError, did_you_mean

_WORD = re.compile(r"\w+")


class OptionError(ExpressionError):
    """The options given to a component do not fit its factory.

    Attributes:
        option: Name of the offending option, index of the offending positional argument, or
            None when the fault is not in one of them.
    """

    def __init__(self, message: str, option: str | int | None = None) -> None:
        super().__init__(message)
        self.option = option


def expected_kind(
    factory: Callable[..., Any], option: str | None, kinds: Mapping[str, type]
) -> str | None:
    """The kind of component that an option is declared to take.

    Args:
        factory: What takes it.
        option: Its name; None for a positional argument.
        kinds: The interface of each kind.

    Returns:
        The kind whose interface its annotation names; None if it names none.
    """
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (ValueError, TypeError):
        return None
    by_place = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    for parameter in parameters:
        if parameter.name == option or (option is None and parameter.kind in by_place):
            names = _WORD.findall(str(parameter.annotation))
            return next((k for k, made in kinds.items() if made.__name__ in names), None)
    return None


def check_options(
    what: str,
    factory: Callable[..., Any],
    args: tuple[object, ...],
    options: Mapping[str, object],
) -> None:
    """Bind before calling, so that a typo is not mistaken for a fault inside the factory.

    Args:
        what: The component, for messages.
        factory: What will be called.
        args: Its positional arguments.
        options: Its keyword arguments.

    Raises:
        OptionError: If the factory does not take them.
    """
    try:
        signature = inspect.signature(factory)
    except (ValueError, TypeError):  # some callables written in C have none; calling them tells
        return
    parameters = list(signature.parameters.values())
    accepted = [str(parameter.replace(annotation=parameter.empty)) for parameter in parameters]
    takes = f"it takes: {', '.join(accepted)}" if accepted else "it takes no options"
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        named = [parameter.name for parameter in parameters if parameter.kind in by_name]
        for option in options:
            if option not in named:
                near = did_you_mean(option, named)
                raise OptionError(f"{what} has no option {option!r}; {takes}{near}", option)
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        most = sum(kind in by_place for kind in kinds)
        if len(args) > most:
            limit = f"at most {most}" if most else "no"
            plural = "" if most == 1 else "s"
            raise OptionError(
                f"{what} takes {limit} positional argument{plural}, got {len(args)}; {takes}", most
            )
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        raise OptionError(f"{what}: {error}; {takes}") from error
