"""Operators that make tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .....ir.expr import PrimExpr
from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, PrimValue, const
from ..dtypes import as_fill, as_operand, cast, default_float, dtype_name, is_float
from ..importer import Importer, as_shape, is_symbolic, is_tensor
from ..registry import NotDecomposable, converter
from .shape import flat

if TYPE_CHECKING:
    import torch


def _scalar_dtype(value: Any) -> str:
    """The dtype of a tensor that is made from a number."""
    if isinstance(value, bool):
        return "bool"
    return "int64" if isinstance(value, (int, PrimExpr)) else default_float()


def _filled(g: Importer, shape: Any, value: Any, dtype: str) -> Expr:
    return g.emit(op.full(as_shape(shape), as_operand(value, dtype), dtype))


@converter("full")
def full(g: Importer, size: Any, fill_value: Any, *, dtype: torch.dtype | None = None) -> Expr:
    """A tensor of one value."""
    own = g.dtype(fill_value) if is_tensor(fill_value) else _scalar_dtype(fill_value)
    return _filled(g, size, fill_value, own if dtype is None else dtype_name(dtype))


def _constant(name: str, value: int) -> None:
    def make(g: Importer, *size: Any, dtype: torch.dtype | None = None) -> Expr:
        return _filled(g, flat(size), value, default_float() if dtype is None else dtype_name(dtype))

    def make_new(g: Importer, x: Expr, *size: Any, dtype: torch.dtype | None = None) -> Expr:
        return _filled(g, flat(size), value, g.dtype(x) if dtype is None else dtype_name(dtype))

    like = {0: op.zeros_like, 1: op.ones_like}[value]

    def make_like(g: Importer, x: Expr, *, dtype: torch.dtype | None = None) -> Expr:
        return g.emit(like(x) if dtype is None else like(x, dtype_name(dtype)))

    converter(name)(make)
    converter(f"new_{name}")(make_new)
    converter(f"{name}_like")(make_like)


_constant("zeros", 0)
_constant("ones", 1)
converter("zero")(lambda g, x: g.emit(op.zeros_like(x)))


@converter("empty")
def empty(g: Importer, *size: Any, dtype: torch.dtype | None = None) -> Expr:
    """A tensor whose elements nobody may rely on: zeros."""
    return g.emit(op.zeros(as_shape(flat(size)), default_float() if dtype is None else dtype_name(dtype)))


@converter("new_empty")
def new_empty(g: Importer, x: Expr, *size: Any, dtype: torch.dtype | None = None) -> Expr:
    """The same, in the dtype of another tensor."""
    return empty(g, *size, dtype=g.dtype(x) if dtype is None else dtype)


@converter("empty_permuted", "empty_strided")
def empty_strided(g: Importer, size: Any, strides: Any, *, dtype: torch.dtype | None = None) -> Expr:
    """The same; graphs have no strides."""
    return empty(g, size, dtype=dtype)


@converter("empty_like")
def empty_like(g: Importer, x: Expr, *, dtype: torch.dtype | None = None) -> Expr:
    """The same, in the shape and dtype of another tensor."""
    return g.emit(op.zeros_like(x) if dtype is None else op.zeros_like(x, dtype_name(dtype)))


@converter("full_like")
def full_like(g: Importer, x: Expr, fill_value: Any, *, dtype: torch.dtype | None = None) -> Expr:
    """A tensor of one value in the shape of another."""
    own = g.dtype(x) if dtype is None else dtype_name(dtype)
    return g.emit(op.full_like(x, as_fill(fill_value, own), own if own != g.dtype(x) else None))


@converter("new_full")
def new_full(g: Importer, x: Expr, size: Any, fill_value: Any, *, dtype: torch.dtype | None = None) -> Expr:
    """A tensor of one value in the dtype of another."""
    return _filled(g, size, fill_value, g.dtype(x) if dtype is None else dtype_name(dtype))


@converter("fill")
def fill(g: Importer, x: Expr, value: Any) -> Expr:
    """A tensor of one value in the shape and dtype of x."""
    return _filled(g, g.shape(x), value, g.dtype(x))


@converter("arange")
def arange(
    g: Importer, *bounds: Any, start: Any = 0, end: Any = None, step: Any = 1, dtype: torch.dtype | None = None
) -> Expr:
    """The numbers from `start` up to, without, `end`."""
    if len(bounds) == 1:
        (end,) = bounds
    elif len(bounds) == 2:
        start, end = bounds
    elif bounds:
        start, end, step = bounds
    if dtype is not None:
        own = dtype_name(dtype)
    else:
        own = default_float() if any(isinstance(v, float) for v in (start, end, step)) else "int64"
    if "int" in own:
        start, end, step = (int(v) if isinstance(v, float) and v.is_integer() else v for v in (start, end, step))
    if "int" in own and any(isinstance(v, float) for v in (start, end, step)):
        if any(is_symbolic(v) for v in (start, end, step)):
            raise UnsupportedError("integers of a range of fractions of symbolic length; make it a range of floats")
        import torch

        return const(torch.arange(start, end, step, dtype=getattr(torch, own)).numpy(), own)
    return g.emit(op.arange(start, end, step, dtype=own))


@converter("linspace")
def linspace(g: Importer, start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None) -> Expr:
    """`steps` numbers from `start` to `end`, both included."""
    own = default_float() if dtype is None else dtype_name(dtype)
    steps = g.static(steps, "the number of steps")
    if not is_tensor(start) and not is_tensor(end):
        return const(np.linspace(start, end, steps), own)
    start, end = as_operand(start, own), as_operand(end, own)
    share = const(np.linspace(0, 1, steps), own if is_float(own) else default_float())
    if not is_float(own):
        start, end = cast(g.emit(start), default_float()), cast(g.emit(end), default_float())
    return g.emit(cast(g.emit(op.add(start, op.multiply(share, op.subtract(end, start)))), own))


@converter("scalar_tensor")
def scalar_tensor(g: Importer, value: Any, *, dtype: torch.dtype | None = None) -> Expr:
    """A number as a tensor."""
    return g.emit(as_operand(value, default_float() if dtype is None else dtype_name(dtype)))


@converter("tensor", "as_tensor")
def tensor(g: Importer, data: Any, *, dtype: torch.dtype | None = None) -> Expr:
    """A tensor of Python's numbers."""
    if is_tensor(data):
        return data if dtype is None else g.emit(cast(data, dtype_name(dtype)))
    if isinstance(data, PrimExpr):
        return scalar_tensor(g, data, dtype="int64" if dtype is None else dtype)
    own = {"f": default_float(), "b": "bool"}.get(np.asarray(data).dtype.kind, "int64")
    return const(np.asarray(data), own if dtype is None else dtype_name(dtype))


