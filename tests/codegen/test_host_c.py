"""The target `c`: C for the host computes what LLVM's code, the interpreter and NumPy do; what it says, and refuses."""

from __future__ import annotations

import ctypes
import subprocess
import warnings

import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.contrib import cc
from oneir.runtime.error import CompileError, InvalidValue, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing import interpret

rng = np.random.default_rng(7)
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def run(func, target, *arrays):
    """The arguments after a call of a function that is compiled for a target."""
    args = [oneir.runtime.tensor(array.copy()) for array in arrays]
    oneir.compile(func, target=target)(*args)
    return [arg.numpy() for arg in args]


def elementwise(dtype, **operations):
    """A function of two tensors of 64 elements, with a result for each operation."""
    a, b = (te.placeholder((64,), dtype, name=name) for name in "AB")
    outs = [
        te.compute((64,), lambda i, f=f: f(a[i], b[i]).astype("int64"), name=name) for name, f in operations.items()
    ]
    return te.create_prim_func([a, b, *outs]), len(outs)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_what_the_interpreter_computes(dtype):
    info = np.iinfo(dtype)
    a, b = (rng.integers(info.min, info.max, 64, dtype, endpoint=True) for _ in range(2))
    b[:20] = rng.integers(0, 9, 20)
    b[20], a[21], b[21] = 0, info.min, -1 if info.min else info.max
    func, count = elementwise(
        dtype,
        add=lambda x, y: x + y,
        sub=lambda x, y: x - y,
        mul=lambda x, y: x * y,
        floordiv=tir.floordiv,
        floormod=tir.floormod,
        truncdiv=tir.truncdiv,
        truncmod=tir.truncmod,
        left=lambda x, y: x << y,
        right=lambda x, y: x >> y,
        greatest=tir.max,
        bits=lambda x, y: (x ^ y) & ~x,
        ones=lambda x, y: tir.popcount(x),
        zeros=lambda x, y: tir.clz(x),
        saturated=lambda x, y: (x.astype("float32") * tir.const(1.5, "float32")).astype(dtype),
        half=lambda x, y: (x.astype("float16") * tir.const(0.3, "float16")).astype("float32"),
    )
    outs = [np.zeros(64, "int64") for _ in range(count)]
    expected = [array.copy() for array in (a, b, *outs)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        interpret(func, *expected)
    for found, want in zip(run(func, "c", a, b, *outs), expected, strict=True):
        np.testing.assert_array_equal(found, want)


def test_half_precision_rounds_as_numpy_does():
    values = np.concatenate([np.arange(65536, dtype="uint16").view("float16").astype("float32")])
    with np.errstate(all="ignore"):
        near = np.concatenate(
            [values, np.nextafter(values, np.float32(1e30)), values + np.float32(3e-8), values * 1.01]
        )
        want = near.astype("float16")
    near = near.astype("float32")
    a = te.placeholder(near.shape, "float32", name="a")
    b = te.compute(near.shape, lambda i: a[i].astype("float16"), name="b")
    _, found = run(te.create_prim_func([a, b]), "c", near, np.zeros_like(want))
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mathematics_is_the_c_library_s_within_a_few_units(dtype):
    x = rng.uniform(0.1, 3, 64).astype(dtype)
    a = te.placeholder((64,), dtype, name="a")
    names = ("exp", "log", "sqrt", "tanh", "sin", "cos", "erf", "floor", "round", "rsqrt", "exp10")
    outs = [te.compute((64,), lambda i, name=name: getattr(tir, name)(a[i]), name=f"y_{name}") for name in names]
    found = run(te.create_prim_func([a, *outs]), "c", x, *[np.zeros_like(x) for _ in names])[1:]
    wide = x.astype("float64")
    want = [np.exp(wide), np.log(wide), np.sqrt(wide), np.tanh(wide), np.sin(wide), np.cos(wide)]
    want += [_erf(wide), np.floor(wide), np.round(wide), 1 / np.sqrt(wide), 10.0**wide]
    for name, got, expected in zip(names, found, want, strict=True):
        tolerance = 2e-6 if dtype == "float32" else 1e-14
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def _erf(x):
    erf = ctypes.CDLL(None).erf
    erf.restype, erf.argtypes = ctypes.c_double, [ctypes.c_double]
    return np.array([erf(value) for value in x])


@I.ir_module
class Calls:
    @T.prim_func
    def main(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32"), n: T.int32):
        scratch = T.alloc_buffer((40000,), "float32")
        Calls.twice(a.data, scratch.data, n)
        for i in T.parallel(8):
            for j in T.vectorized(1):
                if i < n:
                    b[i + j] = scratch[i + j] + T.float32(1)

    @T.prim_func(private=True)
    def twice(x: T.handle("float32"), y: T.handle("float32"), n: T.int32):
        X = T.decl_buffer((8,), "float32", data=x)
        Y = T.decl_buffer((40000,), "float32", data=y)
        i = T.alloc_buffer((1,), "int32")
        i[0] = 0
        while i[0] < n:
            Y[i[0]] = X[i[0]] * T.float32(2)
            i[0] = i[0] + 1


def test_functions_call_one_another_and_have_memory_of_the_runtime():
    a, b = rng.random(8).astype("float32"), np.zeros(8, "float32")
    args = [oneir.runtime.tensor(a), oneir.runtime.tensor(b)]
    oneir.tir.build(Calls, target="c")["main"](*args, 6)
    np.testing.assert_array_equal(args[1].numpy(), np.where(np.arange(8) < 6, a * 2 + 1, 0).astype("float32"))


def test_arguments_are_checked_as_elsewhere():
    built = oneir.tir.build(Calls, target="c")
    tensor = oneir.runtime.tensor(np.zeros(8, "float32"))
    with pytest.raises(TypeMismatch, match="argument 2 `n` of `main`: expected an integer, found str"):
        built["main"](tensor, tensor, "six")
    with pytest.raises(TypeMismatch, match="argument 0 `a` of `main`: expected dtype float32, found float64"):
        built["main"](oneir.runtime.tensor(np.zeros(8)), tensor, 6)


def test_registered_functions_are_called_where_their_condition_holds():
    seen = []

    @oneir.register_global_func("test_host_c.note", override=True)
    def note(x, text):
        seen.append((x, text))
        return x + 1

    @T.prim_func
    def main(a: T.Buffer((6,), "int32")):
        for i in range(6):
            a[i] = T.if_then_else(i % 2 == 0, T.call_packed("test_host_c.note", i, 'odd "text"?', dtype="int32"), -1)

    (found,) = run(main, "c", np.zeros(6, "int32"))
    assert found.tolist() == [1, -1, 3, -1, 5, -1] and seen == [(i, 'odd "text"?') for i in (0, 2, 4)]


def test_an_error_of_a_registered_function_comes_out_as_it_was_raised():
    @oneir.register_global_func("test_host_c.fails", override=True)
    def fails(x):
        raise KeyError(f"no {x}")

    @T.prim_func
    def main(a: T.Buffer((600000,), "float32")):
        b = T.alloc_buffer((600000,), "float32")
        b[5] = a[3]
        T.evaluate(T.call_packed("test_host_c.fails", 3))
        a[0] = b[5]

    with pytest.raises(KeyError, match="no 3"):
        run(main, "c", np.zeros(600000, "float32"))


def test_c_functions_and_text_that_the_program_brings():
    @T.prim_func
    def main(a: T.Buffer((4,), "float64")):
        with T.attr(0, "pragma_import_c", "static double cube(double x) { return x * x * x; }"):
            for i in range(4):
                a[i] = T.call_extern("float64", "cube", a[i]) + T.call_pure_extern("float64", "hypot", a[i], a[i])

    x = rng.random(4)
    (found,) = run(main, "c", x)
    np.testing.assert_allclose(found, x**3 + np.hypot(x, x), rtol=1e-14)


def test_the_text_is_that_of_a_library_for_any_program_in_c(tmp_path):
    text = oneir.tir.build(Calls, target="c").inspect_source()
    assert text.count("int32_t __tvm_ffi_main(void* self_handle") == 2 and "static int32_t twice(float* x" in text
    (tmp_path / "module.c").write_text(
        text
        + """
#include <stdio.h>
#include <stdlib.h>
void* oneir_alloc_workspace(int64_t size, int64_t alignment) { return malloc(size); }
void oneir_free_workspace(void* memory) { free(memory); }
int32_t oneir_call_packed(void* name, void* args, int32_t num_args, void* result) { return -1; }
int main(void) {
  float a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, b[8] = {0};
  int64_t shape[1] = {8};
  oneir_tensor x = {a, 1, 0, 1, 73730, shape, NULL, 0}, y = {b, 1, 0, 1, 73730, shape, NULL, 0};
  oneir_value args[3] = {{7, 0, {.p = &x}}, {7, 0, {.p = &y}}, {1, 0, {.i = 3}}}, result;
  if (__tvm_ffi_main(NULL, args, 3, &result)) return 1;
  printf("%g %g %g %g\\n", b[0], b[1], b[2], b[3]);
  x.ndim = 2;
  if (__tvm_ffi_main(NULL, args, 3, &result) != -1 || result.code != 64) return 2;
  puts(((const char**)result.u.p)[1]);
  return 0;
}
"""
    )
    program = tmp_path / "program"
    compiler = cc.get_cc()
    assert compiler is not None
    subprocess.run([compiler, "-x", "c", "-std=c99", "-Wall", "-Werror", "-Wno-unused-function",
                    "-o", program, tmp_path / "module.c", "-lm"], check=True)  # fmt: skip
    lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines == ["3 5 7 0", "main: argument 0 `a`: expected shape (8,)"]


def test_a_library_and_a_module_of_the_same_text(tmp_path):
    executable = oneir.compile(Calls, target="c")
    executable.export_library(tmp_path / "lib.so")
    jitted = executable.jit()
    assert executable.jit() is jitted and executable.jit(force_recompile=True) is not jitted
    for module in (oneir.runtime.load_module(tmp_path / "lib.so"), jitted, executable.jit()):
        args = [oneir.runtime.tensor(np.full(8, k, "float32")) for k in (3, 0)]
        module["main"](*args, 8)
        np.testing.assert_array_equal(args[1].numpy(), np.full(8, 7, "float32"))


def test_graphs_run_their_kernels():
    @I.ir_module
    class Net:
        @R.function
        def main(x: R.Tensor((2, 16), "float32"), w: R.Tensor((16, 10), "float32")) -> R.Tensor((2, 10), "float32"):
            with R.dataflow():
                h = R.nn.relu(R.matmul(x, w))
                y = R.nn.softmax(h, axis=-1)
                R.output(y)
            return y

    x, w = (rng.standard_normal(shape).astype("float32") for shape in ((2, 16), (16, 10)))
    e = np.exp(np.maximum(x.astype("float64") @ w, 0))
    found = oneir.relax.VirtualMachine(oneir.compile(Net, target="c"), oneir.cpu())["main"](x, w)
    np.testing.assert_allclose(found.numpy(), e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_the_text_needs_no_compiler_and_a_call_does(monkeypatch):
    monkeypatch.setattr(cc, "get_cc", lambda: None)
    built = oneir.tir.build(Calls, target="c")
    assert "__tvm_ffi_main" in built.inspect_source("c")
    with pytest.raises(CompileError, match="this machine has none: install gcc or clang; inspect_source"):
        built["main"]
    with pytest.raises(InvalidValue, match="expected the format \"c\", found 'asm'"):
        built.inspect_source("asm")


def test_what_has_no_c_is_refused():
    @T.prim_func
    def threads(a: T.Buffer((4,), "float32")):
        for i in T.thread_binding(4, thread="threadIdx.x"):
            a[i] = T.float32(0)

    with pytest.raises(CompileError, match=r"threadIdx[.]x cannot run on the CPU"):
        oneir.tir.build(threads, target="c")

    @T.prim_func
    def imports(a: T.Buffer((4,), "float32")):
        with T.attr(0, "pragma_import_llvm", "define void @f() { ret void }"):
            a[0] = T.float32(0)

    with pytest.raises(CompileError, match='compiled for "llvm"; pragma_import_c brings C'):
        oneir.tir.build(imports, target="c")
