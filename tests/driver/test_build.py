"""Functions built natively give what NumPy gives, for every kind of statement, dtype and argument."""

from __future__ import annotations

import importlib
import threading

import ml_dtypes
import numpy as np
import pytest

import oneir
from oneir.codegen.units import SHARED
from oneir.runtime.error import (
    AssertionFailure,
    CompileError,
    DeviceError,
    ExecutionError,
    InvalidValue,
    OneIRError,
    ShapeMismatch,
    TypeMismatch,
    UnsupportedError,
)
from oneir.runtime.llvm_worker import Helper
from oneir.script import ir as I
from oneir.script import tir as T

rng = np.random.default_rng(7)


def run(func, *args):
    return oneir.build(func)(*args)


@T.prim_func
def matmul(A: T.Buffer((16, 24), "float32"), B: T.Buffer((24, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    for i, j, k in T.grid(16, 8, 24):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def test_matmul_with_init():
    a, b = rng.standard_normal((16, 24), dtype="float32"), rng.standard_normal((24, 8), dtype="float32")
    c = np.full((16, 8), np.nan, "float32")
    run(matmul, a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


def test_symbolic_shape_serves_every_size_including_none():
    @T.prim_func
    def scale(a: T.handle, b: T.handle, factor: T.float32):
        n = T.int32()
        m = T.int32()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n, m * 2), "float32")
        for i, j in T.grid(n, m):
            B[i, j * 2] = A[i, j] * factor
            B[i, j * 2 + 1] = A[i, j] - factor

    built = oneir.build(scale)
    for n, m in ((1, 1), (3, 5), (64, 33), (0, 4), (4, 0)):
        a = rng.standard_normal((n, m), dtype="float32")
        b = np.zeros((n, m * 2), "float32")
        built(a, b, 2.5)
        np.testing.assert_array_equal(b[:, ::2], a * np.float32(2.5))
        np.testing.assert_array_equal(b[:, 1::2], a - np.float32(2.5))
    with pytest.raises(ShapeMismatch, match=r"argument 1 `B` of `scale`.*expected shape \(n, m \* 2\)"):
        built(np.zeros((2, 3), "float32"), np.zeros((2, 5), "float32"), 1.0)


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unroll"])
def test_loop_kinds_agree(kind):
    loop = getattr(T, kind)

    @T.prim_func
    def square(A: T.Buffer((4, 37), "float32"), B: T.Buffer((4, 37), "float32")):
        for i in range(4):
            for j in loop(37):
                B[i, j] = A[i, j] * A[i, j] + T.float32(1)

    a = rng.standard_normal((4, 37), dtype="float32")
    b = np.zeros_like(a)
    run(square, a, b)
    np.testing.assert_allclose(b, a * a + 1, rtol=1e-6)


def test_parallel_loop_with_captured_values_and_private_memory():
    @T.prim_func
    def rows(A: T.Buffer((50, 70), "float32"), B: T.Buffer((50,), "float32"), shift: T.float32):
        for i in T.parallel(50):
            with T.block("row"):
                vi = T.axis.spatial(50, i)
                row = T.alloc_buffer((70,), "float32")
                for j in range(70):
                    row[j] = A[vi, j] + shift
                B[vi] = T.float32(0)
                for j in range(70):
                    B[vi] = B[vi] + row[j]

    a = rng.standard_normal((50, 70), dtype="float32")
    b = np.zeros(50, "float32")
    run(rows, a, b, 0.5)
    np.testing.assert_allclose(b, (a + 0.5).sum(1), rtol=1e-4, atol=1e-4)


def test_memory_beyond_the_stack_comes_from_the_runtime():
    @T.prim_func
    def twice(A: T.Buffer((300, 300), "float64"), B: T.Buffer((300, 300), "float64")):
        tmp = T.alloc_buffer((300, 300), "float64")
        for i, j in T.grid(300, 300):
            tmp[i, j] = A[j, i]
        for i, j in T.grid(300, 300):
            B[i, j] = tmp[i, j] + tmp[j, i]

    a = rng.standard_normal((300, 300))
    b = np.zeros_like(a)
    run(twice, a, b)
    np.testing.assert_array_equal(b, a + a.T)


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_arithmetic_wraps_and_never_traps(dtype):
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, -1 if info.min else 1, 0, 1, 2, 3, 7, info.max - 1, info.max], dtype)
    a, b = (x.ravel().copy() for x in np.meshgrid(values, values))
    n = len(a)

    @T.prim_func
    def arithmetic(A: T.Buffer((n,), dtype), B: T.Buffer((n,), dtype), C: T.Buffer((7, n), dtype)):
        for i in range(n):
            C[0, i] = A[i] + B[i]
            C[1, i] = A[i] - B[i]
            C[2, i] = A[i] * B[i]
            C[3, i] = A[i] // B[i]
            C[4, i] = A[i] % B[i]
            C[5, i] = T.truncdiv(A[i], B[i])
            C[6, i] = T.truncmod(A[i], B[i])

    c = np.zeros((7, n), dtype)
    run(arithmetic, a, b, c)

    def wrapped(x: int) -> int:
        x &= (1 << info.bits) - 1
        return x - (1 << info.bits) if info.min and x >> (info.bits - 1) else x

    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        truncated = 0 if y == 0 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)
        expected = [
            x + y, x - y, x * y, 0 if y == 0 else x // y, x if y == 0 else x % y, truncated, x - truncated * y,
        ]  # fmt: skip
        assert c[:, i].tolist() == [wrapped(v) for v in expected], (x, y)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_are_defined_for_every_count(dtype):
    info = np.iinfo(dtype)
    a = np.array([info.min, 1, 3, info.max, info.max // 3], dtype)
    counts = np.array([0, 1, info.bits - 1, info.bits, info.bits + 5], dtype)

    @T.prim_func
    def shifts(A: T.Buffer((5,), dtype), B: T.Buffer((5,), dtype), C: T.Buffer((2, 5, 5), dtype)):
        for i, j in T.grid(5, 5):
            C[0, i, j] = T.shift_left(A[i], B[j])
            C[1, i, j] = T.shift_right(A[i], B[j])

    c = np.zeros((2, 5, 5), dtype)
    run(shifts, a, counts, c)
    np.testing.assert_array_equal(c[0], np.left_shift(a[:, None], counts[None]))
    np.testing.assert_array_equal(c[1], np.right_shift(a[:, None], counts[None]))


def test_float_to_integer_casts_saturate():
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 127.9, -128.9, 200.0, 2.9, -2.9], "float32")

    @T.prim_func
    def cast(
        A: T.Buffer((10,), "float32"),
        B: T.Buffer((10,), "int8"),
        C: T.Buffer((10,), "uint32"),
        D: T.Buffer((10,), "bool"),
    ):
        for i in range(10):
            B[i] = T.Cast("int8", A[i])
            C[i] = T.Cast("uint32", A[i])
            D[i] = T.Cast("bool", A[i])

    b, c, d = np.zeros(10, "int8"), np.zeros(10, "uint32"), np.zeros(10, "bool")
    run(cast, x, b, c, d)
    assert b.tolist() == [0, 127, -128, 127, -128, 127, -128, 127, 2, -2]
    assert c.tolist() == [0, 2**32 - 1, 0, 2**32 - 1, 0, 127, 0, 200, 2, 0]
    assert d.all()


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_float_to_integer_casts_at_the_ends_of_the_range(source, target):
    limits = np.iinfo(target)
    ends = [float(limits.min), float(limits.max)]
    x = np.array([*ends, *(e * 1.01 for e in ends), *(e - 0.9 for e in ends), *(e + 0.9 for e in ends)])
    with np.errstate(over="ignore"):
        x = np.append(x, [np.inf, -np.inf, np.nan, -0.5]).astype(source)
    n = len(x)

    @T.prim_func
    def cast(A: T.Buffer((n,), source), B: T.Buffer((n,), target)):
        for i in range(n):
            B[i] = T.Cast(target, A[i])

    b = np.zeros(n, target)
    run(cast, x, b)
    exact = [0 if v != v else limits.min if v == -np.inf else limits.max if v == np.inf else int(v) for v in x]
    assert b.tolist() == [min(max(v, limits.min), limits.max) for v in exact]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_dtypes(dtype):
    numpy_dtype = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    a = rng.standard_normal(33).astype(numpy_dtype)
    b = rng.standard_normal(33).astype(numpy_dtype)

    @T.prim_func
    def combine(
        A: T.Buffer((33,), dtype), B: T.Buffer((33,), dtype), C: T.Buffer((33,), dtype), D: T.Buffer((33,), "float64")
    ):
        for i in T.vectorized(33):
            C[i] = T.max(A[i] * B[i], A[i] - B[i])
        for i in range(33):
            D[i] = T.Cast("float64", A[i])

    c, d = np.zeros(33, numpy_dtype), np.zeros(33, "float64")
    run(combine, a, b, c, d)
    expected = np.maximum(a * b, a - b)
    np.testing.assert_allclose(
        c.astype("float64"), expected.astype("float64"), rtol=2 * float(ml_dtypes.finfo(numpy_dtype).eps)
    )
    np.testing.assert_array_equal(d, a.astype("float64"))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_small_dtypes_are_stored_and_cast(dtype):
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype))
    low = -7 if dtype == "int4" else 0
    a = (
        np.linspace(low, 7, 15).round().astype("float32")
        if dtype.endswith("int4")
        else rng.standard_normal(15).astype("float32")
    )
    narrow = a.astype(numpy_dtype)

    @T.prim_func
    def cast(A: T.Buffer((15,), dtype), B: T.Buffer((15,), "float32"), C: T.Buffer((15,), dtype)):
        for i in range(15):
            B[i] = T.Cast("float32", A[i])
            C[i] = T.Cast(dtype, B[i])

    b, c = np.zeros(15, "float32"), np.zeros(15, numpy_dtype)
    run(cast, narrow, b, c)
    np.testing.assert_array_equal(b, narrow.astype("float32"))
    np.testing.assert_array_equal(c.view("uint8"), narrow.view("uint8"))


