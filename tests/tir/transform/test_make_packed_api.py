"""MakePackedAPI: the checks and bindings around a function's body, as native code performs them.

The structure of the checks is tested here; what a refused call says is tested with the driver.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from pass_checks import apply, unchanged

import oneir
from oneir.codegen.tensor_check import ExpectedTensor
from oneir.ir.expr import Call, IntImm, StringImm
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import CompileError, InvalidValue, OneIRError, ShapeMismatch, TypeMismatch, WellFormedError
from oneir.runtime.packed import READ_ONLY
from oneir.runtime.signature import Param, Signature
from oneir.script import tir as T
from oneir.tir.stmt import AssertStmt, AttrStmt, LetStmt
from oneir.tir.transform import MakePackedAPI
from oneir.tir.transform.make_packed_api import signature_of


@T.prim_func
def scale(A: T.Buffer((8,), "float32"), n: T.int32, B: T.Buffer((8,), "float32")):
    for i in range(n):
        B[i] = A[i] * 2.0


def nodes(func, kind):
    """All nodes of a class, from the outside in."""
    found = []
    post_order_visit(func.body, lambda node: found.append(node) if isinstance(node, kind) else None)
    return found[::-1]


def messages(func):
    return [node.message.value for node in nodes(func, AssertStmt)]


def test_parameters_attributes_and_scope():
    packed = apply(MakePackedAPI(), scale)
    assert [p.name for p in packed.params] == ["self_handle", "args", "num_args", "result"]
    assert [p.dtype for p in packed.params] == ["handle", "handle", "int32", "handle"]
    assert packed.ret_type.dtype == "int32"
    assert packed.attrs["calling_conv"] == 1
    assert packed.attrs["global_symbol"] == "__oneir_scale"
    assert not packed.buffer_map
    (scope,) = nodes(packed, AttrStmt)
    assert (scope.attr_key, scope.value.value) == ("compute_scope", "scale_compute_")


def tensor_checks(func):
    """What `check_tensor` says of each tensor of a function, in the order of its parameters."""
    calls = [node for node in nodes(func, Call) if getattr(node.op, "name", "") == "tir.check_tensor"][::-1]
    return [ExpectedTensor.of(*call.args[2:4], call.args[4:]) for call in calls]


def test_every_property_of_an_argument_is_checked_and_named():
    packed = apply(MakePackedAPI(), scale)
    found = "\n".join(messages(packed))
    for expected in (
        "TypeError: scale: expected 3 arguments",
        "TypeError: scale: argument 1 `n`: expected an integer",
        "ValueError: scale: argument 1 `n`: the value does not fit int32",
    ):
        assert expected in found
    float32 = 2 | 32 << 8 | 1 << 16
    a, b = tensor_checks(packed)
    assert a == ExpectedTensor("scale: argument 0 `A`", "shape (8,)", float32, 1, -1, 0, 4, 1, (8,))
    assert b == ExpectedTensor("scale: argument 2 `B`", "shape (8,)", float32, 1, -1, READ_ONLY, 4, 1, (8,))
    assert a.errors() == [
        ("TypeError", "scale: argument 0 `A`: expected a tensor"),
        ("TypeError", "scale: argument 0 `A`: expected dtype float32"),
        ("ValueError", "scale: argument 0 `A`: expected a tensor on the cpu"),
        ("ValueError", "scale: argument 0 `A`: is written to but is read-only"),
        ("ValueError", "scale: argument 0 `A`: expected shape (8,)"),
        ("ValueError", "scale: argument 0 `A`: expected row-major memory without gaps"),
        ("ValueError", "scale: argument 0 `A`: has no memory"),
        ("ValueError", "scale: argument 0 `A`: expected memory aligned to 4 bytes"),
    ]


def test_a_symbolic_extent_is_bound_where_it_is_met_first_and_checked_elsewhere():
    @T.prim_func
    def copy(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n, n * 2), "float32")
        for i in range(n):
            B[i, 0] = A[i]

    packed = apply(MakePackedAPI(), copy)
    assert [node.var.name for node in nodes(packed, LetStmt)].count("n") == 1
    extents = [m for m in messages(packed) if "elements in dimension" in m]
    assert [re.sub(r".*argument", "argument", m) for m in extents] == [
        "argument 1 `B`: expected n elements in dimension 0",
        "argument 1 `B`: expected n * T.int64(2) elements in dimension 1",
    ]


def test_the_shape_of_a_tensor_is_said_in_full_whatever_the_types_of_its_extents():
    @T.prim_func
    def clear(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (T.int64(3), 5, n, n * 2), "float32", strides=[n * 30, n * 6, n * 2, 1])
        A[0, 0, 0, 0] = T.float32(0)

    (found,) = tensor_checks(apply(MakePackedAPI(), clear))
    assert (found.shape, found.extents, found.compact) == ("shape (3, 5, n, n * 2)", (3, 5, -1, -1), 0)


def test_a_description_that_is_not_constant_is_refused():
    n = oneir.tir.Var("n", "int64")
    with pytest.raises(CompileError, match=r"check_tensor takes two texts, six numbers and extents, found .*n\]"):
        ExpectedTensor.of(StringImm("f"), StringImm("shape (n,)"), [IntImm("int32", 1)] * 6 + [n])


def test_an_extent_that_no_argument_tells_is_refused():
    n = oneir.tir.Var("n", "int64")
    A = oneir.tir.decl_buffer((n * n,), "float32", "A")
    func = oneir.tir.PrimFunc([A], oneir.tir.Evaluate(0)).with_attr("global_symbol", "f")
    with pytest.raises(WellFormedError, match=r"argument 0 `A`.*do not tell the value of `n`; let it be a parameter"):
        apply(MakePackedAPI(), func)


def test_private_and_packed_functions_are_left_alone():
    unchanged(MakePackedAPI(), scale.without_attr("global_symbol"))
    packed = apply(MakePackedAPI(), scale)
    unchanged(MakePackedAPI(), packed)


def test_the_signature_says_what_is_expected():
    @T.prim_func
    def f(a: T.handle, x: T.float16, p: T.handle, flag: T.bool, b: T.handle):
        n, s = T.int64(), T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n * 2, 4), "int8", strides=[s, 1])
        B[0, 0] = T.int8(1)

    assert signature_of(f) == Signature(
        "f",
        (
            Param("A", "tensor", "float32", ("n", 4), None, False, 4),
            Param("x", "float", "float16"),
            Param("p", "handle", "handle"),
            Param("flag", "bool", "bool"),
            Param("B", "tensor", "int8", ("n * 2", 4), ("s", 1), True, 1),
        ),
    )


# -- the checks at work --


def test_scalars_of_every_kind_and_returned_values():
    @T.prim_func
    def add(i: T.int8, u: T.uint32, h: T.float16, d: T.float64, b: T.bool) -> T.float64:
        T.ret(
            T.Cast("float64", i)
            + T.Cast("float64", u)
            + T.Cast("float64", h)
            + d
            + T.if_then_else(b, 0.5, T.float64(0))
        )

    built = oneir.build(add)
    assert built(-3, 4, 0.25, 8.0, True) == 9.75
    assert built(True, 4, 1, 2, False) == 8.0
    with pytest.raises(TypeMismatch, match="argument 0 `i` of `add`: expected an integer, found float"):
        built(1.5, 4, 1, 2, False)
    with pytest.raises(
        InvalidValue, match="argument 0 `i` of `add`: expected a value of int8, from -128 to 127, found 300"
    ):
        built(300, 4, 1, 2, False)


def test_strides_that_are_declared_are_bound_or_checked():
    @T.prim_func
    def first(a: T.handle, C: T.Buffer((4,), "float32")):
        s = T.int64()
        A = T.match_buffer(a, (4, 3), "float32", strides=[s, 1])
        for i in range(4):
            C[i] = A[i, 1]

    built = oneir.build(first)
    wide = np.arange(40, dtype="float32").reshape(4, 10)
    c = np.zeros(4, "float32")
    for view in (wide[:, 2:5], np.ascontiguousarray(wide[:, :3]), wide[::-1, :3]):
        built(view, c)
        np.testing.assert_array_equal(c, view[:, 1])
    with pytest.raises(ShapeMismatch, match=r"expected strides \(s, 1\)"):
        built(wide[:, 0:6:2], c)


def test_the_stride_of_a_single_row_and_of_nothing_does_not_matter():
    @T.prim_func
    def f(a: T.handle, C: T.Buffer((1,), "float32")):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(a, (n, m), "float32")
        C[0] = T.float32(1)
        if n > 0 and m > 0:
            C[0] = A[0, m - 1]

    built = oneir.build(f)
    wide = np.arange(40, dtype="float32").reshape(4, 10)
    c = np.zeros(1, "float32")
    built(wide[2:3, :7], c)
    assert c[0] == 26
    built(wide[:, 3:3], c)
    assert c[0] == 1
    with pytest.raises(ShapeMismatch, match="expected a contiguous tensor"):
        built(wide[:, :7], c)


def test_memory_need_only_be_aligned_to_its_elements_unless_more_is_declared():
    @T.prim_func
    def f(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (3,), "float32")
        C = T.match_buffer(c, (3,), "float32", align=128)
        for i in range(3):
            C[i] = A[i]

    built = oneir.build(f)
    memory = np.zeros(512, "uint8")
    start = -memory.ctypes.data % 128
    aligned = memory[start : start + 12].view("float32")
    built(np.arange(5, dtype="float32")[1:4], aligned)
    np.testing.assert_array_equal(aligned, [1, 2, 3])
    with pytest.raises(OneIRError, match="argument 1 `C` of `f`: expected memory aligned to 128 bytes"):
        built(aligned, memory[start + 4 : start + 16].view("float32"))


def test_read_only_memory_may_be_read_but_not_written():
    built = oneir.build(scale)
    a, b = np.ones(8, "float32"), np.zeros(8, "float32")
    a.flags.writeable = False
    built(a, 8, b)
    np.testing.assert_array_equal(b, 2 * a)
    b.flags.writeable = False
    with pytest.raises(InvalidValue, match="argument 2 `B` of `scale`: is written to"):
        built(a, 8, b)
