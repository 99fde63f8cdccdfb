"""`/v1/chat/completions`: the next message of a conversation."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from ..engine.engine import Engine
from ..engine.request import Chunk
from ..engine.sampling import MAX_LOGPROBS
from ..engine.text import Tokenizer
from .errors import APIError
from .fields import Fields
from .logprobs import of_chat
from .parameters import Parameters, read_parameters
from .tools import CallReader, Tools, for_template, read_tools

_ROLES = ("system", "developer", "user", "assistant", "tool")


def read_chat(body: Fields, model: str, engine: Engine) -> tuple[list[list[int]], Parameters, ChatForm]:
    """What is asked for. Raises `APIError`, and `InvalidValue` for what the model's template does not take."""
    tokenizer = engine.tokenizer
    if tokenizer is None:
        raise APIError(422, "this model has no tokenizer: it takes tokens, at /v1/completions")
    messages = [_message(message) for message in body.objects("messages")]
    if not messages:
        raise body.error("messages", "expected at least one message", code="missing_required_parameter")
    tools = read_tools(body)
    top = body.within("top_logprobs", int, 0, MAX_LOGPROBS)
    if top is not None and not body.get("logprobs", bool):
        raise body.error("top_logprobs", "expected logprobs: true beside it", code="invalid_value")
    max_tokens = body.within("max_completion_tokens", int, 1)
    given: dict[str, Any] = {
        "logprobs": (top or 0) if body.get("logprobs", bool) else None,
        "max_tokens": body.within("max_tokens", int, 1) if max_tokens is None else max_tokens,
    }
    if tools.json_schema is not None:
        given |= {"json_schema": tools.json_schema, "regex": None, "grammar": None}
    parameters = read_parameters(body, model, **given)
    variables = body.get("chat_template_kwargs", dict) or {}
    reserved = {"messages", "tools"} & variables.keys()
    if reserved:
        raise body.error("chat_template_kwargs", f"{sorted(reserved)[0]} has a field of its own", code="invalid_value")
    prompt = tokenizer.encode_chat(messages, tools=tools.given or None, **variables)
    return [prompt], parameters, ChatForm(parameters, tokenizer, tools)


def _message(message: Fields) -> dict[str, Any]:
    """A message as templates want it: its content is one text."""
    role = message.require("role", str)
    if role not in _ROLES:
        raise message.error("role", f"expected one of {', '.join(_ROLES)}; found {role!r}", code="invalid_value")
    content = message.values.get("content")
    if isinstance(content, list):
        content = "".join(_part(part) for part in message.objects("content"))
    elif content is None and not message.values.get("tool_calls"):
        message.require("content", str)
    elif content is not None:
        content = message.require("content", str)
    calls = message.objects("tool_calls")
    return {
        **message.values,
        "role": "system" if role == "developer" else role,
        "content": content or "",
        **({"tool_calls": for_template(calls)} if calls else {}),
    }


def _part(part: Fields) -> str:
    if (kind := part.require("type", str)) != "text":
        raise APIError(422, f"this model reads text alone; found a part of type {kind!r}", param="messages")
    return part.require("text", str)


class ChatForm:
    """How the answers of a chat look."""

    def __init__(self, parameters: Parameters, tokenizer: Tokenizer, tools: Tools):
        self._parameters = parameters
        self._tokenizer = tokenizer
        self._readers = [CallReader(tools.names) for _ in range(parameters.count)]
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": parameters.model,
        }

    def whole(self, chunks: Sequence[Sequence[Chunk]], usage: dict[str, Any]) -> dict[str, Any]:
        """The body of a response."""
        choices = []
        for index, answer in enumerate(chunks):
            parts = [self._read(chunk) for chunk in answer]
            content = "".join(content for content, _ in parts)
            calls = parts[-1][1]
            message = {"role": "assistant", "content": content or (None if calls else "")}
            choices.append(
                {
                    "index": index,
                    "message": {**message, **({"tool_calls": calls} if calls else {})},
                    "logprobs": self._logprobs([entry for chunk in answer for entry in chunk.logprobs]),
                    "finish_reason": "tool_calls" if calls else answer[-1].finish_reason,
                }
            )
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": usage}

    def begin(self) -> Iterator[dict[str, Any]]:
        """Who speaks."""
        for index in range(self._parameters.count):
            yield self._event(index, {"role": "assistant", "content": ""})

    def event(self, chunk: Chunk) -> Iterator[dict[str, Any]]:
        """The content that a chunk adds, and at the end the calls."""
        content, calls = self._read(chunk)
        logprobs = self._logprobs(chunk.logprobs)
        if content or chunk.logprobs:
            yield self._event(chunk.index, {"content": content}, logprobs)
        if calls:
            yield self._event(chunk.index, {"tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]})
        if chunk.finish_reason is not None:
            yield self._event(chunk.index, {}, finish_reason="tool_calls" if calls else chunk.finish_reason)

    def usage_event(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The last event."""
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def _event(
        self, index: int, delta: dict[str, Any], logprobs: Any = None, finish_reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def _read(self, chunk: Chunk) -> tuple[str, list[dict[str, Any]]]:
        """The content and the calls that a chunk adds."""
        reader = self._readers[chunk.index]
        content = reader.add(chunk.text)
        if chunk.finish_reason is None:
            return content, []
        rest, calls = reader.finish()
        return content + rest, [call.body() for call in calls]

    def _logprobs(self, entries: Sequence[Any]) -> dict[str, Any] | None:
        return None if self._parameters.sampling.logprobs is None else of_chat(self._tokenizer, entries)