def test_max_and_min_propagate_nan_from_either_side():
    a = np.array([1.0, np.nan, 2.0, np.nan], "float32")
    b = np.array([np.nan, 1.0, 3.0, np.nan], "float32")

    @T.prim_func
    def extremes(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((3, 4), "float32")):
        for i in range(4):
            C[0, i] = T.max(A[i], B[i])
            C[1, i] = T.min(A[i], B[i])
            C[2, i] = T.max(A[i], T.float32(0))

    c = np.zeros((3, 4), "float32")
    run(extremes, a, b, c)
    np.testing.assert_array_equal(c, [np.maximum(a, b), np.minimum(a, b), np.maximum(a, 0)])


def test_branches_while_and_jumps():
    @T.prim_func
    def collatz(A: T.Buffer((20,), "int32"), B: T.Buffer((20,), "int32")):
        x = T.alloc_buffer((1,), "int32")
        for i in range(20):
            x[0] = A[i]
            B[i] = 0
            while x[0] > 1:
                B[i] = B[i] + 1
                if x[0] % 2 == 0:
                    x[0] = x[0] // 2
                else:
                    x[0] = x[0] * 3 + 1

    a = np.arange(1, 21, dtype="int32")
    b = np.zeros(20, "int32")
    run(collatz, a, b)

    def steps(n):
        count = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else n * 3 + 1
            count += 1
        return count

    assert b.tolist() == [steps(int(n)) for n in a]


