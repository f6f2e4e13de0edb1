"""Dates and times as a conversation says them, written as calls usually write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

MOST: Final = 6
"""Dates, and times, that are combined; the last ones."""

_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_MONTH: Final = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_YEAR: Final = r"(?:,?\s+(?P<year>\d{4})\b)?"
_DATES: Final = (
    re.compile(rf"\b{_MONTH}\s+{_DAY}{_YEAR}", re.IGNORECASE),
    re.compile(rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}{_YEAR}", re.IGNORECASE),
)
_WRITTEN: Final = re.compile(r"\b(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?))?")
_TIME: Final = re.compile(
    r"\b(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?::\d{2})?\s*(?P<half>[ap])\.?m\b|"
    r"\b(?P<h>\d{1,2}):(?P<m>\d{2})\b",
    re.IGNORECASE,
)
_ANY_YEAR: Final = re.compile(r"\b(?:19|20)\d{2}\b")


def normalised(said: str) -> Iterator[tuple[str, str, int]]:
    """Dates and times of a conversation as ``2023-03-20``, ``06:30:00`` and both together.

    A date without a year takes the conversation's last one.

    Args:
        said: The conversation.

    Yields:
        The text, "date" or "time", and where it was said.
    """
    dates, times = _dates(said)[-MOST:], _times(said)[-MOST:]
    for date, at in dates:
        yield date, "date", at
        yield f"{date} 00:00:00", "time", at
    for clock, at in times:
        yield f"{clock}:00", "time", at
        yield clock, "time", at
        # The nearest date is the likeliest to belong to it.
        near = sorted(dates, key=lambda date: abs(date[1] - at))
        for date, _ in islice(near, 2):
            yield f"{date} {clock}:00", "time", at
            yield f"{date} {clock}", "time", at


def _dates(said: str) -> list[tuple[str, int]]:
    years = _ANY_YEAR.findall(said)
    found: dict[str, int] = {}
    lower = said.lower()
    for pattern in _DATES if any(month in lower for month in _MONTHS) else ():
        for match in pattern.finditer(said):
            year = match["year"] or (years[-1] if years else None)
            month = _MONTHS.index(match["month"][:3].lower()) + 1
            if year is not None and 1 <= int(match["day"]) <= 31:
                found[f"{year}-{month:02d}-{int(match['day']):02d}"] = match.start()
    for match in _WRITTEN.finditer(said):
        found[match[1]] = match.start()
    return sorted(found.items(), key=lambda item: item[1])


def _times(said: str) -> list[tuple[str, int]]:
    found: dict[str, int] = {}
    for match in _TIME.finditer(said):
        hour, minute = int(match["hour"] or match["h"]), int(match["minute"] or match["m"] or 0)
        if match["half"]:
            if hour > 12:
                continue
            hour = hour % 12 + (12 if match["half"].lower() == "p" else 0)
        if hour < 24 and minute < 60:
            found[f"{hour:02d}:{minute:02d}"] = match.start()
    return sorted(found.items(), key=lambda item: item[1])
