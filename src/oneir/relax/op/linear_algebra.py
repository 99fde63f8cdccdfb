"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...ir.dtype import DataType
from ...ir.expr import IntImm, const
from ..expr import Call, Expr
from ..struct_info import VOID, StructInfo, TensorStructInfo
from .inference import broadcast_extents, common_dtype, common_vdevice, fail, same_extent, tensor_argument
from .registry import OpPattern, operator


@operator("relax.matmul", pattern=OpPattern.OUT_EWISE_FUSABLE)
def matmul(x1: Expr, x2: Expr, out_dtype: str | None = None) -> Call:
    """The matrix product, as `numpy.matmul`: leading dimensions are batches and are broadcast.

    A vector is a row on the left and a column on the right. `out_dtype` is the dtype of the sums and of the result,
    that of the arguments unless given.
    """
    return matmul.call(x1, x2, out_dtype=DataType(out_dtype or "void"))


@matmul.struct_info
def _matmul_struct_info(call: Call, builder: Any) -> StructInfo:
    a, b = tensor_argument(call, 0, "x1"), tensor_argument(call, 1, "x2")
    if a.ndim == 0 or b.ndim == 0:
        raise fail(call, "expected tensors of at least one dimension, found a scalar")
    dtype = call.attrs["out_dtype"]
    if dtype == VOID:
        dtype = common_dtype(call, [a, b])
    vdevice = common_vdevice([a, b])
    if a.ndim == -1 or b.ndim == -1:
        return TensorStructInfo(None, dtype, vdevice)
    ndim = max(a.ndim, b.ndim) - (a.ndim == 1) - (b.ndim == 1)
    x, y = a.extents, b.extents
    if x is None or y is None:
        return TensorStructInfo(None, dtype, vdevice, ndim)
    inner, outer = x[-1], y[-1 if b.ndim == 1 else -2]
    if not same_extent(inner, outer, builder.analyzer) and builder.analyzer.can_prove(inner != outer):
        raise fail(
            call,
            f"the last extent of x1 and the {'only' if b.ndim == 1 else 'second last'} extent of x2 must be equal, "
            f"found {inner} and {outer} in the shapes {list(x)} and {list(y)}",
        )
    batch = broadcast_extents(call, x[:-2], y[:-2], builder.analyzer)
    if batch is None:
        return TensorStructInfo(None, dtype, vdevice, ndim)
    rows = [] if a.ndim == 1 else [x[-2]]
    columns = [] if b.ndim == 1 else [y[-1]]
    return TensorStructInfo([*batch, *rows, *columns], dtype, vdevice)


@matmul.reference
def _matmul_reference(x1: np.ndarray, x2: np.ndarray, out_dtype: str) -> np.ndarray:
    dtype = x1.dtype if out_dtype == "void" else out_dtype
    return np.matmul(x1.astype(dtype), x2.astype(dtype))


def te_matmul(x1: te.Tensor, x2: te.Tensor, out_dtype: str) -> te.Tensor:
    """The matrix product as loops i0, i1, ..., k: each operand indexed with its own batch dimensions."""
    row, column = len(x1.shape) > 1, len(x2.shape) > 1
    batch_1, batch_2 = x1.shape[:-2], x2.shape[:-2]
    batch = [y if _is_one(x) else x for x, y in _aligned(batch_1, batch_2)]
    k = te.reduce_axis((0, x1.shape[-1]), name="k")

    def compute(*index: Any) -> Any:
        spatial = index[len(batch) :]
        left = [*_batch_index(batch_1, index[: len(batch)]), *([spatial[0]] if row else []), k]
        right = [*_batch_index(batch_2, index[: len(batch)]), k, *([spatial[-1]] if column else [])]
        return te.sum(cast_to(x1(*left), out_dtype) * cast_to(x2(*right), out_dtype), axis=k)

    shape = [*batch, *([x1.shape[-2]] if row else []), *([x2.shape[-1]] if column else [])]
    return te.compute(shape, compute, name="matmul")


def cast_to(value: Any, dtype: str) -> Any:
    """A value in a dtype; the value itself if it has it."""
    return value if value.dtype == dtype else value.astype(dtype)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, IntImm) and extent.value == 1


def _aligned(a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Pairs of batch extents, the missing ones of the shorter shape being 1."""
    one, length = const(1, "int64"), max(len(a), len(b))
    padded = [[*([one] * (length - len(s))), *s] for s in (a, b)]
    return list(zip(*padded, strict=True))


def _batch_index(extents: Any, index: Any) -> list[Any]:
    used = index[len(index) - len(extents) :]
    return [0 if _is_one(e) else i for e, i in zip(extents, used, strict=True)]


@matmul.legalize_as
def _legalize_matmul(builder: Any, call: Call) -> Expr:
    return builder.call_te(te_matmul, *call.args, out_dtype=call.struct_info.dtype, primfunc_name_hint="matmul")


def linear(data: Expr, weight: Expr, bias: Expr | None = None, out_dtype: str | None = None) -> Expr:
    """`data @ weight.T + bias`, for weights of shape (out, in) or (in,)."""
    from .binary import add
    from .manipulate import permute_dims

    result = matmul(data, permute_dims(weight), out_dtype=out_dtype)
    return result if bias is None else add(result, bias)
