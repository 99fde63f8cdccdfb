"""Whether OneIR lasts: `python -m benchmarks.soak [--seconds 600] [--threads 8] [--kills 100] [--processes 50]`.

First, threads of one process make programs for a while: they compile, run, check, save, load and drop them, share some
with each other, and fail on purpose (arguments that do not fit, functions that do not exist, memory that there is not,
damaged files, Python functions that raise). Nothing may be wrong, no error may come that was not asked for, and memory
may not grow with the number of programs.

Then come processes: whose first act is to compile in eight threads; that are killed while they compile; that share one
cache among six of them, or with another version of the package, on a full disk, or without a home; and that fork while
threads compile. The exit code is 1 if anything was not as it should be.
"""

from __future__ import annotations

import argparse
import collections
import gc
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import oneir
from benchmarks.measure import verdict
from oneir import relax, te
from oneir.relax.frontend import nn
from oneir.runtime import load_module
from oneir.script import from_source

LIMIT_PER_PROGRAM = 0.2
"""KB by which memory may grow for each program."""

# -- programs ---------------------------------------------------------------------------------------------------------


def kernel(extent: int, factor: float) -> Any:
    """A module with one function, `main(a, b)`: a parallel loop over `extent` elements."""
    a = te.placeholder((extent,), "float32", name="A")
    b = te.compute((extent,), lambda i: te.exp(a[i]) * np.float32(factor) + 1, name="B")
    schedule = oneir.tir.Schedule(te.create_prim_func([a, b]))
    schedule.parallel(schedule.get_loops(schedule.get_block("B"))[0])
    return schedule.mod


def check_kernel(function: Callable[..., Any], extent: int, factor: float, calls: int) -> None:
    """Calls the kernel, and compares its results."""
    a = np.random.default_rng(extent).standard_normal(extent).astype("float32")
    expected = np.exp(a) * np.float32(factor) + 1
    for _ in range(calls):
        b = np.zeros_like(a)
        function(a, b)
        np.testing.assert_allclose(b, expected, rtol=1e-5, atol=1e-6)


class Perceptron(nn.Module):
    """Two layers."""

    def __init__(self, width: int):
        super().__init__()
        self.first = nn.Linear(16, width)
        self.second = nn.Linear(width, 8)

    def forward(self, x: Any) -> Any:
        """The result for some rows."""
        return self.second(nn.op.relu(self.first(x)))


def graph(width: int) -> Any:
    """A module whose `forward(x, *weights)` takes any number of rows of 16 numbers."""
    return Perceptron(width).export_tvm({"forward": {"x": nn.spec.Tensor(["n", 16], "float32")}})[0]


def check_graph(function: Callable[..., Any], width: int, calls: int) -> None:
    """Calls the graph with some numbers of rows, and compares its results."""
    rng = np.random.default_rng(width)
    shapes = [(width, 16), (width,), (8, width), (8,)]
    weights = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    for call in range(calls):
        x = rng.standard_normal((1 + call % 5, 16)).astype("float32")
        hidden = np.maximum(x @ weights[0].T + weights[1], 0)
        np.testing.assert_allclose(
            function(x, *weights).numpy(), hidden @ weights[2].T + weights[3], rtol=1e-3, atol=1e-3
        )


SCRIPT = """
# from oneir.script import tir as T
@T.prim_func
def rows(A: T.Buffer(({extent}, 8), "float32"), B: T.Buffer(({extent},), "float32")):
    for i in T.parallel({extent}):
        for k in range(8):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
"""

CALLBACK = """
# from oneir.script import tir as T
@T.prim_func
def ask(A: T.Buffer((64,), "float32")):
    for i in T.parallel(64):
        T.evaluate(T.call_packed("{name}", i))
"""


class Asked(Exception):
    """What registered functions raise on purpose."""


