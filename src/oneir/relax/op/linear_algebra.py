"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te, topi
from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr, as_int, const
from ...runtime.error import InvalidValue, OneIRError
from ...topi.einsum import parse_subscripts
from ..expr import Call, Expr, Tuple
from ..operator_facts import OpPattern
from ..struct_info import VOID, StructInfo, TensorStructInfo
from . import reference as numerics
from .binary import add
from .inference import (
    broadcast_extents,
    common_dtype,
    common_vdevice,
    fail,
    only,
    same_extent,
    tensor_argument,
    tensors_of_tuple,
)
from .manipulate import permute_dims, tuple_fields
from .op_attrs import EinsumAttrs, MatmulAttrs
from .registry import operator, with_out_dtype

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.matmul", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=MatmulAttrs)
def matmul(x1: Expr, x2: Expr, out_dtype: str | None = None) -> Call:
    """The matrix product, as `numpy.matmul`: leading dimensions are batches and are broadcast.

    A vector is a row on the left and a column on the right. `out_dtype` is the dtype of the sums and of the result,
    that of the arguments unless given.
    """
    return matmul.call(x1, x2, out_dtype=DataType(out_dtype or "void"))


matmul.compute_in_short_floats(with_out_dtype)


@matmul.struct_info
def _matmul_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
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
    a, b = (x if out_dtype == "void" else numerics.converted(x, out_dtype) for x in (x1, x2))
    return np.matmul(a.astype(numerics.sum_dtype(a)), b.astype(numerics.sum_dtype(b))).astype(a.dtype)


def te_matmul(x1: te.Tensor, x2: te.Tensor, out_dtype: str, transposed: bool = False) -> te.Tensor:
    """The matrix product over the axes i0, i1, ..., k: each operand indexed with its own batch dimensions.

    With `transposed`, `x2` has its last two dimensions swapped.
    """
    row, column = len(x1.shape) > 1, len(x2.shape) > 1
    batch_1, batch_2 = x1.shape[:-2], x2.shape[:-2]
    batch = [y if _is_one(x) else x for x, y in _aligned(batch_1, batch_2)]
    k = te.reduce_axis((0, x1.shape[-1]), name="k")

    def compute(*index: Any) -> Any:
        spatial = index[len(batch) :]
        left = [*_batch_index(batch_1, index[: len(batch)]), *([spatial[0]] if row else []), k]
        inner = [k, *([spatial[-1]] if column else [])]
        right = [*_batch_index(batch_2, index[: len(batch)]), *(inner[::-1] if transposed else inner)]
        return te.sum(cast_to(x1(*left), out_dtype) * cast_to(x2(*right), out_dtype), axis=k)

    columns = [x2.shape[-2 if transposed else -1]] if column else []
    shape = [*batch, *([x1.shape[-2]] if row else []), *columns]
    return te.compute(shape, compute, name="NT_matmul" if transposed else "matmul")


def cast_to(value: Any, dtype: str) -> Any:
    """A value in a dtype; the value itself if it has it."""
    return value if value.dtype == dtype else value.astype(dtype)


def _is_one(extent: PrimExpr) -> bool:
    return isinstance(extent, IntImm) and extent.value == 1


