"""Graphs of a product and what may come after it, for tests of patterns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.module import IRModule
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Expr, Var
from ..struct_info import TensorStructInfo


def get_relax_matmul_module(
    x_shape: Sequence[Any],
    y_shape: Sequence[Any],
    in_dtype: str,
    out_dtype: str | None = None,
    transposed_y: bool = False,
    bias_shape: Sequence[Any] | None = None,
    activation: Callable[[Expr], Expr] | None = None,
    residual_bin_op: Callable[[Expr, Expr], Expr] | None = None,
    residual_activation: Callable[[Expr], Expr] | None = None,
) -> IRModule:
    """A module whose `main` multiplies `x` and `y`, perhaps transposed in their last two dimensions.

    A bias, an activation, an operator of the result and `x`, and another activation follow where they are given.
    """
    out = out_dtype or in_dtype
    params = [Var("x", TensorStructInfo(x_shape, in_dtype)), Var("y", TensorStructInfo(y_shape, in_dtype))]
    if bias_shape is not None:
        params.append(Var("bias", TensorStructInfo(bias_shape, out)))
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            x, y = params[:2]
            if transposed_y:
                y = builder.emit(op.permute_dims(y, [*range(len(y_shape) - 2), -1, -2]))
            result = builder.emit(op.matmul(x, y, out_dtype=out))
            if bias_shape is not None:
                result = builder.emit(op.add(result, params[2]))
            if activation is not None:
                result = builder.emit(activation(result))
            if residual_bin_op is not None:
                result = builder.emit(residual_bin_op(result, x))
                if residual_activation is not None:
                    result = builder.emit(residual_activation(result))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()
