"""Stacks: the drafters of one language model, each built once and kept with what it learns."""

from __future__ import annotations

import threading
from typing import Final

from specdec.compose import Merge
from specdec.errors import RequestError
from specdec.expression import parse
from specdec.interfaces import Drafter
from specdec.registry import Registry

OFF: Final = "none"
"""The expression that stands for plain decoding."""


class Stacks:
    """Drafters by expression. Safe to use from several threads.

    Args:
        default: The drafter of requests that ask for none in particular: an expression, a drafter,
            or None for plain decoding.
        prediction: Expression of the drafter that follows a request's prediction.
        registry: Where names are looked up.
    """

    def __init__(self, default: str | Drafter | None, prediction: str, registry: Registry) -> None:
        self._prediction = prediction
        self._registry = registry
        self._built: dict[str, Drafter] = {}
        self._predicting: dict[int, Merge] = {}  # by id of the drafter beside it, which is kept
        self._lock = threading.RLock()
        self.default = default if isinstance(default, Drafter) else self.named(default)

    def named(self, expression: str | None) -> Drafter:
        """The drafter of an expression; None is plain decoding.

        Raises:
            RequestError: If it is no expression.
            ExpressionError: If the expression cannot be read or built.
        """
        if not isinstance(expression, str | None):
            raise RequestError(
                f"drafter must be a stack expression, a Drafter or None, got {expression!r}"
            )
        key = (expression or OFF).strip()
        with self._lock:
            if key not in self._built:
                self._built[key] = parse(key, self._registry)
            return self._built[key]

    def beside_prediction(self, base: Drafter) -> Drafter:
        """`base` merged with the drafter that follows predictions.

        For drafters that are kept here the merged one is kept too, with its acceptance records.
        """
        with self._lock:
            kept = self._predicting.get(id(base))
            if kept is None:
                kept = Merge(self.named(self._prediction), base)
                if base is self.default or base in self._built.values():
                    self._predicting[id(base)] = kept
            return kept
