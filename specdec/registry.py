"""The registry: the components of the plugins that were found, by kind and name.

Importing this module loads no plugin; constructing a `Registry` does.
"""

from __future__ import annotations

import functools
import pkgutil
import reprlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import pluggy

from specdec.errors import ContractError, ExpressionError, UnknownName, did_you_mean
from specdec.options import check_options, expected_kind
from specdec.plugin import CORE, HOOKS, KINDS, PluginInfo, Registration
from specdec.plugins import Plugins

# Dotted paths, resolved on use: specdec.compose imports the expression reader, which needs this.
_BUILT_IN: Final = {
    "fallback": "specdec.compose:Fallback",
    "merge": "specdec.compose:Merge",
    "machine": "specdec.machine:MachineDrafter",
}
# Drafters of the reference plugins, so that asking for one that is missing says how to get it.
_REFERENCE: Final = {
    "toolspec": "plugins/toolspec",
    "retrieval": "plugins/toolspec",
    "schema": "plugins/toolspec",
    "pld": "plugins/pld",
    "prediction": "plugins/pld",
    "token-recycling": "plugins/token_recycling",
    "samd": "plugins/samd",
    "sam": "plugins/samd",
    "context": "plugins/samd",
}


class Registry:
    """Plugins and their components.

    A component is found by kind and name. A name that several plugins claim is nobody's until
    it is written ``plugin/name``. The compositions ``fallback``, ``merge`` and ``machine``
    belong to the core and are always there, as ``specdec/fallback`` and so on too.

    Args:
        entry_point_group: The group whose entry points are loaded, in the order of their names;
            None loads nothing.

    Raises:
        PluginError: If a plugin cannot be loaded and ``SPECDEC_STRICT_PLUGINS`` is set. Without
            it the plugin is listed in `plugins` with its error, and the others work.
    """

    def __init__(self, entry_point_group: str | None = "specdec") -> None:
        self._plugins = Plugins()
        # kind -> name -> owner -> factory
        self._factories: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        for name, path in _BUILT_IN.items():
            self._factories["drafter"][name] = {CORE: path}
        if entry_point_group is not None:
            for registration in self._plugins.load(entry_point_group):
                self._take(registration)

    def register(self, plugin: object, name: str) -> None:
        """Add a plugin of this process; its components are then found like any other's.

        Args:
            plugin: A module or an object with `hookimpl` functions.
            name: The plugin's name, the part before the slash in ``plugin/name``.

        Raises:
            PluginError: If it cannot be registered; the registry is then as it was before.
        """
        self._take(self._plugins.add(plugin, PluginInfo(name)))

    def _take(self, registration: Registration) -> None:
        for (kind, name), factory in registration.factories.items():
            self._factories[kind].setdefault(name, {})[registration.plugin.name] = factory

    # Looking up

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """Every plugin found, working or not, in the order of loading."""
        return tuple(self._plugins.found)

    @property
    def hook(self) -> pluggy.HookRelay:
        """Calls a hook of all plugins: ``registry.hook.on_step(request=..., step=...)``."""
        return self._plugins.hook

    @property
    def call_formats(self) -> Mapping[str, Any]:
        """Registered call formats by name, or by ``plugin/name`` where several claim a name."""
        formats = {}
        for name, owners in sorted(self._factories["call format"].items()):
            for owner, factory in sorted(owners.items()):
                formats[name if len(owners) == 1 else f"{owner}/{name}"] = factory()
        return MappingProxyType(formats)

    def names(self, kind: str) -> tuple[str, ...]:
        """The registered names of a kind, sorted.

        Raises:
            UnknownName: If there is no such kind.
        """
        if kind not in KINDS:
            raise UnknownName(
                f"no kind {kind!r}; kinds are: {', '.join(KINDS)}{did_you_mean(kind, KINDS)}"
            )
        return tuple(sorted(self._factories[kind]))

    def kind_of(self, name: str, prefer: str | None = None) -> str:
        """The kind under which `name` is registered.

        Args:
            name: ``name`` or ``plugin/name``.
            prefer: The kind to choose when the name has several.

        Raises:
            UnknownName: If the name is unknown, or has several kinds and none is preferred.
        """
        kinds = [kind for kind in KINDS if self._owners(kind, name)]
        if prefer in kinds or len(kinds) == 1:
            return prefer if prefer in kinds else kinds[0]
        if not kinds:
            raise self._unknown(name)
        claims = [f"{kind} {full}" for kind in kinds for full in self._qualified(kind, name)]
        raise UnknownName(
            f"{name!r} names components of several kinds: {', '.join(claims)}; write plugin/name "
            "where that tells them apart, or build the one you mean with registry.build(kind, "
            "name) and pass it as an option in Python"
        )

    def factory(self, kind: str, name: str) -> Callable[..., Any]:
        """What makes a component; for a call format, a function that returns the record.

        Args:
            kind: One of `KINDS`.
            name: ``name`` or ``plugin/name``.

        Raises:
            UnknownName: If there is no such component, or several plugins claim its name.
        """
        return self._find(kind, name)[1]

    def expects(self, kind: str, name: str, option: str | None) -> str | None:
        """The kind of component that a component's option takes, as far as it says.

        Args:
            kind: One of `KINDS`.
            name: ``name`` or ``plugin/name``.
            option: The option's name; None for a positional argument, which is a drafter unless
                the component says otherwise.
        """
        default = "drafter" if option is None else None
        try:
            factory = self._find(kind, name)[1]
        except UnknownName:  # reported where it is built
            return default
        interfaces = {kind: interface for kind, (_, interface) in HOOKS.items()}
        del interfaces["call format"]
        return expected_kind(factory, option, interfaces) or default

    def check(self, kind: str, name: str, /, *args: object, **options: object) -> None:
        """Check what `build` would check before it calls the factory; builds nothing.

        Raises:
            UnknownName: If there is no such component, or several plugins claim its name.
            ExpressionError: If the factory does not take these options.
        """
        check_options(f"{kind} {name!r}", self._find(kind, name)[1], args, options)

    def build(self, kind: str, name: str, /, *args: object, **options: object) -> Any:  # noqa: ANN401
        """A new component.

        Args:
            kind: One of `KINDS`.
            name: ``name`` or ``plugin/name``.
            *args: Positional arguments, for factories that take them (compositions).
            **options: The component's options.

        Raises:
            UnknownName: If there is no such component, or several plugins claim its name.
            ExpressionError: If the factory does not take these options, or refuses their values
                with ValueError or TypeError, which is then the cause.
            ContractError: If the factory returns something that is not of this kind.
        """
        owner, factory = self._find(kind, name)
        check_options(f"{kind} {name!r}", factory, args, options)
        try:
            component = factory(*args, **options)
        except (ValueError, TypeError) as error:
            raise ExpressionError(f"{kind} {name!r}: {error}") from error
        expected = HOOKS[kind][1]
        if not isinstance(component, expected):
            raise ContractError(
                f"plugin {owner!r}: the factory of {kind} {name!r} returned "
                f"{reprlib.repr(component)} of type {type(component).__name__}, expected a "
                f"specdec.{expected.__name__}"
            )
        return component

    def _owners(self, kind: str, name: str) -> dict[str, Any]:
        owner, slash, plain = name.rpartition("/")
        owners = self._factories[kind].get(plain, {})
        return {key: owners[key] for key in sorted(owners) if key == owner or not slash}

    def _qualified(self, kind: str, name: str) -> list[str]:
        plain = name.rpartition("/")[2]
        return [f"{owner}/{plain}" for owner in self._owners(kind, name)]

    def _find(self, kind: str, name: str) -> tuple[str, Callable[..., Any]]:
        self.names(kind)  # refuses an unknown kind
        owners = self._owners(kind, name)
        if not owners:
            raise self._unknown(name, kind)
        if len(owners) > 1:
            raise UnknownName(
                f"{len(owners)} plugins register a {kind} named {name!r}; ask for one of them: "
                f"{', '.join(self._qualified(kind, name))}"
            )
        ((owner, factory),) = owners.items()
        return owner, pkgutil.resolve_name(factory) if owner == CORE else factory

    def _unknown(self, name: str, kind: str | None = None) -> UnknownName:
        """The error for a name that is not registered: what is, what is near, what is broken."""

        def known(kind: str) -> list[str]:
            names = self.names(kind)
            if "/" not in name:
                return list(names)
            return [full for plain in names for full in self._qualified(kind, plain)]

        kinds = (kind,) if kind else KINDS
        others = [other for other in KINDS if other not in kinds]
        registered = sorted({full for one in kinds for full in known(one)})
        parts = [f"no {kind or 'component'} named {name!r}"]
        distribution = f"specdec-{_REFERENCE.get(name, name).rpartition('/')[2].replace('_', '-')}"
        elsewhere = [other for other in others if self._owners(other, name)]
        parts += [f"there is a {other} of that name" for other in elsewhere]
        if (
            name in _REFERENCE
            and "drafter" in kinds
            and all(plugin.distribution != distribution for plugin in self._plugins.found)
        ):
            parts.append(f"it comes with {distribution}: pip install -e {_REFERENCE[name]}")
        parts.append(f"registered: {', '.join(registered) or 'nothing'}")
        hint = did_you_mean(name.lower(), registered)
        for other in [] if hint or elsewhere else others:
            if near := did_you_mean(name.lower(), known(other)):
                hint = f"{near} (a {other})"
                break
        lines = ["; ".join(parts) + hint]
        broken = [plugin for plugin in self._plugins.found if plugin.error]
        if broken:
            lines.append("plugins that failed to load:")
            lines += [f"  {plugin.name} ({plugin.origin}): {plugin.error}" for plugin in broken]
        return UnknownName("\n".join(lines))


@functools.cache
def default_registry() -> Registry:
    """The registry of the installed plugins, constructed at the first call."""
    return Registry()
