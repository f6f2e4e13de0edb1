"""The registry: the plugins that were found, and their components by kind and name.

Importing this module loads no plugin; constructing a `Registry` does. Two environment variables
help plugin authors (set to anything but an empty string or 0): ``SPECDEC_STRICT_PLUGINS`` raises
on the first plugin that cannot be loaded, ``SPECDEC_TRACE_PLUGINS`` prints hook calls to stderr.
"""

from __future__ import annotations

import functools
import os
import pkgutil
import reprlib
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Final

import attrs
import pluggy

from specdec import hookspecs
from specdec.errors import ContractError, ExpressionError, PluginError, UnknownName, did_you_mean
from specdec.options import check_options, expected_kind
from specdec.plugin import (
    HOOKS,
    KINDS,
    NAME,
    NAME_RULE,
    PluginInfo,
    Registration,
    check_version,
    describe,
)

_CORE: Final = "specdec"
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
        self._manager = pluggy.PluginManager("specdec")
        self._manager.add_hookspecs(hookspecs)
        if _is_set("SPECDEC_TRACE_PLUGINS"):
            self._manager.trace.root.setwriter(lambda text: print(text, end="", file=sys.stderr))
            self._manager.enable_tracing()
        self._plugins: list[PluginInfo] = []
        # kind -> name -> owner -> factory
        self._factories: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in KINDS}
        for name, path in _BUILT_IN.items():
            self._factories["drafter"][name] = {_CORE: path}
        if entry_point_group is not None:
            self._load(entry_point_group)

    # Loading

    def _load(self, group: str) -> None:
        found = [(describe(entry), entry) for entry in entry_points(group=group)]
        found.sort(key=lambda pair: (pair[0].name, pair[0].origin, pair[1].value))
        for info, entry in found:
            try:
                self._check_name(info)
                added = self._add(entry.load(), info)
            except (Exception, SystemExit) as error:  # kept with the plugin and shown by name
                if _is_set("SPECDEC_STRICT_PLUGINS"):
                    if isinstance(error, PluginError):
                        raise
                    raise PluginError(f"{info} cannot be loaded: {_one_line(error)}") from error
                added = attrs.evolve(info, error=_one_line(error), exception=error)
            self._plugins.append(added)

    def register(self, plugin: object, name: str) -> None:
        """Add a plugin of this process; its components are then found like any other's.

        Args:
            plugin: A module or an object with `hookimpl` functions.
            name: The plugin's name, the part before the slash in ``plugin/name``.

        Raises:
            PluginError: If it cannot be registered; the registry is then as it was before.
        """
        info = PluginInfo(name)
        self._check_name(info)
        self._plugins.append(self._add(plugin, info))

    def _check_name(self, plugin: PluginInfo) -> None:
        if not isinstance(plugin.name, str) or not NAME.fullmatch(plugin.name):
            raise PluginError(f"{plugin} cannot be named that way; {NAME_RULE}")
        if plugin.name == _CORE:
            raise PluginError(f"{plugin} cannot be named that way; the name is the core's own")
        for other in self._plugins:
            # A broken plugin keeps its name, so that mending it does not change who is meant.
            if other.name == plugin.name:
                raise PluginError(
                    f"plugin name {plugin.name!r} of {plugin.origin} is already taken by "
                    f"{other.origin}; uninstall one of them or rename its entry point"
                )

    def _add(self, plugin: object, info: PluginInfo) -> PluginInfo:
        """Register `plugin` whole or not at all."""
        registration = Registration(info)
        try:
            if plugin is None:  # pluggy would take it without a word
                raise PluginError(f"{info} is None; expected a module or an object")
            if self._manager.is_registered(plugin):
                other = self._manager.get_name(plugin)
                raise PluginError(
                    f"{info} is the same object as plugin {other!r}; register it once"
                )
            check_version(plugin, info)
            self._check_hooks(plugin, info)
            self._manager.register(plugin, name=info.name)
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            for kind, (hook, _) in HOOKS.items():
                call = self._manager.subset_hook_caller(hook, others)
                call(register=functools.partial(registration.register, kind))
        except BaseException as error:
            if self._manager.has_plugin(info.name):
                self._manager.unregister(name=info.name)
            if isinstance(error, PluginError) or not isinstance(error, Exception):
                raise
            raise PluginError(f"{info} cannot be registered: {_one_line(error)}") from error
        finally:
            registration.open = False
        for (kind, name), factory in registration.factories.items():
            self._factories[kind].setdefault(name, {})[info.name] = factory
        return attrs.evolve(info, components=tuple(registration.factories))

    def _check_hooks(self, plugin: object, info: PluginInfo) -> None:
        """Refuse a marked function that no hook will ever call."""
        parse, known = self._manager.parse_hookimpl_opts, _hook_names(self._manager)
        for attribute in dir(plugin):
            options = parse(plugin, attribute)
            if options is None or options.get("optionalhook"):
                continue
            hook = options.get("specname") or attribute
            if hook not in known:
                raise PluginError(
                    f"{info} implements {hook!r}, which is not a specdec hook"
                    f"{did_you_mean(hook, known) or '; the hooks are ' + ', '.join(known)}"
                )

    # Looking up

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """Every plugin found, working or not, in the order of loading."""
        return tuple(self._plugins)

    @property
    def hook(self) -> pluggy.HookRelay:
        """Calls a hook of all plugins: ``registry.hook.on_step(request=..., step=...)``."""
        return self._manager.hook

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
        return owner, pkgutil.resolve_name(factory) if owner == _CORE else factory

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
            and all(plugin.distribution != distribution for plugin in self._plugins)
        ):
            parts.append(f"it comes with {distribution}: pip install -e {_REFERENCE[name]}")
        parts.append(f"registered: {', '.join(registered) or 'nothing'}")
        hint = did_you_mean(name.lower(), registered)
        for other in [] if hint or elsewhere else others:
            if near := did_you_mean(name.lower(), known(other)):
                hint = f"{near} (a {other})"
                break
        lines = ["; ".join(parts) + hint]
        broken = [plugin for plugin in self._plugins if plugin.error]
        if broken:
            lines.append("plugins that failed to load:")
            lines += [f"  {plugin.name} ({plugin.origin}): {plugin.error}" for plugin in broken]
        return UnknownName("\n".join(lines))


@functools.cache
def default_registry() -> Registry:
    """The registry of the installed plugins, constructed at the first call."""
    return Registry()


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _hook_names(manager: pluggy.PluginManager) -> list[str]:
    parse = manager.parse_hookspec_opts
    return [name for name in dir(hookspecs) if parse(hookspecs, name) is not None]