def test_gather_scatter_and_lazy_choice():
    @T.prim_func
    def pick(A: T.Buffer((10,), "float32"), I: T.Buffer((16,), "int32"), B: T.Buffer((16,), "float32")):
        for i in T.vectorized(16):
            B[15 - i] = T.if_then_else(I[i] >= 0, A[I[i]], T.float32(-1))

    a = rng.standard_normal(10).astype("float32")
    index = np.array([3, -1000000, 0, 9, -5, 1, 2, 8, -2147483648, 4, 5, 6, 7, -1, 9, 9], "int32")
    b = np.zeros(16, "float32")
    run(pick, a, index, b)
    np.testing.assert_array_equal(b[::-1], np.where(index >= 0, a[np.clip(index, 0, 9)], -1))


def test_zero_dimensional_buffers_and_scalars():
    @T.prim_func
    def store(A: T.Buffer((), "float32"), n: T.int64, x: T.float64, flag: T.bool):
        A[()] = T.Cast("float32", n) + T.Cast("float32", x) + T.Select(flag, T.float32(100), T.float32(0))

    a = np.zeros((), "float32")
    built = oneir.build(store)
    built(a, 3, 0.5, True)
    assert a[()] == 103.5
    built(a, -3, 2, False)
    assert a[()] == -1.0
    with pytest.raises(TypeMismatch, match=r"argument 1 `n`.*expected an integer, found"):
        built(a, 1.5, 0.5, True)


