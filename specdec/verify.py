"""The exact verifier, greedy and sampled alike."""

from __future__ import annotations

import torch

from specdec.interfaces import Decide, Verdict, Verifier
from specdec.tree import ROOT, DraftTree


class ExactVerifier(Verifier):
    """Follows, from the root down, the child that carries the target's own choice.

    At every visited node the target chooses ONE token from its processed distribution; the walk
    goes on while a child carries it. What is committed is always the target's choice, so the
    output is that of plain decoding, at any temperature and for any tree (SpecInfer, arXiv
    2305.09781, section 4.3, "naive sampling"). The textbook ``min(1, p/q)`` rule is biased on
    trees whose drafts were not sampled from q, and one draw per chain over-accepts shared
    prefixes; neither is used.
    """

    def verify(self, tree: DraftTree, logits: torch.Tensor, decide: Decide) -> Verdict:
        """See `Verifier.verify`."""
        if logits.ndim != 2 or logits.shape[0] != len(tree) + 1:
            raise ValueError(
                f"a tree of {len(tree)} nodes needs logits of shape ({len(tree) + 1}, V), got "
                f"{tuple(logits.shape)}"
            )
        children = {
            (parent, token): node
            for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))
        }
        path: list[int] = []
        tokens: list[int] = []
        node = ROOT
        while True:
            # Row 0 follows the root, row i + 1 follows node i; with ROOT = -1 that is one rule.
            decision = decide(tokens, logits[node + 1])
            child = children.get((node, decision.token))
            if child is None:
                return Verdict(tuple(path), decision.token, decision.stop)
            path.append(child)
            tokens.append(decision.token)
            if decision.stop:
                return Verdict(tuple(path), None, stopped=True)
            node = child
