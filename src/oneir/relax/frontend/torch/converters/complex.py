"""Complex numbers, as pairs of tensors: the real and the imaginary parts.

Graphs have no complex tensors, so pairs live within a program: what rotary embeddings and Fourier transforms need. A
converter named "complex::mul" is that of `mul` where an argument is complex.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ...fourier import matmul_along, real_from_half, waves
from ..importer import Importer, Pair
from ..registry import call_converter, converter, find_converter
from .indexing import select
from .shape import broadcast_shape, stack
from .unary import as_float, convert_dtype

if TYPE_CHECKING:
    import torch

COMPLEX = "complex::"


def _call(g: Importer, name: str, *args: Any, **kwargs: Any) -> Any:
    """What the converter of real numbers emits."""
    function = find_converter(name)
    assert function is not None
    return call_converter(function, g, args, kwargs)


@converter("view_as_complex")
def view_as_complex(g: Importer, x: Expr) -> Pair:
    """Complex numbers whose real and imaginary parts are adjacent in the last dimension."""
    return Pair(select(g, x, -1, 0), select(g, x, -1, 1))


@converter("complex")
def complex_(g: Importer, real: Expr, imag: Expr) -> Pair:
    """The numbers with these parts."""
    shape = broadcast_shape([g.shape(real), g.shape(imag)])
    return Pair(g.broadcast(real, shape), g.broadcast(imag, shape))


@converter("polar")
def polar(g: Importer, size: Expr, angle: Expr) -> Pair:
    """The numbers of these sizes in these directions."""
    return Pair(g.emit(op.multiply(size, op.cos(angle))), g.emit(op.multiply(size, op.sin(angle))))


@converter(f"{COMPLEX}view_as_real")
def view_as_real(g: Importer, x: Pair) -> Expr:
    """The real and imaginary parts in a new last dimension."""
    return stack(g, [x.real, x.imag], -1)


converter(f"{COMPLEX}real")(lambda g, x: x.real)
converter(f"{COMPLEX}imag")(lambda g, x: x.imag)


@converter(*(f"{COMPLEX}{name}" for name in ("conj", "_conj", "conj_physical", "_conj_physical")))
def conj(g: Importer, x: Pair) -> Pair:
    """The numbers with the imaginary parts negated."""
    return Pair(x.real, g.emit(op.negative(x.imag)))


@converter(f"{COMPLEX}abs", f"{COMPLEX}absolute")
def absolute(g: Importer, x: Pair) -> Expr:
    """The distance from 0."""
    return _call(g, "hypot", x.real, x.imag)


@converter(f"{COMPLEX}angle")
def angle(g: Importer, x: Pair) -> Expr:
    """The direction."""
    return _call(g, "atan2", x.imag, x.real)


@converter(f"{COMPLEX}exp")
def exp(g: Importer, x: Pair) -> Pair:
    """e^x"""
    return polar(g, g.emit(op.exp(x.real)), x.imag)


def _parts(value: Any, which: int) -> Any:
    """One part of each complex number in an argument."""
    if isinstance(value, (list, tuple)):
        return type(value)(_parts(v, which) for v in value)
    return (value.real, value.imag)[which] if isinstance(value, Pair) else value


def _of_each_part(name: str) -> None:
    def convert(g: Importer, *args: Any, **kwargs: Any) -> Any:
        real, imag = (_call(g, name, *_parts(args, i), **{k: _parts(v, i) for k, v in kwargs.items()}) for i in (0, 1))
        if isinstance(real, (list, tuple)):
            return tuple(map(Pair, real, imag))
        return Pair(real, imag)

    converter(f"{COMPLEX}{name}")(convert)


_BY_PARTS = (
    "_unsafe_view alias cat chunk clone contiguous detach expand flatten flip gather index index_select lift mean "
    "movedim narrow neg permute repeat reshape roll select slice split split_with_sizes squeeze stack sum t transpose "
    "unbind unflatten unsqueeze view"
)
for _name in _BY_PARTS.split():
    _of_each_part(_name)


@converter(f"{COMPLEX}_to_copy", f"{COMPLEX}to", f"{COMPLEX}prims::convert_element_type")
def to(g: Importer, x: Pair, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Pair:
    """The same numbers in another precision."""
    dtype = next((a for a in args if type(a).__name__ == "dtype"), dtype)
    if dtype is None:
        return x
    if not dtype.is_complex:
        raise UnsupportedError("complex numbers as real ones; take torch.real or torch.abs of them")
    return Pair(convert_dtype(g, x.real, dtype.to_real()), convert_dtype(g, x.imag, dtype.to_real()))


def _sum(name: str) -> None:
    """A sum of a complex and a real operand has the imaginary part of the former."""

    def convert(g: Importer, x: Any, other: Any, *, alpha: Any = 1) -> Pair:
        real = _call(g, name, _parts(x, 0), _parts(other, 0), alpha=alpha)
        if isinstance(x, Pair) and isinstance(other, Pair):
            return Pair(real, _call(g, name, x.imag, other.imag, alpha=alpha))
        if isinstance(x, Pair):
            return Pair(real, g.emit(op.broadcast_to(x.imag, real.struct_info.shape)))
        zero = const(0, g.dtype(other.imag))
        return Pair(
            real, g.emit(op.broadcast_to(_call(g, name, zero, other.imag, alpha=alpha), real.struct_info.shape))
        )

    converter(f"{COMPLEX}{name}")(convert)


_sum("add")
_sum("sub")


def _product(g: Importer, multiply: Callable[[Any, Any], Expr], x: Any, other: Any) -> Pair:
    """A product, from one of real numbers."""
    if not isinstance(other, Pair):
        return Pair(multiply(x.real, other), multiply(x.imag, other))
    if not isinstance(x, Pair):
        return Pair(multiply(x, other.real), multiply(x, other.imag))
    real = op.subtract(multiply(x.real, other.real), multiply(x.imag, other.imag))
    imag = op.add(multiply(x.real, other.imag), multiply(x.imag, other.real))
    return Pair(g.emit(real), g.emit(imag))


def _bilinear(name: str) -> None:
    def convert(g: Importer, x: Any, other: Any) -> Pair:
        if isinstance(x, complex) or isinstance(other, complex):
            x, other = (Pair(v.real, v.imag) if isinstance(v, complex) else v for v in (x, other))
        return _product(g, lambda a, b: _call(g, name, a, b), x, other)

    converter(f"{COMPLEX}{name}")(convert)


for _name in ("mul", "multiply", "matmul", "mm", "bmm", "mv"):
    _bilinear(_name)


@converter(f"{COMPLEX}einsum")
def einsum(g: Importer, equation: str, *operands: Any, path: Any = None) -> Pair:
    """A sum of products of two tensors."""
    given = operands[0] if len(operands) == 1 else operands
    if len(given) != 2:
        raise UnsupportedError("einsum of more or fewer than two complex tensors; write it as several")
    return _product(g, lambda a, b: _call(g, "einsum", equation, [a, b]), *given)


@converter(f"{COMPLEX}div", f"{COMPLEX}true_divide")
def div(g: Importer, x: Any, other: Any) -> Pair:
    """x / other"""
    if not isinstance(other, Pair):
        return Pair(_call(g, "div", x.real, other), _call(g, "div", x.imag, other))
    size = g.emit(op.add(op.square(other.real), op.square(other.imag)))
    above = _product(g, lambda a, b: _call(g, "mul", a, b), x, conj(g, other))
    return Pair(g.emit(op.divide(above.real, size)), g.emit(op.divide(above.imag, size)))


# -- Fourier transforms, as products with matrices --


def _scale(normalization: int, count: int) -> float:
    return (1.0, count**-0.5, 1.0 / count)[normalization]


def _transformed(g: Importer, x: Any, axis: int, sign: float, scale: float, kept: int | None = None) -> Pair:
    """The transform along one axis, of which the first `kept` frequencies are wanted."""
    sample = x.real if isinstance(x, Pair) else x
    count = g.static(g.shape(sample)[axis], "the extent of a Fourier transform")
    cosine, sine = (wave * scale for wave in waves(count, count if kept is None else kept, count, sign))
    return _product(g, lambda a, b: matmul_along(g, a, b, axis), x, Pair(cosine, sine))


def _signal(g: Importer, x: Any) -> Any:
    sample = x.real if isinstance(x, Pair) else x
    if g.dtype(sample) not in ("float32", "float64"):
        raise UnsupportedError(f"a Fourier transform of {g.dtype(sample)}; convert it to float32 before")
    return sample


@converter("_fft_r2c")
def fft_of_real(g: Importer, x: Expr, dim: Sequence[int], normalization: int, onesided: bool) -> Pair:
    """The Fourier transform of real numbers; one-sided, without the frequencies that are conjugates of others."""
    _signal(g, x)
    axes = [g.axis(x, d) for d in dim]
    found: Any = x
    for axis in reversed(axes):
        count = g.static(g.shape(x)[axis], "the extent of a Fourier transform")
        kept = count // 2 + 1 if onesided and axis == axes[-1] else None
        found = _transformed(g, found, axis, -1.0, _scale(normalization, count), kept)
    return found


@converter(f"{COMPLEX}_fft_c2c")
def fft_of_complex(g: Importer, x: Pair, dim: Sequence[int], normalization: int, forward: bool) -> Pair:
    """The Fourier transform, or its inverse."""
    shape = g.shape(_signal(g, x))
    for d in dim:
        axis = d % len(shape)
        count = g.static(shape[axis], "the extent of a Fourier transform")
        x = _transformed(g, x, axis, -1.0 if forward else 1.0, _scale(normalization, count))
    return x


def _fft(name: str, forward: bool, rank: int | None) -> None:
    """A transform along several dimensions, of real or of complex numbers: the last `rank`, or all."""

    def convert(
        g: Importer, x: Any, s: Sequence[Any] | None = None, dim: Sequence[int] | None = None, norm: str | None = None
    ) -> Pair:
        x = x if isinstance(x, Pair) else as_float(g, x)
        sample = x.real if isinstance(x, Pair) else x
        count = rank or (len(s) if s is not None else g.ndim(sample))
        axes = [g.axis(sample, d) for d in (dim if dim is not None else range(-count, 0))]
        if s is not None:
            real, *imag = (_of_extents(g, v, axes, s) for v in ((x.real, x.imag) if isinstance(x, Pair) else (x,)))
            x = Pair(real, *imag) if imag else real
        unscaled, whole = ("backward", "forward") if forward else ("forward", "backward")
        normalization = {unscaled: 0, "ortho": 1, whole: 2}[norm or "backward"]
        if isinstance(x, Pair):
            return fft_of_complex(g, x, axes, normalization, forward)
        # The inverse transform of real numbers is the conjugate of the transform.
        found = fft_of_real(g, x, axes, normalization, onesided=False)
        return found if forward else conj(g, found)

    converter(name, f"{COMPLEX}{name}")(convert)


def _of_extents(g: Importer, x: Expr, axes: Sequence[int], extents: Sequence[Any]) -> Expr:
    """The tensor cut, or filled with zeros, to extents along some axes; -1 keeps one."""
    for axis, wanted in zip(axes, extents, strict=True):
        found, wanted = (g.static(v, "the extent of a Fourier transform") for v in (g.shape(x)[axis], wanted))
        if wanted not in (-1, found):
            x = _call(g, "pad", x, [0, 0] * (g.ndim(x) - 1 - axis) + [0, wanted - found])
    return x


def _fft_of_one(name: str, forward: bool) -> None:
    """A transform along one dimension; that of real numbers PyTorch takes apart itself."""
    several = find_converter(f"{COMPLEX}{name}n")
    assert several is not None

    def convert(g: Importer, x: Pair, n: Any = None, dim: int = -1, norm: str | None = None) -> Pair:
        return several(g, x, None if n is None else [n], [dim], norm)

    converter(f"{COMPLEX}{name}")(convert)


_fft("fft_fft2", True, 2)
_fft("fft_ifft2", False, 2)
_fft("fft_fftn", True, None)
_fft("fft_ifftn", False, None)
_fft_of_one("fft_fft", True)
_fft_of_one("fft_ifft", False)


@converter(f"{COMPLEX}_fft_c2r")
def fft_to_real(g: Importer, x: Pair, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Expr:
    """The inverse transform of the one-sided spectrum of real numbers."""
    _signal(g, x)
    *others, last = (g.axis(x.real, d) for d in dim)
    if others:
        x = fft_of_complex(g, x, others, normalization, False)
    count = g.static(last_dim_size, "the extent of a Fourier transform")
    return real_from_half(g, x.real, x.imag, last, count, _scale(normalization, count))
