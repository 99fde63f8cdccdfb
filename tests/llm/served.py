"""A server on loopback, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from oneir.llm.engine.engine import Engine
from oneir.llm.server.app import create_app


@contextmanager
def served(engine: Engine, *, api_key: str | None = None) -> Iterator[str]:
    """Serves an engine, as the model "fake"; gives the address."""
    config = uvicorn.Config(create_app(engine, "fake", api_key=api_key), port=0, log_level="critical", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
    assert engine.closed and (engine.pages[0], engine.running, engine.waiting) == (0, 0, 0)


def wait_until_idle(engine: Engine) -> None:
    """Waits until the engine has seen that its clients are gone."""
    for _ in range(1000):
        if engine.running == engine.waiting == 0 and engine.pages[0] == 0:
            return
        time.sleep(0.01)
    raise AssertionError("requests still run though nobody waits for them")
