"""Parallel regions: every iteration once, errors passed on, callers that nest, compete and fork."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from oneir.runtime import llvm, num_threads, set_num_threads
from oneir.runtime.error import InvalidValue
from oneir.runtime.pool import cgroup_cpu_limit, parallel_for_address, pool_ir

BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
COUNT = """
declare i32 @oneir_parallel_for(ptr, ptr, i64, i32)

; Adds 1 to every element of a row of int32; fails with the index + 1 of an element that is 7 before.
define internal i32 @add(ptr %row, i64 %begin, i64 %end) {
entry:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %fine ]
  %at = getelementptr i32, ptr %row, i64 %i
  %old = load i32, ptr %at
  %seven = icmp eq i32 %old, 7
  br i1 %seven, label %failed, label %fine
failed:
  ret i32 -5
fine:
  %new = add i32 %old, 1
  store i32 %new, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}

define i32 @count(ptr %row, i64 %extent, i32 %threads) {
  %code = call i32 @oneir_parallel_for(ptr @add, ptr %row, i64 %extent, i32 %threads)
  ret i32 %code
}
"""


@pytest.fixture(scope="module")
def count():
    code = llvm.link(llvm.compile_ir(COUNT, name="count"))
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)(code.symbol("count"))
    function.code = code
    return function


@pytest.fixture
def four_threads():
    before = num_threads()
    set_num_threads(4)
    yield
    set_num_threads(before)


@pytest.mark.parametrize("threads", [0, 1, 2, 3, 100])
def test_every_iteration_runs_once(count, four_threads, threads):
    for extent in (0, 1, 2, 3, 5, 16, 1000, 100_003):
        row = np.zeros(extent + 1, "int32")
        assert count(row.ctypes.data, extent, threads) == 0
        assert (row[:extent] == 1).all() and row[extent] == 0


def test_a_negative_extent_is_an_empty_one(count):
    assert count(None, -3, 0) == 0


def test_the_first_failure_is_the_result(count, four_threads):
    row = np.zeros(10_000, "int32")
    row[9_000] = 7
    for _ in range(50):
        assert count(row.ctypes.data, 10_000, 0) == -5
        row[:9_000] = 0
        row[9_001:] = 0


def test_eight_callers_at_once(count, four_threads):
    rows = [np.full(5_000, 100, "int32") for _ in range(8)]

    def work(row):
        for _ in range(300):
            assert count(row.ctypes.data, len(row), 0) == 0

    threads = [threading.Thread(target=work, args=(row,)) for row in rows]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((row == 400).all() for row in rows)


def test_a_nested_region_runs_in_its_caller(count, four_threads):
    parallel_for = ctypes.CFUNCTYPE(ctypes.c_int32, BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)(
        parallel_for_address()
    )
    rows = np.zeros((40, 100), "int32")

    @BODY
    def outer(env, begin, end):
        return sum(count(rows[i].ctypes.data, 100, 0) for i in range(begin, end))

    assert parallel_for(outer, None, 40, 0) == 0
    assert (rows == 1).all()


def test_a_child_of_fork_starts_its_own_workers(tmp_path):
    code = """
import os
import numpy as np
import oneir
from oneir.script import tir as T

@T.prim_func
def f(A: T.Buffer((1000,), "int32")):
    for i in T.parallel(1000):
        A[i] = A[i] + 1

built = oneir.build(f)
oneir.runtime.set_num_threads(3)
a = np.zeros(1000, "int32")
built(a)
for _ in range(3):
    child = os.fork()
    if child == 0:
        for _ in range(20):
            built(a)
        os._exit(0 if (a == 21).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
built(a)
assert (a == 2).all()
print("fine")
"""
    script = tmp_path / "forks.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "fine\n", done.stderr


def test_the_number_of_threads_follows_the_environment():
    code = "import oneir.runtime; print(oneir.runtime.num_threads())"
    for value, expected in (("3", "3"), ("5,2", "5"), ("100000", "256")):
        environment = {**os.environ, "OMP_NUM_THREADS": value}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert done.stdout.strip() == expected


def test_control_groups_limit_the_threads(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    (tmp_path / "sys/fs/cgroup/a/b").mkdir(parents=True)
    assert cgroup_cpu_limit(tmp_path) == float("inf")
    (tmp_path / "sys/fs/cgroup/a/cpu.max").write_text("150000 100000\n")
    (tmp_path / "sys/fs/cgroup/a/b/cpu.max").write_text("max 100000\n")
    assert cgroup_cpu_limit(tmp_path) == 1.5


def test_unusable_numbers_of_threads_are_refused():
    for bad in (0, -1, 257, "2", 1.5):
        with pytest.raises(InvalidValue, match="must be an integer from 1 to 256"):
            set_num_threads(bad)


@pytest.mark.parametrize(
    ("system", "machine"), [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "aarch64"), ("sunos", "sparc")]
)
def test_the_pool_is_valid_code_for_every_machine(system, machine):
    triple = {"aarch64": "aarch64-linux-gnu", "x86_64": "x86_64-linux-gnu", "sparc": "x86_64-linux-gnu"}[machine]
    assert "oneir_parallel_for" in llvm.optimize(pool_ir(system, machine), name="pool", triple=triple, passes="none")