def test_strided_buffers_take_views_without_a_copy():
    @T.prim_func
    def copy(a: T.handle, B: T.Buffer((4, 6), "float32")):
        s0 = T.int64()
        s1 = T.int64()
        A = T.match_buffer(a, (4, 6), "float32", strides=(s0, s1))
        for i, j in T.grid(4, 6):
            B[i, j] = A[i, j]

    base = rng.standard_normal((8, 18)).astype("float32")
    b = np.zeros((4, 6), "float32")
    built = oneir.build(copy)
    for view in (base[::2, ::3], base[4:0:-1, :6], base.T[:4, :6], np.ascontiguousarray(base[:4, :6])):
        built(view, b)
        np.testing.assert_array_equal(b, view)


def test_packed_callbacks_see_and_change_tensors():
    @oneir.register_func("test.driver.double", override=True)
    def double(x, y, factor):
        np.from_dlpack(y)[...] = x.numpy() * factor

    @T.prim_func
    def through(A: T.Buffer((3, 4), "float32"), B: T.Buffer((3, 4), "float32")):
        T.evaluate(T.call_packed("test.driver.double", A, B, T.float32(3)))

    a = rng.standard_normal((3, 4)).astype("float32")
    b = np.zeros_like(a)
    run(through, a, b)
    np.testing.assert_allclose(b, a * 3)


def test_a_callback_that_raises_gives_its_own_exception():
    class Mine(Exception):
        pass

    @oneir.register_func("test.driver.raises", override=True)
    def raises(x):
        raise Mine("from the callback")

    @T.prim_func
    def call(A: T.Buffer((4,), "float32")):
        for i in T.parallel(4):
            T.evaluate(T.call_packed("test.driver.raises", A))

    built = oneir.build(call)
    for _ in range(3):
        with pytest.raises(Mine, match="from the callback"):
            built(np.zeros(4, "float32"))

    @T.prim_func
    def unknown(A: T.Buffer((4,), "float32")):
        T.evaluate(T.call_packed("test.nobody_registered_this", A))

    with pytest.raises(OneIRError, match=r"test.nobody_registered_this.*register"):
        run(unknown, np.zeros(4, "float32"))


def test_assertions_stop_the_program_with_their_message():
    @T.prim_func
    def positive(A: T.Buffer((4,), "int32")):
        for i in T.parallel(4):
            assert A[i] > 0, "every element must be positive"

    built = oneir.build(positive)
    built(np.array([1, 2, 3, 4], "int32"))
    with pytest.raises(AssertionFailure, match="every element must be positive"):
        built(np.array([1, 0, 3, 4], "int32"))


def test_functions_of_a_module_call_each_other():
    @oneir.script.ir_module
    class Module:
        @T.prim_func(private=True)
        def inner(A: T.handle("float32"), n: T.int32, x: T.float32):
            B = T.decl_buffer((n,), "float32", data=A)
            for i in range(n):
                B[i] = B[i] + x

        @T.prim_func
        def main(A: T.Buffer((8,), "float32")):
            T.func_attr({"global_symbol": "main"})
            Module.inner(A.data, 8, T.float32(2))
            Module.inner(A.data, 4, T.float32(1))

    a = np.zeros(8, "float32")
    oneir.build(Module)["main"](a)
    assert a.tolist() == [3] * 4 + [2] * 4


