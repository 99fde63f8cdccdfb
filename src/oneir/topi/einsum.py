"""Einstein's summation convention."""

from __future__ import annotations

import re
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr, const
from ..runtime.error import InvalidValue, ShapeMismatch
from ..te.tensor import Tensor
from .index import broadcast_index, broadcast_shape, is_one, shape_text

ELLIPSIS = "..."
"""The label of all dimensions that no letter stands for."""


def parse_subscripts(subscripts: str) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand and of the result; an ellipsis is one label."""
    sides = subscripts.replace(" ", "").split("->")
    labels = [re.findall(r"\.\.\.|[A-Za-z]", part) for part in sides[0].split(",")]
    written = ",".join("".join(part) for part in labels)
    explicit = re.findall(r"\.\.\.|[A-Za-z]", sides[1]) if len(sides) == 2 else []
    complete = written == sides[0] and (len(sides) == 1 or (len(sides) == 2 and "".join(explicit) == sides[1]))
    if not complete or any(part.count(ELLIPSIS) > 1 for part in (*labels, explicit)):
        raise InvalidValue(
            f"topi.einsum: expected subscripts such as 'ij,jk->ik' or '...ij->...ji', found {subscripts!r}"
        )
    flat = [label for part in labels for label in part]
    if len(sides) == 1:
        explicit = sorted({label for label in flat if label == ELLIPSIS or flat.count(label) == 1})
    unknown = [label for label in explicit if label not in flat]
    if unknown or len(set(explicit)) != len(explicit):
        raise InvalidValue(
            f"topi.einsum: each label of the result must be one of an operand, and stand once, found {subscripts!r}"
        )
    return labels, explicit


def einsum(subscripts: str, *operand: Any) -> Tensor:
    """The sums of products that subscripts such as "ij,jk->ik" describe; extents of 1 and "..." broadcast.

    The operands are tensors, or one list of them.
    """
    operands: list[Tensor] = (
        list(operand[0]) if len(operand) == 1 and not isinstance(operand[0], Tensor) else list(operand)
    )
    labels, result = parse_subscripts(subscripts)
    if len(labels) != len(operands):
        raise InvalidValue(f"topi.einsum: {subscripts!r} is of {len(labels)} operands, found {len(operands)}")
    extents: dict[str, Any] = {}
    ellipsis: list[Any] = []
    for part, tensor in zip(labels, operands, strict=True):
        for label, dims in _dims(part, tensor, subscripts).items():
            if label == ELLIPSIS:
                ellipsis = broadcast_shape(ellipsis, dims, "einsum")
        for label, extent in _pairs(part, tensor):
            known = extents.get(label)
            extents[label] = extent if known is None else broadcast_shape([known], [extent], "einsum")[0]
    summed = sorted({label for part in labels for label in part} - set(result))
    iterators = {
        label: [te.reduce_axis((0, d), "k") for d in ellipsis]
        if label == ELLIPSIS
        else [te.reduce_axis((0, extents[label]), label)]
        for label in summed
    }
    axes = [iterator for group in iterators.values() for iterator in group]

    def element(*ax: PrimExpr) -> Any:
        rest = iter(ax)
        place: dict[str, list[PrimExpr]] = {
            label: [iterator.var for iterator in group] for label, group in iterators.items()
        }
        for label in result:
            place[label] = [next(rest) for _ in range(len(ellipsis) if label == ELLIPSIS else 1)]
        product = None
        for part, tensor in zip(labels, operands, strict=True):
            value = tensor(*_indices(part, tensor, place, extents, ellipsis))
            product = value if product is None else ops.multiply(product, value)
        zero = const(0, operands[0].dtype)
        return te.sum(product, axis=axes, init=[zero]) if axes else product

    shape = [d for label in result for d in (ellipsis if label == ELLIPSIS else [extents[label]])]
    return te.compute(shape, element, name="T_einsum", tag="einsum")


def _dims(part: list[str], tensor: Tensor, subscripts: str) -> dict[str, list[Any]]:
    """The extents that the ellipsis of an operand stands for, if it has one."""
    extra = tensor.ndim - len(part) + (ELLIPSIS in part)
    if extra < 0 or (extra and ELLIPSIS not in part):
        raise ShapeMismatch(
            f"topi.einsum: the subscripts {''.join(part)!r} of {subscripts!r} do not fit the shape "
            f"{shape_text(tensor.shape)}"
        )
    if ELLIPSIS not in part:
        return {}
    begin = part.index(ELLIPSIS)
    return {ELLIPSIS: list(tensor.shape[begin : begin + extra])}


def _pairs(part: list[str], tensor: Tensor) -> list[tuple[str, Any]]:
    """The labels of an operand other than the ellipsis, with their extents."""
    split = part.index(ELLIPSIS) if ELLIPSIS in part else len(part)
    front, back = part[:split], part[split + 1 :]
    tail = tensor.shape[tensor.ndim - len(back) :]
    return [*zip(front, tensor.shape, strict=False), *zip(back, tail, strict=True)]


def _indices(
    part: list[str], tensor: Tensor, place: dict[str, list[Any]], extents: dict[str, Any], ellipsis: list[Any]
) -> list[Any]:
    indices: list[Any] = []
    dims = iter(tensor.shape)
    extra = tensor.ndim - len(part) + 1
    for label in part:
        if label == ELLIPSIS:
            indices += broadcast_index(place[label], [next(dims) for _ in range(extra)], ellipsis)
        else:
            extent, index = next(dims), place[label][0]
            indices.append(const(0, index.dtype) if is_one(extent) and not is_one(extents[label]) else index)
    return indices
