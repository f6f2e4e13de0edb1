"""OpenAI: logged chat-completion requests, with or without the responses to them.

Understood are the request's body by itself (``{"model", "messages", "tools", ...}``, also with the
older ``functions``), a request with its response (``{"request": {...}, "response": {...}}``), the
lines of the batch API (input ``{"custom_id", "method", "url", "body"}``; output lines, which hold
no request, are joined to the input lines of the same ``custom_id`` in the same file or folder), and
fine-tuning lines, whose last message is the answer. The first choice of a response counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from specdec.calls import Call, Tool
from specdec.compare.layouts.case import Case
from specdec.compare.layouts.chat import answer_of, messages_of, split_answer, tools_of
from specdec.compare.layouts.layout import Layout
from specdec.compare.layouts.record import Record, keys, short, take
from specdec.errors import RequestError

_ENDPOINT = "/chat/completions"


def _recognises(sample: object) -> bool:
    if not isinstance(sample, Mapping):
        return False
    if isinstance(sample.get("messages"), list):
        if any(key in sample for key in ("calls", "trajectory", "benchmark", "output")):
            return False
        last = sample["messages"][-1] if sample["messages"] else None
        answered = isinstance(last, Mapping) and last.get("role") == "assistant"
        return answered or any(key in sample for key in ("model", "functions", "request", "body"))
    if "custom_id" in sample:
        return "body" in sample or "response" in sample
    return isinstance(sample.get("request"), Mapping | str)


def _read(given: Iterable[Record]) -> Iterator[Case]:
    """The cases of all records; answers without their requests are joined to them first."""
    asked: list[Record] = []
    answers: dict[str, Record] = {}
    for record in given:
        data = record.data
        if "custom_id" in data and not _holds_request(data):
            answers[str(data["custom_id"])] = record
        else:
            asked.append(record)
    for record in asked:
        answer = answers.pop(str(record.data.get("custom_id")), None)
        with record.located():
            case = _case(record, record.data if answer is None else {**answer.data, **record.data})
        yield case
    for name, record in answers.items():
        raise RequestError(
            f"{record.where}: an answer to {name!r}, whose request is in none of the files read; "
            "put the batch's input and output files in one folder and name the folder"
        )


def _holds_request(data: Mapping[str, Any]) -> bool:
    return any(key in data for key in ("messages", "request", "body"))


def _case(record: Record, data: Mapping[str, Any]) -> Case:
    request = _request(data)
    messages = messages_of(request.get("messages"))
    response = _response(data)
    calls: tuple[Call, ...] = ()
    output: str | None = None
    extra: dict[str, Any] = {"model": request["model"]} if "model" in request else {}
    if response is None:
        messages, calls, output = split_answer(messages)
    elif choices := response.get("choices"):
        calls, output = answer_of(_message(choices))
        if reason := choices[0].get("finish_reason"):
            extra["finish_reason"] = reason
    else:
        # A request that failed is still a request.
        extra["error"] = response.get("error") or data.get("error") or dict(response)
    names = (data.get("custom_id"), data.get("id"), request.get("id"), (response or {}).get("id"))
    id = next((str(name) for name in names if name is not None), f"request-{record.number}")
    return Case(id, messages, _tools(request), calls, output, extra=extra)


def _request(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body of the request."""
    url = data.get("url")
    if isinstance(url, str) and not url.rstrip("/").endswith(_ENDPOINT):
        raise RequestError(f"a request to {url}; expected one to {_ENDPOINT}")
    request = _object(data.get("request", data), "request")
    request = _object(request.get("body", request), "body")
    if "messages" not in request:
        raise RequestError(
            f'expected a chat-completion request with "messages", the request has {keys(request)}'
        )
    return request


def _response(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The body of the response; None if the log holds none."""
    if data.get("response") is None:
        return {} if data.get("error") else None
    response = _object(data["response"], "response")
    response = _object(response.get("body", response), "body")
    if "choices" in response or "error" in response:
        return response
    if response.get("role") == "assistant":
        return {"choices": [{"message": response}]}
    raise RequestError(
        f'expected a response with "choices", the response has {keys(response)}; a streamed '
        "response must be put together first"
    )


def _message(choices: object) -> Mapping[str, Any]:
    if not isinstance(choices, list) or not isinstance(choices[0], Mapping):
        raise RequestError(f'expected a list of objects under "choices", got {short(choices)}')
    message: Mapping[str, Any] = take(choices[0], "message", dict)
    return message


def _tools(request: Mapping[str, Any]) -> tuple[Tool, ...]:
    found: list[object] = []
    for key in ("tools", "functions"):
        if request.get(key) is not None:
            found += take(request, key, list)
    return tools_of(found)


def _object(data: object, name: str) -> Mapping[str, Any]:
    """An object, which logs may also hold as JSON text."""
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError):
            raise RequestError(f'expected JSON under "{name}", got {short(data)}') from None
    if not isinstance(data, Mapping):
        raise RequestError(f'expected an object under "{name}", got {short(data)}')
    return data


LAYOUT: Final = Layout(
    name="openai",
    expected='{"model", "messages", "tools", ...}, also under "request" or "body"',
    recognises=_recognises,
    read=_read,
)