def _aligned(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> list[tuple[PrimExpr, PrimExpr]]:
    """Pairs of batch extents, the missing ones of the shorter shape being 1."""
    one, length = const(1, "int64"), max(len(a), len(b))
    padded = [[*([one] * (length - len(s))), *s] for s in (a, b)]
    return list(zip(*padded, strict=True))


def _batch_index(extents: Any, index: Any) -> list[Any]:
    used = index[len(index) - len(extents) :]
    return [0 if _is_one(e) else i for e, i in zip(extents, used, strict=True)]


@matmul.legalize_as
def _legalize_matmul(builder: BlockBuilder, call: Call) -> Expr:
    only("numbers")(call)
    return builder.call_te(te_matmul, *call.args, out_dtype=call.struct_info.dtype, primfunc_name_hint="matmul")


def linear(data: Expr, weight: Expr, bias: Expr | None = None, out_dtype: str | None = None) -> Expr:
    """`data @ weight.T + bias`, for weights of shape (out, in) or (in,)."""
    result = matmul(data, permute_dims(weight), out_dtype=out_dtype)
    return result if bias is None else add(result, bias)


@operator("relax.einsum", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=EinsumAttrs)
def einsum(operands: Any, subscripts: str) -> Call:
    """Sums of products by Einstein's convention, as `numpy.einsum`: einsum((a, b), "ij,jk->ik")."""
    values = Tuple(operands) if isinstance(operands, (list, tuple)) else operands
    return einsum.call(values, subscripts=subscripts)


@einsum.struct_info
def _einsum_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    infos, subscripts = tensors_of_tuple(call), call.attrs["subscripts"]
    if not infos:
        raise fail(call, "expected at least one tensor, found none")
    dtype, device = common_dtype(call, infos), common_vdevice(infos)
    try:
        parse_subscripts(subscripts)
    except InvalidValue as error:
        raise fail(call, str(error).removeprefix("topi.einsum: ")) from None
    inputs, output = split_subscripts(subscripts)
    if len(inputs) != len(infos):
        raise fail(call, f"the subscripts {subscripts!r} are for {len(inputs)} tensors, found {len(infos)}")
    if "." in subscripts:
        try:
            return _einsum_with_ellipsis(infos, subscripts, dtype, device)
        except OneIRError as error:
            raise fail(call, str(error).removeprefix("topi.einsum: ")) from None
    extents: dict[str, Any] = {}
    for letters, info in zip(inputs, infos, strict=True):
        if info.ndim not in (-1, len(letters)):
            raise fail(call, f"the subscripts {letters!r} do not fit a tensor of {info.ndim} dimensions")
        if info.extents is None:
            continue
        for letter, extent in zip(letters, info.extents, strict=True):
            known = extents.setdefault(letter, extent)
            if as_int(known) == 1:
                extents[letter] = extent
            elif as_int(extent) != 1 and builder.analyzer.can_prove(known != extent):
                raise fail(call, f"the subscript {letter!r} stands for the extents {known} and {extent}")
    if any(letter not in extents for letter in output):
        return TensorStructInfo(None, dtype, device, len(output))
    return TensorStructInfo([extents[letter] for letter in output], dtype, device)


def split_subscripts(subscripts: str) -> tuple[list[str], str]:
    """The letters of each operand and of the result; those that stand once, in order, unless the result is given."""
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    if not arrow:
        output = "".join(sorted(c for c in set(inputs) - set(",.") if inputs.count(c) == 1))
    return inputs.split(","), output


def _einsum_with_ellipsis(infos: list[TensorStructInfo], subscripts: str, dtype: Any, device: Any) -> StructInfo:
    if any(i.extents is None for i in infos):
        return TensorStructInfo(None, dtype, device)
    made = topi.einsum(subscripts, *[te.placeholder(i.extents, i.dtype) for i in infos])
    return TensorStructInfo(made.shape, dtype, device)


@einsum.reference
def _einsum_reference(operands: Sequence[np.ndarray], subscripts: str) -> np.ndarray:
    values = [x.astype(numerics.sum_dtype(x)) for x in operands]
    return np.asarray(np.einsum(subscripts, *values)).astype(operands[0].dtype)


@einsum.legalize_as
def _legalize_einsum(builder: BlockBuilder, call: Call) -> Expr:
    only("numbers")(call)
    operands = tuple_fields(builder, call.args[0])
    return builder.call_te(topi.einsum, call.attrs["subscripts"], *operands, primfunc_name_hint="einsum")


@operator("relax.outer", pattern=OpPattern.OUT_EWISE_FUSABLE)
def outer(x1: Expr, x2: Expr) -> Call:
    """All products of an element of one vector and one of another: x1[i] * x2[j]."""
    return outer.call(x1, x2)


@outer.struct_info
def _outer_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = [tensor_argument(call, 0, "x1"), tensor_argument(call, 1, "x2")]
    for info in infos:
        if info.ndim not in (1, -1):
            raise fail(call, f"expected two vectors, found a tensor of {info.ndim} dimensions")
    dtype, device = common_dtype(call, infos), common_vdevice(infos)
    if any(i.extents is None for i in infos):
        return TensorStructInfo(None, dtype, device, 2)
    return TensorStructInfo([i.extents[0] for i in infos if i.extents is not None], dtype, device)


def te_outer(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """a[i] * b[j]"""
    return te.compute((a.shape[0], b.shape[0]), lambda i, j: a(i) * b(j), name="outer")


outer.reference(np.outer)
outer.legalize(te_outer, "outer")
