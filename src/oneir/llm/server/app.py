"""The application: which path does what. Needs starlette; uvicorn, or another ASGI server, runs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ...serving.http import Handler, counted, unknown_path
from ...serving.metrics import CONTENT_TYPE
from ..engine.engine import Engine
from .answers import answer
from .chat import read_chat
from .completions import read_completion
from .embeddings import embeddings
from .errors import APIError, respond
from .fields import Fields, read_fields
from .metrics import Metrics


class _Server:
    """What the handlers share."""

    def __init__(self, engine: Engine, name: str):
        self.engine = engine
        self.name = name
        self.metrics = Metrics(engine)
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
        return JSONResponse({"object": "list", "data": [self._model(name) for name in self._names()]})

    async def model(self, request: Request) -> Response:
        return JSONResponse(self._model(self._checked(request.path_params["name"])))

    async def chat(self, request: Request) -> Response:
        body = await self._body(request)
        found = await asyncio.to_thread(read_chat, body, body.require("model", str), self.engine)
        return await answer(request, self.engine, self.metrics, *found)

    async def completions(self, request: Request) -> Response:
        body = await self._body(request)
        found = await asyncio.to_thread(read_completion, body, body.require("model", str), self.engine)
        return await answer(request, self.engine, self.metrics, *found)

    async def embeddings(self, request: Request) -> Response:
        return JSONResponse(await embeddings(await self._body(request), self.name, self.engine))

    def _names(self) -> list[str]:
        return [self.name, *self.engine.adapters]

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "root": self.name,
            "object": "model",
            "created": self._created,
            "owned_by": "oneir",
            "max_model_len": self.engine.context,
        }

    async def _body(self, request: Request) -> Fields:
        body = await read_fields(request)
        self._checked(body.require("model", str))
        return body

    def _checked(self, name: str) -> str:
        if name not in self._names():
            message = f"there is no model {name!r}; this server has {', '.join(map(repr, self._names()))}"
            raise APIError(404, message, param="model", code="model_not_found")
        return name


def create_app(engine: Engine, name: str, *, api_key: str | None = None) -> Starlette:
    """The application for one model, which goes by a name, and with each of its adapters by the adapter's name.

    It starts the engine's thread, and closes the engine.
    With an `api_key`, everything but the page, `/health` and `/metrics` asks for it.
    """
    server = _Server(engine, name)

    def route(path: str, handler: Handler, method: str = "GET", guarded: bool = True) -> Route:
        key = api_key if guarded else None
        return Route(path, counted(path, handler, respond, server.metrics.responses, key), methods=[method])

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

    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: unknown_path(respond)})
