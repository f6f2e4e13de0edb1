"""The command line: ``specdec demo, run, compare, plugins, check, memory, export``."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final, NoReturn

import typer
from rich.console import Console

from specdec.errors import SpecdecError

TRACEBACK: Final = "SPECDEC_TRACEBACK"

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
        os.environ[TRACEBACK] = "1"


def main() -> None:
    """Run the command line; an error that specdec raises on purpose is one clear line."""
    from specdec.cli import compare, demo, export, inspect, memory, run

    if not app.registered_commands:
        app.add_typer(memory.app, name="memory")
        app.add_typer(export.app, name="export")
        for command in (demo.demo, run.run, compare.compare, inspect.plugins, inspect.check):
            app.command()(command)
    try:
        app()
    except SpecdecError as error:
        _fail(str(error), error)
    except KeyboardInterrupt:
        _fail("interrupted", None, code=130)
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        hint = "" if os.environ.get(TRACEBACK) else " (specdec --traceback ... shows more)"
        _fail(f"{type(error).__name__}: {lines[0]}{hint}", error)


def _fail(message: str, error: Exception | None, code: int = 1) -> NoReturn:
    """One clear line, and the traceback when asked for."""
    if error is not None and os.environ.get(TRACEBACK):
        raise error
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(f"specdec: {message}", style="bold red", markup=False)
    sys.exit(code)
