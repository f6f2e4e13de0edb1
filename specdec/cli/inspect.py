"""``specdec plugins`` and ``specdec check``: what is installed, and whether it keeps its word."""

from __future__ import annotations

import json
from typing import Annotated

import attrs
import typer
from rich.table import Table

from specdec.cli import show
from specdec.plugin import PluginInfo
from specdec.registry import default_registry


def plugins(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List every plugin, working or not."""
    found = default_registry().plugins
    if as_json:
        hidden = attrs.filters.exclude(attrs.fields(PluginInfo).exception)
        typer.echo(json.dumps([attrs.asdict(p, filter=hidden) for p in found], indent=1))
        return
    console = show.console()
    table = Table()
    for column in ("plugin", "distribution", "version", "offers", "status"):
        table.add_column(column, overflow="fold")
    for plugin in found:
        offers = ", ".join(f"{name} ({kind})" for kind, name in plugin.components)
        status = "[red]" + _escape(plugin.error) if plugin.error else "[green]ok"
        table.add_row(plugin.name, plugin.distribution, plugin.version, offers or "-", status)
    console.print(table)
    if not found:
        console.print("No plugin is installed; try: pip install -e plugins/pld")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def check(
    component: Annotated[str, typer.Argument(help="A stack expression, such as 'pld(ngram=2)'.")],
    kind: Annotated[
        str, typer.Option(help="drafter, state machine, memory or verifier.")
    ] = "drafter",
) -> None:
    """Run the conformance kit against a drafter or another component."""
    from specdec.expression import parse
    from specdec.testing import run_checks

    parse(component, kind=kind)  # a bad expression is reported before any check runs
    table = Table(title=f"Conformance of {component}", title_justify="left")
    for column in ("check", "result", "ms"):
        table.add_column(column, overflow="fold")
    failed = 0
    for row in run_checks(lambda: parse(component, kind=kind)):
        failed += not row.ok
        result = "[yellow]skipped:" if row.skipped else "[green]ok" if row.ok else "[red]failed:"
        message = f" {_escape(row.message)}" if row.message else ""
        table.add_row(row.check, result + message, f"{1000 * row.seconds:.0f}")
    show.console().print(table)
    if failed:
        typer.echo(f"{failed} checks failed")
        raise typer.Exit(1)
