"""Dilation: values put between the elements of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue
from ...te.tensor import Tensor
from ...tir import op as tir_op
from .. import tag
from ..index import shape_text


@te.tag_scope(tag=tag.INJECTIVE + ",dilate")
def dilate(data: Tensor, strides: Sequence[Any], dilation_value: float = 0.0, name: str = "DilatedInput") -> Tensor:
    """`data` with `strides[d] - 1` elements of the dilation value between any two along dimension d."""
    if len(strides) != data.ndim:
        raise InvalidValue(
            f"topi.nn.dilate: expected a stride for each of the {data.ndim} dimensions of the data of shape "
            f"{shape_text(data.shape)}, found {len(strides)}"
        )
    simplify = Analyzer().simplify
    shape = [d if as_int(d) == 0 else simplify((d - 1) * s + 1) for d, s in zip(data.shape, strides, strict=True)]

    def element(*i: PrimExpr) -> Any:
        on_data, indices = [], []
        for index, stride in zip(i, strides, strict=True):
            if as_int(stride) == 1:
                indices.append(index)
                continue
            indices.append(ops.floordiv(index, stride))
            on_data.append(ops.equal(ops.floormod(index, stride), 0))
        found = data(*indices)
        return tir_op.if_then_else(tir_op.all(*on_data), found, const(dilation_value, data.dtype)) if on_data else found

    return te.compute(shape, element, name=name)
