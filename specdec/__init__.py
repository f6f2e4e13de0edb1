"""specdec: speculative decoding as an engine and interchangeable drafters.

Importing this package loads no plugin, no torch and no transformers.
"""

import importlib
from typing import TYPE_CHECKING, Any

from specdec import calls
from specdec.acceptance import Acceptance
from specdec.budget import CostCurve, FixedBudget, MeasuredBudget, measure_costs, paying
from specdec.calls.formats import Call, CallFormat
from specdec.calls.tools import Tool
from specdec.compose import Fallback, Merge
from specdec.engine import Engine, Target, TargetSession
from specdec.errors import (
    ContractError,
    ExpressionError,
    PluginError,
    RequestError,
    SpecdecError,
    UnknownName,
    UnsupportedModel,
)
from specdec.expression import parse
from specdec.hookspecs import API_VERSION, hookimpl
from specdec.interfaces import (
    Budget,
    Continuation,
    Decide,
    Decision,
    Drafter,
    DraftSession,
    Episode,
    Memory,
    Needs,
    State,
    StateMachine,
    Verdict,
    Verifier,
)
from specdec.machine import MachineDrafter
from specdec.registry import Registry, default_registry
from specdec.report import Run
from specdec.request import Phases, Request, Result, Sampling, SourceCount, Step
from specdec.tenants import PerTenant
from specdec.text import BatchCodec, Decoder, TextCodec
from specdec.tree import EMPTY, ROOT, DraftTree, Limit, Vote

if TYPE_CHECKING:
    from specdec.lm import Done, LanguageModel, Reply, load
    from specdec.replay import ReplayTarget, modelled
    from specdec.verify import ExactVerifier

__version__ = "0.1.0"

__all__ = [
    "API_VERSION",
    "EMPTY",
    "ROOT",
    "Acceptance",
    "BatchCodec",
    "Budget",
    "Call",
    "CallFormat",
    "Continuation",
    "ContractError",
    "CostCurve",
    "Decide",
    "Decision",
    "Decoder",
    "Done",
    "DraftSession",
    "DraftTree",
    "Drafter",
    "Engine",
    "Episode",
    "ExactVerifier",
    "ExpressionError",
    "Fallback",
    "FixedBudget",
    "LanguageModel",
    "Limit",
    "MachineDrafter",
    "MeasuredBudget",
    "Memory",
    "Merge",
    "Needs",
    "PerTenant",
    "Phases",
    "PluginError",
    "Registry",
    "ReplayTarget",
    "Reply",
    "Request",
    "RequestError",
    "Result",
    "Run",
    "Sampling",
    "SourceCount",
    "SpecdecError",
    "State",
    "StateMachine",
    "Step",
    "Target",
    "TargetSession",
    "TextCodec",
    "Tool",
    "UnknownName",
    "UnsupportedModel",
    "Verdict",
    "Verifier",
    "Vote",
    "calls",
    "default_registry",
    "hookimpl",
    "load",
    "measure_costs",
    "modelled",
    "parse",
    "paying",
]

_WHEN_ASKED_FOR = {
    "Done": "specdec.lm",
    "ExactVerifier": "specdec.verify",
    "LanguageModel": "specdec.lm",
    "ReplayTarget": "specdec.replay",
    "Reply": "specdec.lm",
    "load": "specdec.lm",
    "modelled": "specdec.replay",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _WHEN_ASKED_FOR:  # some of it needs torch
        return getattr(importlib.import_module(_WHEN_ASKED_FOR[name]), name)
    if name in ("hf", "lm", "replay"):
        return importlib.import_module(f"specdec.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
