"""How many drafted nodes a pass may carry: a fixed number, or as many as pay."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Protocol, Self

import attrs
import numpy as np
import numpy.typing as npt

from specdec.errors import RequestError
from specdec.files import replace
from specdec.interfaces import Budget
from specdec.tree import DraftTree


class FixedBudget(Budget):
    """Always the same number of nodes.

    Args:
        nodes: The most nodes of a draft; 0 switches drafting off.
    """

    def __init__(self, nodes: int) -> None:
        if nodes < 0:
            raise ValueError(f"a budget is at least 0 nodes, got {nodes}")
        self.nodes = nodes

    def limit(self, kv_length: int) -> int:  # noqa: ARG002 - the same at every length
        """The number of nodes."""
        return self.nodes

    def __repr__(self) -> str:
        return f"FixedBudget({self.nodes})"


def _whole(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _table(rows: Iterable[Iterable[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(value) for value in row) for row in rows)


@attrs.frozen
class CostCurve:
    """What a pass costs on one model and device.

    Attributes:
        nodes: (A,) measured numbers of drafted nodes, rising, the first 0.
        kv_lengths: (B,) measured cache lengths in tokens, rising.
        seconds: (B, A) seconds of a pass of the root and that many nodes.
        label: Model, dtype, device and threads it was measured with.
    """

    nodes: tuple[int, ...] = attrs.field(converter=_whole)
    kv_lengths: tuple[int, ...] = attrs.field(converter=_whole)
    seconds: tuple[tuple[float, ...], ...] = attrs.field(converter=_table)
    label: str = ""

    def __attrs_post_init__(self) -> None:
        rising = all(list(row) == sorted(set(row)) for row in (self.nodes, self.kv_lengths))
        shape = {len(row) for row in self.seconds}
        if not (
            self.nodes
            and self.nodes[0] == 0
            and rising
            and len(self.seconds) == len(self.kv_lengths) > 0
            and shape == {len(self.nodes)}
            and all(s > 0 for row in self.seconds for s in row)
        ):
            raise ValueError(
                "a cost curve needs rising node counts from 0, rising cache lengths and one "
                f"positive time for each pair, got {self}"
            )

    def costs(self, kv_length: int, most: int) -> npt.NDArray[np.float64]:
        """(most + 1,) seconds of a pass with 0 to `most` nodes.

        Interpolated between measurements and never falling: a pass that carries fewer nodes
        costs at most what one with more does, whatever noise says.
        """
        return _costs(self, kv_length, most)

    def slope(self) -> float:
        """Seconds that one more row adds to a long pass; 0 when only one was measured."""
        if len(self.nodes) < 2:
            return 0.0
        rise = self.seconds[0][-1] - self.seconds[0][-2]
        return max(rise / (self.nodes[-1] - self.nodes[-2]), 0.0)

    def save(self, path: Path) -> None:
        """Write the curve as JSON, atomically."""
        replace(path, json.dumps({"version": 1, **attrs.asdict(self)}, indent=1))

    @classmethod
    def load(cls, path: Path) -> Self:
        """The curve that `save` wrote.

        Raises:
            RequestError: If the file cannot be read or is not a cost curve.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data.pop("version") != 1:
                raise ValueError("unknown version")
            return cls(**data)
        except OSError as error:
            raise RequestError(f"cost curve {path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RequestError(
                f"{path} is not a cost curve ({error}); measure it again with measure_costs"
            ) from None


@lru_cache(maxsize=512)
def _costs(curve: CostCurve, kv_length: int, most: int) -> npt.NDArray[np.float64]:
    table = np.asarray(curve.seconds)
    at_length = np.array([np.interp(kv_length, curve.kv_lengths, column) for column in table.T])
    # Beyond the last cache length attention goes on growing at the slope of the last interval.
    if kv_length > curve.kv_lengths[-1] and len(curve.kv_lengths) > 1:
        span = curve.kv_lengths[-1] - curve.kv_lengths[-2]
        slope = np.maximum(table[-1] - table[-2], 0.0) / span
        at_length = at_length + slope * (kv_length - curve.kv_lengths[-1])
    at_length = np.minimum.accumulate(at_length[::-1])[::-1]
    costs: npt.NDArray[np.float64] = np.interp(np.arange(most + 1), curve.nodes, at_length)
    beyond = np.arange(most + 1) - curve.nodes[-1]
    if beyond[-1] > 0 and len(curve.nodes) > 1:
        slope = (at_length[-1] - at_length[-2]) / (curve.nodes[-1] - curve.nodes[-2])
        costs = costs + np.maximum(beyond, 0) * slope
    costs.setflags(write=False)
    return costs


class Timed(Protocol):
    """A target whose passes can be timed without a request."""

    @property
    def label(self) -> str:
        """Model, dtype, device and threads, for the record."""

    @property
    def longest(self) -> int:
        """Positions that a timed pass may use."""

    def pass_seconds(self, nodes: int, kv_length: int) -> float:
        """Wall-clock seconds of one pass of a root and `nodes` nodes."""


