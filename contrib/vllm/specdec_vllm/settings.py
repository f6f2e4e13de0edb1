"""Settings: from vLLM's additional config, or from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import attrs

from specdec.errors import SpecdecError

DEFAULT_DRAFTER: Final = "toolspec(fallback=pld, most=8)"
"""ToolSpec with prompt lookup in place of Token Recycling, which lives on logits.

One chain is taken of what it proposes, so it weighs 8 texts instead of 32: the same chain in half
of the time.
"""

KEY: Final = "specdec"
"""Key of the additional config that holds these settings."""

PREFIX: Final = "SPECDEC_"
"""What a setting's name in capitals has in front of it in the environment."""


class SettingsError(SpecdecError):
    """A setting that cannot be used."""


@attrs.frozen
class Settings:
    """How the proposer drafts.

    Attributes:
        drafter: A stack expression.
        memory: File that the stack's memory is loaded from and saved to; None for neither.
        overhead: What a pass costs before its first token, in tokens; what the device says where
            it is None. Tokens are drafted as long as they pay (`specdec.paying`).
        log_every: Seconds between two lines in the log; 0 for none.
    """

    drafter: str = DEFAULT_DRAFTER
    memory: Path | None = None
    overhead: float | None = None
    log_every: float = 10.0

    @classmethod
    def read(cls, additional: object, environ: Mapping[str, str]) -> Self:
        """The settings under ``specdec`` in the additional config, then those of the environment.

        Raises:
            SettingsError: If a setting is unknown or its value of no use.
        """
        told = additional.get(KEY, {}) if isinstance(additional, Mapping) else {}
        if not isinstance(told, Mapping):
            raise SettingsError(
                f'additional_config["{KEY}"] must hold settings by name, got {told!r}; for example '
                f'{{"{KEY}": {{"drafter": "{DEFAULT_DRAFTER}"}}}}'
            )
        names = [field.name for field in attrs.fields(cls)]
        if unknown := [str(name) for name in told if name not in names]:
            raise SettingsError(
                f'additional_config["{KEY}"] has no setting {unknown[0]!r}; there are: '
                f"{', '.join(names)}"
            )
        outer = {name: environ[PREFIX + name.upper()] for name in names if _set(environ, name)}
        found = {**outer, **told}
        values: dict[str, Any] = {name: _READERS[name](name, found[name]) for name in found}
        return cls(**values)


def _set(environ: Mapping[str, str], name: str) -> bool:
    return bool(environ.get(PREFIX + name.upper()))


def _text(name: str, value: Any) -> str:  # noqa: ANN401 - whatever a configuration holds
    if not isinstance(value, str) or not value.strip():
        raise SettingsError(f"{name} must be a text, got {value!r}")
    return value


def _file(name: str, value: Any) -> Path | None:  # noqa: ANN401
    return None if value is None else Path(_text(name, value)).expanduser()


def _number(name: str, value: Any) -> float:  # noqa: ANN401
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number < float("inf"):
        raise SettingsError(f"{name} must be a number of at least 0, got {value!r}")
    return number


def _maybe(name: str, value: Any) -> float | None:  # noqa: ANN401
    return None if value is None else _number(name, value)


_READERS: Final = {"drafter": _text, "memory": _file, "overhead": _maybe, "log_every": _number}
