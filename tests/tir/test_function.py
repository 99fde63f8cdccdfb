"""Functions over buffers: parameters, specialization to fixed shapes and values, tensor intrinsics."""

from __future__ import annotations

import pytest

from oneir import tir
from oneir.ir import assert_structural_equal
from oneir.ir.type import FuncType, PointerType, PrimType
from oneir.runtime.error import NotRegistered, OneIRError, TypeMismatch, WellFormedError
from oneir.script import tir as T
from oneir.tir import TensorIntrin, decl_buffer


@T.prim_func(private=True)
def scale(a: T.handle, b: T.handle, k: T.float32):
    m, n = T.int32(), T.int32()
    A = T.match_buffer(a, (m, n))
    B = T.match_buffer(b, (m, n))
    for i, j in T.grid(m, n):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * k


def test_a_buffer_among_the_parameters_stands_for_a_handle():
    a = decl_buffer((4,), name="A")
    func = tir.PrimFunc([a, tir.Var("n", "int32")], tir.Evaluate(0))
    handle, n = func.params
    assert handle.dtype == "handle" and handle.name == "A" and func.buffer_map[handle] is a and n.name == "n"
    assert func.with_body(tir.Evaluate(1)).params == func.params
    assert tir.PrimFunc(a, tir.Evaluate(0)).params[0].name == "A"


def test_the_type_of_a_function():
    handle = PointerType(PrimType("void"))
    assert scale.func_type == FuncType([handle, handle, PrimType("float32")], scale.ret_type)


def test_shapes_are_fixed_everywhere():
    a, b, _ = scale.params
    fixed = scale.specialize({a: decl_buffer((8, 16), name="A"), b: decl_buffer((8, 16), name="B")})

    @T.prim_func(private=True)
    def expected(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32"), k: T.float32):
        for i, j in T.grid(8, 16):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * k

    assert_structural_equal(fixed, expected)


def test_one_buffer_fixes_the_variables_that_it_shares():
    a = scale.params[0]
    fixed = scale.specialize({a: decl_buffer((8, 16))})
    assert [int(d) for d in fixed.buffer_map[fixed.params[1]].shape] == [8, 16]
    rows = tir.Var("rows", "int32")
    half = scale.specialize({a: decl_buffer((rows, 16))})
    assert half.buffer_map[half.params[1]].shape[0] is rows


def test_a_fixed_scalar_is_no_parameter_any_more():
    fixed = scale.specialize({scale.params[2]: 2.0})
    assert [p.name for p in fixed.params] == ["a", "b"] and "* T.float32(2.0)" in fixed.script()
    assert len(scale.params) == 3


@pytest.mark.parametrize(
    ("choose", "error", "message"),
    [
        (lambda a, b, k: {tir.Var("z", "int32"): 1}, NotRegistered, "no parameter `z`; it has a, b, k"),
        (lambda a, b, k: {a: 3}, TypeMismatch, "`a` is a tensor: expected a Buffer to fix it to, found 3"),
        (lambda a, b, k: {a: decl_buffer((8,))}, TypeMismatch, "`A` is float32 with 2 dimensions; .* with 1"),
        (lambda a, b, k: {a: decl_buffer((8, 8), "int8")}, TypeMismatch, "cannot be fixed to int8"),
        (
            lambda a, b, k: {a: decl_buffer((8, 8)), b: decl_buffer((8, 9))},
            TypeMismatch,
            "buffer `B`: n cannot be fixed to 9",
        ),
    ],
)
def test_refused_specializations(choose, error, message):
    with pytest.raises(error, match=message):
        scale.specialize(choose(*scale.params))


def test_a_function_is_not_called_directly():
    with pytest.raises(TypeMismatch, match=r"build it with oneir.build"):
        scale(1, 2, 3)


@T.prim_func(private=True)
def described(A: T.Buffer((4,), "float32")):
    A[0] = T.float32(1)


def test_intrinsics_are_registered_once():
    intrin = TensorIntrin.register("test.store", described, described)
    assert TensorIntrin.get("test.store") is intrin and intrin.desc is described
    with pytest.raises(OneIRError, match=r"'test\.store' is registered already; pass override=True"):
        TensorIntrin.register("test.store", described, described)
    again = TensorIntrin.register("test.store", described, described, override=True)
    assert TensorIntrin.get("test.store") is again


def test_intrinsics_that_are_provided_are_made_when_they_are_asked_for():
    made = []

    def make(name):
        made.append(name)
        return described, described

    TensorIntrin.provide("test.provided", make, "test.provided")
    assert made == []
    assert TensorIntrin.get("test.provided") is TensorIntrin.get("test.provided")
    assert made == ["test.provided"]
    with pytest.raises(OneIRError, match=r"'test\.provided' is registered already"):
        TensorIntrin.provide("test.provided", make, "test.provided")


def test_unknown_intrinsics():
    assert TensorIntrin.get("test.none", allow_missing=True) is None
    with pytest.raises(NotRegistered, match=r"no tensor intrinsic 'test\.none' is registered"):
        TensorIntrin.get("test.none")


def test_description_and_implementation_have_the_same_parameters():
    with pytest.raises(WellFormedError, match="the description has 1 parameters, the implementation 3"):
        TensorIntrin.register("test.wrong", described, scale)
