"""Sums of products."""

from __future__ import annotations

from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr, as_int
from ..runtime.error import InvalidValue, ShapeMismatch
from ..te.tensor import Tensor
from . import tag
from .index import is_equal, require_axis, require_int, require_ndim, shape_text


def matmul(a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False) -> Tensor:
    """The product of two matrices, each transposed first where asked for."""
    require_ndim(a, 2, "matmul", "a matrix a")
    require_ndim(b, 2, "matmul", "a matrix b")
    inner = a.shape[0 if transp_a else 1]
    _require_same(inner, b.shape[1 if transp_b else 0], a, b, "matmul")
    k = te.reduce_axis((0, inner), "k")

    def element(*ax: PrimExpr) -> Any:
        i, j = ax
        x = a(k.var, i) if transp_a else a(i, k.var)
        y = b(j, k.var) if transp_b else b(k.var, j)
        return te.sum(ops.multiply(x, y), axis=k)

    rows, columns = a.shape[1 if transp_a else 0], b.shape[0 if transp_b else 1]
    return te.compute((rows, columns), element, name="T_matmul", tag=tag.MATMUL)


def tensordot(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    """The sum of products over axes of both.

    An int n means the last n axes of `a` and the first n of `b`; a pair gives the axes of `a` and those of `b`, each an
    int or a list.
    """
    if not isinstance(axes, (list, tuple)):
        count = require_int(axes, "tensordot", "axes")
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise InvalidValue(
                f"topi.tensordot: expected axes in [0, {min(a.ndim, b.ndim)}] for {shape_text(a.shape)} and "
                f"{shape_text(b.shape)}, found {count}"
            )
        axes = list(range(a.ndim - count, a.ndim)), list(range(count))
    of_a, of_b = ([side] if isinstance(side, int) else list(side) for side in axes)
    of_a = [require_axis(i, a.ndim, "tensordot", "an axis of a") for i in of_a]
    of_b = [require_axis(i, b.ndim, "tensordot", "an axis of b") for i in of_b]
    if len(of_a) != len(of_b):
        raise InvalidValue(f"topi.tensordot: expected as many axes of a as of b, found {of_a} and {of_b}")
    for i, j in zip(of_a, of_b, strict=True):
        _require_same(a.shape[i], b.shape[j], a, b, "tensordot")
    sums = [te.reduce_axis((0, b.shape[j]), f"k{n}") for n, j in enumerate(of_b)]
    free_a = [i for i in range(a.ndim) if i not in of_a]
    free_b = [j for j in range(b.ndim) if j not in of_b]

    def element(*ax: PrimExpr) -> Any:
        place_a: dict[int, Any] = dict(zip(free_a, ax, strict=False))
        place_b: dict[int, Any] = dict(zip(free_b, ax[len(free_a) :], strict=True))
        place_a.update((i, k.var) for i, k in zip(of_a, sums, strict=True))
        place_b.update((j, k.var) for j, k in zip(of_b, sums, strict=True))
        x, y = (t(*[place[i] for i in range(t.ndim)]) for t, place in ((a, place_a), (b, place_b)))
        return te.sum(ops.multiply(x, y), axis=sums) if sums else ops.multiply(x, y)

    target = [*(a.shape[i] for i in free_a), *(b.shape[j] for j in free_b)]
    return te.compute(target, element, name="T_tensordot", tag=tag.MATMUL)


def _require_same(x: Any, y: Any, a: Tensor, b: Tensor, function: str) -> None:
    if None not in (as_int(x), as_int(y)) and not is_equal(x, y):
        raise ShapeMismatch(
            f"topi.{function}: the summed extents of {shape_text(a.shape)} and {shape_text(b.shape)} differ: "
            f"{x} and {y}"
        )
