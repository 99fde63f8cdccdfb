"""The application that serves models by the Open Inference Protocol. Needs starlette; `http.listen` runs it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..runtime.error import InvalidValue, ShapeMismatch, TypeMismatch, UnsupportedError
from ..version import __version__
from . import metrics
from .datatypes import OF_DTYPE
from .http import Handler, HTTPError, counted, error_text, read_body, retry_headers, unknown_path, until_left
from .metrics import Histogram, head, line
from .protocol import HEADER_LENGTH, read_inference, wanted_results, write_inference
from .runner import Runner

VERSION = "1"
"""The version of every model: a server has one of each."""

_LARGE = 1 << 16
"""Bodies of more bytes are read and written in another thread, so that the event loop goes on."""

_HELD = 16
"""How many times the largest body all requests that are under way may have together, so that memory has a bound."""


@dataclass
class Served:
    """A model by the name that clients know."""

    name: str
    runner: Runner
    seconds: Histogram = field(default_factory=lambda: Histogram(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10))
    """From a request to its results."""

    def metadata(self) -> dict[str, Any]:
        """What the protocol tells of a model; -1 is an extent that a request chooses."""
        inputs = [
            {"name": p.name, "datatype": OF_DTYPE[str(p.dtype)], "shape": _extents(p.shape)}
            for p in self.runner.model.inputs
        ]
        outputs = [
            {"name": o.name, "datatype": OF_DTYPE.get(str(o.dtype), str(o.dtype)), "shape": _extents(o.shape)}
            for o in self.runner.outputs
        ]
        return {"name": self.name, "versions": [VERSION], "platform": "oneir", "inputs": inputs, "outputs": outputs}


def _extents(shape: Sequence[object] | None) -> list[int]:
    return [extent if isinstance(extent, int) else -1 for extent in shape or ()]


class _Server:
    """What the handlers share."""

    def __init__(self, models: Sequence[Served], max_body: int):
        self.models = {model.name: model for model in models}
        self.responses: Counter[tuple[str, int]] = Counter()
        self._max_body, self._held = max_body, 0

    @property
    def ready(self) -> bool:
        return not any(model.runner.closed for model in self.models.values())

    async def server(self, request: Request) -> Response:
        return JSONResponse({"name": "oneir", "version": __version__, "extensions": ["binary_tensor_data"]})

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def server_ready(self, request: Request) -> Response:
        return JSONResponse({"ready": self.ready}, 200 if self.ready else 503)

    async def names(self, request: Request) -> Response:
        return JSONResponse({"models": list(self.models)})

    async def model(self, request: Request) -> Response:
        return JSONResponse(self._model(request).metadata())

    async def model_ready(self, request: Request) -> Response:
        model = self._model(request)
        ready = not model.runner.closed
        return JSONResponse({"name": model.name, "ready": ready}, 200 if ready else 503)

    async def infer(self, request: Request) -> Response:
        start = time.perf_counter()
        model = self._model(request)
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise HTTPError(415, f"expected a body as it is, found one of content-encoding {encoding}")
        length = request.headers.get("content-length", "")
        size = int(length) if length.isdecimal() else self._max_body
        if size <= self._max_body and self._held + size > _HELD * self._max_body:
            raise HTTPError(429, f"requests of {self._held} bytes are under way already; ask again later")
        self._held += size
        try:
            return await self._answer(request, model, start)
        finally:
            self._held -= size

    async def _answer(self, request: Request, model: Served, start: float) -> Response:
        runner = model.runner
        body = await read_body(request, self._max_body)
        header_length = request.headers.get(HEADER_LENGTH)
        inference = await _thread_if(len(body) > _LARGE, read_inference, body, header_length, runner.model.inputs)
        if runner.outputs:
            wanted_results(inference, [output.name for output in runner.outputs])
        running = asyncio.ensure_future(runner.run(inference.arrays, inference.timeout))
        leaving = asyncio.ensure_future(until_left(request))
        leaving.add_done_callback(lambda _: running.cancel())
        try:
            found = await running
        except asyncio.CancelledError:
            return Response(status_code=499)  # nobody reads it
        finally:
            leaving.cancel()
            running.cancel()
        names = [output.name for output in runner.outputs]
        results, wanted = dict(zip(names, found, strict=True)), wanted_results(inference, names)
        large = sum(results[name].nbytes for name in wanted) > _LARGE
        content, length = await _thread_if(large, write_inference, model.name, VERSION, inference.id, results, wanted)
        model.seconds.add(time.perf_counter() - start)
        if length is None:
            return Response(content, media_type="application/json")
        return Response(content, headers={HEADER_LENGTH: str(length)}, media_type="application/octet-stream")

    async def show_metrics(self, request: Request) -> Response:
        return PlainTextResponse(metrics.text(self._lines()), headers={"content-type": metrics.CONTENT_TYPE})

    def _lines(self) -> Iterator[str]:
        models = list(self.models.values())
        yield from metrics.responses(self.responses)
        yield from head("oneir_model_requests_waiting", "gauge", "Requests that wait for a run of a model")
        for model in models:
            yield line("oneir_model_requests_waiting", model.runner.waiting, model=model.name)
        yield from head("oneir_model_runs_total", "counter", "Runs of a model")
        for model in models:
            yield line("oneir_model_runs_total", model.runner.counts.runs, model=model.name)
        yield from head("oneir_model_rows_total", "counter", "Rows, or requests where there is no batch, of all runs")
        for model in models:
            yield line("oneir_model_rows_total", model.runner.counts.rows, model=model.name)
        histograms = {
            "oneir_model_run_seconds": ("Seconds of a run", lambda model: model.runner.counts.run_seconds),
            "oneir_model_requests_in_run": (
                "Requests that shared a run",
                lambda model: model.runner.counts.requests_in_run,
            ),
            "oneir_model_request_seconds": ("Seconds from a request to its results", lambda model: model.seconds),
        }
        for name, (what, histogram) in histograms.items():
            yield from head(name, "histogram", what)
            for model in models:
                yield from histogram(model).lines(name, model=model.name)

    def _model(self, request: Request) -> Served:
        name, version = request.path_params["name"], request.path_params.get("version", VERSION)
        if name not in self.models:
            raise HTTPError(404, f"there is no model {name!r}; this server has {', '.join(self.models)}")
        if version != VERSION:
            raise HTTPError(404, f"the model {name!r} has the version {VERSION}, and no version {version!r}")
        return self.models[name]


async def _thread_if(large: bool, function: Any, *args: Any) -> Any:
    return await asyncio.to_thread(function, *args) if large else function(*args)


def respond(error: Exception) -> Response:
    """The response for an error; the message of one that is no fault of the client stays in the log."""
    match error:
        case HTTPError():
            status = error.status
        case InvalidValue() | ShapeMismatch() | TypeMismatch():
            status = 400
        case UnsupportedError():
            status = 422
        case _:
            status = 500
    message = error_text(error) if status < 500 or isinstance(error, HTTPError) else "the model failed; see the log"
    return JSONResponse({"error": message}, status, retry_headers(status))


def create_app(models: Sequence[Served], *, api_key: str | None = None, max_body: int = 64 * 2**20) -> Starlette:
    """The application for models of different names. It closes their runners when it ends.

    With an `api_key`, everything but health and metrics asks for it. A body has at most `max_body` bytes.
    """
    server = _Server(models, max_body)

    def route(path: str, handler: Handler, method: str = "GET", guarded: bool = True) -> Route:
        key = api_key if guarded else None
        return Route(path, counted(path, handler, respond, server.responses, key), methods=[method])

    routes = [
        route("/v2", server.server),
        route("/v2/health/live", server.live, guarded=False),
        route("/v2/health/ready", server.server_ready, guarded=False),
        route("/v2/models", server.names),
        route("/metrics", server.show_metrics, guarded=False),
    ]
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            route(path, server.model),
            route(f"{path}/ready", server.model_ready),
            route(f"{path}/infer", server.infer, "POST"),
        ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        for model in models:
            await asyncio.to_thread(model.runner.close)

    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: unknown_path(respond)})
