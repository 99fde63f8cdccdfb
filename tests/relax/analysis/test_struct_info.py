"""What struct info says: types, special cases, what two have in common, and what is left of it elsewhere."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from oneir import ir, relax, tir
from oneir.ir import structural_equal
from oneir.relax import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    analysis,
)
from oneir.relax.analysis import BaseCheckResult
from oneir.runtime.error import TypeMismatch

n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
OBJECT, FLOATS = ObjectStructInfo(), TensorStructInfo((n, m), "float32")
PASS, L0, L1, L2 = (BaseCheckResult(i) for i in (3, 0, 1, 2))


def same(a: Any, b: Any) -> None:
    ir.assert_structural_equal(a, b, map_free_vars=False)


# -- types --


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (OBJECT, relax.ObjectType()),
        (PrimStructInfo("int32"), ir.PrimType("int32")),
        (PrimStructInfo(value=n + 1), ir.PrimType("int64")),
        (ShapeStructInfo([1, n]), relax.ShapeType(2)),
        (ShapeStructInfo(), relax.ShapeType(-1)),
        (FLOATS, relax.TensorType(2, "float32")),
        (TensorStructInfo(dtype=""), relax.TensorType(-1, "")),
        (TupleStructInfo([FLOATS, OBJECT]), ir.TupleType([relax.TensorType(2, "float32"), relax.ObjectType()])),
        (FuncStructInfo([FLOATS], OBJECT), ir.FuncType([relax.TensorType(2, "float32")], relax.ObjectType())),
        (FuncStructInfo.opaque_func(), relax.PackedFuncType()),
    ],
    ids=str,
)
def test_static_types(info: StructInfo, expected: ir.Type) -> None:
    found = analysis.get_static_type(info)
    assert type(found) is type(expected) and structural_equal(found, expected)
    for other in (relax.TensorType(1, "float32"), relax.ShapeType(3), relax.TensorType(2, "int8"), ir.PrimType("int8")):
        assert not structural_equal(found, other)


# -- special cases --

CHECKS = [
    (OBJECT, FLOATS, PASS),
    (FLOATS, OBJECT, L1),
    (FLOATS, ShapeStructInfo([n, m]), L0),
    (TensorStructInfo(dtype="float32"), FLOATS, PASS),
    (TensorStructInfo(ndim=2), FLOATS, PASS),
    (TensorStructInfo(ndim=3, dtype="float32"), FLOATS, L0),
    (FLOATS, TensorStructInfo(dtype="float32"), L1),
    (FLOATS, TensorStructInfo(dtype="float32", ndim=2), L2),
    (FLOATS, TensorStructInfo((n, m), ""), L1),
    (FLOATS, TensorStructInfo((n, m), "int32"), L0),
    (FLOATS, TensorStructInfo((m, n), "float32"), L2),
    (FLOATS, TensorStructInfo((n, m + 1), "float32"), L0),
    (TensorStructInfo((2 * n,)), TensorStructInfo((n + n,)), PASS),
    (TensorStructInfo((2,)), TensorStructInfo((3,)), L0),
    (ShapeStructInfo(ndim=1), ShapeStructInfo([n]), PASS),
    (ShapeStructInfo([n]), ShapeStructInfo(ndim=1), L2),
    (ShapeStructInfo([n]), ShapeStructInfo(), L1),
    (ShapeStructInfo([n]), ShapeStructInfo([n, n]), L0),
    (PrimStructInfo("int64"), PrimStructInfo(value=n), PASS),
    (PrimStructInfo(value=n), PrimStructInfo("int64"), L2),
    (PrimStructInfo("int64"), PrimStructInfo("int32"), L0),
    (TupleStructInfo([OBJECT, FLOATS]), TupleStructInfo([FLOATS, FLOATS]), PASS),
    (TupleStructInfo([FLOATS, FLOATS]), TupleStructInfo([FLOATS, TensorStructInfo((m, n))]), L2),
    (TupleStructInfo([FLOATS]), TupleStructInfo([]), L0),
    (FuncStructInfo.opaque_func(), FuncStructInfo([FLOATS], FLOATS), PASS),
    (FuncStructInfo.opaque_func(ret=FLOATS), FuncStructInfo.opaque_func(ret=OBJECT), L1),
    (FuncStructInfo([FLOATS], FLOATS), FuncStructInfo.opaque_func(purity=True), L2),
    (FuncStructInfo([FLOATS], OBJECT), FuncStructInfo([FLOATS], FLOATS), PASS),
    (FuncStructInfo([FLOATS], OBJECT), FuncStructInfo([OBJECT], OBJECT), PASS),
    (FuncStructInfo([OBJECT], OBJECT), FuncStructInfo([FLOATS], OBJECT), PASS),
    (FuncStructInfo([FLOATS], OBJECT), FuncStructInfo([ShapeStructInfo([n, m])], OBJECT), L0),
    (FuncStructInfo([FLOATS], FLOATS), FuncStructInfo([FLOATS], OBJECT), L1),
    # Symbolic variables are matched: one function takes what is twice as long as what the other takes.
    (
        FuncStructInfo([ShapeStructInfo([n, n])], ShapeStructInfo([n])),
        FuncStructInfo([ShapeStructInfo([m, m])], ShapeStructInfo([m])),
        PASS,
    ),
    (
        FuncStructInfo([ShapeStructInfo([n, n])], ShapeStructInfo([n])),
        FuncStructInfo([ShapeStructInfo([m, 2 * m])], ShapeStructInfo([m])),
        L2,
    ),
    (FuncStructInfo([FLOATS], FLOATS), FuncStructInfo([FLOATS, FLOATS], FLOATS), L0),
    (FuncStructInfo([FLOATS], OBJECT, True), FuncStructInfo([FLOATS], OBJECT, False), L0),
]


@pytest.mark.parametrize(("base", "derived", "expected"), CHECKS, ids=str)
def test_base_checks(base: StructInfo, derived: StructInfo, expected: BaseCheckResult) -> None:
    assert analysis.struct_info_base_check(base, derived) is expected
    assert analysis.struct_info_base_check(base, base) is analysis.struct_info_base_check(derived, derived) is PASS
    assert base.is_base_of(derived) is (expected is PASS)


# -- what two have in common --

LATTICE = [
    OBJECT,
    TensorStructInfo((2, n), "float32"), TensorStructInfo((n, 2), "float32"), TensorStructInfo((2, n), "int8"),
    TensorStructInfo((2,), "float32"), TensorStructInfo(dtype="float32", ndim=2), TensorStructInfo(),
    ShapeStructInfo([n]), ShapeStructInfo([m]), ShapeStructInfo([n, n]), ShapeStructInfo(),
    PrimStructInfo(value=n), PrimStructInfo(value=m), PrimStructInfo("int32"),
    TupleStructInfo([FLOATS, OBJECT]), TupleStructInfo([FLOATS, FLOATS]), TupleStructInfo([]),
    FuncStructInfo([FLOATS], FLOATS), FuncStructInfo([FLOATS], OBJECT), FuncStructInfo.opaque_func(ret=FLOATS),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations(LATTICE, 2)), ids=str)
def test_what_is_common_is_a_base_of_both(a: StructInfo, b: StructInfo) -> None:
    common = analysis.struct_info_lca(a, b)
    same(common, analysis.struct_info_lca(b, a))
    for info in (a, b):
        assert analysis.struct_info_base_check(common, info) is PASS
    # Nothing in the list lies between the two and what they have in common.
    for other in LATTICE:
        if other.is_base_of(a) and other.is_base_of(b) and not isinstance(other, FuncStructInfo):
            assert other.is_base_of(common), other
    if a.is_base_of(b) and not isinstance(a, FuncStructInfo):
        same(common, a)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (TensorStructInfo((2, n), "float32"), TensorStructInfo((2, m), "float32"), TensorStructInfo(dtype="float32", ndim=2)),
        (TensorStructInfo((2, n), "float32"), TensorStructInfo((2, n), "int8"), TensorStructInfo((2, n), "")),
        (TensorStructInfo((2,)), TensorStructInfo((2, n)), TensorStructInfo(dtype="float32")),
        (ShapeStructInfo([1, n]), ShapeStructInfo([2, n]), ShapeStructInfo(ndim=2)),
        (ShapeStructInfo([n + n]), ShapeStructInfo([2 * n]), ShapeStructInfo([n + n])),
        (PrimStructInfo(value=n), PrimStructInfo(value=m), PrimStructInfo("int64")),
        (TupleStructInfo([FLOATS, ShapeStructInfo([n])]), TupleStructInfo([FLOATS, FLOATS]), TupleStructInfo([FLOATS, OBJECT])),
        (FLOATS, ShapeStructInfo([n, m]), OBJECT),
        (
            FuncStructInfo([ShapeStructInfo([2, n, m])], ShapeStructInfo([n])),
            FuncStructInfo([ShapeStructInfo([2, m, n])], ShapeStructInfo([m])),
            FuncStructInfo([ShapeStructInfo([2, n, m])], ShapeStructInfo([n])),
        ),
        # A variable that no parameter tells any more is not known in the result either.
        (
            FuncStructInfo([ShapeStructInfo([2, n])], ShapeStructInfo([n])),
            FuncStructInfo([ShapeStructInfo([3, n])], ShapeStructInfo([n]), False),
            FuncStructInfo([ShapeStructInfo(ndim=2)], ShapeStructInfo(ndim=1), False),
        ),
        (
            FuncStructInfo([FLOATS], FLOATS),
            FuncStructInfo([FLOATS, FLOATS], FLOATS),
            FuncStructInfo.opaque_func(ret=TensorStructInfo(dtype="float32", ndim=2), purity=True),
        ),
    ],
    ids=str,
)  # fmt: skip
def test_the_most_that_is_common(a: StructInfo, b: StructInfo, expected: StructInfo) -> None:
    same(analysis.struct_info_lca(a, b), expected)


# -- symbolic variables --


def test_variables_and_those_that_take_their_value_here() -> None:
    x, y = tir.Var("x", "int64"), tir.Var("y", "int64")
    info = TupleStructInfo([TensorStructInfo((n + 1, m)), ShapeStructInfo([x, 4, m * y]), PrimStructInfo(value=n)])
    assert list(analysis.tir_vars_in_struct_info(info)) == [n, m, x, y]
    assert list(analysis.definable_tir_vars_in_struct_info(info)) == [m, x, n]
    func = FuncStructInfo([info], ShapeStructInfo([y, 2 * n]))
    assert list(analysis.definable_tir_vars_in_struct_info(func)) == [m, x, n, y]
    nothing = TupleStructInfo([OBJECT, TensorStructInfo(ndim=2)])
    assert not analysis.tir_vars_in_struct_info(nothing) and not analysis.definable_tir_vars_in_struct_info(nothing)


def test_extents_are_not_negative() -> None:
    info = TupleStructInfo([TensorStructInfo((n - 1, 4, m)), ShapeStructInfo([n // 2]), PrimStructInfo(value=n - 9)])
    assert list(map(str, analysis.collect_non_negative_expressions(info))) == ["n - T.int64(1)", "m", "n // T.int64(2)"]
    assert not analysis.collect_non_negative_expressions(PrimStructInfo(value=n))
    func = FuncStructInfo([ShapeStructInfo([n - 1]), ShapeStructInfo([n])], TensorStructInfo((n - 1, n + m)))
    assert list(map(str, analysis.collect_non_negative_expressions(func))) == ["n - T.int64(1)", "n", "n + m"]


def test_what_is_not_known_elsewhere_is_forgotten() -> None:
    s = relax.Var("s", ShapeStructInfo(ndim=2))
    held = TensorStructInfo(s, "float32")
    info = TupleStructInfo([TensorStructInfo((n, m + n), "int8"), ShapeStructInfo([m]), PrimStructInfo(value=n), held])
    same(
        analysis.erase_to_well_defined(info),
        TupleStructInfo(
            [TensorStructInfo(dtype="int8", ndim=2), ShapeStructInfo(ndim=1), PrimStructInfo("int64"), TensorStructInfo(dtype="float32", ndim=2)]
        ),
    )  # fmt: skip
    k = tir.Var("k", "int64")
    t = relax.Var("t", ShapeStructInfo(ndim=2))
    same(
        analysis.erase_to_well_defined(info, {n: k + 1}, {s: t}),
        TupleStructInfo(
            [TensorStructInfo(dtype="int8", ndim=2), ShapeStructInfo(ndim=1), PrimStructInfo(value=k + 1), TensorStructInfo(t, "float32")]
        ),
    )  # fmt: skip
    same(analysis.erase_to_well_defined(TensorStructInfo((n + 1, m)), {n: 2, m: m}), TensorStructInfo((3, m)))
    all_known = analysis.erase_to_well_defined(info, {n: n, m: m}, {s: s})
    assert all_known is info
    # A function's own variables are known in it.
    func = FuncStructInfo([TensorStructInfo((n,))], TensorStructInfo((n, m)))
    same(analysis.erase_to_well_defined(func), FuncStructInfo(func.params, TensorStructInfo(dtype="float32", ndim=2)))


# -- calls --


def call_of(func: FuncStructInfo, *args: StructInfo) -> tuple[FuncStructInfo, relax.Call]:
    f = relax.Var("f", func)
    return func, relax.Call(f, [relax.Var(f"x{i}", a) for i, a in enumerate(args)])


def test_a_call_gives_the_result_with_the_arguments_extents() -> None:
    func = FuncStructInfo([TensorStructInfo((n, m)), ShapeStructInfo([n])], TensorStructInfo((m, n + 1)))
    builder = relax.BlockBuilder()
    a, b = tir.Var("a", "int64"), tir.Var("b", "int64")
    with builder.testing_scope([a, b]):
        found = analysis.derive_call_ret_struct_info(
            *call_of(func, TensorStructInfo((a, 3)), ShapeStructInfo([a])), builder
        )
        same(found, TensorStructInfo((3, a + 1)))
        # What the arguments do not determine is not known.
        loose = FuncStructInfo([TensorStructInfo((n + 1,))], TensorStructInfo((n,)))
        found = analysis.derive_call_ret_struct_info(*call_of(loose, TensorStructInfo((a,))), builder)
        same(found, TensorStructInfo(dtype="float32", ndim=1))
        opaque = FuncStructInfo.opaque_func(ret=TensorStructInfo((n,), "int8"))
        found = analysis.derive_call_ret_struct_info(*call_of(opaque, OBJECT), builder)
        same(found, TensorStructInfo(dtype="int8", ndim=1))


def test_arguments_that_do_not_fit_are_named() -> None:
    func = FuncStructInfo([TensorStructInfo((n, n)), ShapeStructInfo([n])], OBJECT)
    builder = relax.BlockBuilder()
    with pytest.raises(TypeMismatch, match=r"`f` takes 2 arguments, found 1"):
        analysis.derive_call_ret_struct_info(*call_of(func, FLOATS), builder)
    with pytest.raises(
        TypeMismatch, match=r"argument 1 of `f`: expected R.Shape\(\[4\]\), found `x1`: R.Shape\(\[5\]\)"
    ):
        analysis.derive_call_ret_struct_info(*call_of(func, TensorStructInfo((4, 4)), ShapeStructInfo([5])), builder)
    with pytest.raises(TypeMismatch, match=r"argument 0 of `f`: .*dtype=\"int8\""):
        analysis.derive_call_ret_struct_info(*call_of(func, TensorStructInfo((4, 4), "int8"), OBJECT), builder)