def measure_costs(
    target: Timed,
    *,
    nodes: Sequence[int] = (0, 1, 7, 15, 31, 63),
    kv_lengths: Sequence[int] = (512, 2048),
    repeats: int = 3,
) -> CostCurve:
    """Time a handful of passes on `target`.

    Args:
        target: The target, such as `specdec.hf.HFTarget`.
        nodes: Numbers of nodes to time.
        kv_lengths: Cache lengths to time, in tokens; cut to what the target can hold.
        repeats: Passes per point; the median counts. The points take turns, so that drift of
            the machine hits all alike; one more round first warms up.
    """
    room = target.longest - max(nodes) - 1
    if room < 1:
        nodes = [n for n in nodes if n < target.longest - 1] or [0]
        room = max(target.longest - max(nodes) - 1, 0)
    kv_lengths = sorted({min(length, room) for length in kv_lengths})
    points = [(length, n) for length in kv_lengths for n in nodes]
    times: dict[tuple[int, int], list[float]] = {point: [] for point in points}
    for turn in range(repeats + 1):
        for length, n in points:
            seconds = target.pass_seconds(n, length)
            if turn:
                times[length, n].append(seconds)
    median = [[statistics.median(times[length, n]) for n in nodes] for length in kv_lengths]
    return CostCurve(tuple(nodes), tuple(kv_lengths), median, target.label)


class MeasuredBudget(Budget):
    """Keeps the nodes that maximise expected tokens per second.

    A pass of k nodes commits 1 + (sum of their reach) tokens on average and costs what the curve
    says; of all k, with the nodes of the greatest reach kept, the best ratio wins. Plain decoding
    (k = 0) is one of the choices, so a poor draft costs nothing but its making. The same
    trade-off, solved offline for static trees, is in Sequoia (arXiv 2402.12374, section 4.3).

    Args:
        curve: What a pass costs.
        most: The most nodes ever.
    """

    def __init__(self, curve: CostCurve, *, most: int = 64) -> None:
        if most < 0:
            raise ValueError(f"a budget is at least 0 nodes, got {most}")
        self.curve = curve
        self.most = most

    def limit(self, kv_length: int) -> int:  # noqa: ARG002 - trim does the weighing
        """The most nodes ever."""
        return self.most

    def trim(self, tree: DraftTree, kv_length: int, pending: int = 1) -> DraftTree:
        """The nodes of the greatest reach, as many as pay."""
        if not tree.tokens:
            return tree
        # Costs change slowly with the cache's length; rounding keeps the interpolation cached.
        costs = self.curve.costs(-(-kv_length // 64) * 64, max(self.most, len(tree)))
        reach = sorted(tree.reach, reverse=True)
        gains = np.concatenate(([1.0], 1.0 + np.cumsum(reach)))
        if pending == 1:
            return tree.top(int(np.argmax(gains / costs[: len(gains)])))
        # On a prompt's own pass a node costs what one more row of a long pass costs, and a token
        # gained saves at most one plain step.
        worth = gains * costs[0] - self.curve.slope() * np.arange(len(gains))
        return tree.top(int(np.argmax(worth)))

    def __repr__(self) -> str:
        return f"MeasuredBudget(most={self.most})"


def paying(drafts: Sequence[DraftTree], overhead: float) -> list[DraftTree]:
    """The drafts of requests that share a pass, cut to the nodes that pay.

    A pass of n rows is taken to cost as much as ``overhead + n`` rows; each request commits one
    token and, on average, the sum of its nodes' reach. Of all nodes those of the greatest reach
    are kept, as many as bring the most tokens for the cost: what `MeasuredBudget` does for one
    request whose costs are known point by point. The more requests share a pass, the surer a node
    must be. Depends on its arguments alone, so workers that draft alike cut alike.

    Args:
        drafts: One for each request in the pass; an empty one where there is none.
        overhead: What a pass costs before its first row, in rows.

    Raises:
        ValueError: If `overhead` is negative.
    """
    if not overhead >= 0:
        raise ValueError(f"overhead must be at least 0 rows, got {overhead}")
    if not drafts:
        return []
    tokens, cost = float(len(drafts)), overhead + len(drafts)
    for reach in sorted(chain.from_iterable(draft.reach for draft in drafts), reverse=True):
        if reach <= tokens / cost:
            break
        tokens, cost = tokens + reach, cost + 1.0
    return [_above(draft, tokens / cost) for draft in drafts]


def _above(tree: DraftTree, least: float) -> DraftTree:
    """The nodes whose reach is more than `least`."""
    reach = tree.reach
    if all(odds > least for odds in reach):
        return tree
    return tree.keep(node for node, odds in enumerate(reach) if odds > least)