@converter("eye")
def eye(g: Importer, n: Any, m: Any = None, *, dtype: torch.dtype | None = None) -> Expr:
    """Ones on the diagonal."""
    return g.emit(op.eye(n, m, dtype=default_float() if dtype is None else dtype_name(dtype)))


@converter("tril")
def tril(g: Importer, x: Expr, diagonal: int = 0) -> Expr:
    """Matrices with zeros above a diagonal."""
    return g.emit(op.tril(x, diagonal))


@converter("triu")
def triu(g: Importer, x: Expr, diagonal: int = 0) -> Expr:
    """Matrices with zeros below a diagonal."""
    return g.emit(op.triu(x, diagonal))


@converter("one_hot")
def one_hot(g: Importer, x: Expr, num_classes: int = -1) -> Expr:
    """A vector with a single 1 for each index."""
    if num_classes < 0:
        raise NotDecomposable("one_hot without num_classes gives a tensor whose shape depends on data; say num_classes")
    return g.emit(op.one_hot(x, PrimValue(1), PrimValue(0), num_classes, -1))


@converter("hamming_window")
def hamming_window(
    g: Importer,
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: torch.dtype | None = None,
) -> Expr:
    """The window of Hamming."""
    own = default_float() if dtype is None else dtype_name(dtype)
    return g.emit(op.hamming_window(window_length, periodic, alpha, beta, own))


@converter("hann_window")
def hann_window(g: Importer, window_length: int, periodic: bool = True, *, dtype: torch.dtype | None = None) -> Expr:
    """The window of Hann."""
    span = max(window_length - (0 if periodic else 1), 1)
    angles = 2 * math.pi * np.arange(window_length) / span
    return const(0.5 - 0.5 * np.cos(angles), default_float() if dtype is None else dtype_name(dtype))


_RANDOM = (
    "bernoulli binomial cauchy exponential geometric log_normal multinomial normal poisson rand rand_like randint "
    "randint_like randn randn_like random randperm uniform _standard_gamma _sample_dirichlet rrelu_with_noise"
)


@converter(*_RANDOM.split())
def of_random_numbers(g: Importer, *args: Any, **kwargs: Any) -> Expr:
    """Operators whose result is random."""
    raise NotDecomposable("random numbers; draw them outside of the model and pass them in")


@converter("native_dropout")
def native_dropout(g: Importer, x: Expr, p: float, train: bool | None) -> tuple[Expr, Expr]:
    """x and a mask of what was kept: all, in inference."""
    if train is None or train:
        raise NotDecomposable("dropout is random in training; call model.eval() before")
    return x, g.emit(op.ones(as_shape(g.shape(x)), "bool"))
