"""The hooks a plugin may implement, and the version of this contract.

A plugin is a module or an object whose functions are marked with `hookimpl`. It is found through
an entry point of the group ``specdec``, or handed to `specdec.registry.Registry.register`. An
implementation may ask for any subset of a hook's arguments, by name. A plugin says which version
of the contract it was written for with ``SPECDEC_API_VERSION: int``; saying nothing means 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pluggy

if TYPE_CHECKING:
    from specdec.interfaces import Drafter, Memory, StateMachine, Verifier
    from specdec.request import Request, Result, Step

API_VERSION: Final = 1
"""Version of the contract between specdec and its plugins."""

hookspec = pluggy.HookspecMarker("specdec")
hookimpl = pluggy.HookimplMarker("specdec")


@hookspec
def register_drafters(register: Callable[[str, Callable[..., Drafter]], None]) -> None:
    """Name the drafters this plugin brings. Called once, when the plugin is loaded.

    Nothing of the plugin is kept if this raises. Build nothing here: a factory is called when
    somebody asks for the component, once for every time it is asked for.

    Args:
        register: ``register(name, factory)``. The name starts with a lower-case letter and goes
            on with lower-case letters, digits, ``-``, ``_`` and ``.``; the words ``none``,
            ``null``, ``true`` and ``false`` are taken. ``factory(**options)`` returns a
            `Drafter`: a class or a function whose signature names its options and their
            defaults, since that signature is what users are shown. An option may itself be a
            component. Compositions may take drafters as positional arguments. A wrong option is
            reported with ValueError. `register` works only until this hook returns and raises
            PluginError for a name or factory that it cannot take.
    """


@hookspec
def register_state_machines(register: Callable[[str, Callable[..., StateMachine]], None]) -> None:
    """Name the state machines this plugin brings. Called once, when the plugin is loaded.

    Args:
        register: ``register(name, factory)`` as in `register_drafters`; ``factory(**options)``
            returns a `StateMachine`.
    """


@hookspec
def register_memories(register: Callable[[str, Callable[..., Memory]], None]) -> None:
    """Name the memories this plugin brings. Called once, when the plugin is loaded.

    Args:
        register: ``register(name, factory)`` as in `register_drafters`; ``factory(**options)``
            returns a `Memory`, a new one for every call.
    """


@hookspec
def register_verifiers(register: Callable[[str, Callable[..., Verifier]], None]) -> None:
    """Name the verifiers this plugin brings. Called once, when the plugin is loaded.

    Import torch inside the verifier, not in the plugin's module: plugins are also loaded to be
    listed.

    Args:
        register: ``register(name, factory)`` as in `register_drafters`; ``factory(**options)``
            returns a `Verifier`.
    """


@hookspec
def register_call_formats(register: Callable[[str, object], None]) -> None:
    """Name the call formats this plugin brings. Called once, when the plugin is loaded.

    Args:
        register: ``register(name, format)``. Names follow the rule of `register_drafters`. The
            format is a finished data record, a ``specdec.calls`` call format, not a factory.
    """


@hookspec
def on_request_start(request: Request) -> None:
    """Observe that a request begins, before its first forward pass.

    The three observers run in the thread that decodes and count against its time. They change
    nothing: the records are frozen and what an observer returns is ignored. An observer must
    not raise.

    Args:
        request: The request about to be served.
    """


@hookspec
def on_step(request: Request, step: Step) -> None:
    """Observe one forward pass, after its tokens were committed.

    Args:
        request: The request it belongs to; several may be open at once.
        step: What was drafted, accepted and committed. Index 0 is the prompt's own pass.
    """


@hookspec
def on_request_end(request: Request, result: Result) -> None:
    """Observe that a request ended. Not called for a request that was abandoned or failed.

    Args:
        request: The request that was served.
        result: What came out of it.
    """
