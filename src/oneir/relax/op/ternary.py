"""Operators of three tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import te, topi
from ..expr import Call, Expr
from ..operator_facts import OpPattern
from ..struct_info import StructInfo, TensorStructInfo
from .infer_layout import same_layouts
from .inference import common_dtype, common_vdevice, fail, only, same_extent, tensor_argument
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.ewise_fma", pattern=OpPattern.ELEMENTWISE)
def ewise_fma(x1: Expr, x2: Expr, x3: Expr) -> Call:
    """x1 * x2 + x3, elementwise, of tensors of one shape."""
    return ewise_fma.call(x1, x2, x3)


ewise_fma.follow_precision()
ewise_fma.infer_layout(same_layouts)


@ewise_fma.struct_info
def _ewise_fma_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    infos = [tensor_argument(call, i) for i in range(3)]
    dtype, device = common_dtype(call, infos), common_vdevice(infos)
    known = {i.ndim for i in infos} - {-1}
    if len(known) > 1:
        found = ", ".join(str(i.ndim) for i in infos)
        raise fail(call, f"expected three tensors of as many dimensions, found {found}")
    shapes = [i.extents for i in infos if i.extents is not None]
    for other in shapes[1:]:
        for i, (x, y) in enumerate(zip(shapes[0], other, strict=True)):
            if not same_extent(x, y, builder.analyzer) and builder.analyzer.can_prove(x != y):
                raise fail(call, f"expected three tensors of one shape, found extents {x} and {y} at dimension {i}")
    if len(shapes) == 3 and all(
        same_extent(x, y, builder.analyzer) for s in shapes[1:] for x, y in zip(shapes[0], s, strict=True)
    ):
        return TensorStructInfo(shapes[0], dtype, device)
    first = infos[0]
    if first.shape is not None and all(i.shape is first.shape for i in infos):
        return TensorStructInfo(first.shape, dtype, device)
    return TensorStructInfo(None, dtype, device, known.pop() if known else -1)


def te_ewise_fma(x1: te.Tensor, x2: te.Tensor, x3: te.Tensor) -> te.Tensor:
    """x1 * x2 + x3"""
    return topi.add(topi.multiply(x1, x2), x3)


ewise_fma.reference(lambda x1, x2, x3: x1 * x2 + x3)
ewise_fma.legalize(te_ewise_fma, "ewise_fma", check=only("numbers"))
