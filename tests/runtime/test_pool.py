"""The worker pool: every iteration runs exactly once, whoever runs it, and errors, forks and odd numbers do no harm."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import subprocess
import sys
import threading

import pytest

from oneir.runtime import llvm, num_threads, set_num_threads
from oneir.runtime.error import InvalidValue
from oneir.runtime.object_file import read_symbols
from oneir.runtime.pool import cgroup_cpu_limit, parallel_for_address, pool_ir, use_team

BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(ctypes.c_int32, BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)

# Natively: each iteration adds 1 to its counter, atomically, so that iterations run twice would show.
COUNTING = """
declare i32 @oneir_parallel_for(ptr, ptr, i64, i32)

define i32 @count(ptr %counters, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %at = getelementptr i32, ptr %counters, i64 %i
  %old = atomicrmw add ptr %at, i32 1 monotonic
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}

define i32 @regions(ptr %counters, i64 %extent, i32 %threads, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i32 [ 0, %entry ], [ %sum.next, %loop ]
  %result = call i32 @oneir_parallel_for(ptr @count, ptr %counters, i64 %extent, i32 %threads)
  %sum.next = add i32 %sum, %result
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret i32 %sum.next
}
"""


@pytest.fixture(scope="module")
def regions():
    """regions(counters, extent, threads, times): natively, one region after the other."""
    loaded = llvm.link(llvm.compile_ir(COUNTING, name="counting"))
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64)
    function = kind(loaded.symbol("regions"))
    yield function
    del loaded


@pytest.fixture
def threads():
    """As many threads as a test likes; the number is put back afterwards."""
    before = num_threads()
    yield set_num_threads
    set_num_threads(before)


def parallel_for(body, extent: int, max_threads: int = 0) -> int:
    return PARALLEL_FOR(parallel_for_address())(BODY(body), None, extent, max_threads)


@pytest.mark.parametrize("max_threads", [0, 1, 2, 3, 7, 256, 100_000, -1])
@pytest.mark.parametrize("extent", [1, 2, 3, 5, 16, 97, 1000, 65_537])
def test_every_iteration_runs_once(regions, extent, max_threads):
    counters = (ctypes.c_int32 * extent)()
    assert regions(counters, extent, max_threads, 50) == 0
    assert set(counters) == {50}


@pytest.mark.parametrize("extent", [0, -1, -(2**63)])
def test_without_iterations_the_body_is_not_called(extent):
    assert parallel_for(lambda *_: 1, extent) == 0


def test_a_huge_extent_is_cut_without_overflow(threads):
    threads(3)
    pieces = []
    extent = 2**63 - 1

    def body(_env, begin, end):
        pieces.append((begin, end))
        return 0

    assert parallel_for(body, extent) == 0
    pieces.sort()
    assert pieces[0][0] == 0
    assert pieces[-1][1] == extent
    assert all(left[1] == right[0] for left, right in itertools.pairwise(pieces))


def test_workers_do_take_part(threads):
    threads(3)
    others = set()

    def body(_env, begin, end):
        if threading.get_ident() == caller:
            found.wait(0.05)  # leave the rest to a worker for a moment
        else:
            others.add(threading.get_ident())
            found.set()
        return 0

    caller = threading.get_ident()
    found = threading.Event()
    for _ in range(200):
        parallel_for(body, 64)
        if others:
            break
    assert 1 <= len(others) <= 2


def test_two_iterations_are_shared_again_after_a_loop_that_lost_time(threads):
    threads(2)
    late, together, both = threading.Event(), threading.Event(), threading.Barrier(2)

    def waits_for_the_worker(_env, begin, end):
        if threading.get_ident() == caller:
            late.wait(0.05)
        else:
            late.set()
            together.wait(0.01)
        return 0

    def meets(_env, begin, end):
        try:
            both.wait(0.05)
            together.set()
        except threading.BrokenBarrierError:
            both.reset()
        return 0

    caller = threading.get_ident()
    while not late.is_set():
        parallel_for(waits_for_the_worker, 2)
    for _ in range(20):
        parallel_for(meets, 2)
    assert together.is_set()


def test_one_thread_means_the_caller(threads):
    threads(1)
    seen = set()
    parallel_for(lambda *_: seen.add(threading.get_ident()) or 0, 100)
    threads(4)
    parallel_for(lambda *_: seen.add(threading.get_ident()) or 0, 100, max_threads=1)
    assert seen == {threading.get_ident()}


def test_an_error_is_the_result_and_stops_the_rest(threads):
    threads(2)
    ran = []

    def body(_env, begin, end):
        ran.extend(range(begin, end))
        return 7 if begin <= 0 < end else 0

    assert parallel_for(body, 1) == 7
    for _ in range(20):
        assert parallel_for(body, 1000) == 7
    assert parallel_for(lambda *_: 0, 1000) == 0  # a later region does not see it


def test_an_error_in_the_last_iteration_is_the_result(threads):
    threads(4)
    for _ in range(50):
        assert parallel_for(lambda _env, begin, end: -3 if end == 5000 else 0, 5000) == -3


def test_nested_regions_run_whole(threads):
    threads(2)
    extent = 12
    counters = [[0] * extent for _ in range(extent)]

    def outer(_env, begin, end):
        for i in range(begin, end):

            def inner(_env, inner_begin, inner_end, i=i):
                for j in range(inner_begin, inner_end):
                    counters[i][j] += 1
                return 0

            assert parallel_for(inner, extent) == 0
        return 0

    for _ in range(10):
        assert parallel_for(outer, extent) == 0
    assert counters == [[10] * extent for _ in range(extent)]


def test_an_error_in_a_nested_region_comes_out():
    assert parallel_for(lambda *_: parallel_for(lambda *_: 9, 10), 10) == 9


def test_eight_callers_at_once(regions, threads):
    threads(3)
    failures = []

    def caller(extent):
        counters = (ctypes.c_int32 * extent)()
        if regions(counters, extent, 0, 300) != 0 or set(counters) != {300}:
            failures.append(extent)

    callers = [threading.Thread(target=caller, args=(50 + number,)) for number in range(8)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert failures == []


def test_more_threads_and_fewer(regions, threads):
    for count in (4, 2, 6, 1, 3):
        threads(count)
        assert num_threads() == count
        counters = (ctypes.c_int32 * 100)()
        assert regions(counters, 100, 0, 20) == 0
        assert set(counters) == {20}


FORKING = """
import os, sys, threading
import ctypes
sys.path.insert(0, {tests!r})
import test_pool
from oneir.runtime import set_num_threads
set_num_threads(3)

