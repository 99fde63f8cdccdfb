"""Expressions: Python's operators and the members of `T` give the nodes that the constructors give."""

from __future__ import annotations

import math

import pytest

from oneir.ir import assert_structural_equal
from oneir.ir import expr as e
from oneir.ir import operators as ops
from oneir.ir.expr import Var
from oneir.runtime.error import ParseError
from oneir.script import from_source
from oneir.script import tir as T
from oneir.tir import op, op_vendor
from oneir.tir.buffer import decl_buffer
from oneir.tir.expr import BufferLoad, CommReducer, Shuffle
from oneir.tir.index_map import IndexMap

i, j = Var("i", "int32"), Var("j", "int32")
x, y = Var("x", "float32"), Var("y", "float32")
b = Var("b", "bool")
v = Var("v", "float32x4")
A = decl_buffer((16, 8), "float32", "A")
NAMES = {"i": i, "j": j, "x": x, "y": y, "b": b, "v": v, "A": A}


def parsed(text: str, **extra):
    """The expression that a text stands for, over the variables of this module."""
    func = from_source(
        f"@T.prim_func\ndef f():\n    T.evaluate({text})\n", extra_vars={**NAMES, **extra}, check_well_formed=False
    )
    return func.body.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i + j * 2 - 1", e.Sub(e.Add(i, e.Mul(j, 2)), 1)),
        ("i // 4 + i % 4", e.Add(e.FloorDiv(i, 4), e.FloorMod(i, 4))),
        ("x / y", e.Div(x, y)),
        ("-x", ops.negative(x)),
        ("+x", x),
        ("i << 2 | j >> 1 & 3 ^ j", ops.bitwise_or(i << 2, ((j >> 1) & 3) ^ j)),
        ("~i", ops.bitwise_not(i)),
        ("x ** 2.0", ops.call_op("tir.pow", x, 2.0)),
        ("i < j", e.LT(i, j)),
        ("i == j", e.EQ(i, j)),
        ("i != j", e.NE(i, j)),
        ("0 <= i < j <= 4", e.And(e.And(e.LE(e.const(0), i), e.LT(i, j)), e.LE(j, 4))),
        ("i < 1 and j < 2 or not b", e.Or(e.And(e.LT(i, 1), e.LT(j, 2)), e.Not(b))),
        ("True and b", b),
        ("x if b else y", op.if_then_else(b, x, y)),
        ("x if 1 < 2 else y", x),
        ("T.Select(b, x, y)", e.Select(b, x, y)),
        ("T.if_then_else(b, x, 0.0)", op.if_then_else(b, x, 0.0)),
        ("T.float32(1)", e.FloatImm("float32", 1.0)),
        ("T.int64(i)", e.Cast("int64", i)),
        ("T.int8(-3)", e.IntImm("int8", -3)),
        ("T.bool(True)", e.IntImm("bool", 1)),
        ("T.boolean(False)", e.IntImm("bool", 0)),
        ('T.float16("-inf")', e.FloatImm("float16", -math.inf)),
        ("T.int32x4(5)", e.Broadcast(e.const(5), 4)),
        ("T.bfloat16(1.5)", e.FloatImm("bfloat16", 1.5)),
        ("T.float8_e4m3fn(1)", e.FloatImm("float8_e4m3fn", 1.0)),
        ('T.Cast("float64", x)', e.Cast("float64", x)),
        ('T.cast(x, "int32")', e.Cast("int32", x)),
        ('x.astype("float16")', e.Cast("float16", x)),
        ('T.reinterpret("int32", x)', op.reinterpret("int32", x)),
        ('T.reinterpret(x, dtype="int32")', op.reinterpret("int32", x)),
        ("T.Ramp(i, 2, 4)", e.Ramp(i, 2, 4)),
        ("T.ramp(i, 1, 8)", e.Ramp(i, 1, 8)),
        ("T.Broadcast(x, 4)", e.Broadcast(x, 4)),
        ("T.Shuffle([v], [3, 2])", Shuffle([v], [3, 2])),
        ("T.Add(1, 2)", e.Add(e.const(1), e.const(2))),
        ("T.FloorMod(i, 4)", e.FloorMod(i, 4)),
        ("T.min(i, j)", e.Min(i, j)),
        ("T.max(1, 2)", e.IntImm("int32", 2)),
        ("T.exp(x)", op.exp(x)),
        ('T.exp(x, dtype="float32")', op.exp(x)),
        ("T.pow(x, y)", op.power(x, y)),
        ("T.abs(x)", op.abs(x)),
        ("T.ceildiv(i, 4)", op.ceildiv(i, 4)),
        ("T.truncdiv(i, j)", e.Div(i, j)),
        ("T.Div(i, j)", e.Div(i, j)),
        ('T.max_value("int8")', e.IntImm("int8", 127)),
        ('T.infinity("float32")', e.FloatImm("float32", math.inf)),
        ("T.tvm_tuple(i, j)", op.tvm_tuple(i, j)),
        ('T.call_intrin("float32", "tir.exp", x)', op.exp(x)),
        ('T.call_extern("int32", "f", i)', op.call_extern("int32", "f", i)),
        ('T.call_llvm_intrin("float32", "llvm.fabs.f32", x)', op.call_llvm_intrin("float32", "llvm.fabs.f32", x)),
        ("A[i, j]", BufferLoad(A, [i, j])),
        ("A(i, j)", BufferLoad(A, [i, j])),
        ("A[i, T.Ramp(0, 1, 4)]", BufferLoad(A, [i, e.Ramp(0, 1, 4)])),
        ("T.BufferLoad(A, [i, 0])", BufferLoad(A, [i, 0])),
        ("A.shape[0] + A.shape[-1]", e.const(24)),
        ("A.elem_offset", e.const(0)),
        ("T.address_of(A[0, 0])", op.address_of(BufferLoad(A, [0, 0]))),
        ('A.access_ptr("w", offset=4)', op.tvm_access_ptr("float32", A.data, 4, 124, 2)),
        ("T.Let(i + 1, where={i: j})", e.Let(i, j, e.Add(i, 1))),
        ("T.StringImm('text')", e.StringImm("text")),
        ("T.vscale() * 4", e.Mul(op.vscale(), 4)),
        ("T.likely(b)", op.likely(b)),
        ("T.tvm_fill_fragment(A.data, 16, 16, 16, 0, x)", op_vendor.tvm_fill_fragment(A.data, 16, 16, 16, 0, x)),
        ("T.ptx_wait_group(2)", op_vendor.ptx_wait_group(2)),
        ('T.vectorlow("float32x2", v)', op_vendor.vectorlow("float32x2", v)),
        ('T.vectorlow(v, dtype="float32x2")', op_vendor.vectorlow("float32x2", v)),
        ("T.tvm_storage_sync('shared')", op_vendor.tvm_storage_sync("shared")),
    ],
)  # fmt: skip
def test_expression(text: str, expected):
    assert_structural_equal(parsed(text), expected)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sum([k * k for k in range(4) if k % 2])", 10),
        ("len({k: v for k, v in [(1, 2), (3, 4)]})", 2),
        ("{1, 2} == {k for k in (1, 2)} and 7 or 8", 7),
        ("int(f'{width:>{2}}1') + len(f'{width!r}')", 42),
        ("max(*pair, 1)", 6),
        ("(lambda a, b: a * b)(*pair)", 30),
        ("dict(a=1, **{'b': 2})['b']", 2),
        ("[[1, 2], [3, 4]][1][0]", 3),
        ("(1, *pair)[2]", 6),
        ("3 if pair[0] in pair and width is not None else 4", 3),
        ("pair[::-1][0]", 6),
        ("sum(k for k in pair)", 11),
        ("not pair or 9", 9),
        ("sum(k for k in range(A.shape[1]))", 28),
        ("'abc'.find('c') + -2 ** 2", -2),
    ],
)
def test_python_values(text: str, value: int):
    assert_structural_equal(parsed(text, pair=(5, 6), width=4), e.const(value))


