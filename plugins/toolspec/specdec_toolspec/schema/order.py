"""Order: whether a call has its name or its arguments first, whatever its format says."""

from __future__ import annotations

from functools import lru_cache

import attrs

from specdec import CallFormat, calls


def as_written(form: CallFormat, at: calls.CallState) -> CallFormat:
    """The format with name and arguments in the order in which the current call has them."""
    first = _name_first(at)
    if first is None or first == form.name_first:
        return form
    return other_order(form) or form


@lru_cache(maxsize=256)
def other_order(form: CallFormat) -> CallFormat | None:
    """The format with name and arguments in the other order; None where there is no other.

    Only the keys of an object can change places.
    """
    name, arguments = f'"{form.name_key}"', f'"{form.arguments_key}"'
    first, second = (name, arguments) if form.name_first else (arguments, name)
    opened, between = form.open.find(first), form.between.find(second)
    if form.envelope != "object" or not form.name_key or opened < 0 or between < 0:
        return None
    # The quote that ends the name stands in the literal behind it.
    quote = '"' if form.name_first else ""
    return attrs.evolve(
        form,
        open=form.open[:opened] + form.between[between:],
        between='"' * (not quote) + form.between[len(quote) : between] + form.open[opened:],
        close=quote + form.close if quote else form.close.removeprefix('"'),
        name_first=not form.name_first,
    )


def _name_first(at: calls.CallState) -> bool | None:
    """Whether the current call's name stands before its arguments; None if neither is there."""
    if at.phase == "name":
        return not at.closed
    if at.phase in ("link", "argument", "value"):
        return at.name is not None
    if at.phase in ("close", "after"):
        # What stands behind a name begins with the quote that ends it.
        return not at.tail.startswith(('"', "'"))
    return None