def works():
    counts = [0] * 200
    def body(env, begin, end):
        for i in range(begin, end):
            counts[i] += 1
        return 0
    return all(test_pool.parallel_for(body, 200) == 0 for _ in range(20)) and counts == [20] * 200

assert works()
for generation in range(3):  # children of children, too
    child = os.fork()
    if child:
        ok = works() and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os._exit(0 if ok else 1)
    if not works():
        os._exit(1)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_children_of_fork_have_workers_of_their_own():
    code = FORKING.format(tests=os.path.dirname(__file__))
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_process_ends_with_workers_asleep_or_spinning():
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_pool; "
    code += "test_pool.parallel_for(lambda *_: 0, 100, 4)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
PARALLEL = ctypes.CFUNCTYPE(None, MEMBER, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
NUMBER = ctypes.CFUNCTYPE(ctypes.c_int32)


class Team:
    """An OpenMP of `size` threads, each of them a new one in every region, but for the caller."""

    def __init__(self, size: int):
        self.size, self.regions, self.here = size, 0, threading.local()
        self.members: set[int] = set()
        self.parallel, self.number = PARALLEL(self._run), NUMBER(lambda: self.here.number)

    def use(self):
        use_team(*(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (self.parallel, self.number)))

    def _run(self, member, data, _asked, _flags):
        self.regions += 1
        others = [threading.Thread(target=self._member, args=(member, data, i)) for i in range(1, self.size)]
        for thread in others:
            thread.start()
        self._member(member, data, 0)
        for thread in others:
            thread.join()

    def _member(self, member, data, number):
        self.here.number = number
        self.members.add(number)
        member(data)


@pytest.fixture
def team():
    """team(size): loops of the main thread run on such a team, until the end of the test."""
    kept = []

    def use(size: int) -> Team:
        kept.append(Team(size))
        kept[-1].use()
        return kept[-1]

    yield use
    use_team(0, 0)


@pytest.mark.parametrize(("size", "wanted"), [(1, 4), (2, 2), (3, 8), (8, 3)])
def test_a_team_runs_the_loops_of_the_main_thread(regions, threads, team, size, wanted):
    threads(wanted)
    found = team(size)
    while found.regions < 3:  # loops run alone for as long as others lost time before
        counters = (ctypes.c_int32 * 999)()
        assert regions(counters, 999, 0, 30) == 0
        assert set(counters) == {30}


def test_no_more_threads_of_a_team_take_part_than_the_loop_wants(threads, team):
    threads(2)
    found, ran = team(5), set()

    def body(_env, begin, end):
        ran.add(getattr(found.here, "number", 0))
        return 0

    while found.regions < 3:
        parallel_for(body, 64)
    assert ran <= {0, 1}
    assert len(found.members) > 2


def test_an_error_on_a_teams_thread_is_the_result(threads, team):
    threads(3)
    team(3)
    for _ in range(20):
        assert parallel_for(lambda _env, begin, end: -3 if end == 500 else 0, 500) == -3
    assert parallel_for(lambda *_: 0, 500) == 0


def test_loops_of_other_threads_have_workers_beside_a_team(regions, threads, team):
    threads(3)
    found, counters, results = team(3), (ctypes.c_int32 * 100)(), []
    other = threading.Thread(target=lambda: results.append(regions(counters, 100, 0, 20)))
    other.start()
    other.join()
    assert results == [0]
    assert (set(counters), found.regions) == ({20}, 0)


def test_loops_inside_of_a_teams_loop_run_whole(threads, team):
    threads(2)
    found, counts = team(2), []

    def inner(_env, begin, end):
        counts.append(end - begin)
        return 0

    assert parallel_for(lambda _env, begin, end: parallel_for(inner, end - begin), 40) == 0
    assert sum(counts) == 40
    assert found.regions <= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_fork_has_no_team():
    code = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_pool
test_pool.set_num_threads(2)
team = test_pool.Team(2)
team.use()
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for _ in range(20):
    assert test_pool.parallel_for(lambda *_: 0, 100) == 0
os._exit(0 if team.regions == 0 else 1)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


ROUNDING = """
define i32 @third(ptr %out, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %x = load volatile float, ptr @tiny
  %y = fmul float %x, 0.5
  %at = getelementptr float, ptr %out, i64 %i
  store float %y, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
@tiny = global float 0x3810000000000000 ; the smallest normal number: half of it is denormal
"""


@pytest.mark.parametrize("on_a_team", [False, True])
def test_denormals_are_treated_alike_by_all_threads(threads, team, on_a_team):
    threads(4)
    torch = pytest.importorskip("torch")
    if on_a_team:
        team(4)
    loaded = llvm.link(llvm.compile_ir(ROUNDING, name="rounding"))
    body, run = BODY(loaded.symbol("third")), PARALLEL_FOR(parallel_for_address())
    for flush in (False, True, False):
        if not torch.set_flush_denormal(flush):
            pytest.skip("the processor cannot flush denormals")
        for _ in range(20):
            out = (ctypes.c_float * 4096)()
            assert run(body, out, 4096, 0) == 0
            assert {value == 0.0 for value in out} == {flush}


@pytest.mark.parametrize("count", [0, -1, 257, 2.0, "4", None])
def test_impossible_numbers_of_threads_are_refused(count):
    with pytest.raises(InvalidValue, match="must be an integer from 1 to 256; found"):
        set_num_threads(count)


@pytest.mark.parametrize(
    ("value", "expected"), [("3", "3"), ("5,2", "5"), ("1000", "256"), ("0", None), ("many", None), ("-2", None)]
)
def test_the_environment_chooses_the_number_of_threads(value, expected):
    code = "from oneir.runtime import num_threads; print(num_threads())"
    unset = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}

    def threads_with(environment):
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert threads_with(unset | {"OMP_NUM_THREADS": value}) == (expected or threads_with(unset))


