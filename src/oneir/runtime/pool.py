"""The worker pool of this process: its native entry for compiled loops, and its threads.

Compiled code calls `oneir_parallel_for`, written in LLVM IR in `pool.ll`, where its design is explained; here are the
pieces that differ between machines, the number of threads, and whose they are. The pool is made when the first program
that has a parallel loop is loaded; threads start when a loop first wants them.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
from pathlib import Path

from .clock import now_ir
from .error import InvalidValue
from .llvm import LoadedObject, add_symbol
from .object_file import host_machine
from .once import new_lock, once
from .resident import resident

MAX_THREADS = 256

SPIN_NANOSECONDS = 30_000

_WORKER_STACK_BYTES = 8 << 20

_LINUX = """
@detached = internal constant i32 1
@sig_setmask = internal constant i32 2

declare i64 @syscall(i64, ...)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

; futex(word, FUTEX_WAIT_PRIVATE, value, no time limit)
define internal void @wait_on(ptr %word, i32 %value) {
  %ignored = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}

; futex(word, FUTEX_WAKE_PRIVATE, count)
define internal void @wake_up(ptr %word, i32 %count) {
  %ignored = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

define internal i32 @processor() {
  %number = call i32 @sched_getcpu()
  ret i32 %number
}

; Forbidding this thread the processor that it runs on makes it move; then it may run there again.
define internal void @leave_processor(i32 %number) {
entry:
  %all = alloca [16 x i64], align 8
  %rest = alloca [16 x i64], align 8
  %got = call i32 @sched_getaffinity(i32 0, i64 128, ptr %all)
  %failed = icmp slt i32 %got, 0
  %large = icmp ugt i32 %number, 1023
  %no = or i1 %failed, %large
  br i1 %no, label %done, label %move
move:
  %set = load [16 x i64], ptr %all
  store [16 x i64] %set, ptr %rest
  %index = lshr i32 %number, 6
  %low = and i32 %number, 63
  %shift = zext i32 %low to i64
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %at = getelementptr i64, ptr %rest, i32 %index
  %old = load i64, ptr %at
  %new = and i64 %old, %others
  store i64 %new, ptr %at
  %refused = call i32 @sched_setaffinity(i32 0, i64 128, ptr %rest) ; as when there is no other processor
  %moved = icmp eq i32 %refused, 0
  br i1 %moved, label %restore, label %done
restore:
  %ignored = call i32 @sched_setaffinity(i32 0, i64 128, ptr %all)
  br label %done
done:
  ret void
}
"""

_MACOS = """
@detached = internal constant i32 2
@sig_setmask = internal constant i32 3

declare i32 @__ulock_wait(i32, ptr, i64, i32)
declare i32 @__ulock_wake(i32, ptr, i64)

; UL_COMPARE_AND_WAIT, no time limit
define internal void @wait_on(ptr %word, i32 %value) {
  %wide = zext i32 %value to i64
  %ignored = call i32 @__ulock_wait(i32 1, ptr %word, i64 %wide, i32 0)
  ret void
}

; UL_COMPARE_AND_WAIT | ULF_WAKE_ALL: there is no call that wakes a given number; those not wanted sleep again
define internal void @wake_up(ptr %word, i32 %count) {
  %ignored = call i32 @__ulock_wake(i32 257, ptr %word, i64 0)
  ret void
}

; not to be known
define internal i32 @processor() {
  ret i32 -1
}
define internal void @leave_processor(i32 %number) {
  ret void
}
"""

_X86 = """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal void @pause() {
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal i64 @get_fp_mode() {
  %at = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %narrow = load i32, ptr %at
  %quiet = and i32 %narrow, -64 ; without the exceptions that happen to be flagged
  %mode = zext i32 %quiet to i64
  ret i64 %mode
}

define internal void @set_fp_mode(i64 %mode) {
  %at = alloca i32, align 4
  %narrow = trunc i64 %mode to i32
  store i32 %narrow, ptr %at
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}
"""

_AARCH64 = """
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal void @pause() {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

define internal i64 @get_fp_mode() {
  %mode = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %mode
}

define internal void @set_fp_mode(i64 %mode) {
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void
}
"""

# Where there is no pool, loops run in their caller.
_SERIAL = """
define i32 @oneir_parallel_for(ptr %body, ptr %env, i64 %extent, i32 %max_threads) {
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %run, label %done
run:
  %result = tail call i32 %body(ptr %env, i64 0, i64 %extent)
  ret i32 %result
done:
  ret i32 0
}
define void @oneir_pool_configure(i32 %size, i64 %spin_ns) {
  ret void
}
define void @oneir_pool_after_fork() {
  ret void
}
define void @oneir_pool_use_team(ptr %parallel, ptr %number) {
  ret void
}
"""


def pool_ir(system: str, machine: str) -> str:
    """The pool as LLVM IR, for an operating system as `sys.platform` names it and a processor family."""
    processors = {"x86_64": (_X86, 202), "aarch64": (_AARCH64, 98)}
    systems = {"linux": _LINUX, "darwin": _MACOS}
    if system not in systems or machine not in processors:
        return _SERIAL
    processor, futex = processors[machine]
    shared = Path(__file__).with_name("pool.ll").read_text(encoding="utf-8")
    settings = f"""
@worker_stack_bytes = internal constant i64 {_WORKER_STACK_BYTES}
@blocked_signals = internal constant [16 x i64] [i64 {_blocked_signals()}{", i64 0" * 15}]
"""
    return shared + now_ir(system) + systems[system].replace("FUTEX", str(futex)) + processor + settings


def _blocked_signals() -> int:
    """The mask of signals that workers leave to other threads: all but those that a worker's own mistake raises."""
    own = (signal.SIGSEGV, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, getattr(signal, "SIGBUS", 7))
    return ~sum(1 << (number - 1) for number in own)


@once
def _pool() -> LoadedObject:
    """The pool, loaded and set up."""
    text = pool_ir(sys.platform, host_machine())
    pool = resident("the worker pool", lambda: text, text)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(pool.symbol("oneir_pool_after_fork")))
    with _lock:
        _configure(pool, num_threads())
    return pool


def _configure(pool: LoadedObject, size: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int64)(pool.symbol("oneir_pool_configure"))(size, SPIN_NANOSECONDS)


def use_team(parallel: int, number: int) -> None:
    """From the next loop on, loops of the main thread run on the threads of an OpenMP library of the process.

    These are the addresses of its GOMP_parallel and omp_get_thread_num; both 0 for workers again. A loop has as many
    threads as that library gives it, at most `num_threads()`. A child of `fork` has workers of its own again: OpenMP
    loses its threads there.
    """
    entry = _pool().symbol("oneir_pool_use_team")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(entry)(parallel, number)


def parallel_for_address() -> int:
    """The address of the pool's native entry."""
    return _pool().symbol("oneir_parallel_for")


add_symbol("oneir_parallel_for", parallel_for_address)

_lock = new_lock()
_size: int | None = None


def num_threads() -> int:
    """The number of threads of a parallel loop, its caller included.

    This is the number given to `set_num_threads`; else that of `OMP_NUM_THREADS`; else the number of processors that
    this process may use, by its affinity mask and the quota of its control group.
    """
    global _size
    with _lock:
        if _size is None:
            _size = min(_threads_of_environment() or _processors(), MAX_THREADS)
        return _size


def set_num_threads(count: int) -> None:
    """Sets the number of threads of parallel loops, from the next loop on.

    Raises `InvalidValue` unless it is an integer from 1 to 256.
    """
    global _size
    if not isinstance(count, int) or not 1 <= count <= MAX_THREADS:
        raise InvalidValue(f"The number of threads must be an integer from 1 to {MAX_THREADS}; found {count!r}.")
    with _lock:
        _size = count
        if _pool.made():
            _configure(_pool(), count)


def _threads_of_environment() -> int | None:
    # OMP_NUM_THREADS may list a number for every nesting level: "4,2". Anything else is as if it were not set.
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    limit = cgroup_cpu_limit(Path("/"))
    return max(1, count if math.isinf(limit) else min(count, math.ceil(limit)))


def cgroup_cpu_limit(root: Path) -> float:
    """The quota of the control group of this process, in processors; infinite if there is none.

    `root` is the folder of proc and sys/fs/cgroup. Every group from the process's own up to the root may set a quota.
    """
    limit = math.inf
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":  # version 2
            base, names = root / "sys/fs/cgroup", ("cpu.max",)
        elif "cpu" in controllers.split(","):
            base, names = root / "sys/fs/cgroup/cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        else:
            continue
        # Inside a container the group's own path is often not visible: then the mounted root is the group.
        parts = [part for part in group.split("/") if part and part != ".."]
        for depth in range(len(parts) + 1):
            folder = base.joinpath(*parts[:depth])
            fields = " ".join(_read(folder / name) for name in names).split()
            if len(fields) == 2 and fields[0].isdecimal() and fields[1].isdecimal() and int(fields[1]) > 0:
                limit = min(limit, int(fields[0]) / int(fields[1]))
    return limit


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
