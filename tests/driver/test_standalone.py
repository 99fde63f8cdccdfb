"""Exported programs that stand alone: what C computes with them is what NumPy computes, from files of every kind.

C is played by gcc where files are linked, and by ctypes, which calls a shared library as any program would.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.frontend import nn
from oneir.runtime import load_module
from oneir.runtime.error import InvalidValue, LibraryError, UnsupportedError
from oneir.runtime.object_file import read_symbols
from oneir.runtime.registry import register_global_func
from oneir.runtime.vm import VirtualMachine
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T

needs_linker = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no linker (cc)")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler (g++)")
linux = pytest.mark.skipif(sys.platform != "linux", reason="expects ELF files and the C library of Linux")

OK, INVALID, NO_MEMORY, BAD_WEIGHTS = 0, 1, 2, 3
MAXIMUM_RUNTIME, MAXIMUM_MLP = 64 << 10, 1_200_000


class MLP(nn.Module):
    def __init__(self) -> None:
        self.first, self.second = nn.Linear(784, 256), nn.Linear(256, 10)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.second(nn.op.relu(self.first(x)))


def mlp(batch: int | str, seed: int = 0, target: str = "llvm") -> tuple[Any, Callable[[np.ndarray], np.ndarray]]:
    """A perceptron with random weights, compiled, and the same written in NumPy."""
    mod, named = MLP().export_tvm({"forward": {"x": nn.spec.Tensor([batch, 784], "float32")}})
    rng = np.random.default_rng(seed)
    params = {k: (rng.standard_normal([int(e) for e in v.shape]) * 0.05).astype("float32") for k, v in named}
    w1, b1, w2, b2 = (
        params[k].astype("float64") for k in ("first.weight", "first.bias", "second.weight", "second.bias")
    )
    bound = relax.transform.BindParams("forward", params)(mod)
    return relax.build(bound, target), lambda x: np.maximum(x @ w1.T + b1, 0) @ w2.T + b2


def images(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 784)).astype("float32")


@pytest.fixture(scope="module")
def static():
    return mlp(1)


@pytest.fixture(scope="module")
def symbolic():
    return mlp("n")


# -- C, by ctypes --


class Model(ctypes.Structure):
    _fields_ = (("weights", ctypes.c_void_p), ("bytes", ctypes.c_int64))


class Tensor2(ctypes.Structure):
    """A structure of one matrix with its shape."""

    _fields_ = (("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 2))


class Program:
    """A shared library whose functions take `Tensor2`; errors are read as texts."""

    def __init__(self, path: Path, name: str = "m", weights: Path | None = None):
        self.library, self.name, self.model = ctypes.CDLL(str(path)), name, Model()
        self.error = ctypes.c_char_p()
        more = () if weights is None else (os.fsencode(weights),)
        self.status = self("init", ctypes.byref(self.model), *more)

    def __call__(self, function: str, *args: object) -> int:
        return getattr(self.library, f"{self.name}_{function}")(*args, ctypes.byref(self.error))

    def text(self) -> str:
        return (self.error.value or b"").decode()

    def plan(self, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...], int]:
        """The status, the shape of the output, and the bytes of the workspace."""
        given, out, size = Tensor2(None, shape), Tensor2(), ctypes.c_int64(-1)
        status = self("plan", ctypes.byref(given), ctypes.byref(out), ctypes.byref(size))
        return status, tuple(out.shape), size.value

    def run(self, x: np.ndarray, out: np.ndarray, workspace: np.ndarray | None = None) -> int:
        given, made = Tensor2(x.ctypes.data, x.shape), Tensor2(out.ctypes.data, out.shape)
        memory, size = (None, 0) if workspace is None else (workspace.ctypes.data, workspace.nbytes)
        pointers = [ctypes.byref(s) for s in (self.model, given, made)]
        return self("run", *pointers, ctypes.c_void_p(memory), ctypes.c_int64(size))


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.abs(found - expected).max(initial=0) < 1e-5)


# -- object files and static libraries --

MAIN = """
#include <stdio.h>
#include "m.h"
int main(void) {
    static float x[784], y[10];
    static unsigned char workspace[M_WORKSPACE_BYTES];
    m_model model;
    m_inputs inputs = {x};
    m_outputs outputs = {y};
    const char *error = "";
    int64_t bytes;
    if (fread(x, sizeof(float), 784, stdin) != 784) return 10;
    if (m_init(&model, &error) != M_OK) return 11;
    if (m_plan(&inputs, &outputs, &bytes, &error) != M_OK || bytes != M_WORKSPACE_BYTES) return 12;
    if (m_run(&model, &inputs, &outputs, workspace + 1, sizeof workspace - 1, &error) != M_INVALID) return 13;
    fprintf(stderr, "%s\\n", error);
    if (m_run(&model, &inputs, &outputs, workspace, sizeof workspace, &error) != M_OK) return 14;
    fwrite(y, sizeof(float), 10, stdout);
    m_free(&model);
    return 0;
}
"""


def built(folder: Path, source: str, *files: str, compiler: str = "gcc") -> Path:
    """A program of C, compiled with all warnings as errors."""
    suffix, standard = (".cpp", "c++17") if compiler == "g++" else (".c", "c99")
    (folder / f"main{suffix}").write_text(source)
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    command = [compiler, *flags, f"main{suffix}", *files, "-o", "main", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "main"


@needs_gcc
@pytest.mark.parametrize("suffix", [".o", ".a"])
def test_a_c_program_computes_what_numpy_does(static, tmp_path, suffix):
    ex, reference = static
    ex.export_library(tmp_path / f"m{suffix}", header=tmp_path / "m.h")
    assert (tmp_path / f"m{suffix}").stat().st_size <= MAXIMUM_MLP
    x = images(1)
    done = subprocess.run(
        [built(tmp_path, MAIN, f"m{suffix}")], input=x.tobytes(), capture_output=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0
    assert done.stderr.decode() == "the workspace has fewer bytes than _plan says; or pass 0\n"
    assert close(np.frombuffer(done.stdout, "float32"), reference(x)[0])


@linux
def test_an_object_file_needs_only_the_c_library(static, symbolic, tmp_path):
    known = {"malloc", "free", "memcpy", "memset"}
    for (ex, _), name in ((static, "m"), (symbolic, "n")):
        ex.export_library(tmp_path / f"{name}.o", header=tmp_path / f"{name}.h")
        data = (tmp_path / f"{name}.o").read_bytes()
        symbols = read_symbols(data)
        assert symbols.undefined <= known
        assert symbols.defined == {f"{name}_{what}" for what in ("init", "free", "plan", "run")}
        assert not symbols.hidden
        weights = 4 * (784 * 256 + 256 + 256 * 16 + 16)
        assert len(data) - weights < MAXIMUM_RUNTIME


@needs_gcc
@pytest.mark.parametrize("suffix", [".o", ".so"])
def test_two_programs_and_a_fork_in_one_process(static, tmp_path, suffix):
    """Functions of the same graph in two files stay apart, and a child of fork computes, without its parent's threads."""
    source = """
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "one.h"
#include "two.h"
static float x[784], y[10], z[10];
static int both(void) {
    one_model first;
    two_model second;
    one_inputs a = {x};
    one_outputs b = {y};
    two_inputs c = {x};
    two_outputs d = {z};
    if (one_init(&first, NULL) || two_init(&second, NULL)) return 1;
    return one_run(&first, &a, &b, NULL, 0, NULL) || two_run(&second, &c, &d, NULL, 0, NULL);
}
int main(void) {
    int status;
    pid_t child;
    if (fread(x, sizeof(float), 784, stdin) != 784 || two_set_threads(2, NULL) || both()) return 1;
    child = fork();
    if (child == 0) {
        memset(z, 0, sizeof z);
        _exit(both() || z[0] == 0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) return 2;
    fwrite(y, sizeof y, 1, stdout);
    fwrite(z, sizeof z, 1, stdout);
    return 0;
}
"""
    (one, first), (two, second) = static, mlp(1, seed=5)
    files = [f"{tmp_path}/one{suffix}", f"{tmp_path}/two{suffix}"]
    one.export_library(files[0], header=tmp_path / "one.h")
    two.export_library(files[1], header=tmp_path / "two.h", threads=True)
    x = images(1)
    program = built(tmp_path, f"#define _POSIX_C_SOURCE 200809L\n{source}", *files, "-pthread")
    done = subprocess.run([program], input=x.tobytes(), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0
    found = np.frombuffer(done.stdout, "float32").reshape(2, 10)
    assert close(found, np.concatenate([first(x), second(x)]))


@needs_gxx
def test_the_header_is_one_of_cpp(symbolic, tmp_path):
    ex, _ = symbolic
    ex.export_library(tmp_path / "m.o", header=tmp_path / "m.h", threads=True)
    source = (
        '#include "m.h"\nint main() { m_model model; return m_init(&model, nullptr) + m_set_threads(1, nullptr); }\n'
    )
    assert subprocess.run([built(tmp_path, source, "m.o", compiler="g++")], check=False).returncode == 0


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("llvm -mtriple=aarch64-unknown-linux-gnu", "aarch64"),
        ("llvm -mtriple=riscv64-unknown-linux-gnu -mattr=+m,+a,+f,+d", "riscv64"),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v2", "x86_64"),
    ],
)
def test_object_files_for_other_machines(tmp_path, target, machine):
    ex, _ = mlp("n", target=target)
    ex.export_library(tmp_path / "m.o", header=tmp_path / "m.h", weights=tmp_path / "m.weights")
    symbols = read_symbols((tmp_path / "m.o").read_bytes())
    assert symbols.machine == machine
    own = {"malloc", "free", "open", "lseek", "mmap", "munmap", "close", "memcpy", "memset"}
    assert symbols.undefined <= own
    assert f"Machines: {target.split('=')[1].split()[0]}, processor" in (tmp_path / "m.h").read_text()


