"""Processes that run functions for others."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import pytest

from oneir.contrib.popen_pool import PopenPoolExecutor, PopenWorker, StatusKind
from oneir.runtime.error import TypeMismatch
from oneir.testing import (
    after_initializer,
    call_py_ffi,
    fast_summation,
    identity_after,
    initializer,
    slow_summation,
    terminate_self,
    timeout_job,
)


def test_pools_of_processes():
    with PopenPoolExecutor(max_workers=1, timeout=60, initializer=initializer, initargs=(1, "two", None)) as pool:
        assert pool.submit(after_initializer).result() == (1, "two", None)
        found = [result.value for result in pool.map_with_error_catching(slow_summation, range(4))]
        assert found == [fast_summation(n) for n in range(4)]
        (failed,) = pool.map_with_error_catching(call_py_ffi, [1])
        assert failed.status is StatusKind.EXCEPTION and "testing.nested_identity_py" in str(failed.value)


def test_workers_outlive_their_functions():
    worker = PopenWorker()
    with pytest.raises(ValueError, match="nothing was sent to the worker"):
        worker.recv()
    worker.send(timeout_job, [60], timeout=0.01)
    with pytest.raises(TimeoutError, match=r"took longer than 0.01 s"):
        worker.recv()
    assert not worker.is_alive()
    worker.send(terminate_self)
    with pytest.raises(ChildProcessError, match="ended before it answered"):
        worker.recv()
    worker.send(identity_after, ["again", 0])
    assert worker.recv() == "again" and worker.is_alive()
    worker.join()
    assert not worker.is_alive()


def test_functions_inside_of_others_are_sent_by_the_package_for_it(monkeypatch: pytest.MonkeyPatch):
    def inner():
        raise AssertionError("it is not called here")

    sent = []

    def dumps(call):
        sent.append(call)
        return pickle.dumps((identity_after, ("by value", 0), {}))

    worker = PopenWorker()
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(TypeMismatch, match=r"Can't .*inner.*sent where the package cloudpickle is installed"):
        worker.send(inner)
    assert not worker.is_alive(), "nothing was started for it"
    monkeypatch.setitem(sys.modules, "cloudpickle", SimpleNamespace(dumps=dumps))
    worker.send(inner, [1], {"a": 2})
    assert worker.recv() == "by value"
    assert sent == [(inner, (1,), {"a": 2})]
    worker.send(identity_after, ["by name", 0])
    assert worker.recv() == "by name" and len(sent) == 1
