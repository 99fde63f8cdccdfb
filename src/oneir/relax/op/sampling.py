"""Samples from distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...ir import operators as ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.dtype import numpy_dtype
from ...runtime.error import TypeMismatch
from ..expr import Call, Expr
from ..struct_info import VOID, StructInfo, TensorStructInfo
from .gather import check_integers
from .inference import fail, tensor_argument
from .op_attrs import MultinomialFromUniformAttrs
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.multinomial_from_uniform", attrs=MultinomialFromUniformAttrs)
def multinomial_from_uniform(prob: Expr, uniform_sample: Expr, sample_indices: Expr, dtype: str = "int64") -> Call:
    """Classes drawn from distributions, the rows of `prob`, by numbers drawn evenly from [0, 1).

    Sample i, of `uniform_sample[i, 0]`, is drawn from row `sample_indices[i, 0]`: the first class at which the sum of
    the probabilities so far exceeds the number, or the last one.
    """
    return multinomial_from_uniform.call(prob, uniform_sample, sample_indices, dtype=DataType(dtype))


@multinomial_from_uniform.struct_info
def _multinomial_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    names = ("prob", "uniform_sample", "sample_indices")
    prob, uniform, rows = (tensor_argument(call, i, name) for i, name in enumerate(names))
    for name, info in (("prob", prob), ("uniform_sample", uniform)):
        if info.dtype != VOID and not info.dtype.is_float:
            raise fail(call, f"argument {name} must be a tensor of floats, found dtype {info.dtype}", TypeMismatch)
    check_integers(call, rows, "sample_indices")
    for name, info in zip(names, (prob, uniform, rows), strict=True):
        if info.ndim not in (2, -1):
            raise fail(call, f"argument {name} must be a matrix, found a tensor of {info.ndim} dimensions")
    dtype = call.attrs["dtype"]
    if prob.extents is None or uniform.extents is None or rows.extents is None:
        return TensorStructInfo(None, dtype, prob.vdevice, -1 if -1 in (prob.ndim, uniform.ndim, rows.ndim) else 2)
    if builder.analyzer.can_prove(ops.not_equal(uniform.extents[0], rows.extents[0])):
        raise fail(call, f"expected an index for each of the {uniform.extents[0]} samples, found {rows.extents[0]}")
    if as_int(uniform.extents[1]) != 1 or as_int(rows.extents[1]) != 1:
        raise fail(call, f"samples and indices must have one column, found {uniform.shape} and {rows.shape}")
    return TensorStructInfo([uniform.extents[0], 1], dtype, prob.vdevice)


@multinomial_from_uniform.reference
def _multinomial_reference(
    prob: np.ndarray, uniform_sample: np.ndarray, sample_indices: np.ndarray, dtype: str
) -> np.ndarray:
    sums = np.cumsum(prob, 1, dtype=prob.dtype)[sample_indices[:, 0]]
    below = (sums <= uniform_sample).sum(1, keepdims=True)
    return np.minimum(below, prob.shape[1] - 1).astype(numpy_dtype(dtype))


def te_get_index_from_sorted(sums: te.Tensor, uniform: te.Tensor, rows: te.Tensor, dtype: str) -> te.Tensor:
    """How many sums of a row are not above a number, at most the last index."""
    classes = sums.shape[1]
    k = te.reduce_axis((0, classes), name="k")

    def below(i: Any, j: Any) -> PrimExpr:
        sample = ops.cast(sums.dtype, uniform(i, j))
        return te.sum(ops.cast("int32", ops.less_equal(sums(rows(i, j), k), sample)), axis=k)

    counted = te.compute(uniform.shape, below, name="below")

    def index(i: Any, j: Any) -> PrimExpr:
        last = ops.cast("int32", ops.subtract(classes, const(1, classes.dtype)))
        return ops.cast(dtype, ops.minimum(counted(i, j), last))

    return te.compute(uniform.shape, index, name="index")


@multinomial_from_uniform.legalize_as
def _legalize_multinomial(builder: BlockBuilder, call: Call) -> Expr:
    prob, uniform, rows = call.args
    sums = builder.emit(builder.call_te(topi.cumsum, prob, 1, primfunc_name_hint="cumsum"))
    return builder.call_te(
        te_get_index_from_sorted, sums, uniform, rows, call.attrs["dtype"], primfunc_name_hint="get_index_from_sorted"
    )
