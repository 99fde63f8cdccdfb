"""Sessions: calls, values and copies, errors and ends of workers, and what is left of a session."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import weakref

import disco_functions
import numpy as np
import pytest

import oneir
from oneir.runtime import ShapeTuple, disco
from oneir.runtime.disco import session as controller
from oneir.runtime.error import ExecutionError, InvalidValue, NotInitialized, TypeMismatch

KINDS = [disco.ThreadedSession, disco.ProcessSession]


def make(kind, workers=2, **options):
    session = kind(workers, **options)
    session.import_python_module("disco_functions")
    session.init_ccl("cpu")
    return session


@pytest.fixture(scope="module", params=KINDS)
def session(request):
    with make(request.param) as made:
        yield made


def test_values_arrive_on_all_workers_as_they_are(session):
    given = (1, 2.5, "text", b"bytes", None, True, ShapeTuple([1, 2]), oneir.cpu())
    found = session.get_global_func("tests.disco.describe")(*given)
    expected = ", ".join(f"{type(arg).__name__} {arg!r}" for arg in given)
    assert [found.debug_get_from_remote(rank) for rank in range(2)] == [expected] * 2


def test_results_are_arguments_of_later_calls(session):
    rank = session.get_global_func("runtime.disco.worker_rank")()
    found = session.call_packed(session.get_global_func("tests.disco.describe"), rank, rank)
    assert [found.debug_get_from_remote(i) for i in range(2)] == ["int 0, int 0", "int 1, int 1"]
    assert list(session.get_global_func("runtime.disco.worker_id")().debug_get_from_remote(1)) == [1]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int64"])
def test_copies_to_and_from_worker_0(session, dtype):
    array = oneir.runtime.empty((2, 3), dtype).copyfrom(np.arange(6).reshape(2, 3))
    there = session.empty((2, 3), dtype)
    session.copy_to_worker_0(array, there)
    back = oneir.runtime.empty((2, 3), dtype)
    session.copy_from_worker_0(back, there)
    session.sync_worker_0()
    np.testing.assert_array_equal(back.numpy(), array.numpy())
    there.debug_copy_from(1, np.zeros((2, 3), array.numpy().dtype))
    assert not there.debug_get_from_remote(1).numpy().any()


def test_only_the_first_worker_has_what_is_its_own(session):
    ref = session.empty((3,), "float32", worker0_only=True)
    assert ref.debug_get_from_remote(0).shape == (3,) and ref.debug_get_from_remote(1) is None


def test_a_worker_may_have_a_session_of_its_own(session):
    found = session.get_global_func("tests.disco.nested")()
    assert [found.debug_get_from_remote(rank) for rank in range(2)] == [6.0, 6.0]


def test_a_question_that_is_refused_leaves_the_session_as_it_is(session):
    ref = session.empty((3,), "float32")
    with pytest.raises(ExecutionError, match=r"worker 0 raised ShapeMismatch: .*expected an array of shape \(3,\)"):
        session.copy_to_worker_0(np.zeros(4, "float32"), ref)
    with pytest.raises(
        ExecutionError, match="worker 0 raised TypeMismatch: expected a tensor on the worker, found str"
    ):
        session.copy_from_worker_0(np.zeros(4), session.get_global_func("tests.disco.describe")(1))
    session.sync_worker_0()


def test_what_cannot_be_sent_is_refused(session):
    describe = session.get_global_func("tests.disco.describe")
    with pytest.raises(TypeMismatch, match="found ndarray; copy_to_worker_0 copies a tensor there"):
        describe(np.zeros(3))
    with disco.ThreadedSession(1) as other, pytest.raises(InvalidValue, match="found a value of another session"):
        describe(other.empty((1,), "float32"))
    with pytest.raises(TypeMismatch, match="expected a function of the workers, found function"):
        session.call_packed(lambda: 0)
    with pytest.raises(InvalidValue, match="expected a worker from 0 to 1, found 2"):
        describe(1).debug_get_from_remote(2)


def test_a_value_is_freed_on_the_workers_with_its_reference():
    with make(disco.ThreadedSession) as session:
        ref = session.empty((3,), "float32")
        alive = weakref.ref(ref.debug_get_from_remote(1))
        del ref
        session.empty((1,), "float32").debug_get_from_remote(1)
        gc.collect()
        assert alive() is None


def test_groups_must_be_of_one_size():
    for workers, groups, message in (
        (0, 1, "num_workers: expected a positive integer, found 0"),
        (2, 2.0, "num_groups: expected a positive integer, found 2.0"),
        (3, 2, "3 workers cannot be 2 groups of one size"),
    ):
        with pytest.raises(InvalidValue, match=message):
            disco.ThreadedSession(workers, groups)


def test_functions_of_workers_are_not_for_others():
    with pytest.raises(NotInitialized, match="this is a function for the workers of a session"):
        oneir.get_global_func("runtime.disco.worker_rank")()


# -- errors and ends --


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_a_worker_ends_the_session_also_for_those_who_wait_for_it(kind):
    session = make(kind, 3)
    x = session.empty((1,), "float32")
    session.get_global_func("tests.disco.fail_on")(1)
    session.allreduce(x, x)  # in which the others wait for worker 1
    with pytest.raises(ExecutionError, match=r"^worker 1 raised ValueError: a reason of its own") as error:
        session.sync_worker_0()
    assert any("in fail_on" in note for note in error.value.__notes__)
    with pytest.raises(ExecutionError, match="worker 1 raised ValueError"):
        session.allreduce(x, x)
    session.shutdown()


def test_an_error_is_raised_at_the_end_at_the_latest():
    session = make(disco.ThreadedSession)
    session.get_global_func("tests.disco.fail_on")(1)
    with pytest.raises(ExecutionError, match="worker 1 raised ValueError: a reason of its own"):
        session.shutdown()


def test_a_process_that_ends_is_noticed_by_all():
    session = make(disco.ProcessSession)
    pids = session.get_global_func("tests.disco.pid")()
    found = [pids.debug_get_from_remote(rank) for rank in range(2)]
    x = session.empty((1,), "float32")
    session.allreduce(x, x)
    session.sync_worker_0()
    session.get_global_func("tests.disco.exit_on")(1)
    # Noticed when the next call is sent, or by those that wait for it.
    with pytest.raises(ExecutionError, match=r"^worker 1 has ended with the exit status 3"):
        session.allreduce(x, x)
        session.sync_worker_0()
    for pid in found:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def shared_memory():
    """The files of memory that sessions of this process have, by their numbers."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            if "oneir-disco" in os.readlink(f"/proc/self/fd/{number}"):
                found.add(number)
    return found


