"""Settings come from vLLM's additional config or the environment; mistakes are named."""

from pathlib import Path

import pytest
from specdec_vllm.settings import DEFAULT_DRAFTER, Settings, SettingsError

import specdec


def test_without_any_the_default_stack_drafts():
    assert Settings.read({}, {}) == Settings()
    assert specdec.parse(DEFAULT_DRAFTER).needs.top_k == 0


def test_the_additional_config_says_how_to_draft():
    told = {"drafter": "pld", "memory": "kept.npz", "overhead": 64, "log_every": 0}
    found = Settings.read({"specdec": told, "gdn_prefill_backend": "x"}, {})
    assert found == Settings("pld", Path("kept.npz"), 64.0, 0.0)


def test_the_environment_says_what_the_config_does_not():
    environ = {"SPECDEC_DRAFTER": "pld", "SPECDEC_OVERHEAD": "64", "SPECDEC_MEMORY": ""}
    found = Settings.read({"specdec": {"overhead": 8.5}}, environ)
    assert found == Settings("pld", None, 8.5)


def test_a_config_that_is_no_mapping_has_no_settings():
    assert Settings.read(object(), {}) == Settings()


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"draftr": "pld"}, "no setting 'draftr'; there are: drafter, memory, overhead, log_every"),
        ("pld", "must hold settings by name, got 'pld'"),
        ({"drafter": 3}, "drafter must be a text, got 3"),
        ({"overhead": "much"}, "overhead must be a number of at least 0, got 'much'"),
        ({"log_every": -1}, "log_every must be a number of at least 0, got -1"),
        ({"overhead": float("nan")}, "overhead must be a number"),
    ],
)
def test_a_mistake_is_named(told, says):
    with pytest.raises(SettingsError, match=says.replace("[", r"\[")):
        Settings.read({"specdec": told}, {})