@pytest.mark.parametrize(
    ("target", "compiler", "emulator"),
    [
        ("-mtriple=aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc", "qemu-aarch64"),
        ("-mtriple=armv7-unknown-linux-gnueabihf -mattr=+neon,+vfp3", "arm-linux-gnueabihf-gcc", "qemu-arm"),
        (
            "-mtriple=riscv64-unknown-linux-gnu -mattr=+m,+a,+f,+d,+c -mabi=lp64d",
            "riscv64-linux-gnu-gcc",
            "qemu-riscv64",
        ),
    ],
    ids=["aarch64", "armv7", "riscv64"],
)
def test_other_machines_compute_what_numpy_does(tmp_path, target, compiler, emulator):
    missing = [program for program in (compiler, emulator) if shutil.which(program) is None]
    if missing:
        pytest.skip(f"there is no {' and no '.join(missing)}")
    ex, reference = mlp(1, target=f"llvm {target}")
    weights = tmp_path / "m.weights"
    ex.export_library(tmp_path / "m.o", header=tmp_path / "m.h", weights=weights)
    source = MAIN.replace("m_init(&model, ", f'm_init(&model, "{weights}", ')
    program, x = built(tmp_path, source, "m.o", "-static", compiler=compiler), images(1)
    done = subprocess.run([emulator, program], input=x.tobytes(), capture_output=True, check=False, timeout=120)
    assert done.returncode == 0
    assert close(np.frombuffer(done.stdout, "float32"), reference(x)[0])


