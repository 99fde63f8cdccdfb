"""Elementwise operators and those that make tensors, over dtypes, numbers at which they break, and odd shapes.

A row an operator; the oracles are Python's integers and NumPy's float64.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from op_cases import ALL, FLOATS, INTS, NUMBERS, Case, Table, case, check_cases, operators_of, some, wide
from op_numbers import exactly, pairs, special, wrapped
from op_testing import infer, var

from oneir import relax
from oneir.relax import op
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch

ROWS = Table()
row = ROWS.row


def test_every_operator_has_a_row() -> None:
    found = operators_of("binary", "unary", "ternary", "datatype", "mask", "qdq", "create")
    assert found == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_cases(name: str) -> None:
    check_cases(list(ROWS[name]()))


# -- two tensors --


def binary(
    name: str,
    dtypes: tuple[str, ...],
    integers: Callable[..., Any] | None = None,
    floats: Callable[..., Any] | None = None,
    *,
    oracle: Callable[..., Any] | None = None,
    result: str | None = None,
    ulps: float = 0,
    least: float = 0.0,
) -> None:
    """A row for an operator of two tensors: special numbers of all dtypes; shapes in one of them."""
    function, oracle = getattr(op, name), oracle or exactly(integers, floats)

    @row(f"relax.{name}")
    def cases() -> Iterator[Case]:
        for dtype in dtypes:
            label = f"{name} of {dtype}"
            yield case(function, *pairs(dtype), oracle=oracle, dtype=result, ulps=ulps, least=least, label=label)
        dtype = dtypes[len(ROWS) % len(dtypes)]
        more: dict[str, Any] = {"oracle": oracle, "dtype": result or dtype}
        yield case(function, some((), dtype), some(3, dtype), **more, label="a scalar")
        yield case(function, some((2, 0, 3), dtype), some((1, 3), dtype), **more, label="nothing")
        sizes = [(0, 1), (1, 1), (19, 0), (5, 33)]
        runs = [(some((n, 1), dtype, seed=n), some(m, dtype, seed=m)) for n, m in sizes]
        yield case(
            lambda a, b, n, m: function(a, b),
            *runs[0],
            dims={0: ("n", 1), 1: ("m",)},
            again=runs[1:],
            **more,
            label="symbolic",
        )


def _quotient(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _floor_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient is rounded to the dtype before it is rounded down."""
    if a.dtype.name not in FLOATS:
        return exactly(lambda x, y: x // y if y else 0)(a, b)
    with np.errstate(all="ignore"):
        return np.floor(np.divide(wide(a), wide(b)).astype(a.dtype).astype(float))


def _positive_like(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rest = np.fmod(a, b)
    return np.where((rest != 0) & (np.sign(rest) != np.sign(b)), rest + b, rest)


def _xor(a: Any, b: Any) -> Any:
    return a ^ b


binary("add", ALL, lambda a, b: a + b)
binary("subtract", NUMBERS, lambda a, b: a - b)
binary("multiply", ALL, lambda a, b: a * b)
binary("divide", NUMBERS, _quotient, np.divide)
# A quotient of bfloat16 may be rounded to that before it is rounded down, or not.
binary("floor_divide", tuple(d for d in NUMBERS if d != "bfloat16"), oracle=_floor_quotient)
binary("mod", NUMBERS, lambda a, b: a - b * _quotient(a, b), np.fmod)
binary("floor_mod", NUMBERS, lambda a, b: a % b if b else a, _positive_like)
binary("maximum", ALL, max, np.maximum, ulps=1e-9)
binary("minimum", ALL, min, np.minimum, ulps=1e-9)
SMALLEST_NORMAL = 2.0**-126
"""Of float32: exponentials below it are 0."""
binary("log_add_exp", FLOATS, np.logaddexp, ulps=4, least=SMALLEST_NORMAL)
for _name, _function in (
    ("equal", lambda a, b: a == b),
    ("not_equal", lambda a, b: a != b),
    ("less", lambda a, b: a < b),
    ("less_equal", lambda a, b: a <= b),
    ("greater", lambda a, b: a > b),
    ("greater_equal", lambda a, b: a >= b),
):
    binary(_name, ALL, _function, result="bool")
binary("logical_and", ("bool",), lambda a, b: a and b)
binary("logical_or", ("bool",), lambda a, b: a or b)
binary("logical_xor", ("bool",), _xor)
binary("bitwise_and", (*INTS, "bool"), lambda a, b: a & b)
binary("bitwise_or", (*INTS, "bool"), lambda a, b: a | b)
binary("bitwise_xor", (*INTS, "bool"), _xor)


def _shifts(name: str, shifted: Callable[[int, int, int], int]) -> None:
    @row(f"relax.{name}")
    def cases() -> Iterator[Case]:
        for dtype in INTS:
            bits = np.iinfo(dtype).bits
            oracle = exactly(lambda a, b, n=bits: shifted(a, b, n))
            yield case(getattr(op, name), *pairs(dtype), oracle=oracle, label=f"{name} of {dtype}")


_shifts("left_shift", lambda a, b, bits: a << b if 0 <= b < bits else 0)
_shifts("right_shift", lambda a, b, bits: a >> (b if 0 <= b < bits else bits))


def _power(a: int, b: int) -> int:
    """The power, wrapped; below an exponent of 0 it is rounded towards zero, and that of 0 is 0."""
    if b < 0:
        return a ** (b % 2) if abs(a) == 1 else 0
    return pow(a, b, 1 << 64)


binary("power", NUMBERS, _power, np.power, ulps=4)


@row("relax.ewise_fma")
def ewise_fma() -> Iterator[Case]:
    for dtype in INTS:
        a, b = pairs(dtype)
        yield case(op.ewise_fma, a, b, b[::-1].copy(), oracle=exactly(lambda a, b, c: a * b + c), label=dtype)
    for dtype in FLOATS:
        a, b, c = (some((3, 17), dtype, seed=seed) for seed in range(3))
        yield case(op.ewise_fma, a, b, c, oracle=exactly(lambda a, b, c: a * b + c), tolerance=None, label=dtype)
    runs = [tuple(some((n, 3), seed=n + k) for k in range(3)) for n in (0, 1, 7)]
    dims = dict.fromkeys(range(3), ("n", 3))
    oracle = exactly(lambda a, b, c: a * b + c)
    yield case(lambda a, b, c, n: op.ewise_fma(a, b, c), *runs[0], dims=dims, again=runs[1:], oracle=oracle)


# -- one tensor --


def unary(
    name: str,
    dtypes: tuple[str, ...],
    integers: Callable[..., Any],
    floats: Callable[..., Any] | None = None,
    *,
    result: str | None = None,
    ulps: float = 0,
    least: float = 0.0,
    function: Callable[..., Any] | None = None,
) -> None:
    """A row for an operator of one tensor."""
    called, oracle = function or getattr(op, name), exactly(integers, floats)

    @row(f"relax.{name}")
    def cases() -> Iterator[Case]:
        for dtype in dtypes:
            label = f"{name} of {dtype}"
            yield case(called, special(dtype), oracle=oracle, dtype=result, ulps=ulps, least=least, label=label)
        dtype = dtypes[len(ROWS) % len(dtypes)]
        more: dict[str, Any] = {"oracle": oracle, "dtype": result or dtype}
        yield case(called, some((), dtype), **more, label="a scalar")
        runs = [(some((n, 3), dtype, seed=n),) for n in (0, 1, 5, 11)]
        yield case(lambda x, n: called(x), *runs[0], dims={0: ("n", 3)}, again=runs[1:], **more, label="symbolic")


def _same(x: Any) -> Any:
    return x


unary("abs", NUMBERS, abs, np.abs)
unary("negative", NUMBERS, lambda x: -x)
unary("sign", NUMBERS, lambda x: (x > 0) - (x < 0), lambda x: (x > 0) * 1.0 - (x < 0))
unary("square", NUMBERS, lambda x: x * x)
unary("ceil", NUMBERS, _same, np.ceil)
unary("floor", NUMBERS, _same, np.floor)
unary("round", NUMBERS, _same, np.rint)
unary("trunc", NUMBERS, _same, np.trunc)
unary("bitwise_not", (*INTS, "bool"), lambda x: not x if isinstance(x, bool) else ~x)
unary("logical_not", ("bool",), lambda x: not x)
unary("isfinite", NUMBERS, lambda x: True, np.isfinite, result="bool")
unary("isinf", NUMBERS, lambda x: False, np.isinf, result="bool")
unary("isnan", NUMBERS, lambda x: False, np.isnan, result="bool")
for _name, _function, _ulps in (
    ("acos", np.arccos, 4),
    ("acosh", np.arccosh, 4),
    ("asin", np.arcsin, 4),
    ("asinh", np.arcsinh, 4),
    ("atan", np.arctan, 4),
    ("atanh", np.arctanh, 4),
    ("cos", np.cos, 4),
    ("cosh", np.cosh, 4),
    ("erf", np.vectorize(math.erf, otypes=[float]), 4),
    ("log", np.log, 4),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 4),
    ("sin", np.sin, 4),
    ("sinh", np.sinh, 4),
    ("sqrt", np.sqrt, 0),
    ("tan", np.tan, 4),
    ("tanh", np.tanh, 4),
):
    unary(_name, FLOATS, _function, ulps=_ulps)
unary("exp", FLOATS, np.exp, ulps=4, least=SMALLEST_NORMAL)
unary("sigmoid", FLOATS, lambda x: 1 / (1 + np.exp(-x)), ulps=4, least=SMALLEST_NORMAL)


@row("relax.clip")
def clip() -> Iterator[Case]:
    def clipped(low: float, high: float) -> Callable[[np.ndarray], Any]:
        """The integers between the bounds; bounds beyond those of the dtype do not matter."""
        return exactly(
            lambda x: max(min(x, math.trunc(high)), math.trunc(low)), lambda x: np.maximum(np.minimum(x, high), low)
        )

    for dtype in NUMBERS:
        for low, high in ((0, 1), (2, 100)):
            label = f"clip({low}, {high}) of {dtype}"
            yield case(
                lambda x, a=low, b=high: op.clip(x, a, b),
                special(dtype),
                oracle=clipped(low, high),
                ulps=0,
                label=label,
            )
    for dtype in FLOATS:
        bounds = (-math.inf, math.inf)
        yield case(
            lambda x, b=bounds: op.clip(x, *b), special(dtype), oracle=clipped(*bounds), ulps=0, label="infinite"
        )
        yield case(lambda x: op.clip(x, -0.5, 2.5), special(dtype), oracle=clipped(-0.5, 2.5), ulps=0, label="halves")
    yield case(
        lambda x: op.clip(x, 0.1, 0.3), special("float64"), oracle=clipped(0.1, 0.3), ulps=0, label="not float32"
    )
    yield case(
        lambda x: op.clip(x, 1, -1), special("float32"), oracle=lambda x: np.where(x == x, 1, x), label="crossed"
    )
    for dtype, low, high in (
        ("int8", -300, 50),
        ("uint8", -1, 300),
        ("uint64", -5, 7),
        ("int64", -(1 << 63), 3),
        ("uint64", 1 << 62, (1 << 63) - 1),
    ):
        label = f"clip({low}, {high}) of {dtype}"
        yield case(lambda x, a=low, b=high: op.clip(x, a, b), special(dtype), oracle=clipped(low, high), label=label)
    for dtype, low, high in (
        ("int32", -1.5, 2.5),
        ("uint8", -0.5, 1e9),
        ("int16", -math.inf, 3.0),
        ("int64", 0.5, math.inf),
    ):
        label = f"clip({low}, {high}) of {dtype}"
        wide_high = 1 << 70 if high == math.inf else high
        wide_low = -(1 << 70) if low == -math.inf else low
        yield case(
            lambda x, a=low, b=high: op.clip(x, a, b), special(dtype), oracle=clipped(wide_low, wide_high), label=label
        )
    runs = [(some((n, 3)),) for n in (0, 1, 11)]
    yield case(lambda x, n: op.clip(x, 0, 1), *runs[0], dims={0: ("n", 3)}, again=runs[1:], oracle=clipped(0, 1))
    yield case(lambda x: op.clip(x, 0, 1), some(()), oracle=clipped(0, 1))


# -- dtypes --


def _converted(x: np.ndarray, dtype: str) -> np.ndarray:
    """Floats are truncated and saturate, NaN is 0; integers wrap; all but 0 is True."""
    if dtype == "bool":
        return wide(x) != 0
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return (x.astype(np.float32) if x.dtype.name in INTS and dtype != "float64" else x).astype(dtype)
    if x.dtype.name not in FLOATS:
        return np.array([wrapped(int(v), dtype) for v in x.ravel()], dtype).reshape(x.shape)
    limits = np.iinfo(dtype)

    def saturated(value: float) -> int:
        if not math.isfinite(value):
            return 0 if math.isnan(value) else int(limits.max if value > 0 else limits.min)
        return max(min(math.trunc(value), limits.max), limits.min)

    return np.array([saturated(v) for v in wide(x).ravel().tolist()], dtype).reshape(x.shape)


def _casts(name: str) -> Callable[[], Iterator[Case]]:
    function = getattr(op, name)

    def cases() -> Iterator[Case]:
        for source in ALL:
            for target in ALL:
                yield case(
                    lambda x, t=target: function(x, t),
                    special(source),
                    oracle=lambda x, t=target: _converted(x, t),
                    dtype=target,
                    ulps=0,
                    label=f"{name} of {source} to {target}",
                )
        runs = [(some((n, 3)),) for n in (0, 1, 7)]
        more: Any = {"oracle": lambda x: _converted(x, "int8"), "dtype": "int8"}
        yield case(lambda x, n: function(x, "int8"), *runs[0], dims={0: ("n", 3)}, again=runs[1:], **more)
        yield case(lambda x: function(x, "int8"), some(()), **more)

    return cases


row("relax.astype")(_casts("astype"))


@row("relax.wrap_param")
def wrap_param() -> Iterator[Case]:
    for source in FLOATS:
        yield case(op.wrap_param, special(source), oracle=lambda x: _converted(x, "float32"), dtype="float32", ulps=0)
    yield case(lambda x: op.wrap_param(x, "float16"), some(()), oracle=lambda x: x.astype("float16"), dtype="float16")


# -- quantization --


def _limited(value: np.ndarray, dtype: str) -> np.ndarray:
    if "float" in dtype:
        largest = float(ml_dtypes.finfo(dtype).max)
        return np.clip(value, -largest, largest).astype(dtype)
    return _converted(value, dtype)


def _channels(parameter: np.ndarray, ndim: int, axis: int) -> np.ndarray:
    return (
        parameter.reshape(())
        if parameter.size == 1
        else parameter.reshape([-1 if i == axis % ndim else 1 for i in range(ndim)])
    )


@row("relax.quantize")
def quantize() -> Iterator[Case]:
    def quantized(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int, dtype: str) -> np.ndarray:
        with np.errstate(all="ignore"):
            scaled = x / _channels(scale, x.ndim, axis)
            rounded = np.rint(scaled) if "int" in dtype else scaled
            return _limited((rounded + _channels(zero, x.ndim, axis).astype(x.dtype)).astype(np.float64), dtype)

    for source in ("float32", "float16"):
        for target in ("int8", "uint8", "int16", "uint16", "float8_e4m3fn", "float8_e5m2"):
            yield case(
                lambda x, s, z, t=target: op.quantize(x, s, z, out_dtype=t),
                special(source),
                np.array(0.25, source),
                np.array(3, "int8"),
                oracle=lambda x, s, z, t=target: quantized(x, s, z, -1, t),
                dtype=target,
                tolerance=0 if "float" in target else None,
                label=f"quantize {source} to {target}",
            )
    scales, zeros = np.array([0.5, 0.125, 0.0], "float32"), np.array([0, -100, 127], "int8")
    x = np.stack([special("float32")] * 3)
    yield case(
        lambda x, s, z: op.quantize(x, s, z, 0),
        x,
        scales,
        zeros,
        oracle=lambda x, s, z: quantized(x, s, z, 0, "int8"),
        dtype="int8",
        label="channels",
    )
    yield case(
        lambda x, s, z: op.quantize(x, s, z, -1, "uint8"),
        x.T.copy(),
        scales,
        zeros[:1],
        oracle=lambda x, s, z: quantized(x, s, z, 1, "uint8"),
        dtype="uint8",
        label="last axis",
    )
    runs = [(some((n, 3), low=-99, high=99), scales, np.array(7, "int32")) for n in (0, 1, 9)]
    yield case(
        lambda x, s, z, n: op.quantize(x, s, z),
        *runs[0],
        dims={0: ("n", 3)},
        again=runs[1:],
        oracle=lambda x, s, z: quantized(x, s, z, 1, "int8"),
        dtype="int8",
        label="symbolic",
    )
    yield case(
        lambda x, s, z: op.quantize(x, s, z),
        some(()),
        scales[0],
        zeros[1],
        oracle=lambda x, s, z: quantized(x, s, z, 0, "int8"),
        dtype="int8",
        label="a scalar",
    )


@row("relax.dequantize")
def dequantize() -> Iterator[Case]:
    def restored(x: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int, dtype: str) -> np.ndarray:
        whole = x.dtype.name in INTS
        shifted = x.astype("int32" if whole else "float32") - _channels(zero, x.ndim, axis).astype(
            "int32" if whole else "float32"
        )
        with np.errstate(over="ignore"):
            value = shifted.astype("float32") * _channels(scale, x.ndim, axis).astype("float32")
        return value if dtype == "float32" else _limited(value, dtype)

    for source in ("int8", "uint8", "int16", "uint16", "int32", "float16", "float32"):
        for target in ("float32", "float16"):
            yield case(
                lambda x, s, z, t=target: op.dequantize(x, s, z, out_dtype=t),
                special(source),
                np.array(0.75, "float32"),
                np.array(5, "int8"),
                oracle=lambda x, s, z, t=target: restored(x, s, z, -1, t),
                dtype=target,
                ulps=0,
                label=f"dequantize {source} to {target}",
            )
    for source in ("float8_e4m3fn", "float8_e5m2"):
        x = np.array([0, -0.5, 1.75, 448, -2], source)
        yield case(
            op.dequantize,
            x,
            np.array(0.5, "float16"),
            np.array(1, "float16"),
            oracle=lambda x, s, z: restored(x, s, z, -1, "float32"),
            dtype="float32",
            ulps=0,
            label=source,
        )
    runs = [
        (some((3, n), "int8", -128, 127), np.array([0.5, 2, 0.1], "float32"), np.array([0, -128, 127], "int8"))
        for n in (0, 1, 9)
    ]
    yield case(
        lambda x, s, z, n: op.dequantize(x, s, z, 0),
        *runs[0],
        dims={0: (3, "n")},
        again=runs[1:],
        oracle=lambda x, s, z: restored(x, s, z, 0, "float32"),
        dtype="float32",
        ulps=0,
        label="channels",
    )
    yield case(
        op.dequantize,
        some((), "int8"),
        np.array(0.5, "float32"),
        np.array(1, "int8"),
        oracle=lambda x, s, z: restored(x, s, z, 0, "float32"),
        dtype="float32",
        label="a scalar",
    )


# -- tensors made of shapes and numbers --


def _filled_like(name: str, value: int) -> None:
    @row(f"relax.{name}")
    def of_shape() -> Iterator[Case]:
        for dtype in ALL:
            yield case(lambda t=dtype: getattr(op, name)((3, 7), t), oracle=lambda: np.full((3, 7), value), dtype=dtype)
        for shape in ((), (0,), (2, 0, 3), (1,), (33,)):
            yield case(
                lambda s=shape: getattr(op, name)(s, "float32"),
                oracle=lambda s=shape: np.full(s, value),
                dtype="float32",
            )
        runs = [(some(n),) for n in (0, 1, 7)]
        yield case(
            lambda x, n: getattr(op, name)((n, 2, n), "int8"),
            *runs[0],
            dims={0: ("n",)},
            again=runs[1:],
            oracle=lambda x: np.full((len(x), 2, len(x)), value),
            dtype="int8",
        )

    @row(f"relax.{name}_like")
    def like() -> Iterator[Case]:
        function = getattr(op, f"{name}_like")
        for dtype in ALL:
            yield case(function, some((3, 7), dtype), oracle=lambda x: np.full(x.shape, value))
            yield case(
                lambda x, t=dtype: function(x, t), some((0, 2)), oracle=lambda x: np.full(x.shape, value), dtype=dtype
            )
        runs = [(some((n, 3)),) for n in (0, 1, 7)]
        yield case(
            lambda x, n: function(x),
            *runs[0],
            dims={0: ("n", 3)},
            again=runs[1:],
            oracle=lambda x: np.full(x.shape, value),
        )
        yield case(function, some(()), oracle=lambda x: np.full((), value))


_filled_like("ones", 1)
_filled_like("zeros", 0)


@row("relax.full")
def full() -> Iterator[Case]:
    for source in ALL:
        for value in special(source)[[0, 1, -2]]:
            yield case(
                lambda v: op.full((2, 3), v),
                value,
                oracle=lambda v: np.full((2, 3), v),
                ulps=0,
                label=f"{source} {value}",
            )
    for source, target, value in (
        ("float32", "int8", 300),
        ("float32", "uint8", np.nan),
        ("int32", "int8", 300),
        ("float32", "bool", 0.5),
        ("int64", "uint64", -1),
        ("float64", "bfloat16", 1e300),
    ):
        number = np.array(value, source)
        label = f"{value} as {target}"
        more: Any = {"dtype": target, "ulps": 0, "label": label}
        yield case(
            lambda v, t=target: op.full((3,), v, t),
            number,
            oracle=lambda v, t=target: np.full(3, _converted(v, t)),
            **more,
        )
        constant = relax.const(number)
        yield case(
            lambda t=target, c=constant: op.full((3,), c, t),
            oracle=lambda v=number, t=target: np.full(3, _converted(v, t)),
            **more,
        )
    for shape in ((), (0,), (2, 0)):
        yield case(lambda v, s=shape: op.full(s, v), np.array(7, "int32"), oracle=lambda v, s=shape: np.full(s, v))


@row("relax.full_like")
def full_like() -> Iterator[Case]:
    for dtype in ALL:
        yield case(
            op.full_like,
            some((3, 7), dtype),
            special(dtype)[1],
            oracle=lambda x, v: np.full(x.shape, v),
            ulps=0,
            label=dtype,
        )
    yield case(
        op.full_like, some((3,), "int8"), np.array(300, "int32"), oracle=lambda x, v: np.full(3, 44), label="wraps"
    )
    yield case(
        lambda x, v: op.full_like(x, v, "bool"),
        some((0, 3)),
        np.array(2.0),
        oracle=lambda x, v: np.full((0, 3), True),
        dtype="bool",
    )
    runs = [(some((n, 3)), np.array(np.inf, "float32")) for n in (0, 1, 7)]
    yield case(
        lambda x, v, n: op.full_like(x, v),
        *runs[0],
        dims={0: ("n", 3)},
        again=runs[1:],
        oracle=lambda x, v: np.full(x.shape, v),
    )


@row("relax.eye")
def eye() -> Iterator[Case]:
    for dtype in ALL:
        yield case(lambda t=dtype: op.eye(3, 5, 1, t), oracle=lambda: np.eye(3, 5, 1), dtype=dtype)
    for n, m, k in ((0, 0, 0), (0, 3, 1), (3, 0, -1), (1, 1, 0), (3, 4, -2), (3, 4, 4), (4, 3, -4), (2, 33, 31)):
        yield case(
            lambda n=n, m=m, k=k: op.eye(n, m, k),
            oracle=lambda n=n, m=m, k=k: np.eye(n, m, k),
            dtype="float32",
            label=f"{n, m, k}",
        )
    runs = [(some(n), some(m)) for n, m in ((0, 2), (1, 1), (5, 3))]
    yield case(
        lambda x, y, n, m: op.eye(n, m, -1),
        *runs[0],
        dims={0: ("n",), 1: ("m",)},
        again=runs[1:],
        oracle=lambda x, y: np.eye(len(x), len(y), -1),
    )


@row("relax.eye_like")
def eye_like() -> Iterator[Case]:
    for dtype in ALL:
        yield case(op.eye_like, some((4, 3), dtype), oracle=lambda x: np.eye(4, 3))
        yield case(
            lambda x, t=dtype: op.eye_like(x, -1, t), some((3, 3)), oracle=lambda x: np.eye(3, 3, -1), dtype=dtype
        )
    runs = [(some((n, 3)),) for n in (0, 1, 7)]
    yield case(
        lambda x, n: op.eye_like(x, 2),
        *runs[0],
        dims={0: ("n", 3)},
        again=runs[1:],
        oracle=lambda x: np.eye(*x.shape, 2),
    )


def _triangle(name: str, oracle: Callable[..., Any]) -> None:
    function = getattr(op, name)

    @row(f"relax.{name}")
    def cases() -> Iterator[Case]:
        for dtype in ALL:
            yield case(function, some((3, 5), dtype), oracle=oracle, label=dtype)
        for shape, k in (
            ((2, 4, 3), -1),
            ((4, 4), 3),
            ((4, 4), -9),
            ((4, 4), 9),
            ((0, 3), 0),
            ((2, 3, 0), 1),
            ((1, 1), 1),
            ((1, 33), 2),
        ):
            yield case(
                lambda x, k=k: function(x, k), some(shape), oracle=lambda x, k=k: oracle(x, k), label=f"{shape}, {k}"
            )
        # What is cut off is 0, whatever it was.
        broken = np.full((3, 3), np.nan, "float32")
        yield case(function, broken, oracle=lambda x: np.where(oracle(np.ones((3, 3))), np.nan, 0), label="NaN")
        runs = [(some((2, n, m)),) for n, m in ((0, 3), (1, 1), (5, 7))]
        yield case(
            lambda x, n, m: function(x, n - 2),
            *runs[0],
            dims={0: (2, "n", "m")},
            again=runs[1:],
            oracle=lambda x: oracle(x, x.shape[1] - 2),
            label="symbolic",
        )


_triangle("tril", np.tril)
_triangle("triu", np.triu)


@row("relax.arange")
def arange() -> Iterator[Case]:
    for dtype in NUMBERS:
        yield case(lambda t=dtype: op.arange(3, 50, 3, t), oracle=lambda: np.arange(3, 50, 3), dtype=dtype)
    for start, end, step in (
        (0, 0, 1),
        (5, 2, 1),
        (2, 5, -1),
        (5, -6, -2),
        (-3, 4, 5),
        (7, 8, 100),
        (2**40, 2**40 + 3, 1),
    ):
        yield case(
            lambda a=start, b=end, c=step: op.arange(a, b, c),
            oracle=lambda a=start, b=end, c=step: np.arange(a, b, c),
            dtype="int64",
            label=f"{start, end, step}",
        )
    for start, end, step in ((0.0, 1.0, 0.25), (1.5, -1.0, -0.5), (0.5, 0.5, 1.0), (0, 2, 0.3)):
        yield case(
            lambda a=start, b=end, c=step: op.arange(a, b, c),
            oracle=lambda a=start, b=end, c=step: np.arange(a, b, c),
            dtype="float32",
            label=f"{start, end, step}",
        )
    runs = [(some(n),) for n in (0, 1, 2, 7, 20)]
    for start, step, dtype in ((0, 1, "int64"), (0, 3, "int8"), (-2, 2, "float16")):
        yield case(
            lambda x, n, a=start, s=step, t=dtype: op.arange(a, n, s, t),
            *runs[0],
            dims={0: ("n",)},
            again=runs[1:],
            oracle=lambda x, a=start, s=step: np.arange(a, len(x), s),
            dtype=dtype,
            label=f"symbolic {start, step}",
        )
    yield case(
        lambda x, n: op.arange(n, 0, -2),
        *runs[0],
        dims={0: ("n",)},
        again=runs[1:],
        oracle=lambda x: np.arange(len(x), 0, -2),
        dtype="int64",
        label="symbolic, down",
    )


@row("relax.hamming_window")
def hamming_window() -> Iterator[Case]:
    def window(size: int, periodic: bool, alpha: float, beta: float) -> np.ndarray:
        return torch.hamming_window(size, periodic, alpha, beta, dtype=torch.float64).numpy()

    for dtype in FLOATS:
        for size in (1, 2, 7, 100):
            for periodic in (True, False):
                arguments = (size, periodic, 0.54, 0.46)
                yield case(
                    lambda a=arguments, t=dtype: op.hamming_window(*a, t),
                    oracle=lambda a=arguments: window(*a),
                    dtype=dtype,
                    label=f"{arguments} of {dtype}",
                )


# -- what is made of several operators --


def test_masks_fill_with_any_number() -> None:
    cases = []
    for dtype, value in (
        ("float32", -math.inf),
        ("float16", math.nan),
        ("bfloat16", 3.0),
        ("int8", -128),
        ("uint64", (1 << 63) + 5),
        ("bool", True),
    ):
        x = some((3, 17), dtype)
        cases.append(
            case(
                lambda x, m, v=value: op.masked_fill(x, m, v),
                x,
                some((3, 1), "bool"),
                oracle=lambda x, m, v=value: np.where(m, np.array(v).astype(x.dtype), x),
                ulps=0,
                label=f"{value} in {dtype}",
            )
        )
    runs = [(some((n, 3)), some((n, 3), "bool"), np.array(7.0, "float32")) for n in (0, 1, 9)]
    cases.append(
        case(
            lambda x, m, v, n: op.masked_fill(x, m, v),
            *runs[0],
            dims={0: ("n", 3), 1: ("n", 3)},
            again=runs[1:],
            oracle=lambda x, m, v: np.where(m, v, x),
        )
    )
    check_cases(cases)


def test_numbers_outside_of_tensors() -> None:
    cases = [
        case(
            lambda x, v=value: op.add(x, relax.PrimValue(v)),
            special(dtype),
            oracle=exactly(lambda x, v=value: x + v),
            ulps=0,
            label=f"{dtype} + {value}",
        )
        for dtype, value in (("int64", 7), ("int64", -1))
    ]
    constants = [("int8", 100), ("uint8", 200), ("uint64", (1 << 63) + 1), ("float16", 0.5), ("int32", -(1 << 31))]
    for dtype, value in constants:
        constant = relax.const(np.array(value, dtype))
        cases.append(
            case(
                lambda x, c=constant: op.multiply(x, c),
                special(dtype),
                oracle=exactly(lambda x, v=value: x * v),
                ulps=0,
                label=f"{dtype} * {value}",
            )
        )
        cases.append(
            case(
                lambda x, c=constant: op.maximum(c, x),
                special(dtype),
                oracle=exactly(lambda x, v=value: max(x, v), lambda x, v=value: np.maximum(x, v)),
                ulps=0,
                label=f"max({dtype}, {value})",
            )
        )
    for exponent in (0, 1, 2, 3, 10, -1, -2):
        constant = relax.const(exponent, "int64")
        cases.append(
            case(
                lambda x, c=constant: op.power(x, c),
                special("int64"),
                oracle=exactly(lambda x, e=exponent: _power(x, e)),
                label=f"x ** {exponent}",
            )
        )
    check_cases(cases)


# -- refusals --

A, B = var((2, 3)), var((4,))
SHAPE = relax.Var("s", relax.ShapeStructInfo([2, 3]))
TWO = sorted(operators_of("binary"))


def compiled(call: Callable[..., Any], *dtypes: str) -> None:
    """Legalizes a call of vectors of these dtypes."""
    builder = relax.BlockBuilder()
    inputs = [var((3,), dtype, name=f"x{i}") for i, dtype in enumerate(dtypes)]
    with builder.function("main", inputs):
        builder.emit_func_output(builder.emit(call(*inputs)))
    relax.transform.LegalizeOps()(builder.finalize())


@pytest.mark.parametrize("name", TWO)
def test_two_tensors_that_do_not_go_together_are_refused(name: str) -> None:
    function = getattr(op, name.removeprefix("relax."))
    for call, kind, message in (
        (
            lambda: function(A, B),
            InvalidValue,
            "shapes (2, 3) and (4) cannot be broadcast: extents 3 and 4 at dimension -1",
        ),
        (
            lambda: function(A, var((2, 3), "int8")),
            TypeMismatch,
            "expected arguments of one dtype, found float32 and int8",
        ),
        (lambda: function(A, SHAPE), TypeMismatch, "argument 1 must be a tensor, found `s`"),
        (
            lambda: function(relax.PrimValue(1), relax.PrimValue(2)),
            TypeMismatch,
            "expected at least one tensor, found two numbers",
        ),
    ):
        with pytest.raises(kind, match=re.escape(f"{name}: {message}")):
            infer(call())


KINDS = {
    "numbers": ("subtract divide floor_divide mod floor_mod power abs negative sign square ewise_fma", "bool"),
    "floats": ("log_add_exp", "int32"),
    "bools": ("logical_and logical_or logical_xor logical_not", "int8"),
    "integers or bools": ("bitwise_and bitwise_or bitwise_xor bitwise_not", "float32"),
    "integers": ("left_shift right_shift", "bool"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_dtypes_that_an_operator_is_not_for_are_refused(kind: str) -> None:
    names, dtype = KINDS[kind]
    for name in names.split():
        count = {"ewise_fma": 3}.get(name, 2 if f"relax.{name}" in TWO else 1)
        message = f"relax.{name}: expected {kind}, found argument 0 of dtype {dtype}; convert it with astype"
        with pytest.raises(TypeMismatch, match=re.escape(message)):
            compiled(getattr(op, name), *[dtype] * count)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.exp(SHAPE), "relax.exp: argument 0 must be a tensor, found `s`"),
        (lambda: op.clip(A, B, 1), "relax.clip: argument min must be a number, found `x`"),
        (lambda: op.ewise_fma(A, A, B), "relax.ewise_fma: expected three tensors of as many dimensions, found 2, 2, 1"),
        (
            lambda: op.ewise_fma(A, A, var((2, 4))),
            "relax.ewise_fma: expected three tensors of one shape, found extents 3 and 4 at dimension 1",
        ),
        (
            lambda: op.ewise_fma(A, A, var((2, 3), "int8")),
            "relax.ewise_fma: expected arguments of one dtype, found float32 and float32 and int8",
        ),
        (lambda: op.astype(A, "flot32"), "unknown dtype 'flot32': expected bool, int"),
        (
            lambda: op.quantize(A, B, var((), "int8"), 2),
            "relax.quantize: axis 2 is outside of a tensor of 2 dimensions",
        ),
        (
            lambda: op.quantize(A, B, var((), "int8")),
            "relax.quantize: argument scale must have 3 elements, one for each index of the axis, found 4",
        ),
        (
            lambda: op.quantize(A, A, var((), "int8")),
            "relax.quantize: argument scale must be a scalar or a vector, found 2 dimensions",
        ),
        (
            lambda: op.quantize(A, var(()), var(())),
            "relax.quantize: argument zero_point must be of one of the dtypes int8",
        ),
        (
            lambda: op.dequantize(A, var(()), var((), "int8"), out_dtype="int8"),
            "relax.dequantize: the result must be of one of the dtypes float32, float16, found int8",
        ),
        (lambda: op.full((2, 3), B), "relax.full: argument fill_value must be a tensor without dimensions, found"),
        (lambda: op.full_like(SHAPE, var(())), "relax.full_like: argument 0 must be a tensor"),
        (lambda: op.zeros(A, "int8"), "relax.zeros: argument 0 must be a shape"),
        (lambda: op.eye(A), "relax.eye: argument n must be a number, found `x`"),
        (lambda: op.eye_like(B), "relax.eye_like: expected a matrix, found a tensor of 1 dimensions"),
        (lambda: op.triu(B), "relax.triu: expected a tensor of at least two dimensions, found 1"),
        (lambda: op.tril(A, B), "relax.tril: argument k must be a number"),
        (lambda: op.arange(1, 5, 0), "relax.arange: the step must not be 0"),
        (lambda: op.arange(A), "relax.arange: argument end must be a number"),
        (
            lambda: op.hamming_window(-3, True, 0.5, 0.5, "float32"),
            "relax.hamming_window: argument window_size must be at least 1, found -3",
        ),
        (
            lambda: op.hamming_window(3, True, 1, 0.5, "float32"),
            "relax.hamming_window: argument alpha must be a float, found 1",
        ),
    ],
)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())