class Threads:
    """Threads that make programs, each in one of several ways, until the time is over."""

    def __init__(self, threads: int, seconds: float, folder: Path):
        self.threads, self.seconds, self.folder = threads, seconds, folder
        self.programs = self.checks = 0
        self.wrong: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.memory: list[tuple[float, int, int]] = []
        self.shared_kernel = oneir.compile(kernel(1000, 2.0), target="llvm")
        self.shared_machine = relax.VirtualMachine(relax.build(graph(24), "llvm"), oneir.cpu())

    def run(self) -> None:
        """Runs until the time is over, and notes memory each second."""
        workers = [threading.Thread(target=self.work, args=(number,)) for number in range(self.threads)]
        start = time.monotonic()
        for worker in workers:
            worker.start()
        while time.monotonic() - start < self.seconds and not self.wrong:
            time.sleep(1)
            self.memory.append((time.monotonic() - start, self.programs, resident_kilobytes()))
        self.stop.set()
        for worker in workers:
            worker.join()

    def work(self, number: int) -> None:
        """One thread."""
        rng = random.Random(number)
        ways = [self.of_loops, self.of_graph, self.of_script, self.saved, self.shared, self.refused, self.raised]
        while not self.stop.is_set():
            way = rng.choice(ways)
            try:
                programs = way(rng, number)
            except BaseException:
                self.wrong.append(f"{way.__name__}: {traceback.format_exc()}")
                return
            with self.lock:
                self.programs += programs
                self.counts[way.__name__] += 1

    def of_loops(self, rng: random.Random, number: int) -> int:
        """A kernel, compiled anew once in four times, else often found in the cache."""
        extent = rng.randrange(1, 1 << 20) if rng.random() < 0.25 else rng.randrange(1, 200)
        check_kernel(oneir.compile(kernel(extent, 0.5), target="llvm")["main"], extent, 0.5, 50 if extent < 5000 else 2)
        return 1

    def of_graph(self, rng: random.Random, number: int) -> int:
        """A graph, whose machine code is often in the cache."""
        width = rng.randrange(1, 25)
        check_graph(relax.VirtualMachine(relax.build(graph(width), "llvm"), oneir.cpu())["forward"], width, 10)
        return 1

    def of_script(self, rng: random.Random, number: int) -> int:
        """A function read from a text, printed, read again."""
        extent = rng.randrange(1, 500)
        function = from_source(SCRIPT.format(extent=extent))
        again = from_source(function.script())
        oneir.ir.assert_structural_equal(function, again)
        a, b = np.random.rand(extent, 8).astype("float32"), np.empty(extent, "float32")
        oneir.compile(again, target="llvm")["rows"](a, b)
        np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)
        return 1

    def saved(self, rng: random.Random, number: int) -> int:
        """A program that is written to a file, read, called and dropped."""
        path = self.folder / f"{number}{rng.choice(['.so', '.tar', '.o'])}"
        extent, width = rng.randrange(1, 50), rng.randrange(1, 8)
        oneir.compile(kernel(extent, 3.0), target="llvm").export_library(path)
        check_kernel(load_module(path)["main"], extent, 3.0, 5)
        relax.build(graph(width), "llvm").export_library(path.with_suffix(".so"))
        check_graph(relax.VirtualMachine(load_module(path.with_suffix(".so")), oneir.cpu())["forward"], width, 3)
        return 4

    def shared(self, rng: random.Random, number: int) -> int:
        """One program, one machine for all threads."""
        check_kernel(self.shared_kernel["main"], 1000, 2.0, 20)
        check_graph(self.shared_machine["forward"], 24, 10)
        return 0

    def refused(self, rng: random.Random, number: int) -> int:
        """Mistakes, each of which must be the error that it is."""
        a = np.zeros(1000, "float32")
        expect(oneir.OneIRError, lambda: self.shared_kernel["main"](a, a[1:]))
        expect(oneir.OneIRError, lambda: self.shared_kernel["main"](a, a.astype("float64")))
        expect(oneir.OneIRError, lambda: self.shared_kernel["missing"])
        expect(oneir.OneIRError, lambda: self.shared_machine["forward"](a))
        expect(oneir.OneIRError, lambda: from_source("def f(:"))
        expect((MemoryError, oneir.OneIRError), lambda: oneir.nd.empty((1 << 45,), "float32"))
        damaged = self.folder / f"damaged{number}.so"
        damaged.write_bytes(rng.randbytes(3000))
        expect(oneir.OneIRError, lambda: load_module(damaged))
        return 0

    def raised(self, rng: random.Random, number: int) -> int:
        """A registered Python function that raises in a parallel loop."""
        name = f"soak.raise{number}"

        @oneir.register_func(name, override=True)
        def ask(i: int) -> int:
            raise Asked(i)

        program = oneir.compile(from_source(CALLBACK.format(name=name)), target="llvm")
        expect(Asked, lambda: program["ask"](np.zeros(64, "float32")))
        return 1

    def growth(self) -> tuple[float, int] | None:
        """KB for each program after the first minute, and how many programs that was; None of a run that is short.

        What is in use goes up and down, so the least of the first tenth is compared with the least of the last.
        """
        settled = [entry for entry in self.memory if entry[0] > 60]
        if self.seconds < 120 or not settled:
            return None
        part = len(settled) // 10 + 1
        first, last = (min(entries, key=lambda e: e[2]) for entries in (settled[:part], settled[-part:]))
        programs = max(1, last[1] - first[1])
        return (last[2] - first[2]) / programs, programs