def test_index_maps_and_reducers():
    index_map = parsed_value("T.index_map(lambda i, j: (i // 4, j, i % 4))")
    assert_structural_equal(index_map, IndexMap.from_func(lambda i, j: (i // 4, j, i % 4)))
    reducer = parsed_value("T.comm_reducer(lambda a, b: a + b, [T.float32(0)])")
    lhs, rhs = Var("a", "float32"), Var("b", "float32")
    assert_structural_equal(reducer, CommReducer([lhs], [rhs], [lhs + rhs], [T.float32(0)]))


def parsed_value(text: str):
    """A value that stays in Python, as an attribute of a function."""
    func = from_source(f'@T.prim_func\ndef f():\n    T.func_attr({{"v": {text}}})\n', check_well_formed=False)
    return func.attrs["v"]


def test_members_can_be_used_outside_of_scripts():
    assert_structural_equal(T.max(i, 3), e.Max(i, 3))
    assert_structural_equal(T.float32x4(0), e.Broadcast(e.FloatImm("float32", 0.0), 4))
    assert T.int32().dtype == "int32" and T.var("int8").dtype == "int8"
    assert T.handle("float16", "shared").type_annotation.storage_scope == "shared"
    assert T.Ptr(T.float32).type_annotation.element_type.dtype == "float32"
    assert T.Ptr["int8", "shared"].type_annotation.storage_scope == "shared"
    assert T.ptr("int8").dtype == "handle" and T.handle().dtype == "handle"
    buffer = T.Buffer((4, 4), "int8")
    assert buffer.dtype == "int8" and [int(d) for d in buffer.shape] == [4, 4]
    assert T.iter_var(i, T.Range(0, 4), "ThreadIndex", "threadIdx.x").thread_tag == "threadIdx.x"


def test_an_unknown_member_is_named():
    with pytest.raises(AttributeError, match="T has no member `flaot32`"):
        _ = T.flaot32


def test_every_expression_knows_its_source():
    func = from_source("@T.prim_func\ndef f(n: T.int32):\n    T.evaluate(n * 2 +  n)\n", check_well_formed=False)
    value = func.body.value
    assert (value.span.line, value.span.column, value.span.end_column) == (3, 16, 26)
    assert (value.a.span.column, value.a.span.end_column) == (16, 21)
    assert (func.body.span.line, func.body.span.column) == (3, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k", "undefined name `k`"),
        ("A.shap", "`A` has no attribute `shap`; did you mean `shape`?"),
        ("T.flaot32(1)", "`T` has no attribute `flaot32`; did you mean `float32`?"),
        ("i / j", "`/` between integers is ambiguous"),
        ("A[i]", "buffer `A` has 2 dimensions, found 1 indices"),
        ("x + v.vector", "`v` has no attribute `vector`"),
        ("T.float32('one')", "could not convert string to float: 'one'"),
        ("i()", "`i` cannot be called: it is `i`"),
        ("i and x", "expected a bool expression"),
        ("T.Select(i, x, y)", "Select expects a bool condition, found int32"),
        ("(yield)", "`yield` cannot be used in a script"),
        ("(k := 3)", "`:=` cannot be used in a script"),
        ("T.exp()", "exp() missing 1 required positional argument: 'x'"),
        ("i // 0", "division by zero"),
        ("[k for k in range(3) if i < k]", "expected a condition that is known while the script is read"),
        ("(lambda **k: 1)()", "a lambda in a script takes positional parameters"),
        ("T.int32('3')", "T.int32 expects a number or an expression, found '3'"),
    ],
)
def test_refused_expressions(text: str, message: str):
    with pytest.raises(ParseError) as caught:
        parsed(text)
    assert message in str(caught.value)
