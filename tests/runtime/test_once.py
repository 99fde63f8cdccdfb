"""Things made once, locks that survive a fork, and settings that several threads need: with threads, and with fork."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
import threading
import time

import pytest

from oneir.driver.collection import no_collection
from oneir.ir.visitor import deep_recursion
from oneir.runtime.once import _IMPORT_SECONDS, ProcessSetting, new_lock, once


def in_threads(work, count=8):
    """Runs `work(number)` in some threads at once; what they returned."""
    results, barrier = [None] * count, threading.Barrier(count)

    def run(number):
        barrier.wait()
        results[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_child(work):
    """The exit code of a child of fork that runs `work`; 7 if it is true what it returned."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 7 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def slow_maker():
    made = []

    def make(key):
        time.sleep(0.05)  # so that all threads arrive while the first one works
        made.append(key)
        return object()

    return make, made


def test_eight_threads_get_one_object():
    make, made = slow_maker()
    shared = once(make)
    results = in_threads(lambda number: shared("a"))
    assert len(set(map(id, results))) == 1 and made == ["a"]


def test_what_once_replaces_makes_it_more_than_once():
    """Otherwise the test above proves nothing."""
    make, made = slow_maker()
    cached = functools.cache(make)
    in_threads(lambda number: cached("a"))
    assert len(made) > 1


def test_each_argument_is_made_once():
    make, made = slow_maker()
    shared = once(make)
    in_threads(lambda number: shared(number % 3), count=6)
    assert sorted(made) == [0, 1, 2] and shared.made(1) and not shared.made(5)


def test_a_maker_that_raises_leaves_nothing_and_is_tried_again():
    attempts = []

    @once
    def make():
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "done"

    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            make()
    assert not make.made()
    assert make() == make() == "done" and len(attempts) == 3


def test_arguments_by_name_are_refused():
    with pytest.raises(TypeError, match="make takes its arguments by position, found key"):
        once(slow_maker()[0])(key=1)


def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have():
    started, finish = threading.Event(), threading.Event()

    @once
    def make():
        if not started.is_set():
            started.set()
            finish.wait(30)
        return os.getpid()

    lock = new_lock()
    thread = threading.Thread(target=lambda: (lock.acquire(), make(), lock.release()))
    thread.start()
    started.wait(30)
    try:
        assert in_child(lambda: lock.acquire(timeout=5) and make() == os.getpid()) == 7
    finally:
        finish.set()
        thread.join()


def test_a_setting_is_changed_by_the_first_and_restored_by_the_last():
    events = []
    setting = ProcessSetting(lambda: events.append("change") or "before", lambda before: events.append(before))
    inside, leave = threading.Barrier(3), threading.Event()

    def hold():
        with setting, setting:
            inside.wait()
            leave.wait(30)

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    with setting:
        assert events == ["change"]
    leave.set()
    for thread in threads:
        thread.join()
    assert events == ["change", "before"]
    with setting:
        assert events == ["change", "before", "change"]


def test_a_walk_keeps_the_recursion_limit_while_another_one_ends():
    limit, entered, go = sys.getrecursionlimit(), threading.Event(), threading.Event()
    seen = []

    def walk():
        with deep_recursion:
            entered.set()
            go.wait(30)
            seen.append(sys.getrecursionlimit())

    thread = threading.Thread(target=walk)
    with deep_recursion:
        thread.start()
        entered.wait(30)
    go.set()
    thread.join()
    assert seen[0] > 100_000 and sys.getrecursionlimit() == limit


def test_a_child_does_not_hold_what_other_threads_of_its_parent_held():
    limit, entered, go = sys.getrecursionlimit(), threading.Event(), threading.Event()

    def walk():
        with deep_recursion, no_collection:
            entered.set()
            go.wait(30)

    thread = threading.Thread(target=walk)
    thread.start()
    entered.wait(30)
    try:
        assert in_child(lambda: sys.getrecursionlimit() == limit) == 7
    finally:
        go.set()
        thread.join()


def test_a_limit_that_the_program_sets_meanwhile_stays():
    limit = sys.getrecursionlimit()
    try:
        with deep_recursion:
            sys.setrecursionlimit(500_000)
        assert sys.getrecursionlimit() == 500_000
    finally:
        sys.setrecursionlimit(limit)


@pytest.fixture
def slow_module(tmp_path, monkeypatch):
    """The name of a module that says in a file that its import has begun, and takes a while from there."""
    begun = tmp_path / "begun"
    source = f"import pathlib, time\npathlib.Path({str(begun)!r}).touch()\ntime.sleep(0.3)\nready = True\n"
    (tmp_path / "imported_slowly.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    yield "imported_slowly", begun
    sys.modules.pop("imported_slowly", None)


def test_a_fork_waits_for_the_import_of_another_thread(slow_module):
    name, begun = slow_module
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    while not begun.exists():
        time.sleep(0.001)

    def import_it():
        signal.alarm(10)  # ends the child, which would wait forever for a thread that it does not have
        return importlib.import_module(name).ready

    assert in_child(import_it) == 7
    thread.join()


def test_a_fork_within_an_import_does_not_wait_for_it(tmp_path, monkeypatch):
    source = "import os, time\nbefore = time.monotonic()\nchild = os.fork()\nif child == 0: os._exit(7)\n"
    (tmp_path / "forks_itself.py").write_text(
        source + "code = os.waitpid(child, 0)[1]\ntook = time.monotonic() - before\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("forks_itself")
    sys.modules.pop("forks_itself")
    assert os.waitstatus_to_exitcode(module.code) == 7
    assert module.took < _IMPORT_SECONDS
