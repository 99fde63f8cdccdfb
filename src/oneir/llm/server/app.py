"""The application: which path does what. Needs starlette; uvicorn, or another ASGI server, runs it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...runtime.error import OneIRError
from ..engine.engine import Engine
from .answers import answer
from .chat import read_chat
from .completions import read_completion
from .embeddings import embeddings
from .errors import APIError, as_api_error, respond
from .fields import Fields, read_fields
from .metrics import CONTENT_TYPE, Metrics

logger = logging.getLogger("oneir.llm.server")

Handler = Callable[[Request], Awaitable[Response]]


class _Server:
    """What the handlers share."""

    def __init__(self, engine: Engine, name: str, api_key: str | None):
        self.engine = engine
        self.name = name
        self.metrics = Metrics(engine)
        self._api_key = api_key
        self._created = int(time.time())
        self._page = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")

    async def page(self, request: Request) -> Response:
        return HTMLResponse(self._page)

    async def health(self, request: Request) -> Response:
        if self.engine.closed:
            return JSONResponse({"status": "closed"}, 503)
        return JSONResponse({"status": "ok"})

    async def show_metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.metrics.text(), headers={"content-type": CONTENT_TYPE})

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        self._check_name(request.path_params["name"])
        return JSONResponse(self._model())

    async def chat(self, request: Request) -> Response:
        body = await self._body(request)
        found = await asyncio.to_thread(read_chat, body, self.name, self.engine)
        return await answer(request, self.engine, self.metrics, *found)

    async def completions(self, request: Request) -> Response:
        body = await self._body(request)
        found = await asyncio.to_thread(read_completion, body, self.name, self.engine)
        return await answer(request, self.engine, self.metrics, *found)

    async def embeddings(self, request: Request) -> Response:
        return JSONResponse(await embeddings(await self._body(request), self.name, self.engine))

    def counted(self, path: str, handler: Handler, guarded: bool) -> Handler:
        """A handler whose responses are counted, behind the key, if the server has one."""

        async def handle(request: Request) -> Response:
            try:
                if guarded:
                    self._check_key(request)
                response = await handler(request)
            except HTTPException as error:
                response = await respond(request, APIError(error.status_code, str(error.detail)))
            except Exception as error:
                if not isinstance(error, OneIRError):
                    logger.exception("a request failed")
                response = await respond(request, error)
            self.metrics.responses[path, response.status_code] += 1
            return response

        return handle

    def _model(self) -> dict[str, Any]:
        return {
            "id": self.name,
            "object": "model",
            "created": self._created,
            "owned_by": "oneir",
            "max_model_len": self.engine.context,
        }

    async def _body(self, request: Request) -> Fields:
        body = await read_fields(request)
        self._check_name(body.require("model", str))
        return body

    def _check_name(self, name: str) -> None:
        if name != self.name:
            message = f"there is no model {name!r}; this server has {self.name!r}"
            raise APIError(404, message, param="model", code="model_not_found")

    def _check_key(self, request: Request) -> None:
        if self._api_key is None:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode("latin-1")
        if not hmac.compare_digest(given, self._api_key.encode()):
            raise APIError(401, "expected the server's key as `Authorization: Bearer KEY`", code="invalid_api_key")


def create_app(engine: Engine, name: str, *, api_key: str | None = None) -> Starlette:
    """The application for one model, which goes by a name. It starts the engine's thread, and closes the engine.

    With an `api_key`, everything but the page, `/health` and `/metrics` asks for it.
    """
    server = _Server(engine, name, api_key)

    def route(path: str, handler: Handler, method: str = "GET", guarded: bool = True) -> Route:
        return Route(path, server.counted(path, handler, guarded), methods=[method])

    routes = [
        route("/v1/models", server.models),
        route("/v1/models/{name:path}", server.model),
        route("/v1/chat/completions", server.chat, "POST"),
        route("/v1/completions", server.completions, "POST"),
        route("/v1/embeddings", server.embeddings, "POST"),
        route("/", server.page, guarded=False),
        route("/health", server.health, guarded=False),
        route("/metrics", server.show_metrics, guarded=False),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        engine.start()
        yield
        await asyncio.to_thread(engine.close)

    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _unknown_path})


async def _unknown_path(request: Request, error: Exception) -> Response:
    """For a path, or a method of one, that the server does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"{request.method} {request.url.path}: {getattr(error, 'detail', error)}"
    return await respond(request, as_api_error(APIError(status, message)))
