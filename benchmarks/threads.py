"""What parallel regions cost: `python -m benchmarks.threads`.

A region over two threads, entered from native loops (so that Python's own cost is not counted): empty, from one caller and
from eight at once; right after `fork`; with 5 ms between calls, in processor time; and alternating with torch's regions.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import threading
import time

import torch

from benchmarks.measure import verdict
from oneir.runtime import llvm, num_threads
from oneir.runtime.pool import parallel_for_address

SOURCE = """
declare i32 @oneir_parallel_for(ptr, ptr, i64, i32)

define internal i32 @nothing(ptr %env, i64 %begin, i64 %end) {
  ret i32 0
}

; About a microsecond of work for each item: a chain of multiplications.
define internal i32 @some(ptr %env, i64 %begin, i64 %end) {
entry:
  %length = sub i64 %end, %begin
  %steps = mul i64 %length, 1000
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = phi i64 [ %begin, %entry ], [ %y, %loop ]
  %m = mul i64 %x, 6364136223846793005
  %y = add i64 %m, 1442695040888963407
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %steps
  br i1 %more, label %loop, label %done
done:
  %slot = getelementptr i64, ptr %env, i64 %begin
  store volatile i64 %y, ptr %slot
  ret i32 0
}

define void @empty_regions(i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %code = call i32 @oneir_parallel_for(ptr @nothing, ptr null, i64 2, i32 0)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}

define void @region(ptr %env, i64 %items, i32 %threads) {
  %code = call i32 @oneir_parallel_for(ptr @some, ptr %env, i64 %items, i32 %threads)
  ret void
}
"""


def native() -> tuple[ctypes._CFuncPtr, ctypes._CFuncPtr, object]:
    """The functions `empty_regions(count)` and `region(env, items, threads)`."""
    parallel_for_address()
    code = llvm.link(llvm.compile_ir(SOURCE, name="regions"))
    empty = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.symbol("empty_regions"))
    region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)(code.symbol("region"))
    return empty, region, code


def per_call(empty: ctypes._CFuncPtr, callers: int, count: int = 20_000) -> float:
    """Microseconds from one call to the next of each caller, while all of them call."""
    times: list[float] = []
    barrier = threading.Barrier(callers)

    def work() -> None:
        barrier.wait()
        start = time.perf_counter()
        empty(count)
        times.append((time.perf_counter() - start) / count * 1e6)

    threads = [threading.Thread(target=work) for _ in range(callers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return statistics.median(times)


def after_fork(empty: ctypes._CFuncPtr) -> float:
    """Microseconds per region in a child process, its first one included."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        start = time.perf_counter()
        empty(1000)
        os.write(write, f"{(time.perf_counter() - start) * 1e3}".encode())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return float(os.read(read, 100)) if status == 0 else float("inf")


def spaced(region: ctypes._CFuncPtr, threads: int, calls: int = 100) -> float:
    """Milliseconds of processor time for calls 5 ms apart."""
    env = (ctypes.c_int64 * 4096)()
    start = time.process_time()
    for _ in range(calls):
        region(env, 200, threads)
        time.sleep(0.005)
    return (time.process_time() - start) * 1e3


def alternating(region: ctypes._CFuncPtr, threads: int, rounds: int = 300) -> float:
    """Microseconds for one region of ours and one of torch's, in turn; with one thread, both serial."""
    torch.set_num_threads(threads)
    env = (ctypes.c_int64 * 4096)()
    x = torch.ones(200_000)
    for _ in range(20):
        region(env, 100, threads)
        torch.add(x, 1.0, out=x)
    start = time.perf_counter()
    for _ in range(rounds):
        region(env, 100, threads)
        torch.add(x, 1.0, out=x)
    return (time.perf_counter() - start) / rounds * 1e6


def line(what: str, value: float, bar: float, unit: str) -> None:
    print(f"{what:54} {value:8.2f} {unit:3} {verdict(value, bar, False)}")


def main() -> None:
    empty, region, _code = native()
    empty(1000)
    print(f"{num_threads()} threads")
    line("an empty region, one caller", statistics.median(per_call(empty, 1) for _ in range(7)), 4, "µs")
    line("an empty region, eight callers at once", statistics.median(per_call(empty, 8, 5000) for _ in range(7)), 10, "µs")
    line("an empty region, right after fork", statistics.median(after_fork(empty) for _ in range(5)), 50, "µs")
    serial, parallel = spaced(region, 1), spaced(region, 0)
    line("processor time of calls 5 ms apart, of the serial work", parallel / serial, 3, "x")
    alone, both = alternating(region, 1), alternating(region, 2)
    line("alternating with torch's regions, of the serial time", both / alone, 2, "x")


if __name__ == "__main__":
    main()
