"""What programs leave behind when they are dropped: nothing, counted in bytes of the C library's heap and in mappings."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import oneir
from oneir.runtime import callback, llvm, load_module
from oneir.script import from_source
from oneir.script import tir as T

NEXT = """
define i32 @next{number}(i32 %x) {{
  %y = add i32 %x, 1
  ret i32 %y
}}
"""


class Heap(ctypes.Structure):
    """What mallinfo2 tells."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    )


def bytes_in_use() -> int:
    """Of the C library's heap, where LLVM's memory is."""
    function = ctypes.CDLL(None).mallinfo2
    function.restype = Heap
    gc.collect()
    heap = function()
    return heap.uordblks + heap.hblkhd


def growth(work, warm_up: int, count: int) -> float:
    """The bytes that each call of `work(number)` leaves."""
    for number in range(warm_up):
        work(number)
    before = bytes_in_use()
    for number in range(warm_up, warm_up + count):
        work(number)
    return (bytes_in_use() - before) / count


needs_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library has no mallinfo2")


@needs_glibc
def test_linked_code_that_is_dropped_leaves_nothing():
    code = llvm.compile_ir(NEXT.format(number=0), name="next")
    assert growth(lambda number: llvm.link(code).symbol("next0"), 32, 320) < 100


@needs_glibc
def test_what_is_held_is_counted():
    """Otherwise the test above proves nothing."""
    code, held = llvm.compile_ir(NEXT.format(number=0), name="next"), []
    assert growth(lambda number: held.append(llvm.link(code)), 32, 64) > 1000


@needs_glibc
def test_compiling_leaves_nothing():
    def compile_one(number):
        llvm.compile_ir(NEXT.format(number=number), name="next")

    # One builder of passes for 16 modules, which llvmlite does not free as a whole.
    assert growth(compile_one, 32, 160) < 300


def test_a_shared_library_is_unloaded_with_its_last_function(tmp_path):
    @T.prim_func
    def double(A: T.Buffer((64,), "float32")):
        for i in range(64):
            A[i] = A[i] * T.float32(2)

    path = tmp_path / "double.so"
    oneir.compile(double, target="llvm").export_library(path)

    def is_loaded() -> bool:
        gc.collect()
        return str(path) in Path("/proc/self/maps").read_text()

    function = load_module(path)["double"]
    assert is_loaded()
    a = np.ones(64, "float32")
    function(a)
    assert (a == 2).all()
    del function
    assert not is_loaded()
    load_module(path)["double"](a)
    assert (a == 4).all() and not is_loaded()


def test_dropping_a_program_does_not_wait_for_a_thread_in_llvm():
    code = llvm.compile_ir(NEXT.format(number=0), name="next")
    held, inside, leave = [llvm.link(code)], threading.Event(), threading.Event()

    def stay_in_llvm():
        with llvm._lock:
            inside.set()
            leave.wait(60)

    busy = threading.Thread(target=stay_in_llvm)
    busy.start()
    inside.wait(60)
    dropper = threading.Thread(target=held.clear)
    dropper.start()
    dropper.join(30)
    waits = dropper.is_alive()
    assert len(llvm._lock._dead) == 1
    leave.set()
    busy.join()
    assert not waits and not llvm._lock._dead


FORK_WHILE_AN_OBJECT_DIES = """
import os, sys, threading, time
import llvmlite.binding.ffi as ffi
from oneir.runtime import llvm

llvm.host_triple()
inside = threading.Event()

def die():
    with ffi.lib._lock:
        inside.set()
        time.sleep(0.3)

thread = threading.Thread(target=die)
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    os._exit(not ffi.lib._lock._lock.acquire(timeout=5))
thread.join()
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


def test_a_fork_waits_for_a_thread_that_is_in_llvmlite_alone():
    """Objects of llvmlite may die in any thread, under llvmlite's lock and not ours."""
    assert subprocess.run([sys.executable, "-c", FORK_WHILE_AN_OBJECT_DIES], check=False).returncode == 0


def test_of_what_several_workers_raise_one_is_raised_and_none_is_kept():
    met = threading.Barrier(2)

    @oneir.register_func("tests.life_cycle.raise", override=True)
    def fail(number: int) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            met.wait(0.05)  # two workers at once, where there are two
        met.reset()
        raise LookupError(f"piece {number}")

    program = oneir.compile(
        from_source(
            """
@T.prim_func
def ask(A: T.Buffer((64,), "float32")):
    for i in T.parallel(64):
        T.evaluate(T.call_packed("tests.life_cycle.raise", i))
"""
        ),
        target="llvm",
    )
    for _ in range(100):
        with pytest.raises(LookupError, match=r"^piece \d+$"):
            program["ask"](np.zeros(64, "float32"))
    assert not callback._stashed
