"""A plugin: what it says of itself, and what it registers."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from typing import Any, Final

import attrs

from specdec.errors import PluginError
from specdec.hookspecs import API_VERSION
from specdec.interfaces import Drafter, Memory, StateMachine, Verifier

HOOKS: Final[Mapping[str, tuple[str, type]]] = {
    "drafter": ("register_drafters", Drafter),
    "state machine": ("register_state_machines", StateMachine),
    "memory": ("register_memories", Memory),
    "verifier": ("register_verifiers", Verifier),
    "call format": ("register_call_formats", object),
}
"""The hook behind each kind of component, and the interface it must implement."""

KINDS: Final = tuple(HOOKS)
"""What a plugin can register."""

RESERVED: Final = frozenset({"none", "null", "true", "false"})
"""Words that stack expressions read as values, and which therefore cannot name a component."""

CORE: Final = "specdec"
"""The owner of the core's own components, and therefore no plugin's name."""

NAME: Final = re.compile(r"[a-z][a-z0-9._-]*")
"""What plugins and components may be called."""

NAME_RULE: Final = (
    "a name starts with a lower-case letter and goes on with lower-case letters, digits, '-', "
    "'_' and '.'"
)


@attrs.frozen
class PluginInfo:
    """A plugin that was found, working or not.

    Attributes:
        name: The entry point's name, or the name given to `Registry.register`.
        distribution: The distribution it came with; None for one registered in the process.
        version: That distribution's version, if known.
        components: (kind, name) of everything it registered, in order.
        error: Why it does not work, in one line; None when it does.
        exception: The exception behind `error`, with its traceback.
    """

    name: str
    distribution: str | None = None
    version: str | None = None
    components: tuple[tuple[str, str], ...] = ()
    error: str | None = None
    exception: BaseException | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def origin(self) -> str:
        """Distribution and version for messages, such as ``specdec-pld 0.1``."""
        return f"{self.distribution or 'this process'} {self.version or ''}".rstrip()

    def __str__(self) -> str:
        return f"plugin {self.name!r} ({self.origin})"


@attrs.define
class Registration:
    """What one plugin registers, kept apart until the whole plugin is known to be sound."""

    plugin: PluginInfo
    factories: dict[tuple[str, str], Callable[..., Any]] = attrs.field(factory=dict)
    open: bool = True

    def register(self, kind: str, name: str, component: Any) -> None:  # noqa: ANN401 - any record
        """The callback behind ``register(name, component)`` of the hook of `kind`."""
        what = f"{self.plugin} registers a {kind}"
        if not self.open:
            raise PluginError(f"{what} after its hook returned; do so inside the hook")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise PluginError(f"{what} named {name!r}; {NAME_RULE}")
        if name in RESERVED:
            raise PluginError(f"{what} named {name!r}, a word that stack expressions keep")
        if (kind, name) in self.factories:
            raise PluginError(f"{what} named {name!r} twice")
        if kind == "call format":
            if component is None:
                raise PluginError(f"{what} named {name!r} that is None; expected a record")
            self.factories[kind, name] = lambda: component
            return
        if not callable(component):
            raise PluginError(
                f"{what} named {name!r} with a factory that cannot be called: "
                f"{reprlib.repr(component)}; expected factory(**options), a class or a function"
            )
        self.factories[kind, name] = component


def describe(entry: EntryPoint) -> PluginInfo:
    """What an entry point's metadata says; nothing is loaded."""
    try:
        distribution = entry.dist.name if entry.dist else None
        version = entry.dist.version if entry.dist else None
    except Exception:  # metadata that cannot be read must not stop the other plugins
        distribution = version = None
    return PluginInfo(entry.name, distribution or "a distribution without metadata", version)


def check_version(plugin: object, info: PluginInfo) -> None:
    """Refuse a plugin written for another version of the plugin API.

    Raises:
        PluginError: If ``SPECDEC_API_VERSION`` is not `API_VERSION`; saying nothing means 1.
    """
    version = getattr(plugin, "SPECDEC_API_VERSION", 1)
    if type(version) is not int:
        raise PluginError(f"{info} has SPECDEC_API_VERSION = {version!r}; expected an int")
    if version != API_VERSION:
        outdated = "specdec-core" if version > API_VERSION else info.distribution or "the plugin"
        raise PluginError(
            f"{info} was written for version {version} of the plugin API, this specdec has "
            f"version {API_VERSION}; upgrade {outdated}"
        )
