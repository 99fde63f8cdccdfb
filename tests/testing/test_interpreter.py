"""The reference interpreter computes what a program says: expectations are written by hand or by NumPy."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import oneir
from oneir.ir import expr as e
from oneir.runtime import register_func, remove_global_func
from oneir.runtime.error import AssertionFailure, InterpreterError, NotRegistered, ShapeMismatch, TypeMismatch
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir import decl_buffer
from oneir.tir.function import PrimFunc
from oneir.tir.stmt import BufferStore, Evaluate, For, ForKind, LetStmt, SeqStmt


def evaluate(expr, dtype=None):
    """The value of an expression without variables."""
    out = decl_buffer((), dtype or expr.dtype, "out")
    result = np.zeros((), out.dtype.to_numpy())
    interpret(PrimFunc([out], BufferStore(out, expr, [])), result)
    return result[()]


def const(value, dtype):
    return e.const(value, dtype)


# -- arithmetic --


@pytest.mark.parametrize(
    "node, a, b, expected",
    [
        (e.Add, 127, 1, -128),
        (e.Sub, -128, 1, 127),
        (e.Mul, 100, 3, 44),
        (e.Div, -7, 2, -3),
        (e.Mod, -7, 2, -1),
        (e.FloorDiv, -7, 2, -4),
        (e.FloorMod, -7, 2, 1),
        (e.FloorMod, 7, -2, -1),
        (e.Div, -128, -1, -128),
        (e.Mod, -128, -1, 0),
        (e.FloorDiv, -128, -1, -128),
        (e.FloorMod, -128, -1, 0),
        (e.Div, 5, 0, 0),
        (e.Mod, 5, 0, 5),
        (e.FloorDiv, -5, 0, 0),
        (e.FloorMod, -5, 0, -5),
        (e.Min, -3, 2, -3),
        (e.Max, -3, 2, 2),
    ],
)
def test_integer_arithmetic_is_defined_for_every_operand(node, a, b, expected):
    assert evaluate(node(const(a, "int8"), const(b, "int8"))) == expected
    vector = node(const(a, "int8x4"), const(b, "int8x4"))
    out = decl_buffer((4,), "int8", "out")
    lanes = np.zeros(4, "int8")
    interpret(PrimFunc([out], BufferStore(out, vector, [e.Ramp(0, 1, 4)])), lanes)
    assert lanes.tolist() == [expected] * 4


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", [e.Add, e.Sub, e.Mul, e.Min, e.Max, e.Div, e.Mod, e.FloorDiv, e.FloorMod])
def test_indices_wrap_and_are_divided_as_other_integers(kind, dtype):
    """By variables and by constants, again and again; against exact fractions and remainders."""
    bits = int(dtype[3:])
    ends = [-(2 ** (bits - 1)), -7, -1, 0, 1, 2, 5, 2 ** (bits - 1) - 1]

    def exact(a: int, b: int) -> int:
        quotient = 0
        if b:
            quotient = math.floor(Fraction(a, b)) if kind in (e.FloorDiv, e.FloorMod) else math.trunc(Fraction(a, b))
        value = {
            e.Add: a + b,
            e.Sub: a - b,
            e.Mul: a * b,
            e.Min: min(a, b),
            e.Max: max(a, b),
            e.Mod: a - b * quotient,
            e.FloorMod: a - b * quotient,
        }.get(kind, quotient)
        return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)

    pairs = [(a, b) for a in ends for b in ends]
    out = decl_buffer((len(pairs), 2), dtype, "out")
    a, b = e.Var("a", dtype), e.Var("b", dtype)
    stores = []
    for place, (x, y) in enumerate(pairs):
        by_variable, by_constant = kind(a, b), kind(a, const(y, dtype))
        both = [BufferStore(out, v, [place, column]) for column, v in enumerate((by_variable, by_constant))]
        stores.append(LetStmt(a, const(x, dtype), LetStmt(b, const(y, dtype), SeqStmt(both))))
    result = np.zeros((len(pairs), 2), dtype)
    interpret(PrimFunc([out], SeqStmt(stores)), result)
    assert result.tolist() == [[exact(a, b)] * 2 for a, b in pairs]


def test_a_variable_of_an_index_that_is_defined_nowhere_is_named():
    out = decl_buffer((8,), "int32", "out")
    i, j = e.Var("i", "int32"), e.Var("nowhere", "int32")
    loop = For(i, 0, 2, ForKind.SERIAL, BufferStore(out, i, [i * 2 + j]))
    with pytest.raises(InterpreterError, match="the variable `nowhere` is used where it is not defined"):
        interpret(PrimFunc([out], loop), np.zeros(8, "int32"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "int4"])
def test_integers_of_all_widths_wrap(dtype):
    signed, bits = not dtype.startswith("u"), int(dtype.removeprefix("u")[3:])
    lowest, largest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    for kind, exact in ((e.Add, largest + largest), (e.Mul, largest * largest)):
        value = int(evaluate(kind(const(largest, dtype), const(largest, dtype))))
        assert value == (exact - lowest) % 2**bits + lowest


@pytest.mark.parametrize(
    "name, dtype, a, count, expected",
    [
        ("shift_left", "int8", 3, 2, 12),
        ("shift_left", "int8", 3, 8, 0),
        ("shift_left", "int8", 3, -1, 0),
        ("shift_right", "int8", -5, 1, -3),
        ("shift_right", "int8", -5, 9, -1),
        ("shift_right", "int8", 5, 9, 0),
        ("shift_right", "uint8", 200, 3, 25),
        ("shift_right", "uint8", 200, 8, 0),
        ("bitwise_xor", "int32", 12, 10, 6),
    ],
)
def test_shifts_and_bits(name, dtype, a, count, expected):
    assert evaluate(e.Call(dtype, f"tir.{name}", [const(a, dtype), const(count, dtype)])) == expected


@pytest.mark.parametrize(
    "value, source, target, expected",
    [
        (2.9, "float32", "int32", 2),
        (-2.9, "float32", "int32", -2),
        (1e20, "float32", "int32", 2**31 - 1),
        (-1e20, "float64", "int8", -128),
        (-1.0, "float32", "uint8", 0),
        (math.inf, "float32", "uint16", 65535),
        (math.nan, "float64", "int64", 0),
        (math.nan, "float32", "bool", True),
        (0.0, "float32", "bool", False),
        (300, "int32", "uint8", 44),
        (200, "uint8", "int8", -56),
        (-1, "int8", "uint32", 2**32 - 1),
        (9, "int32", "int4", -7),
        (2, "int32", "bool", True),
        (1, "int32", "float16", 1.0),
        (3.0, "float32", "bfloat16", 3.0),
    ],
)
def test_casts_are_defined_for_every_value(value, source, target, expected):
    assert evaluate(e.Cast(target, const(value, source))) == expected


def test_floats_are_rounded_to_their_dtype():
    assert evaluate(const(1.0, "float16") + e.Cast("float16", const(2.0**-11, "float32"))) == np.float16(1)
    bf16 = evaluate(e.Mul(const(1.5, "bfloat16"), const(1.0078125, "bfloat16")))
    assert bf16.dtype == ml_dtypes.bfloat16
    assert float(bf16) == 1.515625  # 1.51171875 lies between 1.5078125 and 1.515625, whose last bit is even
    assert np.isnan(evaluate(e.Min(const(math.nan, "float32"), const(1.0, "float32"))))
    assert np.isnan(evaluate(e.Max(const(1.0, "float32"), const(math.nan, "float32"))))
    assert evaluate(e.Div(const(1.0, "float32"), const(0.0, "float32"))) == math.inf


def test_every_pure_operator_with_a_reference_runs():
    x = const(0.5, "float32")
    for name, expected in {"exp": math.exp(0.5), "erf": math.erf(0.5), "rsqrt": 2**0.5, "floor": 0.0}.items():
        assert evaluate(e.Call("float32", f"tir.{name}", [x])) == np.float32(expected)


def test_an_operator_without_reference_is_refused_by_name():
    call = e.Call("float32", "tir.tvm_warp_activemask", [])
    with pytest.raises(InterpreterError, match=r"tir\.tvm_warp_activemask has no NumPy reference"):
        evaluate(call)


# -- statements --


def test_nested_loops_of_every_kind():
    @T.prim_func
    def f(A: T.Buffer((2, 3, 4), "int32")):
        for i in T.serial(2):
            for j in T.unroll(3):
                for k in T.vectorized(4):
                    A[i, j, k] = i * 100 + j * 10 + k

    a = np.zeros((2, 3, 4), "int32")
    interpret(f, a)
    i, j, k = np.indices(a.shape)
    assert (a == i * 100 + j * 10 + k).all()


def test_a_block_is_initialised_where_all_reduction_variables_are_smallest():
    @T.prim_func
    def f(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4,), "float32")):
        for i, k0, k1 in T.grid(4, 2, 3):
            with T.block("sum"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(6, k0 * 3 + k1)
                with T.init():
                    B[vi] = T.float32(10)
                B[vi] = B[vi] + A[vi, vk]

    a = np.arange(24, dtype="float32").reshape(4, 6)
    b = np.full(4, -1, "float32")
    interpret(f, a, b, outputs=[1])
    assert (b == a.sum(1) + 10).all()


def test_a_block_runs_where_its_predicate_holds():
    @T.prim_func
    def f(B: T.Buffer((10,), "int32")):
        for i, j in T.grid(3, 4):
            with T.block("fill"):
                v = T.axis.spatial(10, i * 4 + j)
                T.where(i * 4 + j < 10)
                B[v] = v

    b = np.full(10, -1, "int32")
    interpret(f, b)
    assert b.tolist() == list(range(10))


def test_while_break_and_continue():
    @T.prim_func
    def f(A: T.Buffer((8,), "int32"), n: T.Buffer((1,), "int32")):
        n[0] = 0
        while n[0] < 5:
            n[0] = n[0] + 2
        for i in range(8):
            if i == 2:
                T.evaluate(T.continue_loop())
            if i == 5:
                T.evaluate(T.break_loop())
            A[i] = 1

    a, n = np.zeros(8, "int32"), np.zeros(1, "int32")
    interpret(f, a, n)
    assert n[0] == 6
    assert a.tolist() == [1, 1, 0, 1, 1, 0, 0, 0]


def test_symbolic_shapes_are_bound_from_the_arguments():
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int64()
        m = T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        B = T.match_buffer(b, (n * m,), "float32")
        for i, j in T.grid(n, m):
            B[i * m + j] = A[i, j]

    a = np.random.default_rng(0).random((3, 5), "float32")
    b = np.zeros(15, "float32")
    interpret(f, a, b)
    assert (b == a.reshape(-1)).all()
    with pytest.raises(ShapeMismatch, match=r"argument `B`: expected the shape \(15,\), found \(14,\)"):
        interpret(f, a, np.zeros(14, "float32"))


def test_strides_come_from_the_argument():
    @T.prim_func
    def f(a: T.handle, B: T.Buffer((3, 4), "float32")):
        s0 = T.int32()
        s1 = T.int32()
        A = T.match_buffer(a, (3, 4), "float32", strides=(s0, s1))
        for i, j in T.grid(3, 4):
            B[i, j] = A[i, j]

    a = np.arange(24, dtype="float32").reshape(4, 6)[:, ::2].T
    b = np.zeros((3, 4), "float32")
    interpret(f, a, b)
    assert (a == b).all()


def test_a_strided_array_is_refused_where_none_is_expected():
    @T.prim_func
    def f(A: T.Buffer((3, 4), "float32")):
        A[0, 0] = T.float32(1)

    with pytest.raises(ShapeMismatch, match=r"argument `A`: expected the strides \(4, 1\), found \(8, 2\)"):
        interpret(f, np.zeros((3, 8), "float32")[:, ::2])
    with pytest.raises(TypeMismatch, match="argument `A`: expected dtype float32, found float64"):
        interpret(f, np.zeros((3, 4)))
    with pytest.raises(TypeMismatch, match=r"expected 1 arguments \(\w+\), found 2"):
        interpret(f, np.zeros((3, 4), "float32"), 1)


def test_a_matched_region_is_a_view():
    @T.prim_func
    def f(A: T.Buffer((8, 8), "int32")):
        for i, j in T.grid(2, 2):
            with T.block("tile"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads()
                T.writes(A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4])
                s0 = T.int32()
                s1 = T.int32()
                tile = T.match_buffer(
                    A[vi * 4 : vi * 4 + 4, vj * 4 : vj * 4 + 4], (4, 4), "int32", strides=(s0, s1), offset_factor=1
                )
                for x, y in T.grid(4, 4):
                    tile[x, y] = vi * 1000 + vj * 100 + x * 10 + y

    a = np.zeros((8, 8), "int32")
    interpret(f, a)
    i, j = np.indices(a.shape)
    assert (a == i // 4 * 1000 + j // 4 * 100 + i % 4 * 10 + j % 4).all()


def test_vectors_gather_scatter_and_choose():
    @T.prim_func
    def f(A: T.Buffer((16,), "float32"), I: T.Buffer((4,), "int32"), B: T.Buffer((16,), "float32")):
        B[T.Ramp(0, 1, 4)] = A[I[T.Ramp(0, 1, 4)]]
        B[T.Ramp(4, 2, 4)] = T.Broadcast(T.float32(7), 4)
        B[T.Ramp(5, 2, 4)] = T.Select(
            A[T.Ramp(0, 1, 4)] < T.Broadcast(T.float32(2), 4), A[T.Ramp(0, 1, 4)], A[T.Ramp(8, 1, 4)]
        )

    a = np.arange(16, dtype="float32")
    index = np.array([9, 1, 15, 4], "int32")
    b = np.zeros(16, "float32")
    interpret(f, a, index, b)
    assert b.tolist() == [9, 1, 15, 4, 7, 0, 7, 1, 7, 10, 7, 11, 0, 0, 0, 0]


def test_masked_lanes_are_neither_read_nor_written():
    A, B = decl_buffer((3,), "int32", "A"), decl_buffer((3,), "int32", "B")
    lanes = e.Ramp(0, 1, 4)
    mask = e.LT(lanes, const(3, "int32x4"))
    from oneir.tir.expr import BufferLoad

    f = PrimFunc([A, B], BufferStore(B, BufferLoad(A, [lanes], mask) + const(1, "int32x4"), [lanes], mask))
    b = np.zeros(3, "int32")
    interpret(f, np.array([5, 6, 7], "int32"), b)
    assert b.tolist() == [6, 7, 8]


def test_allocations_constants_and_lets():
    @T.prim_func
    def f(B: T.Buffer((4,), "float32")):
        table = T.allocate_const([1.0, 2.0, 4.0, 8.0], "float32", [4])
        data = T.allocate([4], "float32", "global")
        K = T.decl_buffer((4,), "float32", data=table)
        C = T.decl_buffer((4,), "float32", data=data)
        for i in range(4):
            twice: T.float32 = K[i] * T.float32(2)
            C[i] = twice + twice
        for i in range(4):
            B[i] = C[3 - i]

    b = np.zeros(4, "float32")
    interpret(f, b)
    assert b.tolist() == [32, 16, 8, 4]


def test_lazy_choice_does_not_evaluate_the_other_side():
    @T.prim_func
    def f(A: T.Buffer((4,), "int32"), B: T.Buffer((6,), "int32")):
        for i in range(6):
            B[i] = T.if_then_else(i >= 1 and i < 5, A[i - 1], 0)

    b = np.zeros(6, "int32")
    interpret(f, np.array([1, 2, 3, 4], "int32"), b)
    assert b.tolist() == [0, 1, 2, 3, 4, 0]


def test_a_function_returns_a_value_and_asserts():
    @T.prim_func
    def f(n: T.int32) -> T.int32:
        assert n > 0, "n must be positive"
        return n * 2

    assert interpret(f, 21) == 42
    with pytest.raises(AssertionFailure, match="n must be positive"):
        interpret(f, 0)


def test_functions_of_the_module_packed_functions_and_external_ones_are_called():
    @register_func("test.interpreter.double")
    def double(x, out):
        out.copyfrom(x.numpy() * 2)

    @register_func("test_interpreter_add_one")
    def add_one(values, count):
        values[:count] += 1

    @oneir.script.ir_module
    class Mod:
        @T.prim_func
        def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            Mod.negate(A.data, B.data)
            T.evaluate(T.call_packed("test.interpreter.double", B, A))
            T.evaluate(T.call_extern("int32", "test_interpreter_add_one", B.data, 2))

        @T.prim_func
        def negate(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = T.float32(0) - A[i]

    a, b = np.array([1, 2, 3, 4], "float32"), np.zeros(4, "float32")
    try:
        interpret(Mod, a, b)
    finally:
        remove_global_func("test.interpreter.double")
        remove_global_func("test_interpreter_add_one")
    assert a.tolist() == [-2, -4, -6, -8]
    assert b.tolist() == [0, -1, -3, -4]


def test_an_unknown_entry_or_external_function_is_named():
    f = PrimFunc([], Evaluate(oneir.tir.call_extern("int32", "nowhere_to_be_found")))
    with pytest.raises(InterpreterError, match="no function is registered as 'nowhere_to_be_found'"):
        interpret(f)
    mod = oneir.IRModule({"a": f, "b": f})
    with pytest.raises(NotRegistered, match="no function 'main'; it has a, b"):
        interpret(mod)


def test_runtime_tensors_are_written_in_place():
    @T.prim_func
    def f(A: T.Buffer((3,), "bfloat16")):
        for i in range(3):
            A[i] = A[i] + T.bfloat16(1)

    a = oneir.runtime.tensor(np.array([1, 2, 3], ml_dtypes.bfloat16))
    interpret(f, a)
    assert a.numpy().astype("float32").tolist() == [2, 3, 4]


def test_read_only_memory_is_not_written():
    @T.prim_func
    def f(A: T.Buffer((3,), "int32")):
        A[0] = 1

    a = np.zeros(3, "int32")
    a.flags.writeable = False
    with pytest.raises(InterpreterError, match="`A` is written, but its memory is read-only"):
        interpret(f, a)


def test_deep_programs_do_not_meet_the_recursion_limit():
    out = decl_buffer((1,), "int32", "out")
    total = out[0]
    for _ in range(20_000):
        total = e.Add(total, const(1, "int32"))
    stmt = BufferStore(out, total, [0])
    for i in range(5_000):
        stmt = LetStmt(e.Var(f"x{i}", "int32"), const(i, "int32"), SeqStmt([Evaluate(0), stmt]))
    result = np.zeros(1, "int32")
    interpret(PrimFunc([out], stmt), result)
    assert result[0] == 20_000
