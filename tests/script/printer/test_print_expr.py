"""Expressions print as Python that builds the very same tree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oneir.ir import Array, DataType, GlobalVar, Op, Range
from oneir.ir import expr as e
from oneir.ir.type import FuncType, PointerType, PrimType, TupleType
from oneir.relax import ObjectType, ShapeType, TensorType
from oneir.script.printer import script
from oneir.tir import op
from oneir.tir.buffer import decl_buffer
from oneir.tir.expr import BufferLoad, CommReducer, IterVar, Reduce, Shuffle
from oneir.tir.index_map import IndexMap
from oneir.tir.stmt import BufferRegion

x, y, z = (e.Var(name, "int32") for name in "xyz")
f = e.Var("f", "float32")
long = e.Var("n", "int64")
A = decl_buffer((16, 16), "float32", "A")
flag = e.Var("flag", "bool")


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (x, "x"),
        (x + 1, "x + 1"),
        (x - -1, "x - -1"),
        (long + 1, "n + T.int64(1)"),
        (f * 2.5, "f * T.float32(2.5)"),
        (f / 3, "f / T.float32(3.0)"),
        (x + y * z, "x + y * z"),
        ((x + y) * z, "(x + y) * z"),
        (x - (y - z), "x - (y - z)"),
        (x - y - z, "x - y - z"),
        (e.Mul(x, e.FloorMod(y, z)), "x * (y % z)"),
        (x // 2 % 3, "x // 2 % 3"),
        (e.And(x < y, y <= z), "x < y and y <= z"),
        (e.Or(e.And(flag, flag), flag), "flag and flag or flag"),
        (e.And(e.Or(flag, flag), flag), "(flag or flag) and flag"),
        (e.EQ(x, y), "x == y"),
        (e.NE(x, y), "x != y"),
        (x > y, "x > y"),
        (x >= y, "x >= y"),
        # Python chains comparisons, so both sides take parentheses.
        (e.EQ(x < y, y < z), "(x < y) == (y < z)"),
        (e.Not(x < y), "not x < y"),
        (e.Not(e.And(flag, flag)), "not (flag and flag)"),
        (e.EQ(e.Not(flag), flag), "(not flag) == flag"),
        (e.And(e.Not(flag), flag), "not flag and flag"),
    ],
)
def test_operators_take_the_parentheses_that_they_need(node, text):
    assert str(node) == text


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (e.Add(1, 2), "T.Add(1, 2)"),
        (e.Add(x, 0), "T.Add(x, 0)"),
        (e.Sub(x, 0), "T.Sub(x, 0)"),
        (e.Mul(x, 1), "T.Mul(x, 1)"),
        (e.FloorDiv(x, 1), "T.FloorDiv(x, 1)"),
        (e.FloorMod(x, 0), "T.FloorMod(x, 0)"),
        (e.Div(x, y), "T.Div(x, y)"),
        (e.Div(f, 1.0), "T.Div(f, T.float32(1.0))"),
        (e.LT(1, 2), "T.LT(1, 2)"),
        (e.And(e.IntImm("bool", 1), flag), "T.And(T.bool(True), flag)"),
        (e.Or(flag, e.IntImm("bool", 0)), "T.Or(flag, T.bool(False))"),
        (e.Not(e.IntImm("bool", 0)), "T.Not(T.bool(False))"),
        (e.Mod(x, y), "T.truncmod(x, y)"),
        (e.Mod(7, 2), "T.Mod(7, 2)"),
        (e.Min(x, y), "T.min(x, y)"),
        (e.Max(x, y), "T.max(x, y)"),
        (e.Max(1, 2), "T.Max(1, 2)"),
        (e.Min(x, x), "T.Min(x, x)"),
    ],
)
def test_what_python_would_fold_is_written_as_a_constructor(node, text):
    assert str(node) == text


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (e.IntImm("int32", -5), "-5"),
        (e.IntImm("int64", 3), "T.int64(3)"),
        (e.IntImm("uint8", 255), "T.uint8(255)"),
        (e.IntImm("bool", 1), "T.bool(True)"),
        (e.FloatImm("float32", 0.0), "T.float32(0.0)"),
        (e.FloatImm("float32", -0.0), "T.float32(-0.0)"),
        (e.FloatImm("float32", 1e-5), "T.float32(1.0000000000000001e-05)"),
        (e.FloatImm("float32", -3.4028234663852886e38), "T.float32(-3.4028234663852886e+38)"),
        (e.FloatImm("float16", 65504.0), "T.float16(65504.0)"),
        (e.FloatImm("float64", 1e300), "T.float64(1.0000000000000001e+300)"),
        (e.FloatImm("float32", math.inf), 'T.float32("inf")'),
        (e.FloatImm("float32", -math.inf), 'T.float32("-inf")'),
        (e.FloatImm("float32", math.nan), 'T.float32("nan")'),
        (e.StringImm("hello"), '"hello"'),
        (e.StringImm('a "quoted" \\ line\n\tend'), '"a \\"quoted\\" \\\\ line\\n\\tend"'),
        (e.StringImm("größe \ue000"), '"größe \\ue000"'),
    ],
)
def test_constants(node, text):
    assert str(node) == text


def test_a_printed_float_reads_back_as_the_same_number():
    for value in np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-100, 100):
        text = str(e.FloatImm("float64", value))
        assert float(text.removeprefix("T.float64(").removesuffix(")")) == value


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (e.Cast("int64", x), 'T.Cast("int64", x)'),
        (e.Select(x < y, x, 1), "T.Select(x < y, x, 1)"),
        (e.Ramp(x * 4, 1, 4), "T.Ramp(x * 4, 1, 4)"),
        (e.Ramp(0, 1, op.vscale() * 4), "T.Ramp(0, 1, T.vscale() * 4)"),
        (e.Broadcast(f, 8), "T.Broadcast(f, 8)"),
        (Shuffle([e.Ramp(x, 1, 4)], [0, 2]), "T.Shuffle([T.Ramp(x, 1, 4)], [0, 2])"),
        (e.Let(x, y + 1, x * 2), "T.Let(x * 2, where={x: y + 1})"),
        (op.exp(f), "T.exp(f)"),
        (op.if_then_else(x < y, f, 0.0), "T.if_then_else(x < y, f, T.float32(0.0))"),
        (op.bitwise_and(x, 3), "T.bitwise_and(x, 3)"),
        (op.shift_left(x, 2), "T.shift_left(x, 2)"),
        (op.reinterpret("int32", f), 'T.reinterpret("int32", f)'),
        (op.call_extern("int32", "puts", x), 'T.call_extern("int32", "puts", x)'),
        (op.call_pure_extern("float32", "sinf", f), 'T.call_pure_extern("float32", "sinf", f)'),
        (op.call_packed("env.f", x), 'T.call_packed("env.f", x)'),
        (op.likely(x < y), "T.likely(x < y)"),
        (op.type_annotation("float32"), 'T.type_annotation("float32")'),
        (op.tvm_struct_get(e.Var("p", "handle"), 0, 5, "int64"), 'T.tvm_struct_get(p, 0, 5, "int64")'),
        (e.Call("void", GlobalVar("helper"), [x, 1]), "helper(x, 1)"),
        (e.Call("int32", GlobalVar("helper"), [x]), 'T.call_intrin("int32", helper, x)'),
        # The dtype does not follow from the arguments as T.exp would have it.
        (e.Call("float64", "tir.exp", [f]), 'T.call_intrin("float64", "tir.exp", f)'),
    ],
)
def test_calls_and_vectors(node, text):
    assert str(node) == text


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (A[x, y], "A[x, y]"),
        (BufferLoad(decl_buffer((), "float32", "s"), []), "s[()]"),
        (BufferLoad(A, [x, e.Ramp(0, 1, 16)]), "A[x, 0:16]"),
        (BufferLoad(A, [x, e.Ramp(y * 4, 1, 4)]), "A[x, y * 4:y * 4 + 4]"),
        (BufferLoad(A, [x, e.Ramp(0, 2, 8)]), "A[x, 0:16:2]"),
        (BufferLoad(A, [x, e.Ramp(y, z, 4)]), "A[x, T.Ramp(y, z, 4)]"),
        (BufferLoad(A, [x, e.Broadcast(y, 4)]), "A[x, T.Broadcast(y, 4)]"),
        (
            BufferLoad(A, [0, e.Ramp(0, 1, 4)], e.Broadcast(e.IntImm("bool", 1), 4)),
            "A.vload([0, T.Ramp(0, 1, 4)], predicate=T.Broadcast(T.bool(True), 4))",
        ),
        (BufferRegion(A, [Range(x, x + 1), Range(0, 16)]), "A[x, 0:16]"),
        (BufferRegion(A, [Range(x, y), Range(0, 16)]), "A[x:x + (y - x), 0:16]"),
        (BufferRegion(A, [Range(x, extent=1), Range(y, extent=4)]), "A[x, y:y + 4]"),
        (A, "A"),
    ],
)
def test_buffers(node, text):
    assert str(node) == text


def test_reductions_name_their_own_variables():
    a, b = e.Var("a", "float32"), e.Var("b", "float32")
    reducer = CommReducer([a], [b], [a + b], [e.FloatImm("float32", 0.0)])
    k = IterVar((0, 16), "k", IterVar.CommReduce)
    assert str(reducer) == "T.comm_reducer(lambda a, b: a + b, [T.float32(0.0)])"
    assert str(Reduce(reducer, [A[x, k.var]], [k], True, 0)) == (
        "T.reduce(T.comm_reducer(lambda a, b: a + b, [T.float32(0.0)]), source=[A[x, k]], init=[], "
        'axis=[T.iter_var(k, T.Range(0, 16), "CommReduce", "")], condition=T.bool(True), value_index=0)'
    )
    c, d = e.Var("a", "float32"), e.Var("a", "float32")
    pair = CommReducer([a, b], [c, d], [a + c, b + d], [0.0, 0.0])
    assert str(pair) == ("T.comm_reducer(lambda a, b, a_1, a_2: (a + a_1, b + a_2), [T.float32(0.0), T.float32(0.0)])")


def test_index_maps():
    index_map = IndexMap.from_func(lambda i, j: [i, j // 4, j % 4], index_dtype="int32")
    assert str(index_map) == "T.index_map(lambda i, j: (i, j // 4, j % 4))"
    there_and_back = IndexMap.from_func(lambda i: i, inverse_index_map=lambda i: i, index_dtype="int32")
    assert str(there_and_back) == "T.index_map(lambda i: (i,), inverse_index_map=lambda i: (i,))"


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (PrimType("int32"), "T.int32"),
        (PointerType(PrimType("float32")), 'T.handle("float32")'),
        (PointerType(PrimType("float32"), "shared"), 'T.handle("float32", "shared")'),
        (TupleType(()), "None"),
        (TupleType((PrimType("int32"), PrimType("bool"))), "T.Tuple(T.int32, T.bool)"),
        (FuncType([PrimType("int32")], TupleType(())), "I.FuncType([T.int32], None)"),
        (TupleType((ShapeType(3), ObjectType())), "R.Tuple(R.Shape(ndim=3), R.Object)"),
        (TupleType((TupleType((ShapeType(3),)), PrimType("int32"))), "R.Tuple(R.Tuple(R.Shape(ndim=3)), T.int32)"),
        (FuncType([ShapeType(3)], TensorType(2)), 'R.Callable((R.Shape(ndim=3),), R.Tensor(ndim=2, dtype="float32"))'),
        (Range(1, 10), "I.Range(1, 10)"),
        (IterVar((0, 8), "i", IterVar.DataPar), 'T.iter_var(i, T.Range(0, 8), "DataPar", "")'),
        (GlobalVar("main"), 'I.GlobalVar("main")'),
        (Op.get("tir.exp"), "Op(tir.exp)"),
    ],
)
def test_other_nodes(node, text):
    assert str(node) == text
    assert repr(node) == text


def test_arrays_print_their_elements():
    assert str(Array([x, x + 1])) == "[x, x + 1]"


def test_a_node_that_no_dialect_prints_shows_its_fields():
    from oneir.ir import SourceName

    assert str(SourceName("file.py")) == "SourceName(name='file.py')"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [1.5, "x", None, True]}, '{"a": [1.5, "x", None, True], "b": 1}'),
        ((1, (2.0, DataType("int8"))), '[1, [2.0, "int8"]]'),
        ({1: math.inf}, '{1: float("inf")}'),
        (np.int64(3), "3"),
        (np.bool_(True), "True"),
    ],
)
def test_plain_values(value, text):
    assert script(value) == text


def test_free_variables_are_declared_only_when_asked_for():
    assert script(x + y) == "x + y"
    assert script(x + e.SizeVar("n", "int64").astype("int32"), verbose_expr=True).splitlines()[:2] == [
        "x = T.int32()",
        "n = T.int64(is_size_var=True)",
    ]


def test_dtypes_that_go_without_saying():
    assert script(long + 1, int_dtype="int64") == "n + 1"
    assert script(x + 1, int_dtype="int64") == "x + T.int32(1)"
    assert script(f + 1.5, float_dtype="float32") == "f + 1.5"


def test_deep_expressions_print():
    node = x
    for _ in range(20_000):
        node = e.Add(node, y)
    assert str(node) == "x" + " + y" * 20_000
