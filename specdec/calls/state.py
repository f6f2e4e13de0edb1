"""CallState: where in a model's output a text ends, as an immutable value."""

from __future__ import annotations

from typing import Literal

import attrs

Phase = Literal["text", "open", "name", "link", "argument", "value", "close", "after"]
"""Where a text ends.

text: outside of calls, perhaps in what announces one. open: announced, before the name (or the
arguments, where they come first). name: in the name. link: between name and arguments.
argument: inside the arguments, before a value: in a separator, a name, or what follows it.
value: in an argument's value. close: behind the arguments, inside the call. after: behind a call,
where another may follow.
"""


@attrs.frozen
class Scan:
    """Where in a literal a text ends.

    Attributes:
        closers: The brackets still to be closed, outermost first.
        path: The key or index last begun at each open bracket.
        expect: What comes next.
        mode: In what the text ends: nothing, a string, a word without quotes, or a long quote.
        quote: The mark that ends the string, or the long quote so far.
        escaped: Whether the string's next character is escaped.
        token: Text of a key so far.
    """

    closers: str = ""
    path: tuple[str | int, ...] = ()
    expect: Literal["key", "colon", "value", "comma"] = "value"
    mode: Literal["", "string", "word", "quote"] = ""
    quote: str = ""
    escaped: bool = False
    token: str = ""


@attrs.frozen
class CallState:
    """Where a model's output ends. Equal after equal text, however it was cut into pieces.

    Attributes:
        phase: Where it ends.
        raw: The text of the current call so far, what announces it included; in "text", only
            what may announce a call and the white space before it; in "after", what stands
            behind the last call's arguments.
        anchor: Where in `raw` the phase began; `tail` is what it holds.
        name: The current call's tool, once its name is complete.
        keys: The arguments that are complete.
        values: Their values, as they are written.
        flags: What the call itself says about each value's type; empty where it says nothing.
        key: The argument whose value comes next or is being written.
        flag: What the call says about its type.
        calls: Calls completed.
        closed: Whether the current call's arguments are complete.
        depth: Brackets open around the arguments, their own included.
        scan: Where in a literal the text ends.
    """

    phase: Phase = "text"
    raw: str = ""
    anchor: int = 0
    name: str | None = None
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    key: str | None = None
    flag: str = ""
    calls: int = 0
    closed: bool = False
    depth: int = 0
    scan: Scan = Scan()

    @property
    def tail(self) -> str:
        """The exact text since the phase began.

        Of "text", what may announce a call; of "name" and "value", what is written of it; of
        "argument", everything since the last value, or since the arguments were opened.
        """
        return self.raw[self.anchor :]

    @property
    def path(self) -> tuple[str | int, ...]:
        """Keys and indices from the argument's value down to what is being written in it."""
        return self.scan.path[self.depth :] if self.phase == "value" else ()
