"""What all of OneIR's servers do with HTTP: bodies of a limited size, keys, counted responses. Needs starlette."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..runtime.error import OneIRError

logger = logging.getLogger("oneir.serving")

Handler = Callable[[Request], Awaitable[Response]]
Responder = Callable[[Exception], Response]
"""Makes the response for an error, in the form that a server's clients expect."""

BODY_SECONDS = 60.0
"""How long a client may take to send a body."""

STOP_SECONDS = 30
"""How long answers may go on when a server is told to stop."""


class HTTPError(OneIRError):
    """An answer with a status of 400 or more, whose message is for the client."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def error_text(error: Exception) -> str:
    """The message of an error as UTF-8 can hold it: JSON has halves of characters, UTF-8 has none."""
    return str(error).encode(errors="backslashreplace").decode()


def retry_headers(status: int) -> dict[str, str] | None:
    """What tells clients that they may ask again."""
    return {"retry-after": "1"} if status == 429 else None


async def read_body(request: Request, limit: int) -> bytes:
    """The body of a request. Raises `HTTPError` for one of more than `limit` bytes, before it was read, and for one
    that does not come.
    """
    length = request.headers.get("content-length", "")
    parts, size = [], int(length) if length.isdecimal() else 0
    if size <= limit:
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    size += len(part)
                    if size > limit:
                        break
                    parts.append(part)
        except TimeoutError:
            raise HTTPError(
                408, f"the body has not come in {BODY_SECONDS:g} seconds; {size} bytes of it have"
            ) from None
    if size > limit:
        raise HTTPError(413, f"a body has at most {limit} bytes")
    return b"".join(parts)


async def until_left(request: Request) -> None:
    """Waits until the client of a request, whose body was read, is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def check_key(request: Request, api_key: str | None) -> None:
    """Raises `HTTPError` unless the request has the server's key, if the server has one."""
    if api_key is None:
        return
    given = request.headers.get("authorization", "").removeprefix("Bearer ").encode("latin-1")
    if not hmac.compare_digest(given, api_key.encode()):
        raise HTTPError(401, "expected the server's key as `Authorization: Bearer KEY`")


def counted(
    path: str, handler: Handler, respond: Responder, responses: Counter[tuple[str, int]], api_key: str | None
) -> Handler:
    """A handler whose responses are counted by path and status, and which asks for a key unless that is None."""

    async def handle(request: Request) -> Response:
        try:
            check_key(request, api_key)
            response = await handler(request)
        except HTTPException as error:
            response = respond(HTTPError(error.status_code, str(error.detail)))
        except Exception as error:
            if not isinstance(error, OneIRError):
                logger.exception("a request failed")
            response = respond(error)
        responses[path, response.status_code] += 1
        return response

    return handle


def unknown_path(respond: Responder) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What answers for a path, or a method of one, that a server does not have."""

    async def handle(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return respond(HTTPError(status, f"{request.method} {request.url.path}: {getattr(error, 'detail', error)}"))

    return handle


def listen(app: Starlette, host: str, port: int, *, log_requests: bool) -> None:
    """Serves an application until SIGINT or SIGTERM; what is under way then has `STOP_SECONDS`. Needs uvicorn.

    Returns after SIGINT, which is how a server is stopped; after SIGTERM, the process ends by that signal.
    """
    import uvicorn

    options: dict[str, Any] = {"ws": "none", "access_log": log_requests, "timeout_graceful_shutdown": STOP_SECONDS}
    server = uvicorn.Server(uvicorn.Config(app, host, port, **options))
    try:
        server.run()
    except KeyboardInterrupt:
        if not server.started:
            raise
