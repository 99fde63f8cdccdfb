"""Graph expressions: what they are made of, what is known of them, Python's operators over them, and their refusals."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from oneir import ir, nd, relax, te, tir
from oneir.relax import (
    Id,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TEPlaceholderOp,
    TupleStructInfo,
    te_tensor,
)
from oneir.relax.expr import ExprWithOp
from oneir.runtime.error import InvalidValue, TypeMismatch

n = tir.Var("n", "int64")
X = relax.Var("x", TensorStructInfo((n, 4), "float32"))
PAIR = relax.Var("p", TupleStructInfo([X.struct_info, ShapeStructInfo([n])]))


def test_a_variable_is_itself_whatever_its_name() -> None:
    other = relax.Var("x", X.struct_info)
    assert X.name_hint == other.name_hint == X.vid.name_hint == "x"
    assert not X.same_as(other) and not ir.structural_equal(X, other, map_free_vars=False)
    assert ir.structural_equal(X, other, map_free_vars=True)
    identity = Id("y")
    same = relax.Var(identity), relax.DataflowVar(identity)
    assert {v.vid for v in same} == {identity} and isinstance(same[1], relax.Var)
    with pytest.raises(TypeMismatch, match="the name of a variable is a str, found 3"):
        relax.Var(3)
    with pytest.raises(TypeMismatch, match="expected struct info, such as"):
        relax.Var("x", (2, 3))


@pytest.mark.parametrize(
    ("python", "name"),
    [
        (operator.add, "add"), (operator.sub, "subtract"), (operator.mul, "multiply"), (operator.truediv, "divide"),
        (operator.floordiv, "floor_divide"), (operator.pow, "power"), (operator.mod, "floor_mod"),
        (operator.lt, "less"), (operator.le, "less_equal"), (operator.gt, "greater"), (operator.ge, "greater_equal"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_operators_of_python_are_calls(python: Any, name: str) -> None:
    assert issubclass(relax.Var, ExprWithOp)
    y = relax.Var("y", X.struct_info)
    call = python(X, y)
    assert call.op.name == f"relax.{name}" and list(call.args) == [X, y]


def test_other_operators_of_python() -> None:
    negative, wide = -X, X.astype("float64")
    assert negative.op.name == "relax.negative" and wide.op.name == "relax.astype" and wide.attrs.dtype == "float64"
    f = relax.Var("f", relax.FuncStructInfo([X.struct_info], X.struct_info))
    assert f(X).op is f and list(f(X).args) == [X]
    first, shape = PAIR
    assert (first.tuple_value, first.index, shape.index) == (PAIR, 0, 1)
    ir.assert_structural_equal(first.struct_info, X.struct_info)
    with pytest.raises(TypeMismatch, match="only a tuple can be iterated over; `x` has struct info"):
        iter(X)


def test_tuples_and_their_fields() -> None:
    made = relax.Tuple([X, relax.PrimValue(1)])
    assert len(made) == 2 and made[0] is X and list(made) == list(made.fields)
    ir.assert_structural_equal(
        made.struct_info, TupleStructInfo([X.struct_info, PrimStructInfo(value=tir.IntImm("int64", 1))])
    )
    assert relax.TupleGetItem(PAIR, -1).index == 1
    with pytest.raises(InvalidValue, match="field 2 of a tuple of 2"):
        relax.TupleGetItem(PAIR, 2)
    with pytest.raises(TypeMismatch, match="expected a tuple to take field 0 of, found `x`"):
        relax.TupleGetItem(X, 0)
    with pytest.raises(InvalidValue, match="the length of the tuple is not known"):
        relax.TupleGetItem(relax.Var("o", ObjectStructInfo()), -1)


def test_shapes() -> None:
    shape = relax.make_shape([n, 4])
    assert isinstance(shape, relax.ShapeExpr) and shape[0] is n and shape[1].dtype == "int64" and len(shape) == 2
    ir.assert_structural_equal(shape.struct_info, ShapeStructInfo([n, 4]))
    ir.assert_structural_equal(relax.make_shape((n, 4)), shape)
    with pytest.raises(TypeMismatch, match="expected a list or tuple of extents, found 4"):
        relax.make_shape(4)
    assert relax.get_shape_of(X) is X.struct_info.shape
    loose = relax.Var("t", TensorStructInfo(ndim=2))
    asked = relax.get_shape_of(loose)
    assert asked.op.name == "relax.shape_of" and list(asked.args) == [loose]
    with pytest.raises(TypeMismatch, match=r"expected a tensor, found `p` with struct info"):
        relax.get_shape_of(PAIR)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, None, "int32"), (1.5, None, "float32"), (True, None, "bool"), ([1, 2], None, "int32"),
        (np.float64(1.5), None, "float64"), (np.arange(3), None, "int64"), (3, "int8", "int8"),
        (np.float32([1.5]), "bfloat16", "bfloat16"), (nd.array(np.int16([1])), None, "int16"),
        (1, relax.TensorType(0, "uint8"), "uint8"), (2, TensorStructInfo((), "float16"), "float16"),
    ],
    ids=str,
)  # fmt: skip
def test_constants(value: Any, dtype: Any, expected: str) -> None:
    made = relax.const(value, dtype)
    assert made.data.dtype == made.struct_info.dtype == expected
    array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    assert made.data.shape == array.shape
    np.testing.assert_array_equal(made.data.numpy().astype("float64"), array.astype("float64"))
    assert relax.const(made).data is made.data


def test_numbers_texts_and_dtypes() -> None:
    assert relax.PrimValue(3).value.dtype == "int64" and relax.PrimValue(2.5).value.dtype == "float64"
    assert relax.PrimValue(True).value.dtype == "bool" and relax.PrimValue(n + 1).struct_info.dtype == "int64"
    assert relax.StringImm("a").value == "a" and type(relax.StringImm("a").struct_info) is ObjectStructInfo
    assert relax.DataTypeImm("int8").value == "int8" and str(relax.DataTypeImm("int8")) == 'R.dtype("int8")'
    for kind in (relax.PrimValue, relax.StringImm, relax.DataTypeImm):
        a, b = {"PrimValue": (1, 2), "StringImm": ("a", "b"), "DataTypeImm": ("int8", "int16")}[kind.__name__]
        assert ir.structural_equal(kind(a), kind(a)) and not ir.structural_equal(kind(a), kind(b))


def test_calls_and_external_functions() -> None:
    f = relax.extern("my.function")
    assert isinstance(f, relax.ExternFunc) and f.global_symbol == "my.function" and f.struct_info.params is None
    typed = relax.extern("my.function", relax.FuncStructInfo([X.struct_info], X.struct_info))
    assert len(typed.struct_info.params) == 1
    call = relax.Call(f, [X], None, [X.struct_info])
    assert call.op is f and list(call.sinfo_args) == [X.struct_info] and not list(call.attrs)
    with pytest.raises(TypeMismatch, match="the arguments of a graph call are graph expressions, found 1"):
        relax.Call(f, [1])
    with pytest.raises(TypeMismatch, match="expected an operator or a function to call, found 3"):
        relax.Call(3, [X])
    with pytest.raises(TypeMismatch, match="an external function is named by a str, found 3"):
        relax.extern(3)
    scaled = relax.op.nn.softmax(X, axis=1)
    assert scaled.attrs.axis == 1
    with pytest.raises(AttributeError, match="the call has no attribute 'axes'; it has axis"):
        scaled.attrs.axes


def test_bindings_blocks_and_functions() -> None:
    y, z = relax.DataflowVar("y", X.struct_info), relax.Var("z", TensorStructInfo((n, 4), "float32"))
    block = relax.DataflowBlock([relax.VarBinding(y, relax.op.exp(X)), relax.MatchCast(z, y, z.struct_info)])
    assert [type(b) for b in block.bindings] == [relax.VarBinding, relax.MatchCast]
    assert isinstance(block, relax.BindingBlock) and all(isinstance(b, relax.Binding) for b in block.bindings)
    body = relax.SeqExpr([block], z)
    assert body.struct_info is z.struct_info
    func = relax.Function([X], body, attrs={"global_symbol": "main"})
    ir.assert_structural_equal(func.ret_struct_info, z.struct_info)
    assert func.is_pure and func.attrs["global_symbol"] == "main"
    choice = relax.If(relax.const(True), X, z)
    assert isinstance(choice.true_branch, relax.SeqExpr) and choice.true_branch.body is X
    empty = relax.Function.create_empty([X], X.struct_info, is_pure=False)
    assert not empty.is_pure and empty.struct_info.ret is X.struct_info
    with pytest.raises(
        TypeMismatch, match=r"the parameters of a graph function are relax.Var, found .*relax.TensorStructInfo"
    ):
        relax.Function([te.placeholder((2,))], body)
    with pytest.raises(InvalidValue, match=r"the parameter `x` has no struct info: say relax.Var\(name, struct_info\)"):
        relax.Function([relax.Var("x")], body)
    with pytest.raises(TypeMismatch, match="a relax Function is not called directly"):
        func(X)


def test_tensor_expressions_of_graph_values() -> None:
    k = tir.Var("k", "int64")
    made = te_tensor(X, {n: k}, "data")
    assert isinstance(made.op, TEPlaceholderOp) and made.op.value is X
    assert made.op.name == "data" and made.shape[0] is k and made.dtype == "float32"
    assert te_tensor(X).op.name == "rxplaceholder" and te_tensor(X).shape[0] is n
    with pytest.raises(TypeMismatch, match="a tensor expression needs a tensor of known shape, found `t`"):
        te_tensor(relax.Var("t", TensorStructInfo(ndim=2)))


def test_the_types_of_earlier_releases() -> None:
    tensor = relax.TensorType(2, "int8")
    assert (tensor.ndim, tensor.dtype, relax.ShapeType().ndim) == (2, "int8", -1)
    assert (relax.TensorType().ndim, relax.TensorType().dtype) == (-1, "float32")
    kinds = [tensor, relax.ShapeType(2), relax.ObjectType(), relax.PackedFuncType()]
    assert all(isinstance(t, ir.Type) for t in kinds)
    for i, a in enumerate(kinds):
        assert [ir.structural_equal(a, b) for b in kinds] == [i == j for j in range(len(kinds))]