def test_control_groups_limit_the_number_of_threads(tmp_path):
    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    assert cgroup_cpu_limit(tmp_path) == math.inf
    write("proc/self/cgroup", "0::/outer/inner\n")
    assert cgroup_cpu_limit(tmp_path) == math.inf
    write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n")
    assert cgroup_cpu_limit(tmp_path) == math.inf
    write("sys/fs/cgroup/outer/cpu.max", "250000 100000\n")
    assert cgroup_cpu_limit(tmp_path) == 2.5
    write("sys/fs/cgroup/outer/inner/cpu.max", "150000 100000\n")
    assert cgroup_cpu_limit(tmp_path) == 1.5


def test_control_groups_of_the_first_version(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/job\n3:cpu,cpuacct:/not/visible\n1:name=systemd:/job\n")
    folder = tmp_path / "sys/fs/cgroup/cpu"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert cgroup_cpu_limit(tmp_path) == math.inf
    (folder / "cpu.cfs_quota_us").write_text("300000\n")
    assert cgroup_cpu_limit(tmp_path) == 3


@pytest.mark.parametrize(
    ("system", "machine", "triple"),
    [
        ("linux", "x86_64", "x86_64-linux-gnu"),
        ("linux", "aarch64", "aarch64-linux-gnu"),
        ("darwin", "aarch64", "arm64-apple-macosx13"),
        ("win32", "x86_64", "x86_64-pc-windows-msvc-elf"),
        ("linux", "riscv64", "riscv64-linux-gnu"),
    ],
)
def test_the_pool_compiles_for_other_systems(system, machine, triple):
    symbols = read_symbols(llvm.compile_ir(pool_ir(system, machine), name="pool", triple=triple))
    entries = {"oneir_parallel_for", "oneir_pool_configure", "oneir_pool_after_fork", "oneir_pool_use_team"}
    assert entries <= symbols.defined
    assert ("pthread_create" in symbols.undefined) == (system in ("linux", "darwin") and machine != "riscv64")
