"""Settings come from vLLM's additional config or the environment; mistakes are named."""

from pathlib import Path

import pytest
from specdec_vllm.settings import DEFAULT_DRAFTER, Settings, SettingsError

import specdec


def test_without_any_the_default_stack_drafts():
    assert Settings.read({}, {}) == Settings()
    assert specdec.parse(DEFAULT_DRAFTER).needs.top_k == 0


def test_the_additional_config_says_how_to_draft():
    told = {"drafter": "pld", "memory": "kept.npz", "least": 0.5, "log_every": 0}
    found = Settings.read({"specdec": told, "gdn_prefill_backend": "x"}, {})
    assert found == Settings("pld", Path("kept.npz"), 0.5, 0.0)


def test_the_environment_says_what_the_config_does_not():
    environ = {"SPECDEC_DRAFTER": "pld", "SPECDEC_LEAST": "0.5", "SPECDEC_MEMORY": ""}
    found = Settings.read({"specdec": {"least": 0.1}}, environ)
    assert found == Settings("pld", None, 0.1)


def test_a_config_that_is_no_mapping_has_no_settings():
    assert Settings.read(object(), {}) == Settings()


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"draftr": "pld"}, "no setting 'draftr'; there are: drafter, memory, least, log_every"),
        ("pld", "must hold settings by name, got 'pld'"),
        ({"drafter": 3}, "drafter must be a text, got 3"),
        ({"least": "much"}, "least must be a number of at least 0, got 'much'"),
        ({"log_every": -1}, "log_every must be a number of at least 0, got -1"),
        ({"least": float("nan")}, "least must be a number"),
    ],
)
def test_a_mistake_is_named(told, says):
    with pytest.raises(SettingsError, match=says.replace("[", r"\[")):
        Settings.read({"specdec": told}, {})