def test_eight_threads_call_one_function():
    built = oneir.build(matmul)
    inputs = [
        (rng.standard_normal((16, 24), dtype="float32"), rng.standard_normal((24, 8), dtype="float32"))
        for _ in range(8)
    ]
    wrong = []

    def work(a, b):
        c = np.empty((16, 8), "float32")
        for _ in range(200):
            c.fill(np.nan)
            built(a, b, c)
            if not np.allclose(c, a @ b, rtol=1e-4, atol=1e-4):
                wrong.append(c)

    threads = [threading.Thread(target=work, args=pair) for pair in inputs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# -- refusals: each with the message that a user needs, and a living process --


def good():
    return [np.zeros(s, "float32") for s in ((16, 24), (24, 8), (16, 8))]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: a.pop(), TypeMismatch, "expects 3 arguments, found 2: missing `C`"),
        (lambda a: a.append(a[0]), TypeMismatch, "expects 3 arguments, found 4"),
        (lambda a: a.__setitem__(1, np.zeros(24, "float32")), ShapeMismatch, "argument 1 `B`.*expected 2 dimensions"),
        (lambda a: a.__setitem__(1, np.zeros((24, 9), "float32")), ShapeMismatch, r"expected shape \(24, 8\).*found \(24, 9\)"),
        (lambda a: a.__setitem__(0, a[0].astype("float64")), TypeMismatch, "expected dtype float32, found float64"),
        (lambda a: a.__setitem__(0, np.zeros((24, 16), "float32").T), ShapeMismatch, "argument 0 `A`.*ascontiguousarray"),
        (lambda a: a[2].setflags(write=False), OneIRError, "argument 2 `C`.*read-only"),
        (lambda a: a.__setitem__(0, "text"), TypeMismatch, "argument 0 `A`.*expected a tensor, found"),
        (lambda a: a.__setitem__(0, None), TypeMismatch, "argument 0 `A`.*expected a tensor"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(change, error, message):
    built = oneir.build(matmul)
    args = good()
    change(args)
    with pytest.raises(error, match=message):
        built(*args)
    built(*good())


def test_read_only_inputs_are_fine():
    a, b, c = good()
    a.setflags(write=False)
    run(matmul, a, b, c)


def test_misaligned_memory_is_refused():
    raw = np.zeros(16 * 8 * 4 + 1, "uint8")[1:]
    c = np.frombuffer(raw, "float32").reshape(16, 8) if raw.ctypes.data % 4 == 0 else raw.view("float32").reshape(16, 8)
    a, b, _ = good()
    with pytest.raises(OneIRError, match=r"argument 2 `C`.*align"):
        run(matmul, a, b, c)


def test_tensors_of_other_devices_are_refused():
    class Elsewhere:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **_):
            raise BufferError("on another device")

    with pytest.raises(OneIRError, match="argument 0"):
        run(matmul, Elsewhere(), *good()[1:])


def test_targets_that_cannot_be_built_for_are_named():
    with pytest.raises(UnsupportedError, match='target "hexagon"'):
        oneir.build(matmul, target="hexagon")
    with pytest.raises(TypeMismatch, match="expects a PrimFunc or an IRModule, found int"):
        oneir.build(3)
    with pytest.raises(InvalidValue, match="all are private"):
        oneir.build(oneir.IRModule({"f": matmul.without_attr("global_symbol")}))


def test_thread_bindings_need_another_target():
    @T.prim_func
    def threads(A: T.Buffer((8,), "float32")):
        for i in T.thread_binding(8, thread="threadIdx.x"):
            A[i] = T.float32(1)

    with pytest.raises(CompileError, match=r"threadIdx\.x cannot run on the CPU; use T\.parallel"):
        oneir.build(threads)["threads"]


def test_device_tensors_must_be_reachable():
    with pytest.raises(DeviceError, match="cuda"):
        oneir.runtime.empty((2,), "float32", oneir.cuda(0))


