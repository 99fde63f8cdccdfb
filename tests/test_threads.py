"""Processes in which eight threads, as their first act, do what OneIR promises to do in threads."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import oneir
from oneir import relax, te
from oneir.relax.frontend.torch import from_exported_program

ROOT = Path(__file__).parents[1]

FRAME = """
import sys
import threading
import traceback
import numpy as np
import oneir

folder = sys.argv[1]
{prepare}

def act(number):
{act}

def run(number):
    try:
        barrier.wait()
        act(number)
    except BaseException:
        failures.append(traceback.format_exc())

failures, barrier = [], threading.Barrier(8)
threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("\\n".join(failures[:1]) or 0)
"""

LOOPS = """
    from oneir import te
    extent = 1000 + number
    a = te.placeholder((extent,), "float32", name="A")
    b = te.compute((extent,), lambda i: a[i] * 2.0 + 1.0, name="B")
    schedule = oneir.tir.Schedule(te.create_prim_func([a, b]))
    schedule.parallel(schedule.get_loops(schedule.get_block("B"))[0])
    program = oneir.compile(schedule.mod, target="llvm")
    x, y = np.ones(extent, "float32"), np.zeros(extent, "float32")
    for _ in range(20):
        program["main"](x, y)
        assert (y == 3).all()
"""

SCRIPTS = """
    from oneir.script import from_source
    text = f'''
@T.prim_func
def f(A: T.Buffer(({64 + number},), "float32"), B: T.Buffer(({64 + number},), "float32")):
    for i in T.parallel({64 + number}):
        with T.block("B"):
            vi = T.axis.spatial({64 + number}, i)
            B[vi] = T.exp(A[vi])
'''
    function = from_source(text)
    assert function.script() == from_source(function.script()).script()
    x, y = np.ones(64 + number, "float32"), np.zeros(64 + number, "float32")
    oneir.compile(function, target="llvm")["f"](x, y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
"""

FILES = """
    from oneir import relax
    x, y = np.ones(1000, "float32"), np.zeros(1000, "float32")
    oneir.runtime.load_module(folder + ("/kernel.so" if number % 2 else "/kernel.tar"))["main"](x, y)
    assert (y == 3).all()
    machine = relax.VirtualMachine(oneir.runtime.load_module(folder + "/graph.so"), oneir.cpu())
    np.testing.assert_allclose(machine["main"](np.ones((4, 16), "float32")).numpy(), np.load(folder + "/y.npy"), rtol=1e-4)
"""

TORCH = """
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).eval()
    x = torch.rand(4, 16)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="oneir")(x), model(x))
"""

ONNX = """
    from oneir import relax
    from oneir.relax.frontend.onnx import from_onnx
    main = relax.VirtualMachine(relax.build(from_onnx(folder + "/model.onnx"), "llvm"), oneir.cpu())["main"]
    np.testing.assert_allclose(main(np.ones((4, 16), "float32")).numpy(), np.load(folder + "/y.npy"), rtol=1e-4)
"""

IMPORTS = """
    import importlib
    for name in "testing relax.frontend.nn relax.frontend.onnx relax.frontend.torch bench cli.main compat".split():
        importlib.import_module("oneir." + name)
    oneir.register_func(f"tests.threads.{number}", lambda: number)
    oneir.ir.Op.register("tests.threads.shared").set_attr(f"fact{number}", number)
    assert oneir.get_global_func(f"tests.threads.{number}")() == number
    assert oneir.ir.Op.get("tests.threads.shared").get_attr(f"fact{number}") == number
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of a kernel, a graph and an ONNX model, and what the last two compute of ones."""
    path = tmp_path_factory.mktemp("files")
    a = te.placeholder((1000,), "float32", name="A")
    b = te.compute((1000,), lambda i: a[i] * 2.0 + 1.0, name="B")
    kernel = oneir.compile(te.create_prim_func([a, b]), target="llvm")
    kernel.export_library(path / "kernel.so")
    kernel.export_library(path / "kernel.tar")
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).eval()
    example = torch.ones(4, 16)
    module = from_exported_program(torch.export.export(model, (example,)), unwrap_unit_return_tuple=True)
    relax.build(module, "llvm").export_library(path / "graph.so")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch's exporter says of itself
        torch.onnx.export(model, (example,), path / "model.onnx", dynamo=True, verbose=False)
    with torch.no_grad():
        np.save(path / "y.npy", model(example).numpy())
    return path


@pytest.mark.parametrize(
    ("prepare", "act"),
    [
        pytest.param("", LOOPS, id="compile"),
        pytest.param("", SCRIPTS, id="read scripts"),
        pytest.param("", FILES, id="load files"),
        pytest.param("import torch", TORCH, id="torch.compile"),
        pytest.param("", ONNX, id="import ONNX"),
        pytest.param("", IMPORTS, id="import parts"),
    ],
)
def test_first_acts(prepare, act, folder, tmp_path):
    """On an empty cache, and on a full one."""
    program = tmp_path / "program.py"
    program.write_text(FRAME.format(prepare=prepare, act=act))
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(program), str(folder)],
            env={**os.environ, "ONEIR_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr


FORK_WHILE_ALL_LOCKS_ARE_HELD = """
import os, sys, threading, types
import oneir
import oneir.relax.frontend.onnx
import oneir.relax.frontend.torch
from oneir.runtime import llvm

LOCKS = type(threading.Lock()), type(threading.RLock())
found = {}

def look(value, name, depth):
    if isinstance(value, LOCKS):
        found[name] = value
    elif depth and value is not llvm._lock and not isinstance(value, types.ModuleType):  # a fork takes LLVM's itself
        for key, part in list(getattr(value, "__dict__", {}).items()):
            look(part, f"{name}.{key}", depth - 1)

for module in list(sys.modules):
    if module.split(".")[0] == "oneir":
        for name, value in list(vars(sys.modules[module]).items()):
            look(value, f"{module}.{name}", 2)

def hold():
    for lock in set(found.values()):
        lock.acquire()
    held.set()
    over.wait()

held, over = threading.Event(), threading.Event()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    taken = [name for name, lock in found.items() if not lock.acquire(blocking=False)]
    print(len(set(found.values())), *taken, flush=True)
    os._exit(0)
os.waitpid(child, 0)
over.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_locks_that_live_as_long_as_the_process_are_free_in_a_child_of_fork():
    """All that modules, their objects and the properties of their classes have, though another thread holds them."""
    command = [sys.executable, "-c", FORK_WHILE_ALL_LOCKS_ARE_HELD]
    count, *taken = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.split()
    assert int(count) > 30 and not taken


def test_a_short_soak():
    """The program of benchmarks, with few of everything; it fails if anything is wrong."""
    options = ["--seconds", "3", "--processes", "1", "--kills", "3", "--forks", "3"]
    command = [sys.executable, "-m", "benchmarks.soak", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nok ") == 8, done.stdout
