"""The plugins: found by entry point or handed over, each registered whole or not at all.

Two environment variables help plugin authors (set to anything but an empty string or 0):
``SPECDEC_STRICT_PLUGINS`` raises on the first plugin that cannot be loaded,
``SPECDEC_TRACE_PLUGINS`` prints hook calls to stderr.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points

import attrs
import pluggy

from specdec import hookspecs
from specdec.errors import PluginError, did_you_mean
from specdec.plugin import (
    CORE,
    HOOKS,
    NAME,
    NAME_RULE,
    PluginInfo,
    Registration,
    check_version,
    describe,
)


class Plugins:
    """The plugins found so far, working or not.

    Attributes:
        found: What is known of each, in the order of loading.
    """

    def __init__(self) -> None:
        self.found: list[PluginInfo] = []
        self._manager = pluggy.PluginManager("specdec")
        self._manager.add_hookspecs(hookspecs)
        if _is_set("SPECDEC_TRACE_PLUGINS"):
            self._manager.trace.root.setwriter(lambda text: print(text, end="", file=sys.stderr))
            self._manager.enable_tracing()

    @property
    def hook(self) -> pluggy.HookRelay:
        """Calls a hook of all plugins."""
        return self._manager.hook

    def load(self, group: str) -> Iterator[Registration]:
        """Load the entry points of a group, in the order of their names.

        Yields:
            What each plugin that works registers; one that does not is kept with its error.

        Raises:
            PluginError: If a plugin cannot be loaded and ``SPECDEC_STRICT_PLUGINS`` is set.
        """
        found = [(describe(entry), entry) for entry in entry_points(group=group)]
        found.sort(key=lambda pair: (pair[0].name, pair[0].origin, pair[1].value))
        for info, entry in found:
            try:
                self._check_name(info)
                registration = self._register(entry.load(), info)
            except (Exception, SystemExit) as error:  # kept with the plugin and shown by name
                if _is_set("SPECDEC_STRICT_PLUGINS"):
                    if isinstance(error, PluginError):
                        raise
                    raise PluginError(f"{info} cannot be loaded: {_one_line(error)}") from error
                self.found.append(attrs.evolve(info, error=_one_line(error), exception=error))
            else:
                yield registration

    def add(self, plugin: object, info: PluginInfo) -> Registration:
        """Add a plugin of this process; returns what it registers.

        Raises:
            PluginError: If it cannot be registered; everything is then as it was before.
        """
        self._check_name(info)
        return self._register(plugin, info)

    def _check_name(self, plugin: PluginInfo) -> None:
        if not isinstance(plugin.name, str) or not NAME.fullmatch(plugin.name):
            raise PluginError(f"{plugin} cannot be named that way; {NAME_RULE}")
        if plugin.name == CORE:
            raise PluginError(f"{plugin} cannot be named that way; the name is the core's own")
        for other in self.found:
            # A broken plugin keeps its name, so that mending it does not change who is meant.
            if other.name == plugin.name:
                raise PluginError(
                    f"plugin name {plugin.name!r} of {plugin.origin} is already taken by "
                    f"{other.origin}; uninstall one of them or rename its entry point"
                )

    def _register(self, plugin: object, info: PluginInfo) -> Registration:
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
        self.found.append(attrs.evolve(info, components=tuple(registration.factories)))
        return registration

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


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _hook_names(manager: pluggy.PluginManager) -> list[str]:
    parse = manager.parse_hookspec_opts
    return [name for name in dir(hookspecs) if parse(hookspecs, name) is not None]
