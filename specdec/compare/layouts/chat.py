"""Chat: conversations in OpenAI's form, today's or the older one with function calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specdec.calls import Call, Tool, read_tools
from specdec.compare.layouts.record import short, take
from specdec.errors import RequestError

Message = Mapping[str, Any]


def messages_of(data: object) -> tuple[Message, ...]:
    """A conversation as chat templates take it.

    Text in parts is joined, no content becomes an empty text, arguments written as text become
    objects, and the older ``function_call`` and role ``function`` become ``tool_calls`` and
    ``tool``. What is in that form already stays as it is. Arguments of earlier calls that cannot
    be read stay text: they are prompt, nothing is measured against them.

    Raises:
        RequestError: If it is no list of messages, is empty, or holds more than text.
    """
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise RequestError(f'expected a list of messages under "messages", got {short(data)}')
    if not data:
        raise RequestError('"messages" is an empty list; expected at least one message')
    found: list[Message] = []
    for number, message in enumerate(data, start=1):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RequestError(
                f'message {number}: expected an object with a text "role", got {short(message)}'
            )
        try:
            found.append(_modern(message, found))
        except RequestError as error:
            raise RequestError(f"message {number}: {error}") from None
    return tuple(found)


def tools_of(data: Iterable[object]) -> tuple[Tool, ...]:
    """The tools on offer; one that is listed twice, word for word, is one tool.

    Raises:
        RequestError: If an entry is no tool, or two different ones share a name.
    """
    found: list[Tool] = []
    for entry in data:
        tool = entry if isinstance(entry, Tool) else Tool.from_mapping(entry)
        if tool not in found:
            found.append(tool)
    return read_tools(found)


def split_answer(
    messages: tuple[Message, ...],
) -> tuple[tuple[Message, ...], tuple[Call, ...], str | None]:
    """What was asked, and the calls and the text of the assistant's message that ends it, if any.

    Raises:
        RequestError: If nothing comes before the answer, or its calls cannot be read.
    """
    if messages[-1]["role"] != "assistant":
        return messages, (), None
    if len(messages) == 1:
        raise RequestError("the only message is the assistant's; expected a question before it")
    return (messages[:-1], *answer_of(messages[-1]))


def answer_of(message: Message) -> tuple[tuple[Call, ...], str | None]:
    """The calls of an assistant's message, or its text where it holds none.

    Raises:
        RequestError: If a call cannot be read, or the content is more than text.
    """
    calls = calls_of(message)
    return calls, None if calls else _content(message.get("content"))


def calls_of(message: Message) -> tuple[Call, ...]:
    """The calls that an assistant's message holds.

    Raises:
        RequestError: If one cannot be read.
    """
    if older := message.get("function_call"):
        return read_calls((older,))
    return read_calls(take(message, "tool_calls", list) if message.get("tool_calls") else ())


def read_calls(data: Iterable[object]) -> tuple[Call, ...]:
    """Calls from ``{"name", "arguments"}`` or ``{"id", "function": {"name", "arguments"}}``.

    Args:
        data: The calls; arguments are an object, the text of one, or nothing.

    Raises:
        RequestError: If one cannot be read.
    """
    return tuple(_call(entry) for entry in data)


def _call(data: object) -> Call:
    inner = data.get("function", data) if isinstance(data, Mapping) else data
    if not isinstance(data, Mapping) or not isinstance(inner, Mapping):
        raise RequestError(f'expected a call, {{"name", "arguments"}}, got {short(data)}')
    name = take(inner, "name", str)
    arguments = _arguments(inner.get("arguments"))
    if arguments is None:
        raise RequestError(
            f"call of {name!r}: expected a JSON object as arguments, got "
            f"{short(inner.get('arguments'))}; an answer that was cut is no reference, remove it"
        )
    return Call(name, arguments, id=str(data.get("id") or ""))


def _arguments(data: object) -> Mapping[str, Any] | None:
    """Arguments as an object; None if they are not one."""
    if isinstance(data, str):
        try:
            data = json.loads(data) if data.strip() else {}
        except (ValueError, RecursionError):
            return None
    if data is None:
        return {}
    return data if isinstance(data, Mapping) else None


def _content(data: object) -> str | None:
    """Content as text; None if there is none."""
    if data is None or isinstance(data, str):
        return data
    texts = []
    for part in data if isinstance(data, Sequence) else (data,):
        text = part.get("text") if isinstance(part, Mapping) else None
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or kind != "text":
            raise RequestError(
                f"expected text as content, or a list of text parts, got {short(part)}; requests "
                "with images, audio or files cannot be compared"
            )
        texts.append(text)
    return "".join(texts)


def _modern(message: Message, before: Sequence[Message]) -> Message:
    """A message in today's form."""
    changed: dict[str, Any] = dict(message)
    changed["content"] = _content(message.get("content")) or ""
    older = changed.pop("function_call", None)
    if older:
        changed["tool_calls"] = [
            {"id": f"call_{len(before)}", "type": "function", "function": older}
        ]
    if changed["role"] == "function":
        changed["role"] = "tool"
        changed["tool_call_id"] = _asked(before)
    if changed.get("tool_calls"):
        changed["tool_calls"] = [_with_object(call) for call in take(changed, "tool_calls", list)]
    return message if changed == message else changed


def _asked(before: Sequence[Message]) -> str:
    """The id of the call that a function's result answers: the last one."""
    for message in reversed(before):
        for call in reversed(message.get("tool_calls") or ()):
            return str(call.get("id") or "")
    return ""


def _with_object(call: object) -> object:
    """A call of an earlier turn with its arguments as an object, where they can be read."""
    if not isinstance(call, Mapping):
        raise RequestError(f"expected a call, got {short(call)}")
    inner = call.get("function")
    if not isinstance(inner, Mapping) or not isinstance(inner.get("arguments"), str):
        return call
    arguments = _arguments(inner["arguments"])
    if arguments is None:
        return call
    return {**call, "function": {**inner, "arguments": arguments}}
