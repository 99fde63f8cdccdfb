"""The server of a language model on Ray Serve: replicas on the machines of a cluster, whose number follows the load.

A front reads requests and hands each to a replica, which answers it as the server of one machine does. Requests whose
prompts begin alike go to the replica that has computed this beginning before, unless it has too much to do: their
digest is what Ray Serve calls the model of a request, and replicas say which ones they have. Where a replica dies, a
request of which nothing was sent yet is given to another one; a stream that has begun ends with an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...runtime.error import OneIRError
from ...serving.http import HTTPError, read_body
from ..llm import LLM
from .app import create_app
from .errors import respond
from .fields import MAX_BODY

ray: Any = import_module("ray")
serve: Any = import_module("ray.serve")
logger = logging.getLogger("oneir.llm.server")

BEGINNING = 1024
"""The characters of a prompt that say which replica is to answer it."""
ATTEMPTS = 3
"""How many replicas a request is given to, of which all before the last die."""
_DIGESTS = 4096
"""The beginnings that a replica remembers to have had."""


def prefix_digest(body: bytes) -> str:
    """What is the same for requests whose prompts begin alike; empty for a body without a prompt."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    prompt = (values.get("messages") or values.get("prompt")) if isinstance(values, dict) else None
    if not prompt:
        return ""
    beginning = json.dumps([values.get("model"), prompt], ensure_ascii=False)[:BEGINNING]
    return hashlib.sha256(beginning.encode(errors="surrogatepass")).hexdigest()[:32]


class Replica:
    """A model with its engine; answers requests as the server of one machine does."""

    def __init__(self, path: str, name: str | None, api_key: str | None, max_waiting: int, options: Mapping[str, Any]):
        self.llm = LLM(path, **options)
        self.llm.engine.max_waiting = max_waiting
        self.app = create_app(self.llm.engine, name or self.llm.name, api_key=api_key)

    def check_health(self) -> None:
        """Raises where the engine has ended, so that Ray Serve starts another replica."""
        if self.llm.engine.closed:
            raise OneIRError("the engine was closed")

    async def respond(self, scope: Scope, body: bytes) -> AsyncIterator[Message]:
        """The messages of ASGI that are the response."""
        if digest := serve.get_multiplexed_model_id():
            await self.remember(digest)
        given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        left: asyncio.Event = asyncio.Event()
        sent: asyncio.Queue[Message | None] = asyncio.Queue()

        async def receive() -> Message:
            if not given:
                await left.wait()
                return {"type": "http.disconnect"}
            return given.pop()

        task = asyncio.ensure_future(self.app(scope, receive, sent.put))
        task.add_done_callback(lambda _: sent.put_nowait(None))
        try:
            while (message := await sent.get()) is not None:
                yield message
            task.result()
        finally:
            left.set()

    @serve.multiplexed(max_num_models_per_replica=_DIGESTS)
    async def remember(self, digest: str) -> str:
        """Lets Ray Serve know that this replica has had a beginning."""
        return digest


class Front:
    """Reads requests, and forwards them."""

    def __init__(self, replicas: Any):
        self.replicas = replicas

    async def __call__(self, request: Request) -> Response:
        try:
            body = await read_body(request, MAX_BODY)
        except HTTPError as error:
            return respond(error)
        keys = ("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "headers")
        scope = {key: request.scope[key] for key in keys if key in request.scope}
        return _Forwarded(self.replicas.options(multiplexed_model_id=prefix_digest(body), stream=True), scope, body)


class _Forwarded(Response):
    """What a replica answers."""

    def __init__(self, replicas: Any, scope: Scope, body: bytes):
        super().__init__()
        self._replicas, self._scope, self._content = replicas, scope, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it. The first message waits for the second one, so that a replica may die before it."""
        for _ in range(ATTEMPTS):
            start: Message | None = None
            begun = False
            try:
                async for message in self._replicas.respond.remote(self._scope, self._content):
                    if message["type"] == "http.response.start":
                        start = message
                        continue
                    if start is not None and not begun:
                        await send(start)
                        begun = True
                    await send(message)
                return
            except (ray.exceptions.RayError, asyncio.CancelledError) as error:
                # A replica that is ended cancels what it was doing, which is no cancellation of this task.
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                    raise
                logger.warning("a replica failed: %s", error)
                if begun:
                    failure = respond(HTTPError(502, "the replica that answered has ended; try again"))
                    event = b"data: " + bytes(failure.body) + b"\n\n"
                    await send({"type": "http.response.body", "body": event, "more_body": False})
                    return
        await respond(HTTPError(503, "no replica could answer; try again"))(scope, receive, send)


def deploy(
    path: Path,
    options: Mapping[str, Any],
    *,
    name: str | None,
    api_key: str | None,
    max_waiting: int,
    replicas: tuple[int, int],
    host: str,
    port: int,
) -> Any:
    """Starts the server on the cluster that `ray.init` joined, and gives Ray Serve's handle of it.

    `options` are those of `LLM`, `replicas` the fewest and the most. `path` must exist on all machines of the cluster.
    """
    batch = options.get("max_batch_size", 8)
    fewest, most = replicas
    scale = {"min_replicas": fewest, "max_replicas": most, "target_ongoing_requests": batch}
    number = {"num_replicas": most} if fewest == most else {"autoscaling_config": scale}
    # The engine has a queue of its own, and says 429 when it is full.
    replica = serve.deployment(max_ongoing_requests=batch + max_waiting, **number)(Replica)
    front = serve.deployment(max_ongoing_requests=most * (batch + max_waiting), ray_actor_options={"num_cpus": 0})(
        Front
    )
    serve.start(http_options={"host": host, "port": port})
    bound = replica.bind(str(path.resolve()), name, api_key, max_waiting, dict(options))
    return serve.run(front.bind(bound), name="oneir", route_prefix="/")
