"""What the worker pool costs and gains: `python -m benchmarks.threads`. Each figure is printed with its bar.

The callers are native loops, entered through ctypes, which releases the GIL. A region with work runs 64 iterations of a
chain of multiplications that no compiler shortens; "serial" is the same body called once for all of them. Where regions
alternate with PyTorch's, PyTorch uses all its threads, and those spin for a while after each of its regions.

Empty regions gain nothing from workers, and the pool runs most of them alone: their figures are what a loop too small
to be parallel costs. What fork and join costs a loop that does gain is the distance of 10 µs of work from 0.5 x.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable

from benchmarks.measure import verdict
from oneir.runtime import num_threads
from oneir.runtime.llvm import compile_ir, link

ROUNDS = 15
ITERATIONS = 64

HARNESS = """
declare i32 @oneir_parallel_for(ptr, ptr, i64, i32)

define i32 @nothing(ptr %env, i64 %begin, i64 %end) {
  ret i32 0
}

; For each i in [begin, end): the end of a chain of `steps` multiplications, into out[i].
; env: { i64 steps, [8 x i64] padding, [64 x double] out }
define i32 @work(ptr %env, i64 %begin, i64 %end) {
entry:
  %steps = load i64, ptr %env
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %outer, label %done
outer:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %store ]
  %real = sitofp i64 %i to double
  br label %inner
inner:
  %k = phi i64 [ 0, %outer ], [ %k.next, %inner ]
  %x = phi double [ %real, %outer ], [ %x.next, %inner ]
  %product = fmul double %x, 0x3FEFFFFFFFFFF000
  %x.next = fadd double %product, 1.0
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %steps
  br i1 %more, label %inner, label %store
store:
  %index = add i64 %i, 9
  %at = getelementptr i64, ptr %env, i64 %index
  store double %x.next, ptr %at
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %end
  br i1 %again, label %outer, label %done
done:
  ret i32 0
}

; `calls` regions one after the other.
define i32 @regions(ptr %body, ptr %env, i64 %extent, i64 %calls) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %sum = phi i32 [ 0, %entry ], [ %sum.next, %loop ]
  %result = call i32 @oneir_parallel_for(ptr %body, ptr %env, i64 %extent, i32 0)
  %sum.next = add i32 %sum, %result
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %calls
  br i1 %more, label %loop, label %done
done:
  ret i32 %sum.next
}
"""


class Harness:
    """The native loops, and a body whose serial time can be chosen."""

    def __init__(self) -> None:
        self.library = link(compile_ir(HARNESS, name="the harness"))
        kinds = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        self.regions = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(self.library.symbol("regions"))
        self.nothing, self.work = self.library.symbol("nothing"), self.library.symbol("work")
        body = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._body = body(self.work)
        self.env = (ctypes.c_int64 * (9 + ITERATIONS))()

    def empty(self, calls: int) -> None:
        """Regions with nothing in them, an iteration for each thread."""
        self.regions(self.nothing, None, num_threads(), calls)

    def serial(self) -> None:
        """The work, without the pool."""
        self._body(self.env, 0, ITERATIONS)

    def parallel(self) -> None:
        """One region with the work."""
        self.regions(self.work, self.env, ITERATIONS, 1)

    def set_work(self, seconds: float) -> None:
        """Choose the steps so that `serial` takes about `seconds`."""
        self.env[0] = 2_000
        self.env[0] = max(1, int(2_000 * seconds / min(elapsed(self.serial) for _ in range(20))))


def elapsed(call: Callable[[], object]) -> float:
    """The seconds that one call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def one_caller(harness: Harness) -> float:
    """Seconds for fork and join of a region with nothing in it."""
    return statistics.median(elapsed(lambda: harness.empty(20_000)) / 20_000 for _ in range(ROUNDS))


def eight_callers(harness: Harness) -> float:
    """The same, from one call to the next of each of eight threads that do so at once."""
    calls = 20_000

    def together() -> float:
        barrier = threading.Barrier(9)

        def caller() -> None:
            barrier.wait()
            harness.empty(calls)

        threads = [threading.Thread(target=caller) for _ in range(8)]
        for thread in threads:
            thread.start()
        barrier.wait()
        return elapsed(lambda: [thread.join() for thread in threads]) / calls

    return statistics.median(together() for _ in range(ROUNDS))