# -- shared libraries --


@pytest.fixture(scope="module")
def shared(symbolic, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    symbolic[0].export_library(folder / "m.so", header=folder / "m.h")
    return Program(folder / "m.so"), symbolic[1]


@needs_linker
@pytest.mark.parametrize("count", [0, 1, 7, 33])
def test_symbolic_extents(shared, count):
    program, reference = shared
    status, shape, size = program.plan((count, 784))
    assert (status, shape) == (OK, (count, 10))
    x, brought, own = images(count), np.full((count, 10), np.nan, "float32"), np.empty((count, 10), "float32")
    assert program.run(x, brought, np.empty(size, "uint8")) == OK
    assert program.run(x, own) == OK
    assert close(brought, reference(x)) and np.array_equal(brought, own)


@needs_linker
def test_wrong_arguments_have_a_text(shared):
    program, _ = shared
    x, out = images(3), np.empty((3, 10), "float32")
    assert program.plan((3, 783))[0] == INVALID
    assert program.text() == "inputs->x: expected shape (n, 784)"
    assert program.plan((-1, 784))[0] == INVALID
    assert program.text() == "an extent of a shape is negative, or larger than 2^40"
    assert program.run(x, np.empty((4, 10), "float32")) == INVALID
    assert program.text() == "outputs->output_0: expected n elements in dimension 0"
    _, _, size = program.plan(x.shape)
    assert program.run(x, out, np.empty(size - 1, "uint8")) == INVALID
    assert program.text() == "the workspace has fewer bytes than _plan says; or pass 0"
    misaligned = np.empty(x.nbytes + 1, "uint8")[1:].view("float32").reshape(x.shape)
    assert program.run(misaligned, out) == INVALID
    assert program.text() == "inputs->x: expected memory aligned to 4 bytes"
    none = Tensor2(None, x.shape)
    pointers = [ctypes.byref(s) for s in (program.model, none, Tensor2(out.ctypes.data, out.shape))]
    assert program("run", *pointers, None, ctypes.c_int64(0)) == INVALID
    assert program.text() == "inputs->x: has no memory"
    assert program("run", None, *pointers[1:], None, ctypes.c_int64(0)) == INVALID
    assert program.text() == "a pointer that must not be NULL is NULL"
    empty = Model()
    assert program("run", ctypes.byref(empty), *pointers[1:], None, ctypes.c_int64(0)) == INVALID
    assert program.text() == "the model is not initialized, or was freed; call _init first"


def _threads() -> int:
    """The threads of this process."""
    return len(os.listdir("/proc/self/task"))


@linux
@needs_linker
def test_many_threads_call_one_model(symbolic, tmp_path):
    ex, reference = symbolic
    ex.export_library(tmp_path / "t.so", header=tmp_path / "t.h", threads=True)
    program = Program(tmp_path / "t.so", "t")
    assert program("set_threads", 0) == INVALID
    assert program.text() == "the number of threads must be 1 to 256"
    assert program.run(images(64), np.empty((64, 10), "float32")) == OK
    before = _threads()
    assert program("set_threads", 2) == OK
    assert program.run(images(64), np.empty((64, 10), "float32")) == OK
    assert _threads() == before + 1
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = images(5 + seed, seed)
        expected, out = reference(x), np.empty((5 + seed, 10), "float32")
        workspace = np.empty(program.plan(x.shape)[2], "uint8")
        for _ in range(30):
            out.fill(np.nan)
            if program.run(x, out, workspace) != OK or not close(out, expected):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_linker
def test_a_shared_library_is_loaded_as_any_other(symbolic, tmp_path):
    ex, reference = symbolic
    ex.export_library(tmp_path / "m.so", header=tmp_path / "m.h")
    assert (tmp_path / "m.so").stat().st_size <= MAXIMUM_MLP
    loaded = load_module(tmp_path / "m.so")
    x = images(6)
    vm = VirtualMachine(loaded, oneir.cpu())
    assert close(vm["forward"](x).numpy(), reference(x))
    steps: list[str] = []
    vm.set_instrument(lambda func, name, before, ret, *args: steps.append(name) if before else None)
    assert close(vm["forward"](x).numpy(), reference(x))  # bytecode, which calls kernels one by one
    assert len([name for name in steps if name.startswith("fused")]) == 2
    with pytest.raises(UnsupportedError, match="export it where it is compiled"):
        loaded.export_library(tmp_path / "again.o", header=tmp_path / "again.h")


# -- weights in a file of their own --


@needs_linker
def test_weights_in_a_file_of_their_own(symbolic, tmp_path):
    ex, reference = symbolic
    weights = tmp_path / "w.weights"
    ex.export_library(tmp_path / "w.so", header=tmp_path / "w.h", weights=weights)
    assert (tmp_path / "w.so").stat().st_size <= 2 * MAXIMUM_RUNTIME
    program = Program(tmp_path / "w.so", "w", weights)
    x, out = images(4), np.empty((4, 10), "float32")
    assert program.status == OK and program.run(x, out) == OK
    assert close(out, reference(x))
    program.library.w_free(ctypes.byref(program.model))
    assert program.run(x, out) == INVALID
    assert close(VirtualMachine(load_module(tmp_path / "w.so"), oneir.cpu())["forward"](x).numpy(), reference(x))

    content = weights.read_bytes()
    unread = "the file of weights cannot be read, or has another size"
    other = "the file is not that of the weights with which the model was exported"
    for name, data, says in (
        ("missing", None, unread),
        ("short", content[:-1], unread),
        ("empty", b"", unread),
        ("other", bytes([content[40] ^ 1]).join([content[:40], content[41:]]), other),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        again = Program(tmp_path / "w.so", "w", tmp_path / name)
        assert (again.status, again.text()) == (BAD_WEIGHTS, says)
    weights.unlink()
    with pytest.raises(LibraryError, match=r"the weights of .*w\.so, .*w\.weights, cannot be read: No such file"):
        load_module(tmp_path / "w.so")


# -- dtypes, names, results --


@needs_linker
@pytest.mark.parametrize(
    ("dtype", "c_type"),
    [
        ("float64", "double"),
        ("float16", "uint16_t"),
        ("int8", "int8_t"),
        ("uint8", "uint8_t"),
        ("int64", "int64_t"),
        ("bool", "bool"),
    ],
)
def test_dtypes(tmp_path, dtype, c_type):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((oneir.tir.Var("n", "int64"), 3), dtype))
    with builder.function("main", [x]):
        value = relax.op.logical_not(x) if dtype == "bool" else relax.op.add(x, x)
        builder.emit_func_output(builder.emit(value))
    ex = relax.build(builder.get(), "llvm")
    ex.export_library(tmp_path / "d.so", header=tmp_path / "d.h")
    assert f"    const {c_type} *x; /* {dtype}[n, 3] */\n    int64_t x_shape[2];\n" in (tmp_path / "d.h").read_text()
    given = (np.arange(15).reshape(5, 3) % 2).astype(dtype)
    out = np.empty_like(given)
    program = Program(tmp_path / "d.so", "d")
    assert program.run(given, out) == OK
    assert np.array_equal(out, ~given if dtype == "bool" else given + given)


@needs_linker
def test_numbers_tuples_constants_and_arguments(tmp_path):
    """A result that is an input has no field, one that is a constant is copied; names become identifiers."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "int32"), k: R.Prim(value="k")):  # type of `k`: int64
            k = T.int64()
            with R.dataflow():
                a = R.add(x, R.const([5, 6], "int32"))
                b = R.full((k,), R.const(2.5, "float32"), "float32")
                R.output(a, b)
            return (a, (b, x), R.const([5, 6], "int32"))

    ex = relax.build(Module, "llvm")
    ex.export_library(tmp_path / "t.so", header=tmp_path / "t.h")
    header = (tmp_path / "t.h").read_text()
    assert "typedef struct t_inputs {\n    const int32_t *x; /* int32[2] */\n    int64_t k;\n} t_inputs;" in header
    assert "The result `output_1_1` is the input `x` itself." in header

    class Inputs(ctypes.Structure):
        _fields_ = (("x", ctypes.c_void_p), ("k", ctypes.c_int64))

    class Outputs(ctypes.Structure):
        _fields_ = (
            ("output_0", ctypes.c_void_p),
            ("output_1_0", ctypes.c_void_p),
            ("output_1_0_shape", ctypes.c_int64 * 1),
            ("output_2", ctypes.c_void_p),
        )

    program = Program(tmp_path / "t.so", "t")
    x, a, c = np.array([1, 2], "int32"), np.zeros(2, "int32"), np.zeros(2, "int32")
    given, made, size = Inputs(x.ctypes.data, 4), Outputs(), ctypes.c_int64()
    pointers = [ctypes.byref(given), ctypes.byref(made)]
    assert program("plan", *pointers, ctypes.byref(size)) == OK
    assert made.output_1_0_shape[0] == 4
    b = np.zeros(4, "float32")
    made.output_0, made.output_1_0, made.output_2 = (array.ctypes.data for array in (a, b, c))
    assert program("run", ctypes.byref(program.model), *pointers, None, ctypes.c_int64(0)) == OK
    assert a.tolist() == [6, 8] and b.tolist() == [2.5] * 4 and c.tolist() == [5, 6]


@needs_linker
def test_branches_and_several_functions(tmp_path):
    """`main` gives its functions the plain names, others have theirs in between."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 2), "float32"), double: R.Tensor((), "bool")) -> R.Tensor(("n", 2), "float32"):
            if double:
                y = R.add(x, x)
            else:
                y = R.multiply(x, x)
            return y

        @R.function
        def sums(x: R.Tensor(("n", "m"), "float32")):
            return R.sum(x, axis=1, keepdims=True)

    ex = relax.build(Module, "llvm")
    ex.export_library(tmp_path / "b.so", header=tmp_path / "b.h")
    program, sums = Program(tmp_path / "b.so", "b"), Program(tmp_path / "b.so", "b")
    x, out = np.arange(6, dtype="float32").reshape(3, 2), np.empty((3, 2), "float32")

    class Inputs(ctypes.Structure):
        _fields_ = (("x", Tensor2), ("double", ctypes.c_void_p))

    for double, expected in ((True, x + x), (False, x * x)):
        flag = np.array(double)
        given, made = Inputs(Tensor2(x.ctypes.data, x.shape), flag.ctypes.data), Tensor2(out.ctypes.data, out.shape)
        pointers = [ctypes.byref(s) for s in (program.model, given, made)]
        assert program("run", *pointers, None, ctypes.c_int64(0)) == OK
        assert np.array_equal(out, expected)
    total = np.empty((3, 1), "float32")
    sums.name = "b_sums"
    assert sums.plan(x.shape)[:2] == (OK, (3, 1))
    assert sums.run(x, total) == OK
    assert np.array_equal(total, x.sum(axis=1, keepdims=True))


# -- refusals --


def test_calls_of_python_are_refused(tmp_path):
    register_global_func("tests.standalone.double", lambda x, out: None, override=True)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                y = R.call_dps_packed("tests.standalone.double", (x,), R.Tensor((2,), "float32"))
                R.output(y)
            return y

    ex = relax.build(Module, "llvm")
    says = "`main` calls `tests.standalone.double`, a function of Python's, which no program has on its own"
    with pytest.raises(UnsupportedError, match=says):
        ex.export_library(tmp_path / "m.o", header=tmp_path / "m.h")
    assert not list(tmp_path.iterdir())


def test_bytecode_is_refused(tmp_path):
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Object:
            y = R.add(x, x)
            return R.call_pure_packed("tests.standalone.object", y, sinfo_args=(R.Object,))

    ex = relax.build(Module, "llvm")
    says = "`main` stays bytecode, which Python executes, so it cannot stand alone: .*`tests.standalone.object`"
    with pytest.raises(UnsupportedError, match=says):
        ex.export_library(tmp_path / "m.o", header=tmp_path / "m.h")


def test_graphs_without_kernels_are_refused(tmp_path):
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Object:
            return R.call_pure_packed("tests.standalone.object", x, sinfo_args=(R.Object,))

    with pytest.raises(UnsupportedError, match=r"`main` stays bytecode.*: it only calls functions of Python's"):
        relax.build(Module, "llvm").export_library(tmp_path / "m.o", header=tmp_path / "m.h")


def test_functions_of_loops_are_refused(tmp_path):
    @T.prim_func
    def increment(a: T.Buffer((4,), "float32")):
        for i in range(4):
            a[i] = a[i] + T.float32(1)

    with pytest.raises(UnsupportedError, match="are made of graphs; call these functions from one"):
        oneir.compile(increment).export_library(tmp_path / "m.o", header=tmp_path / "m.h")


def test_programs_of_devices_are_refused(tmp_path):
    ex, _ = mlp(1, target="opencl")
    with pytest.raises(UnsupportedError, match='compiled for opencl: compile it with target="llvm"'):
        ex.export_library(tmp_path / "m.o", header=tmp_path / "m.h")


@pytest.mark.parametrize(
    ("name", "header", "options", "error", "says"),
    [
        ("m.tar", "m.h", {}, InvalidValue, r"is a \.so, .* file; found m\.tar"),
        ("m.o", "my-model.h", {}, InvalidValue, "'my-model' is no identifier of C"),
        ("m.o", "while.h", {}, InvalidValue, "'while' is no identifier of C"),
        ("m.o", None, {"weights": "w"}, InvalidValue, "give `header` as well"),
        ("m.o", None, {"threads": True}, InvalidValue, "give `header` as well"),
        ("no/m.o", "m.h", {}, LibraryError, "the directory .*no does not exist"),
    ],
)
def test_other_refusals(static, tmp_path, name, header, options, error, says):
    with pytest.raises(error, match=says):
        static[0].export_library(tmp_path / name, header=header and tmp_path / header, **options)


def test_large_weights_want_a_file_of_their_own(static, tmp_path, monkeypatch):
    monkeypatch.setattr("oneir.driver.standalone._LARGEST", 800_000)
    with pytest.raises(UnsupportedError, match=r"820264 bytes of weights do not fit .* weights=\"\.\.\.\""):
        static[0].export_library(tmp_path / "m.o", header=tmp_path / "m.h")
    static[0].export_library(tmp_path / "m.o", header=tmp_path / "m.h", weights=tmp_path / "m.weights")
    assert (tmp_path / "m.weights").stat().st_size == 128 + 820_264


@needs_linker
def test_a_linker_of_the_users_choice(static, tmp_path):
    """It gets the object files and its own options; one that leaves the weights out is found out."""
    calls: list[object] = []

    def link(out: str, files: list[str], option: int) -> None:
        calls.append(option)
        subprocess.run(["cc", "-shared", "-o", out, *files], check=True)

    def empty(out: str, files: list[str]) -> None:
        Path(out).write_bytes(b"")

    static[0].export_library(tmp_path / "m.so", link, header=tmp_path / "m.h", option=3)
    assert calls == [3] and load_module(tmp_path / "m.so").vm_functions == ["forward"]
    with pytest.raises(LibraryError, match="does not have the place of the weights once"):
        static[0].export_library(tmp_path / "m.so", empty, header=tmp_path / "m.h")


def test_refusals_for_other_machines(tmp_path):
    ex, _ = mlp(1, target="llvm -mtriple=riscv64-unknown-linux-gnu")
    with pytest.raises(UnsupportedError, match="there are no threads for riscv64-unknown-linux-gnu"):
        ex.export_library(tmp_path / "m.o", header=tmp_path / "m.h", threads=True)
    with pytest.raises(LibraryError, match="linker makes no shared library for riscv64-unknown-linux-gnu"):
        ex.export_library(tmp_path / "m.so", header=tmp_path / "m.h")
