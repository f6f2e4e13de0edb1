"""PerTenant: learned tables that never cross tenants, and never grow without bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar


class Savable(Protocol):
    """A table that can be saved."""

    def state(self) -> Any:  # noqa: ANN401 - plain values
        """What it learned, as plain values."""

    def restore(self, state: Any, /) -> None:  # noqa: ANN401 - plain values
        """The inverse of `state`."""


T = TypeVar("T")
S = TypeVar("S", bound=Savable)


class PerTenant(Generic[T]):
    """One table per tenant, made on first use; the least recently used goes first.

    Args:
        make: Builds an empty table.
        capacity: The most tenants kept.
    """

    def __init__(self, make: Callable[[], T], *, capacity: int = 16) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 tenant, got {capacity}")
        self._make = make
        self._capacity = capacity
        self._tables: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, tenant: str) -> T:
        """The tenant's table."""
        with self._lock:
            # An empty table may be false, so presence decides.
            table = self._tables.pop(tenant) if tenant in self._tables else self._make()
            self._tables[tenant] = table
            while len(self._tables) > self._capacity:
                self._tables.popitem(last=False)
            return table

    def __len__(self) -> int:
        return len(self._tables)

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(tuple(self._tables))

    def clear(self) -> None:
        """Drop every table."""
        with self._lock:
            self._tables.clear()

    def state(self: PerTenant[S]) -> dict[str, Any]:
        """The states of the tables by tenant, for tables that have a `state`."""
        return {tenant: self[tenant].state() for tenant in self}

    def restore(self: PerTenant[S], state: Mapping[str, Any]) -> None:
        """The inverse of `state`; every other table is dropped."""
        self.clear()
        for tenant, saved in state.items():
            self[tenant].restore(saved)
