"""A language model's server on loopback, in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from loopback import on_loopback

from oneir.llm.engine.engine import Engine
from oneir.llm.server.app import create_app


@contextmanager
def served(engine: Engine, *, api_key: str | None = None) -> Iterator[str]:
    """Serves an engine, as the model "fake"; gives the address."""
    with on_loopback(create_app(engine, "fake", api_key=api_key)) as address:
        yield address
    assert engine.closed and (engine.pages[0], engine.running, engine.waiting) == (0, 0, 0)


def wait_until_idle(engine: Engine) -> None:
    """Waits until the engine has seen that its clients are gone."""
    for _ in range(1000):
        if engine.running == engine.waiting == 0 and engine.pages[0] == 0:
            return
        time.sleep(0.01)
    raise AssertionError("requests still run though nobody waits for them")