def test_cross_compilation_gives_assembly_of_the_target():
    arm = oneir.build(matmul, target="llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    assert "fmla" in arm.inspect_source("asm") or "fmadd" in arm.inspect_source("asm")
    assert "define" in arm.inspect_source("ll")
    with pytest.raises(OneIRError, match=r"for aarch64.*this machine is x86_64"):
        arm["matmul"](*good())


@I.ir_module
class Recursive:
    @T.prim_func
    def fibonacci(n: T.int64) -> T.int64:
        if n < T.int64(2):
            T.ret(n)
        T.ret(Recursive.fibonacci(n - T.int64(1)) + Recursive.fibonacci(n - T.int64(2)))

    @T.prim_func
    def even(n: T.int64) -> T.bool:
        if n == T.int64(0):
            T.ret(T.bool(True))
        T.ret(Recursive.odd(n - T.int64(1)))

    @T.prim_func
    def odd(n: T.int64) -> T.bool:
        if n == T.int64(0):
            T.ret(T.bool(False))
        T.ret(Recursive.even(n - T.int64(1)))

    @T.prim_func
    def half(n: T.int64) -> T.float32:
        T.ret(T.Cast("float32", Recursive.fibonacci(n)) * T.float32(0.5))


def test_functions_call_themselves_and_each_other():
    built = oneir.build(Recursive)
    assert built["fibonacci"](15) == 610
    assert [built["even"](n) for n in (0, 7, 900)] == [True, False, True]


def test_a_function_of_one_module_alone_calls_itself():
    [fibonacci] = [v for v in Recursive.functions if v.name_hint == "fibonacci"]
    assert oneir.build(oneir.IRModule({fibonacci: Recursive[fibonacci]}))["fibonacci"](15) == 610


def test_a_value_computed_by_a_call_has_the_type_of_the_caller():
    assert oneir.build(Recursive)["half"](7) == 6.5


def test_endless_recursion_is_an_error():
    with pytest.raises(ExecutionError, match="calls within the module are more than 1000 deep"):
        oneir.build(Recursive)["even"](-1)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", -3), ("uint16", 65535), ("bool", True), ("float16", 1.5), ("bfloat16", 1.5), ("float8_e4m3fn", 1.5)],
)
def test_scalars_of_every_dtype_are_passed_and_returned(dtype, value):
    @T.prim_func
    def same(x: getattr(T, dtype)) -> getattr(T, dtype):
        T.ret(x)

    assert oneir.build(same)["same"](value) == value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('T.call_extern("float32", "sin f", A[0])', "expected the name of a C function, found 'sin f'"),
        ('T.call_llvm_pure_intrin("float32", "llvm.sq rt", A[0])', "expected the name of an LLVM intrinsic"),
    ],
)
def test_names_of_functions_that_are_none(call, message):
    func = oneir.script.from_source(f"@T.prim_func\ndef f(A: T.Buffer((1,), 'float32')):\n    A[0] = {call}\n")
    with pytest.raises(CompileError, match=message):
        oneir.build(func)


def additions(count):
    """A module of functions that add one, two, ... to a vector, each a unit of its own."""
    functions = {}
    for number in range(1, count + 1):

        @T.prim_func
        def add(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                B[i] = A[i] + T.float32(number)

        functions[f"add{number}"] = add.with_attr("global_symbol", f"add{number}").with_attr(SHARED, True)
    return oneir.IRModule(functions)


@pytest.mark.parametrize("helpers", [0, 3])
def test_many_units_compile_in_any_number_of_processes(helpers, monkeypatch, tmp_path):
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path))
    build = importlib.import_module("oneir.driver.build")
    monkeypatch.setattr(build, "num_threads", lambda: 1 + helpers)
    started, start = [], Helper._start

    def seen(self):
        started.append(self)
        return start(self)

    monkeypatch.setattr(Helper, "_start", seen)
    built = oneir.build(additions(50))
    a, b = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    for number in range(1, 51):
        built[f"add{number}"](a, b)
        np.testing.assert_array_equal(b, a + number)
    assert 1 <= len(started) <= helpers if helpers else not started
    assert all(helper._child is None for helper in started)
