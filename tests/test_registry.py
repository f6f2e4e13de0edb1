"""Registry: loading with isolation, look-up, options, and what its errors say."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import specdec.plugin
import specdec.registry
from specdec import hookspecs
from specdec.errors import ContractError, ExpressionError, PluginError, UnknownName
from specdec.hookspecs import API_VERSION, hookimpl
from specdec.interfaces import Drafter, Memory, StateMachine, Verifier
from specdec.registry import KINDS, PluginInfo, Registry, default_registry

FAKES = Path(__file__).parent / "fake_plugins"
GROUP = "specdec_fake"

Install = Callable[..., None]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECDEC_STRICT_PLUGINS", raising=False)
    monkeypatch.delenv("SPECDEC_TRACE_PLUGINS", raising=False)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    def put_on_path(*folders: str) -> None:
        for folder in folders:
            monkeypatch.syspath_prepend(FAKES / folder)

    yield put_on_path
    for name in [name for name in sys.modules if name.startswith("specdec_fake_")]:
        del sys.modules[name]


def stub(base: Any, **attributes: object) -> Any:
    """An instance of `base` whose abstract methods do nothing."""
    methods = dict.fromkeys(base.__abstractmethods__, lambda self, *_: None)
    return type(f"Stub{base.__name__}", (base,), {**methods, **attributes})()


def drafter(**_: object) -> Any:
    return stub(Drafter)


def plugin(**hooks: Callable[..., object]) -> ModuleType:
    """A plugin module with these hooks."""
    module = ModuleType("in_process")
    for name, function in hooks.items():
        setattr(module, name, hookimpl(function))
    return module


def offering(kind: str, **factories: object) -> ModuleType:
    """A plugin that registers components of one kind; ``_`` in a name stands for ``-``."""
    hooks = {
        "drafter": "register_drafters",
        "state machine": "register_state_machines",
        "memory": "register_memories",
        "verifier": "register_verifiers",
        "call format": "register_call_formats",
    }

    def hook(register: Callable[[str, object], None]) -> None:
        for name, factory in factories.items():
            register(name.replace("_", "-"), factory)

    return plugin(**{hooks[kind]: hook})


def info(registry: Registry, name: str) -> PluginInfo:
    (found,) = [p for p in registry.plugins if p.name == name]
    return found


# Loading


def test_importing_it_loads_no_torch_no_transformers_and_no_plugin() -> None:
    code = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[2]]\n"
        "import specdec.registry, specdec.hookspecs, specdec.expression\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'transformers')\n"
        "       or m.startswith('specdec_')]\n"
        "sys.exit(', '.join(bad) or None)"
    )
    root = Path(specdec.registry.__file__).parents[1]
    command = [sys.executable, "-c", code, str(root), str(FAKES / "good")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_eight_hooks_are_specified_with_a_contract() -> None:
    arguments = {
        "register_drafters": ("register",),
        "register_state_machines": ("register",),
        "register_memories": ("register",),
        "register_verifiers": ("register",),
        "register_call_formats": ("register",),
        "on_request_start": ("request",),
        "on_step": ("request", "step"),
        "on_request_end": ("request", "result"),
    }
    hook = Registry(None).hook
    specified = {name: caller.spec.argnames for name, caller in vars(hook).items()}
    assert specified == arguments
    assert all("Args:" in getattr(hookspecs, name).__doc__ for name in arguments)


def test_a_good_plugin_is_listed_with_its_distribution_and_components(install: Install) -> None:
    install("good")
    components = (("drafter", "echo"), ("call format", "bare"))
    assert Registry(GROUP).plugins == (PluginInfo("good", "specdec-fake-good", "0.3", components),)


def test_the_default_group_is_specdec(install: Install) -> None:
    install("good")
    assert info(Registry(), "fake-good").distribution == "specdec-fake-good"


def test_a_registry_without_a_group_has_no_plugins(install: Install) -> None:
    install("good")
    registry = Registry(None)
    assert registry.plugins == ()
    assert {kind: registry.names(kind) for kind in KINDS} == {
        "drafter": ("fallback", "machine", "merge"),
        "state machine": (),
        "memory": (),
        "verifier": (),
        "call format": (),
    }


def test_the_default_registry_is_constructed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Registry] = []

    def make() -> Registry:
        made.append(Registry(None))
        return made[-1]

    monkeypatch.setattr(specdec.registry, "Registry", make)
    default_registry.cache_clear()
    try:
        assert default_registry() is default_registry()
        assert len(made) == 1
    finally:
        default_registry.cache_clear()


@pytest.mark.parametrize(
    ("folder", "error"),
    [
        (
            "broken",
            "ModuleNotFoundError: No module named 'specdec_fake_dependency_that_nobody_has'",
        ),
        ("exits", "SystemExit: this plugin needs another machine"),
        (
            "typo",
            "PluginError: plugin 'typo' (specdec-fake-typo 0.1) implements 'register_drafter', "
            "which is not a specdec hook; did you mean 'register_drafters'?",
        ),
        (
            "future",
            "PluginError: plugin 'future' (specdec-fake-future 0.1) was written for version 1000 "
            f"of the plugin API, this specdec has version {API_VERSION}; upgrade specdec-core",
        ),
        (
            "halfway",
            "PluginError: plugin 'halfway' (specdec-fake-halfway 0.1) cannot be registered: "
            "RuntimeError: the disk is gone",
        ),
    ],
)
def test_a_broken_plugin_is_listed_with_its_error_and_stops_no_other(
    install: Install, folder: str, error: str
) -> None:
    install(folder, "good", "last")
    registry = Registry(GROUP)
    assert info(registry, folder).error == error
    assert info(registry, folder).components == ()
    assert isinstance(info(registry, folder).exception, PluginError | ImportError | SystemExit)
    assert info(registry, "good").error is None
    assert info(registry, "zzz-last").error is None
    assert registry.names("drafter") == ("echo", "fallback", "machine", "merge")


def test_a_wrong_hook_argument_is_refused_with_its_name(install: Install) -> None:
    install("argument", "good")
    registry = Registry(GROUP)
    error = info(registry, "argument").error
    assert error is not None
    assert error.startswith("PluginError: plugin 'argument' (specdec-fake-argument 0.1)")
    assert "registrar" in error
    assert "register_drafters" in error
    assert "\n" not in error
    assert registry.names("drafter") == ("echo", "fallback", "machine", "merge")


def test_a_plugin_that_fails_half_way_leaves_nothing_behind(install: Install) -> None:
    install("halfway")
    registry = Registry(GROUP)
    registry.hook.on_step(request=None, step=None)
    assert sys.modules["specdec_fake_halfway"].calls == []
    assert registry.names("memory") == ()
    assert "half" not in registry.names("drafter")
    assert all(not caller.get_hookimpls() for caller in vars(registry.hook).values())


def test_plugins_load_in_the_order_of_their_names_whatever_the_path(install: Install) -> None:
    install("last", "twin", "broken", "good", "exits")
    order = [plugin.name for plugin in Registry(GROUP).plugins]
    assert order == ["broken", "exits", "good", "twin", "zzz-last"]


@pytest.mark.parametrize("folders", [("good", "rival"), ("rival", "good")])
def test_a_second_distribution_with_the_same_plugin_name_is_refused(
    install: Install, folders: tuple[str, str]
) -> None:
    install(*folders)
    registry = Registry(GROUP)
    first, second = registry.plugins
    assert (first.distribution, first.error) == ("specdec-fake-good", None)
    assert second.distribution == "specdec-fake-rival"
    assert second.error is not None
    assert "specdec-fake-rival 0.2 is already taken by specdec-fake-good 0.3" in second.error
    assert registry.names("drafter") == ("echo", "fallback", "machine", "merge")


def test_metadata_that_cannot_be_read_stops_no_other_plugin(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("good")
    folder = tmp_path / "nameless-0.1.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text("[specdec_fake]\nnameless = specdec_fake_nameless\n")
    (tmp_path / "specdec_fake_nameless.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry(GROUP)
    assert info(registry, "nameless").distribution == "a distribution without metadata"
    assert info(registry, "good").error is None


def test_strict_raises_on_the_first_broken_plugin(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("broken", "typo", "good")
    monkeypatch.setenv("SPECDEC_STRICT_PLUGINS", "1")
    with pytest.raises(PluginError, match=r"'broken' \(specdec-fake-broken 0.1\)") as caught:
        Registry(GROUP)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_strict_set_to_0_is_not_strict(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("broken")
    monkeypatch.setenv("SPECDEC_STRICT_PLUGINS", "0")
    assert info(Registry(GROUP), "broken").error is not None


def test_tracing_prints_hook_calls_to_stderr(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install("good")
    Registry(GROUP)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("SPECDEC_TRACE_PLUGINS", "1")
    registry = Registry(GROUP)
    registry.hook.on_step(request="the request", step="the step")
    out, err = capsys.readouterr()
    assert out == ""
    assert "register_drafters" in err
    assert "on_step" in err
    assert "the step" in err


def test_observers_get_the_arguments_they_ask_for(install: Install) -> None:
    install("good")
    registry = Registry(GROUP)
    registry.hook.on_step(request="the request", step="the step")
    assert sys.modules["specdec_fake_good"].seen == ["the step"]


# Plugins of the process


def test_a_plugin_of_the_process_is_registered_under_its_name() -> None:
    registry = Registry(None)
    registry.register(offering("drafter", mine=drafter), name="here")
    assert registry.plugins == (PluginInfo("here", components=(("drafter", "mine"),)),)
    assert registry.factory("drafter", "here/mine") is drafter


def test_an_object_can_be_a_plugin() -> None:
    class Plugin:
        @hookimpl
        def register_memories(self, register: Callable[[str, object], None]) -> None:
            register("shelf", lambda: stub(Memory))

    registry = Registry(None)
    registry.register(Plugin(), name="here")
    assert registry.names("memory") == ("shelf",)


def test_a_failing_registration_leaves_the_registry_as_it_was() -> None:
    registry = Registry(None)
    registry.register(offering("drafter", mine=drafter), name="first")

    def works(register: Callable[[str, object], None]) -> None:
        register("half", drafter)

    def fails(register: Callable[[str, object], None]) -> None:
        register("half-shelf", drafter)
        raise RuntimeError("boom")

    bad = plugin(register_drafters=works, register_verifiers=fails, on_step=lambda: 1 / 0)
    with pytest.raises(PluginError, match=r"'second'.*RuntimeError: boom") as caught:
        registry.register(bad, name="second")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert [plugin.name for plugin in registry.plugins] == ["first"]
    assert registry.names("drafter") == ("fallback", "machine", "merge", "mine")
    assert registry.names("verifier") == ()
    registry.hook.on_step(request=None, step=None)
    registry.register(offering("drafter", other=drafter), name="second")
    assert registry.names("drafter") == ("fallback", "machine", "merge", "mine", "other")


def test_an_interrupt_is_passed_on_after_rolling_back() -> None:
    def interrupted(register: Callable[[str, object], None]) -> None:
        register("half", drafter)
        raise KeyboardInterrupt

    registry = Registry(None)
    with pytest.raises(KeyboardInterrupt):
        registry.register(plugin(register_drafters=interrupted), name="here")
    assert registry.names("drafter") == ("fallback", "machine", "merge")
    assert registry.hook.register_drafters.get_hookimpls() == []


def test_each_plugin_is_asked_once_to_register() -> None:
    asked: list[str] = []
    registry = Registry(None)
    registry.register(plugin(register_drafters=lambda: asked.append("first")), name="first")
    registry.register(plugin(register_drafters=lambda: asked.append("second")), name="second")
    assert asked == ["first", "second"]


def test_an_unmarked_function_is_not_a_hook() -> None:
    module = offering("drafter", mine=drafter)
    module.register_drafter = drafter  # type: ignore[attr-defined]
    module.register_memories = lambda register: register("never", drafter)  # type: ignore[attr-defined]
    registry = Registry(None)
    registry.register(module, name="here")
    assert registry.names("memory") == ()


def test_an_unknown_hook_far_from_all_names_lists_the_hooks() -> None:
    with pytest.raises(
        PluginError, match=r"'zzzz'.*the hooks are .*on_step, register_call_formats"
    ):
        Registry(None).register(plugin(zzzz=drafter), name="here")


def test_an_unknown_hook_is_allowed_when_marked_optional() -> None:
    module = ModuleType("in_process")
    module.register_later = hookimpl(optionalhook=True)(lambda register: None)  # type: ignore[attr-defined]
    registry = Registry(None)
    registry.register(module, name="here")
    assert info(registry, "here").error is None


def test_a_hook_may_be_implemented_under_another_name_with_specname() -> None:
    def hook(register: Callable[[str, object], None]) -> None:
        register("mine", drafter)

    module = ModuleType("in_process")
    module.anything = hookimpl(specname="register_drafters")(hook)  # type: ignore[attr-defined]
    registry = Registry(None)
    registry.register(module, name="here")
    assert registry.names("drafter") == ("fallback", "machine", "merge", "mine")


def test_a_plugin_for_the_version_that_is_here_is_taken() -> None:
    module = plugin()
    module.SPECDEC_API_VERSION = API_VERSION  # type: ignore[attr-defined]
    registry = Registry(None)
    registry.register(module, name="here")
    assert info(registry, "here").error is None


def test_saying_nothing_means_version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specdec.plugin, "API_VERSION", 2)
    with pytest.raises(
        PluginError, match=r"written for version 1 .* has version 2; upgrade the plugin"
    ):
        Registry(None).register(plugin(), name="here")


def test_a_plugin_for_an_older_version_names_its_distribution_as_the_one_to_upgrade(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("good")
    monkeypatch.setattr(specdec.plugin, "API_VERSION", 2)
    error = info(Registry(GROUP), "good").error
    assert error is not None
    assert error.endswith("upgrade specdec-fake-good")


@pytest.mark.parametrize("version", ["1", 1.0, True, None])
def test_a_version_that_is_not_an_int_is_refused(version: object) -> None:
    module = plugin()
    module.SPECDEC_API_VERSION = version  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match="expected an int"):
        Registry(None).register(module, name="here")


@pytest.mark.parametrize("name", ["", "Echo", "7b", "-a", "a b", "a/b", "a(b", "é", None, 3])
def test_a_malformed_component_name_is_refused(name: Any) -> None:
    registry = Registry(None)
    module = plugin(register_drafters=lambda register: register(name, drafter))
    with pytest.raises(PluginError, match=r"plugin 'here'.*lower-case letter"):
        registry.register(module, name="here")
    assert registry.plugins == ()


@pytest.mark.parametrize("name", ["a", "token-recycling", "n_gram.v2", "sam-2"])
def test_a_well_formed_component_name_is_taken(name: str) -> None:
    registry = Registry(None)
    registry.register(
        plugin(register_drafters=lambda register: register(name, drafter)), name="here"
    )
    assert name in registry.names("drafter")


@pytest.mark.parametrize("name", ["none", "null", "true", "false"])
def test_a_word_of_the_expression_language_is_refused_as_a_name(name: str) -> None:
    module = plugin(register_drafters=lambda register: register(name, drafter))
    with pytest.raises(PluginError, match="a word that stack expressions keep"):
        Registry(None).register(module, name="here")


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "specdec"])
def test_a_malformed_or_reserved_plugin_name_is_refused(name: str) -> None:
    with pytest.raises(PluginError, match="cannot be named that way"):
        Registry(None).register(plugin(), name=name)


def test_a_plugin_name_that_is_taken_is_refused() -> None:
    registry = Registry(None)
    registry.register(plugin(), name="here")
    with pytest.raises(PluginError, match="'here' of this process is already taken"):
        registry.register(plugin(), name="here")


def test_the_same_object_is_refused_under_a_second_name() -> None:
    registry, module = Registry(None), plugin()
    registry.register(module, name="one")
    with pytest.raises(PluginError, match=r"'two'.*same object as plugin 'one'"):
        registry.register(module, name="two")
    assert [plugin.name for plugin in registry.plugins] == ["one"]


def test_none_is_refused_as_a_plugin() -> None:
    with pytest.raises(PluginError, match="is None"):
        Registry(None).register(None, name="here")


def test_a_factory_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(PluginError, match=r"'mine'.*cannot be called: 3"):
        Registry(None).register(offering("drafter", mine=3), name="here")


def test_one_plugin_cannot_register_a_name_twice() -> None:
    def twice(register: Callable[[str, object], None]) -> None:
        register("mine", drafter)
        register("mine", drafter)

    with pytest.raises(PluginError, match="a drafter named 'mine' twice"):
        Registry(None).register(plugin(register_drafters=twice), name="here")


def test_registering_after_the_hook_returned_is_refused() -> None:
    kept: list[Callable[[str, object], None]] = []
    registry = Registry(None)
    registry.register(plugin(register_drafters=lambda register: kept.append(register)), name="here")
    with pytest.raises(PluginError, match=r"'here'.*after its hook returned"):
        kept[0]("late", drafter)


# Looking up


def test_a_name_that_two_plugins_claim_is_refused_naming_both(install: Install) -> None:
    install("twin", "good")
    registry = Registry(GROUP)
    with pytest.raises(UnknownName, match=r"2 plugins .* 'echo'; .*: good/echo, twin/echo"):
        registry.build("drafter", "echo")


def test_plugin_slash_name_chooses_one(install: Install) -> None:
    install("twin", "good")
    registry = Registry(GROUP)
    assert type(registry.build("drafter", "twin/echo")).__name__ == "TwinEcho"
    assert type(registry.build("drafter", "good/echo")).__name__ == "Echo"


def test_an_unknown_name_lists_what_is_registered_and_what_is_near(install: Install) -> None:
    install("good")
    with pytest.raises(UnknownName) as caught:
        Registry(GROUP).factory("drafter", "Ecko")
    assert str(caught.value) == (
        "no drafter named 'Ecko'; registered: echo, fallback, machine, merge; did you mean 'echo'?"
    )


def test_an_unknown_name_lists_the_plugins_that_failed(install: Install) -> None:
    install("good", "broken", "exits")
    with pytest.raises(UnknownName) as caught:
        Registry(GROUP).factory("memory", "shelf")
    assert str(caught.value).splitlines() == [
        "no memory named 'shelf'; registered: nothing",
        "plugins that failed to load:",
        "  broken (specdec-fake-broken 0.1): ModuleNotFoundError: No module named "
        "'specdec_fake_dependency_that_nobody_has'",
        "  exits (specdec-fake-exits 0.1): SystemExit: this plugin needs another machine",
    ]


def test_a_name_of_another_kind_is_said_to_be_one() -> None:
    registry = Registry(None)
    registry.register(offering("memory", shelf=lambda: stub(Memory)), name="here")
    with pytest.raises(UnknownName, match="no drafter named 'shelf'; there is a memory of that"):
        registry.factory("drafter", "shelf")
    with pytest.raises(UnknownName, match=r"did you mean 'shelf'\? \(a memory\)"):
        registry.factory("drafter", "shelv")


def test_an_unknown_plugin_before_the_slash_lists_the_qualified_names() -> None:
    registry = Registry(None)
    registry.register(offering("drafter", mine=drafter), name="here")
    with pytest.raises(UnknownName) as caught:
        registry.factory("drafter", "hare/mine")
    assert str(caught.value) == (
        "no drafter named 'hare/mine'; registered: here/mine, specdec/fallback, "
        "specdec/machine, specdec/merge; did you mean 'here/mine'?"
    )


@pytest.mark.parametrize(
    ("name", "distribution", "folder"),
    [
        ("pld", "specdec-pld", "plugins/pld"),
        ("token-recycling", "specdec-token-recycling", "plugins/token_recycling"),
    ],
)
def test_a_missing_reference_drafter_says_how_to_get_it(
    name: str, distribution: str, folder: str
) -> None:
    with pytest.raises(UnknownName, match=f"comes with {distribution}: pip install -e {folder}"):
        Registry(None).factory("drafter", name)
    with pytest.raises(UnknownName) as caught:
        Registry(None).factory("memory", name)
    assert "pip install" not in str(caught.value)


def test_a_reference_plugin_that_is_installed_and_broken_is_not_offered_for_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "specdec_pld-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: specdec-pld\nVersion: 0.1\n")
    (folder / "entry_points.txt").write_text("[specdec_fake]\npld = specdec_fake_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownName) as caught:
        Registry(GROUP).factory("drafter", "pld")
    assert "pip install" not in str(caught.value)
    assert "  pld (specdec-pld 0.1): ModuleNotFoundError" in str(caught.value)


def test_an_unknown_kind_is_refused_with_the_near_one() -> None:
    registry = Registry(None)
    for ask in (registry.names, lambda kind: registry.build(kind, "fallback")):
        with pytest.raises(UnknownName, match=r"no kind 'drafters'.*did you mean 'drafter'"):
            ask("drafters")


def test_names_are_sorted() -> None:
    registry = Registry(None)
    registry.register(offering("drafter", zeta=drafter, alpha=drafter), name="here")
    assert registry.names("drafter") == ("alpha", "fallback", "machine", "merge", "zeta")


def test_kind_of_finds_the_kind_and_prefers_on_request() -> None:
    registry = Registry(None)
    registry.register(offering("memory", both=lambda: stub(Memory)), name="one")
    assert registry.kind_of("both") == "memory"
    registry.register(offering("drafter", both=drafter), name="two")
    assert registry.kind_of("both", prefer="drafter") == "drafter"
    assert registry.kind_of("one/both") == "memory"
    with pytest.raises(UnknownName, match="drafter two/both, memory one/both"):
        registry.kind_of("both")
    with pytest.raises(UnknownName, match=r"no component named 'bath'.*did you mean 'both'"):
        registry.kind_of("bath")


def test_call_formats_are_the_records_registered(install: Install) -> None:
    install("good")
    registry = Registry(GROUP)
    assert registry.call_formats == {"bare": {"begin": "<call>"}}
    assert registry.build("call format", "bare") is registry.call_formats["bare"]


def test_a_call_format_that_two_plugins_claim_is_listed_under_both_owners() -> None:
    registry = Registry(None)
    registry.register(offering("call format", bare=1, own=3), name="one")
    registry.register(offering("call format", bare=2), name="two")
    assert registry.call_formats == {"one/bare": 1, "two/bare": 2, "own": 3}


def test_a_call_format_of_none_is_refused() -> None:
    with pytest.raises(PluginError, match="'bare' that is None"):
        Registry(None).register(offering("call format", bare=None), name="here")


def test_the_compositions_of_the_core_are_in_every_registry() -> None:
    registry = Registry(None)
    one = stub(Drafter)
    for name in ("fallback", "merge", "specdec/fallback", "specdec/merge"):
        assert registry.build("drafter", name, one).drafters == (one,)


def test_a_plugin_cannot_replace_a_composition_of_the_core_unnoticed() -> None:
    registry = Registry(None)
    registry.register(offering("drafter", merge=drafter), name="here")
    with pytest.raises(UnknownName, match="here/merge, specdec/merge"):
        registry.factory("drafter", "merge")


# Building


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("drafter", Drafter),
        ("state machine", StateMachine),
        ("memory", Memory),
        ("verifier", Verifier),
    ],
)
def test_a_component_of_the_wrong_type_breaks_the_contract(kind: str, base: type) -> None:
    registry = Registry(None)
    registry.register(offering(kind, right=lambda: stub(base), wrong=lambda: [1, 2]), name="here")
    assert isinstance(registry.build(kind, "right"), base)
    with pytest.raises(
        ContractError,
        match=rf"plugin 'here'.*{kind} 'wrong' returned \[1, 2\] of type list, .*{base.__name__}",
    ):
        registry.build(kind, "wrong")


def test_options_reach_the_factory(install: Install) -> None:
    install("good")
    echo = Registry(GROUP).build("drafter", "echo", 5, length=7)
    assert (echo.ngram, echo.length) == (5, 7)


def test_every_build_is_new() -> None:
    registry = Registry(None)
    registry.register(offering("drafter", mine=drafter), name="here")
    assert registry.build("drafter", "mine") is not registry.build("drafter", "mine")


@pytest.mark.parametrize("act", ["check", "build"])
def test_an_unknown_option_is_refused_with_the_near_one_and_the_defaults(
    install: Install, act: str
) -> None:
    install("good")
    with pytest.raises(ExpressionError) as caught:
        getattr(Registry(GROUP), act)("drafter", "echo", ngrm=5)
    assert str(caught.value) == (
        "drafter 'echo' has no option 'ngrm'; it takes: ngram=3, length=10; did you mean 'ngram'?"
    )


def test_options_named_kind_and_name_are_possible() -> None:
    def named(kind: str, name: str) -> Any:
        return stub(Drafter, given=(kind, name))

    registry = Registry(None)
    registry.register(offering("drafter", named=named), name="here")
    assert registry.build("drafter", "named", kind="a", name="b").given == ("a", "b")


def test_a_factory_without_options_says_so() -> None:
    registry = Registry(None)
    registry.register(offering("call format", bare="record"), name="here")
    with pytest.raises(ExpressionError, match="no option 'size'; it takes no options"):
        registry.build("call format", "bare", size=3)


def test_a_required_option_that_is_missing_is_named() -> None:
    registry = Registry(None)
    registry.register(offering("drafter", needy=lambda *, memory, size=3: memory), name="here")
    with pytest.raises(
        ExpressionError, match=r"drafter 'needy': missing .*'memory'; it takes: memory, size=3"
    ):
        registry.build("drafter", "needy")


def test_positional_arguments_are_refused_where_the_factory_takes_none() -> None:
    registry = Registry(None)
    registry.register(
        offering("drafter", none_=lambda *, size=3: None, one=lambda size=3: None), name="here"
    )
    with pytest.raises(ExpressionError, match="takes no positional arguments, got 1"):
        registry.build("drafter", "none-", 1)
    with pytest.raises(ExpressionError, match="takes at most 1 positional argument, got 2"):
        registry.build("drafter", "one", 1, 2)


def test_a_factory_that_takes_any_option_gets_them() -> None:
    registry = Registry(None)
    registry.register(
        offering("drafter", open_=lambda **options: stub(Drafter, options=options)), name="here"
    )
    assert registry.build("drafter", "open-", anything=1).options == {"anything": 1}


@pytest.mark.parametrize("error", [ValueError("ngram must be at least 1, got 0"), TypeError("no")])
def test_a_value_that_the_factory_refuses_is_an_expression_error(error: Exception) -> None:
    def fussy() -> None:
        raise error

    registry = Registry(None)
    registry.register(offering("drafter", fussy=fussy), name="here")
    with pytest.raises(ExpressionError) as caught:
        registry.build("drafter", "fussy")
    assert str(caught.value) == f"drafter 'fussy': {error}"
    assert caught.value.__cause__ is error


def test_any_other_error_of_a_factory_is_passed_on() -> None:
    def bad() -> None:
        raise RuntimeError("boom")

    registry = Registry(None)
    registry.register(offering("drafter", bad=bad), name="here")
    with pytest.raises(RuntimeError, match="boom"):
        registry.build("drafter", "bad")


def test_a_callable_without_a_signature_is_called_as_it_is() -> None:
    class Opaque:
        __signature__ = "not a signature"

        def __call__(self, **options: object) -> Any:
            return stub(Drafter, options=options)

    registry = Registry(None)
    registry.register(offering("drafter", opaque=Opaque()), name="here")
    assert registry.build("drafter", "opaque", size=3).options == {"size": 3}


def test_check_builds_nothing() -> None:
    called: list[str] = []
    registry = Registry(None)
    registry.register(offering("drafter", mine=lambda size=1: called.append("built")), name="here")
    registry.check("drafter", "mine", size=2)
    assert called == []


def test_plugin_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        PluginInfo("here").name = "there"  # type: ignore[misc]


def test_the_fake_distributions_are_seen_by_importlib_metadata(install: Install) -> None:
    install("good")
    assert importlib.metadata.version("specdec-fake-good") == "0.3"


def test_a_hint_to_install_leads_to_a_folder_that_exists() -> None:
    for folder in specdec.registry._REFERENCE.values():
        assert (Path(__file__).parents[1] / folder / "pyproject.toml").exists()
