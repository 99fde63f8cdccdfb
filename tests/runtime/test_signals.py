"""Signals that arrive while native code runs: their handlers are called, and what one raises ends the program.

Each program runs in a process of its own, in which it would take many minutes if nothing ended it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import oneir
from oneir import relax
from oneir.script import tir as T
from oneir.script import relax as R

@T.prim_func
def chain(A: T.Buffer((6400,), "float32"), steps: T.int64):
    for i in T.parallel(6400):
        for j in range(steps):
            A[i] = A[i] * T.float32(0.5) + T.float32(1)

program = oneir.compile(chain, target="llvm")
a = np.zeros(6400, "float32")
FEW, MANY = 100, 1 << 26  # of no time, and of half an hour

def send(number, after):
    def work():
        time.sleep(after)
        os.kill(os.getpid(), number)
    threading.Thread(target=work, daemon=True).start()
"""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program, with `BEGIN` in front, in a file, since scripts are read from files; what it printed."""

    def run_file(code: str, **environment: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(BEGIN + textwrap.dedent(code))
        done = subprocess.run(
            [sys.executable, str(path)],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run_file


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_an_interrupt_ends_a_kernel_and_the_process_goes_on(run: Run, threads):
    code = """
        kept = oneir.nd.array(np.arange(640, dtype="float32"))
        for _ in range(2):
            send(signal.SIGINT, 0.3)
            try:
                program["chain"](a, MANY)
            except KeyboardInterrupt:
                print("interrupted")
        b = np.zeros(6400, "float32")
        program["chain"](b, FEW)
        assert np.allclose(b, 2) and np.array_equal(kept.numpy(), np.arange(640, dtype="float32"))
    """
    assert run(code, OMP_NUM_THREADS=threads) == "interrupted\ninterrupted"


def test_an_interrupt_ends_a_graph_between_its_kernels(run: Run):
    code = """
        @T.prim_func
        def slow(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.block("B"):
                    vi = T.axis.spatial(16, i)
                    B[vi] = A[vi]
                    for j in range(1 << 23):
                        B[vi] = B[vi] * T.float32(0.5) + T.float32(1)

        builder, x = relax.BlockBuilder(), relax.Var("x", R.Tensor((16,), "float32"))
        with builder.function("main", [x]):
            kernel, value = builder.add_func(slow, "slow"), x
            with builder.dataflow():
                for _ in range(1000):
                    value = builder.emit(relax.op.call_tir(kernel, (value,), R.Tensor((16,), "float32")))
                result = builder.emit_output(value)
            builder.emit_func_output(result)
        executable = relax.build(builder.get(), "llvm")
        assert "main" in executable.natives  # machine code
        main = relax.VirtualMachine(executable, oneir.cpu())["main"]
        for _ in range(2):
            send(signal.SIGINT, 1)
            try:
                main(np.zeros(16, "float32"))
            except KeyboardInterrupt:
                print("interrupted")
    """
    assert run(code) == "interrupted\ninterrupted"


def test_a_handler_that_returns_lets_the_program_finish(run: Run):
    code = """
        signal.signal(signal.SIGUSR1, lambda number, frame: print("handled", flush=True))
        send(signal.SIGUSR1, 0.2)
        program["chain"](a, 1 << 17)
        assert np.allclose(a, 2)
        print("finished")
    """
    assert run(code) == "handled\nfinished"


def test_what_any_handler_raises_comes_out_of_the_call(run: Run):
    code = """
        class Late(Exception):
            pass

        def raise_late(number, frame):
            raise Late("too long")

        signal.signal(signal.SIGALRM, raise_late)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            program["chain"](a, MANY)
        except Late as error:
            print(error)
    """
    assert run(code) == "too long"


def test_a_handler_may_call_the_program_that_it_interrupts(run: Run):
    code = """
        def handle(number, frame):
            b = np.zeros(6400, "float32")
            program["chain"](b, FEW)
            print(np.allclose(b, 2), flush=True)

        signal.signal(signal.SIGUSR1, handle)
        send(signal.SIGUSR1, 0.2)
        program["chain"](a, 1 << 17)
        print(np.allclose(a, 2))
    """
    assert run(code) == "True\nTrue"


def test_a_call_in_another_thread_goes_on(run: Run):
    code = """
        def work():
            program["chain"](a, 1 << 17)
            right.append(np.allclose(a, 2))
            done.set()

        right, done = [], threading.Event()
        threading.Thread(target=work).start()
        send(signal.SIGINT, 0.1)
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            print("interrupted")
        done.wait(60)
        print(right)
    """
    assert run(code) == "interrupted\n[True]"