def after_fork(harness: Harness) -> bool:
    """Whether a child can run regions, and the parent still can."""
    harness.set_work(1e-4)
    harness.parallel()
    harness.serial()
    expected = list(harness.env)
    child = os.fork()
    harness.env[9:] = [0] * ITERATIONS
    harness.parallel()
    right = list(harness.env) == expected
    if child == 0:
        os._exit(0 if right else 1)
    return right and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def without_rest(harness: Harness, seconds: float) -> float:
    """The time of regions one after the other, as a part of that of the same work done serially."""
    harness.set_work(seconds)
    calls = max(4, int(0.01 / seconds))
    ratios = []
    for _ in range(ROUNDS * 2):
        serial = elapsed(lambda: [harness.serial() for _ in range(calls)])
        ratios.append(elapsed(lambda: harness.regions(harness.work, harness.env, ITERATIONS, calls)) / serial)
    return statistics.median(ratios)


def after_idling(harness: Harness, seconds: float) -> float:
    """The time of a region after 20 ms of rest, as a part of that of the serial work after the same."""
    harness.set_work(seconds)
    parallel, serial = [], []
    for _ in range(40):
        for times, call in ((parallel, harness.parallel), (serial, harness.serial)):
            time.sleep(0.02)
            times.append(elapsed(call))
    return statistics.median(parallel) / statistics.median(serial)


def between_calls(harness: Harness) -> float:
    """Processor time of calls with 100 µs of work every 5 ms, as a part of that of the serial work."""
    harness.set_work(1e-4)

    def processor_time(call: Callable[[], object]) -> float:
        start = time.process_time()
        for _ in range(50):
            time.sleep(0.005)
            call()
        return time.process_time() - start

    return statistics.median(processor_time(harness.parallel) / processor_time(harness.serial) for _ in range(5))


def alternating(harness: Harness, seconds: float) -> tuple[float, float]:
    """The mean time of regions that follow one of PyTorch's each, as a part of that of the serial work there.

    Also how much slower PyTorch's regions are than between serial work.
    """
    import torch

    a = torch.rand(1 << 18)
    times: dict[str, list[float]] = {"parallel": [], "serial": [], "torch, parallel": [], "torch, serial": []}
    harness.set_work(seconds)
    for _ in range(ROUNDS):
        for name, call in (("parallel", harness.parallel), ("serial", harness.serial)):
            for _ in range(60):
                times[f"torch, {name}"].append(elapsed(lambda: torch.exp(a, out=a).mul_(0.1)))
                times[name].append(elapsed(call))
    mean = {name: statistics.fmean(values) for name, values in times.items()}
    return mean["parallel"] / mean["serial"], mean["torch, parallel"] / mean["torch, serial"]


def main() -> None:
    """Print the table; the exit status tells if a bar was missed."""
    harness = Harness()
    missed = False

    def report(name: str, value: float, unit: str, bar: float, note: str = "") -> None:
        nonlocal missed
        judged = verdict(value, bar, at_least=False)
        missed |= judged != "ok"
        print(f"{name:62} {value:6.2f} {unit:2}  bar {bar:3g}  {judged}{note}")

    print(f"{num_threads()} threads")
    report("fork and join, one caller", one_caller(harness) * 1e6, "µs", 4)
    report("fork and join, eight callers at once", eight_callers(harness) * 1e6, "µs", 10)
    report("wrong right after fork, in child or parent", float(not after_fork(harness)), "", 0)
    for microseconds in (10, 100, 1000):
        name = f"{microseconds} µs of work, calls without rest, against serial"
        report(name, without_rest(harness, microseconds / 1e6), "x", 1)
    for microseconds in (50, 200, 1000):
        name = f"{microseconds} µs of work, after 20 ms of rest, against serial"
        report(name, after_idling(harness, microseconds / 1e6), "x", 1.5)
    report("processor time, calls 5 ms apart, against serial", between_calls(harness), "x", 3)
    for microseconds in (25, 100, 400):
        ratio, slowdown = alternating(harness, microseconds / 1e6)
        name = f"{microseconds} µs of work, alternating with PyTorch, against serial"
        report(name, ratio, "x", 2, f"   PyTorch's own part takes {slowdown:.2f} x")
    sys.exit(missed)


if __name__ == "__main__":
    main()
