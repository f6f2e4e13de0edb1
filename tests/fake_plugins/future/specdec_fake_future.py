"""A plugin written for a later version of the plugin API, with a hook that is not here yet."""

from specdec.hookspecs import hookimpl

SPECDEC_API_VERSION = 1_000


@hookimpl
def register_time_machines(register: object) -> None:
    """A hook of the future."""
