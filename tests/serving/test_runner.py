"""The queue in front of a model: what shares a run, what waits, and what is refused."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
from models import Gated, all_types, linear, mean_of_all

from oneir.runtime.device import opencl
from oneir.runtime.error import InvalidValue, ShapeMismatch
from oneir.serving.http import HTTPError
from oneir.serving.runner import Runner


def rows(count: int, value: float = 0.0) -> list[np.ndarray]:
    return [np.full((count, 3), value, "float32"), np.ones((count, 3), "float32")]


def run_all(runner: Runner, requests: list[list[np.ndarray]]) -> list:
    """What each request gave, an error too; all wait before the first one is run."""

    async def ask():
        asked = [asyncio.ensure_future(runner.run(request)) for request in requests]
        await asyncio.sleep(0)
        runner.model.open()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(ask())
    runner.close()
    return found


def blocked(**options) -> Runner:
    """A runner whose thread is kept busy by a request of one row, until its model is opened."""
    model = Gated(linear().executable)
    runner = Runner(model, **options)
    threading.Thread(target=lambda: asyncio.run(runner.run(rows(1))), daemon=True).start()
    model.wait_until_running()
    return runner


def test_a_run_has_at_most_so_many_rows_and_requests_keep_their_order():
    runner = blocked(max_batch=4)
    found = run_all(runner, [rows(n, n) for n in (1, 2, 3, 1, 5, 1)])
    for n, (y, s) in zip((1, 2, 3, 1, 5, 1), found, strict=True):
        np.testing.assert_array_equal(y, np.full((n, 3), 2.0 * n + 1))
        np.testing.assert_array_equal(s, np.full(n, 3.0 * n))
    # Behind 1 and 2, 3 is too large, and the next 1 fits; 5 is larger than any run, and runs by itself.
    assert runner.model.rows == [1, 4, 4, 5] and runner.counts.rows == 14


def test_one_that_fails_fails_alone():
    runner = blocked(max_batch=8)
    good, bad, fine = run_all(runner, [rows(1, 1), rows(1, 101), rows(1, 2)])
    assert isinstance(bad, InvalidValue) and str(bad) == "a number above 100"
    np.testing.assert_array_equal(good[1], [3.0])
    np.testing.assert_array_equal(fine[1], [6.0])


def test_requests_that_are_not_run():
    runner = blocked(max_waiting=2)

    async def ask():
        late = asyncio.ensure_future(runner.run(rows(1), timeout=0.0))
        gone = asyncio.ensure_future(runner.run(rows(1)))
        await asyncio.sleep(0.01)
        gone.cancel()
        with pytest.raises(HTTPError, match="2 requests wait already; ask again later"):
            await runner.run(rows(1))
        with pytest.raises(ShapeMismatch, match="expected"):
            await runner.run([rows(1)[0], rows(2)[1]])
        runner.model.open()
        with pytest.raises(HTTPError, match="longer than its timeout"):
            await late
        await asyncio.to_thread(runner.close)
        with pytest.raises(HTTPError, match="is being stopped"):
            await runner.run(rows(1))

    asyncio.run(ask())
    assert runner.model.rows == [1]


def test_a_run_waits_for_its_batch():
    model = Gated(linear().executable)
    runner = Runner(model, max_batch=3, batch_wait=30)  # seconds: only a full batch ends the wait
    found = run_all(runner, [rows(1, i) for i in range(3)])
    assert [float(s[0]) for _, s in found] == [0, 3, 6] and model.rows == [3]


def test_models_without_a_batch():
    with pytest.raises(InvalidValue, match="is one symbol, and stands nowhere else; the inputs are in_bool: bool"):
        Runner(all_types(), max_batch=2)
    with pytest.raises(InvalidValue, match="results with the same first extent; `mean` has no dimensions"):
        Runner(mean_of_all(), max_batch=2)
    runner = Runner(mean_of_all())
    [mean] = asyncio.run(runner.run([np.array([[1, 2], [3, 6]], "float32")]))
    runner.close()
    assert mean.shape == () and mean == 3


@pytest.mark.skipif(not opencl().exist, reason="there is no OpenCL device")
def test_a_model_on_a_device():
    runner = Runner(linear("opencl"), opencl())
    y, s = asyncio.run(runner.run(rows(2, 3)))
    runner.close()
    np.testing.assert_array_equal(y, np.full((2, 3), 7))
    np.testing.assert_array_equal(s, [9, 9])
