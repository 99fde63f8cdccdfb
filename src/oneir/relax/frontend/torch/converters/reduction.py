"""Reductions, and running sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .....ir.expr import PrimExpr
from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..dtypes import as_operand, cast, dtype_name, is_float, unified
from ..importer import Importer, is_symbolic, is_tensor
from ..registry import converter, scalars_as_vectors
from .indexing import slice_
from .shape import cat
from .unary import as_float

if TYPE_CHECKING:
    import torch


def _axes(dim: Any) -> Any:
    """The dimensions of a reduction; None and the empty list mean all of them."""
    if dim is None or dim in ([], ()):
        return None
    return list(dim) if isinstance(dim, (list, tuple)) else dim


def _summand(g: Importer, x: Expr, dtype: torch.dtype | None) -> Expr:
    """What is added or multiplied: integers and bools as int64, unless a dtype is given."""
    if dtype is not None:
        return cast(x, dtype_name(dtype))
    return x if is_float(g.dtype(x)) else cast(x, "int64")


@converter("sum")
@scalars_as_vectors
def sum_(g: Importer, x: Expr, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Expr:
    """The sum over dimensions, or over all."""
    return g.emit(op.sum(_summand(g, x, dtype), _axes(dim), keepdims=keepdim))


@converter("prod")
@scalars_as_vectors
def prod(g: Importer, x: Expr, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Expr:
    """The product over dimensions, or over all."""
    return g.emit(op.prod(_summand(g, x, dtype), _axes(dim), keepdims=keepdim))


@converter("mean")
@scalars_as_vectors
def mean(g: Importer, x: Expr, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Expr:
    """The mean over dimensions, or over all."""
    x = x if dtype is None else cast(x, dtype_name(dtype))
    return g.emit(op.mean(x, _axes(dim), keepdims=keepdim))


def _corrected_variance(g: Importer, x: Expr, dim: Any, correction: Any, keepdim: bool) -> Expr:
    """Mean squared distances from the mean, over the number of elements less a correction."""
    axes = _axes(dim)
    variance = op.variance(x, axes, keepdims=keepdim)
    if correction == 0:
        return variance
    shape = g.shape(x)
    places = range(len(shape)) if axes is None else [axes] if isinstance(axes, int) else axes
    count: Any = 1
    for place in places:
        count = count * shape[place]
    dtype = g.dtype(x)
    if isinstance(count, PrimExpr):
        number = as_operand(count, dtype)
        return op.multiply(variance, op.divide(number, op.subtract(number, const(correction, dtype))))
    ratio = count / (count - correction) if count > correction else math.nan
    return op.multiply(variance, const(ratio, dtype))


def _correction(unbiased: Any, correction: Any) -> Any:
    if correction is not None:
        return correction
    return 1 if unbiased is None or unbiased else 0


def _variance(name: str, finish: Callable[[Expr], Expr]) -> None:
    def convert(
        g: Importer,
        x: Expr,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Expr:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return g.emit(finish(_corrected_variance(g, x, dim, _correction(unbiased, correction), keepdim)))

    def with_mean(
        g: Importer,
        x: Expr,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: bool = False,
        *,
        correction: Any = None,
    ) -> Any:
        return convert(g, x, dim, unbiased, keepdim, correction=correction), mean(g, x, dim, keepdim)

    converter(name)(scalars_as_vectors(convert))
    converter(f"{name}_mean")(scalars_as_vectors(with_mean))


_variance("var", lambda x: x)
_variance("std", op.sqrt)


def _extreme(
    name: str, reduce: Callable[..., Expr], locate: Callable[..., Expr], pairwise: Callable[..., Expr]
) -> None:
    def convert(g: Importer, x: Expr, dim: Any = None, keepdim: bool = False) -> Any:
        if is_tensor(dim):
            return g.emit(pairwise(*unified(x, dim)))
        if dim is None:
            return g.emit(reduce(x))
        values = g.emit(reduce(x, dim, keepdims=keepdim))
        return values, g.emit(locate(x, dim, keepdim))

    def of_dimensions(g: Importer, x: Expr, dim: Any = (), keepdim: bool = False) -> Expr:
        return g.emit(reduce(x, _axes(dim), keepdims=keepdim))

    converter(name)(convert)
    converter(f"{name}.dim")(scalars_as_vectors(convert))
    converter(f"a{name}")(scalars_as_vectors(of_dimensions))


_extreme("max", op.max, op.argmax, op.maximum)
_extreme("min", op.min, op.argmin, op.minimum)


def _truth(name: str, reduce: Callable[..., Expr]) -> None:
    def convert(g: Importer, x: Expr, dim: Any = None, keepdim: bool = False) -> Expr:
        truths = op.astype(cast(x, "bool"), "int32")
        found = reduce(truths, _axes(dim), keepdims=keepdim)
        # PyTorch keeps the dtype of bytes.
        return g.emit(op.astype(found, "uint8" if g.dtype(x) == "uint8" else "bool"))

    converter(name)(scalars_as_vectors(convert))


_truth("any", op.max)
_truth("all", op.min)


@converter("_is_all_true")
def is_all_true(g: Importer, x: Expr) -> Expr:
    """Whether all elements are true."""
    return g.emit(op.astype(op.min(op.astype(x, "int8")), "bool"))


@converter("_is_any_true")
def is_any_true(g: Importer, x: Expr) -> Expr:
    """Whether an element is true."""
    return g.emit(op.astype(op.max(op.astype(x, "int8")), "bool"))


@converter("logsumexp", "special_logsumexp")
@scalars_as_vectors
def logsumexp(g: Importer, x: Expr, dim: Any, keepdim: bool = False) -> Expr:
    """log(sum(exp(x))) over dimensions, without overflow."""
    axes, x = _axes(dim), as_float(g, x)
    largest = g.emit(op.max(x, axes, keepdims=True))
    # An infinite largest element leaves nothing to scale by.
    largest = g.emit(op.where(op.isfinite(largest), largest, const(0, g.dtype(x))))
    result = g.emit(op.add(op.log(op.sum(op.exp(op.subtract(x, largest)), axes, keepdims=True)), largest))
    return result if keepdim else g.emit(op.squeeze(result, axes))


@converter("linalg_vector_norm")
@scalars_as_vectors
def vector_norm(
    g: Importer, x: Expr, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Expr:
    """The norm of vectors: (sum of |x| to the power of ord) to the power of 1 / ord."""
    x = as_float(g, x) if dtype is None else cast(x, dtype_name(dtype))
    axes, own = _axes(dim), g.dtype(x)
    if ord in (math.inf, -math.inf):
        return g.emit((op.max if ord > 0 else op.min)(op.abs(x), axes, keepdims=keepdim))
    if ord == 0:
        return g.emit(op.sum(op.astype(op.not_equal(x, const(0, own)), own), axes, keepdims=keepdim))
    if ord == 1:
        return g.emit(op.sum(op.abs(x), axes, keepdims=keepdim))
    if ord == 2:
        return g.emit(op.sqrt(op.sum(op.multiply(x, x), axes, keepdims=keepdim)))
    powers = op.power(op.abs(x), const(float(ord), own))
    return g.emit(op.power(op.sum(powers, axes, keepdims=keepdim), const(1.0 / float(ord), own)))


@converter("norm", "frobenius_norm")
@scalars_as_vectors
def norm(
    g: Importer, x: Expr, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Expr:
    """The norm of vectors, with the arguments of `torch.norm`."""
    if p is None or p == "fro":
        p = 2
    if isinstance(p, str):
        raise UnsupportedError(f"norm with p={p!r}")
    return vector_norm(g, x, p, dim, keepdim, dtype=dtype)


@converter("cumsum")
@scalars_as_vectors
def cumsum(g: Importer, x: Expr, dim: int, *, dtype: torch.dtype | None = None) -> Expr:
    """The sums of the elements up to each one."""
    return g.emit(op.cumsum(x, dim, _scan_dtype(g, x, dtype)))


@converter("cumprod")
@scalars_as_vectors
def cumprod(g: Importer, x: Expr, dim: int, *, dtype: torch.dtype | None = None) -> Expr:
    """The products of the elements up to each one."""
    return g.emit(op.cumprod(x, dim, _scan_dtype(g, x, dtype)))


@converter("logcumsumexp")
@scalars_as_vectors
def logcumsumexp(g: Importer, x: Expr, dim: int) -> Expr:
    """The logarithms of the sums of exp(x) up to each element."""
    largest = g.emit(op.max(x, dim, keepdims=True))
    return g.emit(op.add(op.log(op.cumsum(op.exp(op.subtract(x, largest)), dim)), largest))


@converter("diff")
def diff(
    g: Importer, x: Expr, n: int = 1, dim: int = -1, prepend: Expr | None = None, append: Expr | None = None
) -> Expr:
    """The differences of neighbours along a dimension, taken `n` times; whether they differ, of bools."""
    parts = [part for part in (prepend, x, append) if part is not None]
    if n > 0 and len(parts) > 1:
        x = cat(g, parts, dim)
    for _ in range(n):
        extent = g.shape(x)[g.axis(x, dim)]
        if is_symbolic(extent):
            place = g.axis(x, dim)
            bounds = ((1, extent), (0, extent - 1))
            after, before = (op.strided_slice(x, [place], [a], [b], assume_inbound=True) for a, b in bounds)
        else:
            after, before = slice_(g, x, dim, 1, extent), slice_(g, x, dim, 0, extent - 1)
        x = g.emit(op.not_equal(after, before) if g.dtype(x) == "bool" else op.subtract(after, before))
    return x


def _scan_dtype(g: Importer, x: Expr, dtype: Any) -> str | None:
    if dtype is not None:
        return dtype_name(dtype)
    return None if is_float(g.dtype(x)) else "int64"
