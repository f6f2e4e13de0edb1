"""Data: the cases that the suites ask, and traces of outputs for replays.

Thin, on top of `specdec.compare.cases`. What is not part of the project is looked for in
`bench.coverage.cases.SHARED` (environment variable ``SPECDEC_SHARED``) or in installed packages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import attrs
from transformers import PreTrainedTokenizerBase

from bench.coverage.cases import SHARED, Case, Missing, load, spread
from bench.coverage.references import conversation
from specdec import Call, ReplayTarget, Request, Tool
from specdec.calls import FORMATS
from specdec.compare.cases import bfcl_files, read_cases
from specdec.compare.subject import ReplaySubject
from specdec.errors import RequestError
from specdec.testing import CharCodec

__all__ = ["DATA_SETS", "Case", "Missing", "Trace", "bfcl_heldout", "named", "spread", "trace"]

DATA_SETS: Final = ("demo", "api_bank", "bfcl", "toolalpaca")
"""What `named` knows; a folder's further files go by their own names."""

MOST: Final = 512
"""The most new tokens of a replay; longer than the outputs, so no drafter is told their end."""


def number_of_requests(default: int) -> int:
    """How many requests of a data set to ask: ``SPECDEC_BENCH_REQUESTS``, or `default`."""
    return int(os.environ.get("SPECDEC_BENCH_REQUESTS", default))


@lru_cache(maxsize=len(DATA_SETS))
def named(name: str) -> tuple[Case, ...]:
    """The cases of a data set.

    Args:
        name: "demo" for the demo model's own requests; "bfcl" for those of BFCL that the demo model
            was not trained on, or all of them where that is not known; else a file of the shared
            data.

    Raises:
        Missing: If the data set is not there.
    """
    if name == "demo":
        return _demo()
    if name != "bfcl":
        return load(name)
    return bfcl_heldout() if _heldout_file().is_file() else bfcl()


def bfcl() -> tuple[Case, ...]:
    """BFCL's single-turn cases: of the shared data, else of the package bfcl-eval.

    Raises:
        Missing: If neither is there.
    """
    try:
        return load("bfcl")
    except Missing:
        pass
    try:
        found = [case for path in bfcl_files().values() for case in read_cases(path)]
    except RequestError as error:
        raise Missing(f"no data set 'bfcl' in {SHARED / 'data'}, and {error}") from None
    return tuple(case for case in found if case.calls)


def bfcl_heldout() -> tuple[Case, ...]:
    """The cases of BFCL that the demo model's adapter never saw.

    Raises:
        Missing: If the list of their ids, or BFCL, is not there.
    """
    path = _heldout_file()
    if not path.is_file():
        raise Missing(f"which cases of BFCL were held out is not known: there is no file {path}")
    ids = set(json.loads(path.read_text(encoding="utf-8")))
    return tuple(case for case in bfcl() if case.id.removeprefix("bfcl-") in ids)


def _heldout_file() -> Path:
    return SHARED / "data" / "bfcl_heldout_ids.json"


def _demo() -> tuple[Case, ...]:
    try:
        import specdec_demo_model
    except ImportError as error:
        raise Missing(f"no data set 'demo': {error}; pip install -e contrib/demo_model") from None
    return tuple(
        Case(one.id, one.messages, tuple(map(Tool.from_mapping, one.tools)))
        for one in specdec_demo_model.requests()
    )


@attrs.frozen
class Trace:
    """Requests whose outputs are known.

    Attributes:
        requests: (N,) the requests.
        target: Writes their outputs.
        tokenizer: What the tokens are of, for reports.
    """

    requests: tuple[Request, ...]
    target: ReplayTarget
    tokenizer: str


def trace(name: str, count: int) -> Trace:
    """The reference calls of a data set's cases, as a model would have written them.

    Args:
        name: See `named`; "self-made" needs nothing but the project.
        count: The most requests, evenly spread over the data set.

    Raises:
        Missing: If the data set, or a tokenizer for it, is not there.
    """
    if name == "self-made":
        return _self_made(count)
    cases = spread(named(name), count)
    tokenizer = _tokenizer()
    subject = ReplaySubject(cases, tokenizer, MOST)
    label = Path(tokenizer.name_or_path).name
    return Trace(tuple(map(subject.request, cases)), subject.target, label)


@lru_cache(maxsize=1)
def _tokenizer() -> PreTrainedTokenizerBase:
    """A tokenizer with a chat template that takes tools: Qwen2.5's, else the demo model's."""
    from specdec.hf.loading import load_tokenizer

    folder = SHARED / "tokenizers" / "qwen2_5"
    if folder.is_dir():
        return load_tokenizer(folder)
    try:
        import specdec_demo_model

        tokenizer: PreTrainedTokenizerBase = specdec_demo_model.load()[1]
    except ImportError as error:
        raise Missing(f"no tokenizer: {error}, and there is no folder {folder}") from None
    except specdec_demo_model.MissingWeights as error:
        raise Missing(f"no tokenizer: {error}, and there is no folder {folder}") from None
    return tokenizer


_TOOLS: Final = tuple(
    Tool(name, description, {"type": "object", "properties": slots, "required": list(slots)})
    for name, description, slots in (
        (
            "get_weather",
            "the weather at a place",
            {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
        ),
        (
            "book_room",
            "book a meeting room",
            {
                "room": {"type": "string"},
                "start": {"type": "string"},
                "people": {"type": "integer"},
            },
        ),
    )
)
_ASKED: Final = (
    ("what is the weather in lisbon?", "get_weather", {"city": "lisbon", "unit": "celsius"}),
    (
        "book the room blue lagoon at 09:30 for 4 people",
        "book_room",
        {"room": "blue lagoon", "start": "09:30", "people": 4},
    ),
    (
        "is it warm in new york, in fahrenheit?",
        "get_weather",
        {"city": "new york", "unit": "fahrenheit"},
    ),
    (
        "we are 12 people and need the attic at 14:00",
        "book_room",
        {"room": "attic", "start": "14:00", "people": 12},
    ),
)
_END: Final = "\\"
"""Ends an output; the texts here hold none."""


def _self_made(count: int) -> Trace:
    """A few calls of two tools, spelt by characters, the first ones asked again when more are due.

    Small, but every kind of drafter finds something in it.
    """
    codec, form = CharCodec(), FORMATS["hermes"]
    stop = codec.encode(_END)
    requests, outputs = [], {}
    for number in range(count):
        said, name, arguments = _ASKED[number % len(_ASKED)]
        messages = (
            {"role": "system", "content": json.dumps([tool.to_openai() for tool in _TOOLS])},
            {"role": "user", "content": said},
        )
        request = Request(
            prompt=codec.encode(conversation(messages, form)),
            max_new_tokens=MOST,
            stop_ids=stop,
            codec=codec,
            tools=_TOOLS,
            messages=messages,
            call_format=form,
            id=f"self-made-{number}",
        )
        requests.append(request)
        outputs[request.id] = codec.encode(form.render([Call(name, arguments)])) + stop
    return Trace(tuple(requests), ReplayTarget(outputs, CharCodec.vocabulary), "characters")


def fitting(cases: Sequence[Case], length: int, count: int) -> list[Case]:
    """`count` cases at even distances among those that are not much longer than the others.

    Args:
        cases: A data set.
        length: The most characters of messages and tools.
        count: How many.
    """
    short = [case for case in cases if size(case) <= length]
    return list(spread(short, count))


def size(case: Case) -> int:
    """Characters of a case's messages and tools."""
    told = [tool.to_openai() for tool in case.tools]
    return len(json.dumps([list(case.messages), told]))
