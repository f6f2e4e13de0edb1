"""Acceptance: how drafts fared, in the words of vLLM's per-request metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from specdec.request import Result, SourceCount


@attrs.frozen
class Acceptance:
    """How the drafts of one or more requests fared. Only emitted tokens count.

    A *speculative step* is a forward pass that verified at least one drafted token; the prompt's
    own pass is one if a draft rode along with it. Passes without a draft are not in these figures
    (`Result.mat` counts them). Of a path that generation ended in, only what was emitted counts,
    and such a step has no token of the target's own: vLLM's 1 + accepted / steps counts one there.

    Attributes:
        acceptance_histogram: By number of accepted tokens, how many speculative steps had it;
            numbers that never occurred are left out.
        num_draft_tokens: Drafted nodes verified. Of a tree, at most one path can be accepted.
        num_emitted_tokens: Tokens that speculative steps emitted: accepted ones and the target's.
        by_source: Drafted nodes and accepted ones by source.
    """

    acceptance_histogram: Mapping[int, int] = attrs.field(factory=dict)
    num_draft_tokens: int = 0
    num_emitted_tokens: int = 0
    by_source: Mapping[str, SourceCount] = attrs.field(factory=dict)

    @classmethod
    def of(cls, result: Result) -> Acceptance:
        """The figures of one request."""
        drafted = [
            accepted for accepted, nodes in zip(result.accepted, result.nodes, strict=True) if nodes
        ]
        # Every pass emits what it accepted and one more, but the last if it ended on its path.
        cut = sum(result.accepted) + result.passes - len(result.tokens)
        ended_in_draft = bool(result.nodes) and result.nodes[-1] > 0
        return cls(
            dict(sorted(Counter(drafted).items())),
            sum(result.nodes),
            sum(drafted) + len(drafted) - (cut if ended_in_draft else 0),
            dict(result.by_source),
        )

    def __add__(self, other: Acceptance) -> Acceptance:
        """The figures of both together."""
        steps = Counter(self.acceptance_histogram) + Counter(other.acceptance_histogram)
        names = sorted({*self.by_source, *other.by_source})
        none = SourceCount()
        return Acceptance(
            dict(sorted(steps.items())),
            self.num_draft_tokens + other.num_draft_tokens,
            self.num_emitted_tokens + other.num_emitted_tokens,
            {n: self.by_source.get(n, none) + other.by_source.get(n, none) for n in names},
        )

    @property
    def num_spec_steps(self) -> int:
        """Speculative steps."""
        return sum(self.acceptance_histogram.values())

    @property
    def num_accepted_draft_tokens(self) -> int:
        """Drafted tokens that were emitted."""
        return sum(accepted * steps for accepted, steps in self.acceptance_histogram.items())

    @property
    def mean_acceptance_length(self) -> float:
        """Emitted tokens per speculative step, the target's own included; NaN without a step."""
        return _ratio(self.num_emitted_tokens, self.num_spec_steps)

    @property
    def draft_acceptance_rate(self) -> float:
        """Accepted of all drafted tokens; NaN without any."""
        return _ratio(self.num_accepted_draft_tokens, self.num_draft_tokens)

    @property
    def num_accepted_tokens_per_pos(self) -> tuple[int, ...]:
        """(most accepted in a step,) steps that accepted a token at depth 1, at depth 2, ..."""
        return tuple(
            sum(steps for accepted, steps in self.acceptance_histogram.items() if accepted >= depth)
            for depth in range(1, max(self.acceptance_histogram, default=0) + 1)
        )

    @property
    def acceptance_rate_per_pos(self) -> tuple[float, ...]:
        """`num_accepted_tokens_per_pos` as shares of the speculative steps."""
        return tuple(count / self.num_spec_steps for count in self.num_accepted_tokens_per_pos)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values: vLLM's fields, then what goes beyond them."""
        return {
            "mean_acceptance_length": _number(self.mean_acceptance_length),
            "draft_acceptance_rate": _number(self.draft_acceptance_rate),
            "acceptance_histogram": {str(k): n for k, n in self.acceptance_histogram.items()},
            "num_spec_steps": self.num_spec_steps,
            "num_accepted_draft_tokens": self.num_accepted_draft_tokens,
            "num_draft_tokens": self.num_draft_tokens,
            "num_emitted_tokens": self.num_emitted_tokens,
            "num_accepted_tokens_per_pos": list(self.num_accepted_tokens_per_pos),
            "acceptance_rate_per_pos": list(self.acceptance_rate_per_pos),
            "by_source": {name: attrs.asdict(count) for name, count in self.by_source.items()},
        }


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