def test_a_process_that_is_killed_is_noticed_and_nothing_is_left():
    gc.collect()
    before = shared_memory()
    session = make(disco.ProcessSession)
    pids = session.get_global_func("tests.disco.pid")()
    x = session.empty((1000,), "float32")
    session.copy_to_worker_0(np.zeros(1000, "float32"), x)
    assert shared_memory() > before
    os.kill(pids.debug_get_from_remote(0), signal.SIGKILL)
    session.allreduce(x, x)
    with pytest.raises(ExecutionError, match=r"^worker 0 was ended by SIGKILL"):
        session.sync_worker_0()
    del x, pids, session
    gc.collect()
    assert shared_memory() == before


def test_a_worker_that_does_not_answer_in_time(monkeypatch):
    monkeypatch.setattr(controller, "GRACE_SECONDS", 0.1)
    session = make(disco.ThreadedSession, timeout=0.2)
    disco_functions.released.clear()
    try:
        session.get_global_func("tests.disco.wait")()
        with pytest.raises(ExecutionError, match=r"worker 0 has not answered for 0\.2 seconds"):
            session.sync_worker_0()
    finally:
        disco_functions.released.set()


def test_a_session_that_was_shut_down_is_refused():
    session = make(disco.ThreadedSession)
    session.shutdown()
    session.shutdown()
    with pytest.raises(ExecutionError, match="the session has been shut down"):
        session.sync_worker_0()


def test_a_child_of_fork_has_no_part_in_the_session():
    session = make(disco.ProcessSession)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            session.sync_worker_0()
        except ExecutionError as error:
            os.write(writing, str(error).encode())
        finally:
            session.shutdown()
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000) == b"the session is that of the process which has forked this one"
    os.close(reading)
    os.close(writing)
    session.sync_worker_0()
    session.shutdown()
    assert [worker.returncode for worker in session._processes] == [0, 0]


def test_processes_that_cannot_start_are_told():
    session = disco.ProcessSession(1, entrypoint="no_such_module_of_workers")
    with pytest.raises(ExecutionError, match=r"^worker 0 has ended with the exit status 1"):
        session.sync_worker_0()
