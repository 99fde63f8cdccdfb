"""Loops of tensor expressions: equal calls of operators share them, and a user's function is always asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax, te, tir, topi
from oneir.relax import emit_te
from oneir.runtime.error import TypeMismatch
from oneir.script import relax as R


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What loops are made of, one entry each time."""
    arguments: list[Any] = []
    create = emit_te.create_prim_func

    def count(args: Any, *rest: Any) -> Any:
        arguments.append(args)
        return create(args, *rest)

    monkeypatch.setattr(emit_te, "create_prim_func", count)
    return arguments


def test_equal_calls_of_operators_make_loops_once(made: list[Any]) -> None:
    bb = relax.BlockBuilder()
    x, y = relax.Var("x", R.Tensor((4, 8), "float32")), relax.Var("y", R.Tensor((4, 8), "float32"))
    first = bb.call_te(topi.add, x, y)
    again = bb.call_te(topi.add, y, x)
    assert len(made) == 1
    assert again.args[0] is first.args[0]
    assert list(again.args[1].fields) == [y, x]
    assert again.sinfo_args[0] == first.sinfo_args[0]


def test_tagged_operators_make_loops_once_too(made: list[Any]) -> None:
    bb = relax.BlockBuilder()
    first, again = (bb.call_te(topi.nn.relu, relax.Var(name, R.Tensor((4, 8), "float32"))) for name in "xy")
    assert len(made) == 1
    assert again.args[0] is first.args[0]


@pytest.mark.parametrize(
    "argument", [relax.Var("z", R.Tensor((8,), "float32")), relax.Var("z", R.Tensor((4, 8), "float32")), tir.const(3.0)]
)
def test_other_shapes_and_numbers_make_other_loops(argument: Any, made: list[Any]) -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4, 8), "float32"))
    first, second = bb.call_te(topi.multiply, x, tir.const(2.0)), bb.call_te(topi.multiply, x, argument)
    assert len(made) == 2
    assert second.args[0] is not first.args[0]


def test_another_dtype_makes_other_loops(made: list[Any]) -> None:
    bb = relax.BlockBuilder()
    for dtype in ("float32", "float64", "float32"):
        bb.call_te(topi.exp, relax.Var("x", R.Tensor((4, 8), dtype)))
    assert len(made) == 2


def test_what_equals_in_python_may_be_another_argument(made: list[Any]) -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4, 8), "float32"))
    calls = [bb.call_te(topi.sum, x, 1, keepdims) for keepdims in (False, True, False)]
    assert len(made) == 2
    assert calls[0].args[0] is calls[2].args[0] is not calls[1].args[0]
    assert [c.sinfo_args[0].ndim for c in calls] == [1, 2, 1]


def test_a_function_that_was_replaced_is_made_anew(made: list[Any]) -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4,), "float32"))
    var = bb.call_te(topi.exp, x).args[0]
    other = bb.call_te(topi.abs, x).args[0]
    bb.update_func(var, bb.get()[other])
    assert bb.call_te(topi.exp, x).args[0] is not var
    assert len(made) == 3


def test_functions_of_users_are_asked_each_time() -> None:
    bb = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4,), "float32"))
    factors = iter([2.0, 3.0])

    def scale(a: te.Tensor) -> te.Tensor:
        factor = next(factors)
        return te.compute(a.shape, lambda i: a[i] * tir.const(factor, "float32"))

    assert bb.call_te(scale, x).args[0] is not bb.call_te(scale, x).args[0]


def test_symbolic_extents_are_the_same_where_their_variables_are(made: list[Any]) -> None:
    bb = relax.BlockBuilder()
    n, m = tir.Var("n", "int64"), tir.Var("n", "int64")

    def call(extent: Any, *rest: int) -> relax.Call:
        return bb.call_te(topi.strided_slice, relax.Var("x", R.Tensor((extent, 8), "float32")), [1, 0], [extent, *rest])

    calls = [call(n * 2 + 1, 8), call(n * 2 + 1, 8), call(n * 2, 8), call(m * 2, 8), call(n * 2, 7)]
    assert len(made) == 4
    assert calls[0].args[0] is calls[1].args[0]
    assert calls[0].args[0] is not calls[2].args[0] is not calls[4].args[0]
    # Both need the value of n, which the shape n * 2 + 1 does not give by itself.
    assert [list(c.args[2].values) for c in calls[:4]] == [[n], [n], [n], [m]]
    assert [c.sinfo_args[0].shape.values[0] for c in calls[:2]] == [calls[0].sinfo_args[0].shape.values[0]] * 2


def test_symbolic_shapes_keep_their_symbolic_arguments() -> None:
    bb = relax.BlockBuilder()
    n = tir.Var("n", "int64")
    x = relax.Var("x", R.Tensor((n,), "float32"))
    calls = [bb.call_te(topi.full_like, x, 1.0), bb.call_te(topi.full_like, x, 1.0)]
    assert calls[0].args[0] is calls[1].args[0]
    assert calls[1].sinfo_args[0].shape.values[0] is n


def test_variables_of_an_inputs_shape_only_are_symbolic_arguments() -> None:
    n = tir.Var("n", "int64")
    x = relax.Var("x", R.Tensor([2, (n + 1) // 2], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, relax.Var("s", R.Shape([n]))]):
        call = builder.call_te(lambda a: te.compute((2,), lambda i: a[i, 0], "first"), x)
        builder.emit_func_output(builder.emit(call))
    ((_, values, tir_vars), (info,)) = call.args, call.sinfo_args
    assert list(values.fields) == [x] and list(tir_vars.values) == [n] and list(info.shape.values) == [2]
    func = builder.get()[call.args[0]]
    assert len(func.params) == 3 and func.params[2].dtype == "int64"


def test_struct_info_is_refused_however_often() -> None:
    bb = relax.BlockBuilder()
    for _ in range(2):
        with pytest.raises(TypeMismatch, match="struct info cannot be an argument of a tensor expression"):
            bb.call_te(topi.exp, R.Tensor((4,), "float32"))


def test_a_number_known_at_run_time_is_an_argument() -> None:
    bb = relax.BlockBuilder()
    x, y = relax.Var("x", R.Tensor((4,), "float32")), relax.Var("y", R.Prim("float32"))
    with bb.function("main", [x, y]):
        bb.emit_func_output(bb.emit(bb.call_te(topi.multiply, x, y)))
    machine = relax.VirtualMachine(oneir.compile(bb.get(), "llvm"), oneir.cpu())
    found = machine["main"](oneir.nd.array(np.arange(4, dtype="float32")), 1.5)
    np.testing.assert_array_equal(found.numpy(), np.arange(4, dtype="float32") * np.float32(1.5))


def test_a_variable_of_the_result_alone_is_no_argument() -> None:
    bb = relax.BlockBuilder()
    n = tir.Var("n", "int64")
    call = bb.call_te(lambda shape: topi.full(shape, "float32", 1.0), relax.ShapeExpr([n, 3]))
    assert len(call.args) == 2
    assert str(call.sinfo_args[0]) == 'R.Tensor((n, 3), dtype="float32")'
