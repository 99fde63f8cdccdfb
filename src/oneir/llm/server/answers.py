"""Runs a request on the engine, and gives its client the answers: at once, or as a stream of events."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ...serving.http import until_left
from ..engine.engine import AsyncStream, Engine
from ..engine.request import Chunk
from .errors import as_api_error
from .metrics import Metrics
from .parameters import Parameters

logger = logging.getLogger("oneir.llm.server")


class Form(Protocol):
    """How the answers to one request look: those of a chat, or of a completion."""

    def whole(self, chunks: Sequence[Sequence[Chunk]], usage: dict[str, Any]) -> dict[str, Any]:
        """The body of a response, of the chunks of each answer."""
        ...

    def begin(self) -> Iterator[dict[str, Any]]:
        """The first events of a stream."""
        ...

    def event(self, chunk: Chunk) -> Iterator[dict[str, Any]]:
        """The events for a chunk."""
        ...

    def usage_event(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The last event, if the client wants to know how many tokens there were."""
        ...


class Usage:
    """How many tokens there were."""

    def __init__(self, stream: AsyncStream, count: int):
        self._stream = stream
        self._count = count
        self.generated = 0

    def body(self) -> dict[str, Any]:
        """As OpenAI's clients read it. A prompt with several answers counts once."""
        firsts = self._stream.requests[:: self._count]
        prompt = sum(request.prompt_length for request in firsts)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.generated,
            "total_tokens": prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": sum(request.cached_tokens for request in firsts)},
        }


async def answer(
    request: Request,
    engine: Engine,
    metrics: Metrics,
    prompts: Sequence[Sequence[int]],
    parameters: Parameters,
    form: Form,
) -> Response:
    """The response to a request; a client that leaves before its end cancels it.

    Raises what `Engine.make` and `Engine.submit` raise, and, unless the response is a stream, the error of an answer.
    """
    adapter = parameters.model if parameters.model in engine.adapters else None
    stream = await engine.stream_async(prompts, parameters.sampling, parameters.count, adapter)
    usage = Usage(stream, parameters.count)
    chunks = _counted(stream, usage, metrics)
    if parameters.stream:
        return _EventStream(stream, _events(chunks, form, usage if parameters.include_usage else None))
    collected: list[list[Chunk]] = [[] for _ in stream.requests]

    async def collect() -> None:
        async for chunk in chunks:
            collected[chunk.index].append(chunk)

    collecting, leaving = asyncio.ensure_future(collect()), asyncio.ensure_future(until_left(request))
    try:
        await asyncio.wait([collecting, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            return Response(status_code=499)  # nobody reads it
        collecting.result()
    finally:
        collecting.cancel()
        leaving.cancel()
        stream.close()
    return JSONResponse(form.whole(collected, usage.body()))


async def _counted(stream: AsyncStream, usage: Usage, metrics: Metrics) -> AsyncIterator[Chunk]:
    """The chunks of a stream, which are counted and timed."""
    last = [request.submitted for request in stream.requests]
    started = [False] * len(last)
    async for chunk in stream:
        now = time.monotonic()
        count = len(chunk.token_ids)
        if count:
            usage.generated += count
            passed, last[chunk.index] = now - last[chunk.index], now
            if not started[chunk.index]:
                started[chunk.index] = True
                metrics.first_token.add(passed)
            else:
                metrics.between_tokens.add(passed / count)
        yield chunk


async def _events(chunks: AsyncIterator[Chunk], form: Form, usage: Usage | None) -> AsyncIterator[str]:
    """The events of a stream. An error, when the status was sent long ago, is an event too."""
    try:
        for event in form.begin():
            yield _event(event)
        async for chunk in chunks:
            for event in form.event(chunk):
                yield _event(event)
        if usage is not None:
            yield _event(form.usage_event(usage.body()))
        yield "data: [DONE]\n\n"
    except Exception as error:
        logger.exception("an answer failed")
        yield _event(as_api_error(error).body)


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


class _EventStream(StreamingResponse):
    """Server-sent events; whatever ends the response cancels what still runs."""

    def __init__(self, stream: AsyncStream, events: AsyncIterator[str]):
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.close()
