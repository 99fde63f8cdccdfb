"""What can be computed once the weights are known."""

from __future__ import annotations

from oneir import relax, tir
from oneir.relax import BlockBuilder, TensorStructInfo
from oneir.relax.analysis import computable_at_compile_time


def function(attrs, weight_shape=(4, 4)):
    """main(x, w): a = exp(w); b = add(a, x); c = exp(a); returns (b, c)."""
    x = relax.Var("x", TensorStructInfo((4, 4), "float32"))
    w = relax.Var("w", TensorStructInfo(weight_shape, "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x, w], attrs=attrs):
        a = builder.emit(relax.op.exp(w), "a")
        b = builder.emit(relax.op.add(a, x), "b")
        c = builder.emit(relax.op.exp(a), "c")
        builder.emit_func_output(relax.Tuple([b, c]))
    return builder.finalize()["main"]


def names(variables):
    return [v.name for v in variables]


def test_weights_and_what_follows_from_them():
    assert names(computable_at_compile_time(function({"num_input": 1}))) == ["w", "a", "c"]


def test_without_the_attribute_nothing_is_known():
    assert names(computable_at_compile_time(function({}))) == []


def test_constants_are_known():
    builder = BlockBuilder()
    with builder.function("main", []):
        y = builder.emit(relax.op.exp(relax.const([1.0, 2.0])), "y")
        builder.emit_func_output(y)
    assert names(computable_at_compile_time(builder.finalize()["main"])) == ["y"]


def test_a_symbolic_extent_is_known_from_a_weight_only():
    n = tir.Var("n", "int64")
    assert names(computable_at_compile_time(function({"num_input": 1}, (n, 4)))) == ["w", "a", "c"]
    builder = BlockBuilder()
    x = relax.Var("x", TensorStructInfo((n,), "float32"))
    with builder.function("main", [x], attrs={"num_input": 1}):
        shape = builder.emit(relax.ShapeExpr([n]), "shape")
        builder.emit_func_output(shape)
    assert names(computable_at_compile_time(builder.finalize()["main"])) == []
