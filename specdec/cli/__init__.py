"""The command line: ``specdec demo``, ``run``, ``plugins`` and ``check``."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from specdec.errors import SpecdecError

app = typer.Typer(
    name="specdec",
    help="Speculative decoding: the same output, sooner.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        from specdec import __version__

        typer.echo(f"specdec {__version__}")
        raise typer.Exit


@app.callback()
def options(
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the traceback of an error.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of every command."""
    if traceback:
        os.environ["SPECDEC_TRACEBACK"] = "1"


def main() -> None:
    """Run the command line; an error that specdec raises on purpose is one clear line."""
    from specdec.cli import demo, inspect, run

    if not app.registered_commands:
        for command in (demo.demo, run.run, inspect.plugins, inspect.check):
            app.command()(command)
    try:
        app()
    except SpecdecError as error:
        if os.environ.get("SPECDEC_TRACEBACK"):
            raise
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            f"specdec: {error}", style="bold red", markup=False
        )
        sys.exit(1)