def expect(kinds: Any, call: Callable[[], Any]) -> None:
    """Calls what must raise one of some exceptions."""
    try:
        call()
    except kinds:
        return
    raise AssertionError(f"expected {kinds}, and nothing was raised")


def resident_kilobytes() -> int:
    """The memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


# -- processes --------------------------------------------------------------------------------------------------------

FIRST_ACT = """
import sys, threading
import numpy as np
import oneir
from benchmarks.soak import check_graph, check_kernel, graph, kernel
from oneir import relax

def act(number):
    try:
        barrier.wait()
        if number % 2:
            check_kernel(oneir.compile(kernel(1000 + number, 0.5), target="llvm")["main"], 1000 + number, 0.5, 5)
        else:
            machine = relax.VirtualMachine(relax.build(graph(number + 1), "llvm"), oneir.cpu())
            check_graph(machine["forward"], number + 1, 5)
    except BaseException as error:
        failures.append(error)

failures, barrier = [], threading.Barrier(8)
threads = [threading.Thread(target=act, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if failures: raise failures[0]
"""

COMPILE_MUCH = """
import random
from benchmarks.soak import check_graph, graph, kernel, check_kernel
import oneir
from oneir import relax
while True:
    extent = random.randrange(1, 1 << 20)
    oneir.compile(kernel(extent, 0.5), target="llvm")["main"]
    width = random.randrange(1, 1000)
    relax.VirtualMachine(relax.build(graph(width), "llvm"), oneir.cpu())["forward"]
"""

FORK = """
import os, sys, threading
from benchmarks.soak import check_graph, check_kernel, graph, kernel
import oneir
from oneir import relax
program = oneir.compile(kernel(1000, 0.5), target="llvm")
stop = threading.Event()

def compile_on():
    extent = 1
    while not stop.is_set():
        extent += 1
        check_kernel(oneir.compile(kernel(extent, 0.5), target="llvm")["main"], extent, 0.5, 2)

threads = [threading.Thread(target=compile_on) for _ in range(3)]
for thread in threads: thread.start()
failed = 0
for turn in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        try:
            check_kernel(program["main"], 1000, 0.5, 3)
            check_kernel(oneir.compile(kernel(5000 + turn, 0.5), target="llvm")["main"], 5000 + turn, 0.5, 2)
            check_graph(relax.VirtualMachine(relax.build(graph(5), "llvm"), oneir.cpu())["forward"], 5, 3)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    failed += os.waitpid(child, 0)[1] != 0
stop.set()
for thread in threads: thread.join()
sys.exit(failed)
"""

LIMITED_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
"""


class Processes:
    """Processes that do something, and what came of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.lines: list[tuple[str, str, bool]] = []

    def environment(self, **changes: str) -> dict[str, str]:
        """The environment of a child."""
        return {**os.environ, "ONEIR_CACHE_DIR": str(self.folder / "cache"), **changes}

    def run(self, code: str, *args: str, timeout: float = 300, cwd: str | None = None, **changes: str) -> str:
        """Runs a program; what it printed if it failed."""
        done = subprocess.run(
            [sys.executable, "-c", code, *args],
            env=self.environment(**changes),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=cwd,
        )
        return "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stderr[-2000:]}"

    def report(self, what: str, failures: list[str], count: int) -> None:
        """Notes what came of so many processes."""
        bad = [failure for failure in failures if failure]
        self.lines.append((what, f"{len(bad)} of {count} failed", not bad))
        if bad:
            print(f"{what}: {bad[0][-600:]}", file=sys.stderr)

    def first_acts(self, count: int) -> None:
        """Eight threads whose first act is to compile and call."""
        failures = []
        for _ in range(count):
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
            failures.append(self.run(FIRST_ACT))
        self.report("first act of 8 threads, empty cache", failures, count)
        self.report("first act of 8 threads, full cache", [self.run(FIRST_ACT) for _ in range(count)], count)

    def kills(self, count: int) -> None:
        """Processes that are killed while they compile and write the cache."""
        rng = random.Random(0)
        cache = self.folder / "killed"
        for _ in range(count):
            child = subprocess.Popen(
                [sys.executable, "-c", COMPILE_MUCH], env=self.environment(ONEIR_CACHE_DIR=str(cache))
            )
            time.sleep(rng.uniform(0.6, 2.0))
            child.send_signal(signal.SIGKILL)
            child.wait()
        failures = [self.run(FIRST_ACT, ONEIR_CACHE_DIR=str(cache))]
        for path in cache.rglob("*"):  # an hour passes
            os.utime(path, (path.stat().st_atime - 3700, path.stat().st_mtime - 3700))
        failures.append(self.run(FIRST_ACT, ONEIR_CACHE_DIR=str(cache)))
        left = [str(path) for path in (cache / "writing").iterdir()]
        failures.append(f"left in the cache: {left}" if left else "")
        self.report(f"after {count} kills while compiling", failures, 3)

    def many_on_one_cache(self) -> None:
        """Six processes on one empty cache."""
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        children = [
            subprocess.Popen([sys.executable, "-c", FIRST_ACT], env=self.environment(), stderr=subprocess.PIPE)
            for _ in range(6)
        ]
        failures = []
        for child in children:
            _, error = child.communicate(timeout=600)
            failures.append("" if child.returncode == 0 else error.decode()[-2000:])
        self.report("six processes on one cache", failures, 6)

    def two_versions(self) -> None:
        """This version of the package and another one, by turns."""
        other = self.folder / "other"
        root = Path(oneir.__file__).parent
        shutil.copytree(root, other / "oneir", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(Path(__file__).parent, other / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
        version = other / "oneir" / "version.py"
        version.write_text(version.read_text().replace(oneir.__version__, oneir.__version__ + ".other"))
        check = f"import oneir; assert oneir.__version__.endswith('.other') == {{}}\n{FIRST_ACT}"
        failures = []
        for _ in range(2):
            failures.append(self.run(check.format(False)))
            failures.append(self.run(check.format(True), PYTHONPATH=str(other), cwd=str(other)))
        self.report("two versions on one cache", failures, len(failures))

    def bad_places(self) -> None:
        """Caches that cannot be written: the disk is full, there is no home, or it is read-only."""
        full = self.folder / "full"
        failures = [self.run(LIMITED_DISK + FIRST_ACT, ONEIR_CACHE_DIR=str(full)) for _ in range(2)]
        left = [str(path) for path in full.rglob("*") if path.is_file() and path.stat().st_size >= 2048]
        failures.append(f"left on the full disk: {left}" if left else "")
        self.report("full disk", failures, len(failures))
        home = {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": ""}
        without = "import os; del os.environ['ONEIR_CACHE_DIR']\n"
        self.report("home that cannot be written", [self.run(without + FIRST_ACT, **home)], 1)

    def forks(self, count: int) -> None:
        """Children of fork, made while three threads compile, that compile and call."""
        self.report(f"{count} forks while threads compile", [self.run(FORK, str(count), timeout=60 + 10 * count)], 1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether OneIR lasts.")
    parser.add_argument("--seconds", type=float, default=600, help="how long the threads run")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--processes", type=int, default=50, help="whose first act is to compile in eight threads")
    parser.add_argument("--forks", type=int, default=30)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["ONEIR_CACHE_DIR"] = str(folder / "threads")
        threads = Threads(options.threads, options.seconds, folder)
        threads.run()
        print(
            f"{options.threads} threads, {options.seconds:.0f} s: {threads.programs} programs; {dict(threads.counts)}"
        )
        for text in threads.wrong[:3]:
            print(textwrap.indent(text, "    "))
        print(f"wrong, or errors not asked for: {len(threads.wrong)}  {verdict(len(threads.wrong), 0, False)}")
        good = not threads.wrong
        growth = threads.growth()
        if growth is not None:
            per, count = growth
            print(f"KB for each of the last {count} programs: {per:.3f}  {verdict(per, LIMIT_PER_PROGRAM, False)}")
            good &= per <= LIMIT_PER_PROGRAM
        processes = Processes(folder)
        processes.first_acts(options.processes)
        processes.kills(options.kills)
        processes.many_on_one_cache()
        processes.two_versions()
        processes.bad_places()
        processes.forks(options.forks)
        for what, result, fine in processes.lines:
            print(f"{'ok  ' if fine else 'FAIL'} {what}: {result}")
            good &= fine
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
