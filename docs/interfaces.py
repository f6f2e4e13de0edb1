"""Writes docs/interfaces.md from the docstrings of the public names: ``make docs``."""

from __future__ import annotations

import inspect
from pathlib import Path

import specdec

PAGE = Path(__file__).with_suffix(".md")

HEAD = """\
# Public names

Everything in `specdec.__all__`; what is not here may change without notice. The contract of each is
its docstring. `specdec.hf` adds `HFTarget` and `HFCodec`, `specdec.testing` the conformance kit.
A removed name warns for one minor release. (`make docs` writes this page.)
"""

GROUPS = {
    "Chat": "load LanguageModel Reply Done Acceptance",
    "Decode": ("Engine Request Sampling Result Step Phases SourceCount Run Target TargetSession"),
    "Draft": "Drafter DraftSession DraftTree Limit Vote ROOT EMPTY Needs PerTenant",
    "Compose": "Fallback Merge MachineDrafter parse",
    "Budgets": "Budget FixedBudget MeasuredBudget CostCurve measure_costs paying",
    "Verify": "Verifier ExactVerifier Verdict Decide Decision",
    "Machines and memories": "StateMachine State Continuation Memory Episode",
    "Text, tools and calls": "TextCodec BatchCodec Decoder Tool CallFormat Call calls",
    "Plugins": "Registry default_registry hookimpl API_VERSION",
    "Replay": "ReplayTarget modelled",
    "Errors": (
        "SpecdecError ContractError ExpressionError PluginError RequestError UnknownName "
        "UnsupportedModel"
    ),
}

# Values have no docstring of their own at run time.
VALUES = {
    "ROOT": "Parent index of the nodes directly below the last committed token: -1.",
    "EMPTY": "The draft that offers nothing.",
    "Decide": "`decide(path_tokens, row)`: the target's choice, asked once per visited node.",
    "State": "A state of a StateMachine: an immutable value.",
    "hookimpl": "Marks a function as the implementation of a hook.",
    "API_VERSION": "Version of the contract between specdec and its plugins.",
}


def page() -> str:
    """The page; a public name without a group is an error."""
    names = {group: listed.split() for group, listed in GROUPS.items()}
    left = set(specdec.__all__) ^ {name for listed in names.values() for name in listed}
    if left:
        raise SystemExit(f"public names and groups differ: {', '.join(sorted(left))}")
    lines = [HEAD]
    for group, listed in names.items():
        lines += [f"## {group}", "", "| name | is |", "|---|---|"]
        for name in listed:
            text = VALUES.get(name) or inspect.getdoc(getattr(specdec, name)) or ""
            first = " ".join(text.split("\n\n")[0].split())
            lines.append(f"| `{name}` | {first.replace('|', '/')} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
