"""Page: a report as one HTML file that needs nothing else to be read."""

from __future__ import annotations

import importlib.resources
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from specdec.compare.canvas import MISSING
from specdec.compare.departure import Departure
from specdec.compare.failure import Failure
from specdec.compare.figures import PICTURES
from specdec.compare.report import Report
from specdec.compare.row import Row
from specdec.compare.svg import svg
from specdec.compare.table import number, table
from specdec.compare.verdict import verdict
from specdec.errors import RequestError, SpecdecError
from specdec.files import replace

ROOM: Final = 250_000
"""Characters that a list of failures, departures or settings may take; the rest is counted."""

_REPLAY: Final = "Figures of a replay: outputs were recorded before."

_BREAKS: Final = re.compile(r"(?<=[(,])")
"""Where the lines of an expression may be broken."""

T = TypeVar("T")


@attrs.frozen
class Tile:
    """One figure in large type.

    Attributes:
        value: The figure.
        label: What it is.
        under: Its interval, or what else belongs to it.
    """

    value: str
    label: str
    under: str = ""


@attrs.frozen
class Shown:
    """A figure of the page.

    Attributes:
        name: Its name in addresses.
        title: What it shows.
        caption: How to read it.
        svg: The figure as an element; None where there is nothing to show.
    """

    name: str
    title: str
    caption: str
    svg: Any


def check_installed() -> None:
    """Find out before a long run whether its page can be made.

    Raises:
        SpecdecError: If a package is missing.
    """
    if any(importlib.util.find_spec(name) is None for name in ("jinja2", "matplotlib")):
        raise SpecdecError(MISSING)


def write_page(report: Report, path: Path) -> None:
    """Write the page of a report; a file that is there already is replaced as a whole.

    Args:
        report: What to show.
        path: Where; folders are created if missing.

    Raises:
        SpecdecError: If a package is missing.
        RequestError: If the file cannot be written.
    """
    text = page(report)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A lone half of a surrogate pair, as in a broken error message, has no encoding.
        replace(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise RequestError(f"the page {path} cannot be written: {error.strerror}") from None


def page(report: Report) -> str:
    """The page of a report, complete in itself.

    Args:
        report: What to show.

    Raises:
        SpecdecError: If a package is missing.
    """
    try:
        import jinja2
        import markupsafe
    except ImportError:
        raise SpecdecError(MISSING) from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["nested"] = lambda value: isinstance(value, Mapping)
    environment.filters["plain"] = plain
    environment.filters["number"] = number
    environment.filters["breakable"] = lambda name: markupsafe.Markup("<wbr>").join(
        _BREAKS.split(name)
    )
    source = importlib.resources.files("specdec.compare").joinpath("page.html")
    template = environment.from_string(source.read_text(encoding="utf-8"))
    columns, lines = table(report)
    found = verdict(report)
    failures, failures_left = within(report.failures, _failure_size)
    departures, departures_left = within(report.departures, _departure_size)
    return template.render(
        title="Speculative decoding compared",
        model=plain(report.settings["model"]) if report.settings.get("model") else "",
        requests=max((len(row.run.results) + row.failed for row in report.rows), default=0),
        arms=len(report.rows),
        replay=_REPLAY if report.replay else "",
        timed=report.timed,
        verdict=found,
        tiles=_tiles(report, found.best),
        findings=report.findings,
        columns=columns,
        lines=lines,
        figures=list(_figures(report, markupsafe.Markup)),
        failures=failures,
        failures_left=failures_left,
        departures=departures,
        departures_left=departures_left,
        settings=report.settings,
    )


def _tiles(report: Report, best: Row | None) -> list[Tile]:
    """The best arm's figures."""
    if best is None:
        return []
    tiles = []
    measures = [("tokens per step (MAT)", best.mat, "")]
    if report.timed:
        measures = [
            ("speed-up, decode-only", best.decode_speedup, "x"),
            ("speed-up, end to end", best.speedup, "x"),
            *measures,
        ]
    for label, interval, unit in measures:
        if interval is not None:
            ends = f"95 %: {number(interval.low)}\N{EN DASH}{number(interval.high)}"
            certain = interval.low == interval.high
            tiles.append(Tile(number(interval.value, 2, unit), label, "" if certain else ends))
    if best.run.identical is not None:
        count = len(best.run.results)
        under = "to those recorded" if report.replay else "to the model's own"
        tiles.append(Tile(f"{best.run.identical:,}/{count:,}", "outputs identical", under))
    return tiles


def _figures(report: Report, markup: Callable[[str], str]) -> Iterable[Shown]:
    for picture in PICTURES:
        if picture.timed and not report.timed:
            continue
        figure = picture.draw(report.rows)
        caption = f"{picture.caption} {_REPLAY}" if report.replay else picture.caption
        drawn = None if figure is None else markup(svg(figure, picture.name, picture.title))
        yield Shown(picture.name, picture.title, caption, drawn)


def plain(value: object) -> str:
    """A setting in words."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {plain(item)}" for name, item in value.items()) or "-"
    if isinstance(value, (list, tuple, set, frozenset)):
        items, left = within([plain(item) for item in value], len, ROOM // 50)
        return ", ".join(items) + (f" and {left:,} more" if left else "") if items else "-"
    text = str(value)
    return text if len(text) <= ROOM // 50 else f"{text[: ROOM // 50]}…"


def within(
    items: Sequence[T], size: Callable[[T], int], room: int = ROOM
) -> tuple[Sequence[T], int]:
    """The first items that fit into so many characters, at least one, and how many are left."""
    taken = 0
    for count, item in enumerate(items):
        taken += size(item)
        if taken > room and count:
            return items[:count], len(items) - count
    return items, 0


def _failure_size(failure: Failure) -> int:
    return 80 + len(failure.request) + len(failure.error) + sum(len(a) + 30 for a in failure.arms)


def _departure_size(departure: Departure) -> int:
    return 250 + len(departure.request) + sum(len(arm) + 30 for arm in departure.arms)
