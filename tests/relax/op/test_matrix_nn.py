"""Activations, convolutions and pooling, over dtypes and odd shapes: a row an operator, each row one compiled program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_cases import FLOATS, NUMBERS, Case, Cases, Table, case, check_cases, in_float64, in_torch, operators_of, some

from oneir.relax.op import nn

ROWS = Table()
row = ROWS.row
ODD = ((), (0,), (1,), (5, 0), (1, 1, 1), (17,), (3, 1, 7), (2, 0, 4))
INF, NAN = float("inf"), float("nan")
SUMS = {"float16": 2e-2, "bfloat16": 0.15, "float32": 1e-4, "float64": 1e-11}
"""What sums of some dozens of products may be off by."""


def test_every_operator_has_a_row() -> None:
    assert operators_of("nn.activation", "nn.convolution", "nn.pooling") == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_cases(name: str) -> None:
    check_cases(list(ROWS[name]()))


# -- activations --


def activation(make: Callable[..., Any], function: Callable[..., Any], exact: bool = True) -> Cases:
    """The row of an elementwise function of floats."""

    def cases() -> Iterator[Case]:
        for dtype in FLOATS:
            large = 6e4 if dtype == "float16" else 1e30
            special = np.array([0.0, -0.0, 1e-6, -1e-6, 19.5, 20.5, -100, large, -large, INF, -INF, NAN])
            special = special[:-3] if not exact else special
            tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-9}.get(dtype)
            yield case(make, some((3, 7), dtype, -6, 6), oracle=in_torch(function), tolerance=tolerance)
            yield case(make, special.astype(some((), dtype).dtype), oracle=in_torch(function), tolerance=tolerance)
        for shape in ODD[:4]:
            yield case(make, some(shape), oracle=in_torch(function))
        yield case(
            lambda x, n: make(x),
            some((4, 3)),
            oracle=in_torch(function),
            dims={0: ("n", 3)},
            again=[(some((0, 3)),), (some((1, 3)),), (some((19, 3)),)],
        )

    return cases


ROWS["relax.nn.gelu"] = activation(nn.gelu, F.gelu)
ROWS["relax.nn.gelu_tanh"] = activation(nn.gelu_tanh, lambda x: F.gelu(x, approximate="tanh"))
ROWS["relax.nn.silu"] = activation(nn.silu, F.silu)
ROWS["relax.nn.selu"] = activation(nn.selu, F.selu)
ROWS["relax.nn.leakyrelu"] = activation(lambda x: nn.leakyrelu(x, 0.3), lambda x: F.leaky_relu(x, 0.3))
ROWS["relax.nn.softplus"] = activation(nn.softplus, F.softplus)


@row("relax.nn.relu")
def relu() -> Iterator[Case]:
    yield from activation(nn.relu, F.relu)()
    for dtype in NUMBERS:
        if dtype not in FLOATS:
            yield case(nn.relu, some((19,), dtype, -9, 9), oracle=lambda x: np.maximum(x, 0))


@row("relax.nn.prelu")
def prelu() -> Iterator[Case]:
    for dtype in FLOATS:
        yield case(nn.prelu, some((2, 3, 5), dtype), some(3, dtype, seed=1), oracle=in_torch(F.prelu))
    for shape, count in (((5, 1), 1), ((2, 0), 1), ((0, 3), 3), ((2, 3, 0), 3)):
        yield case(nn.prelu, some(shape), some(count, seed=1), oracle=in_torch(F.prelu))
    last = in_torch(lambda x, a: torch.where(x > 0, x, x * a))
    yield case(lambda x, a: nn.prelu(x, a, -1), some((3, 5)), some(5, seed=1), oracle=last)
    yield case(
        lambda x, a, n: nn.prelu(x, a),
        some((4, 3)),
        some(3, seed=1),
        oracle=in_torch(F.prelu),
        dims={0: ("n", 3)},
        again=[(some((0, 3)), some(3))],
    )


def softmax_cases(make: Callable[..., Any], function: Callable[..., Any]) -> Cases:
    def cases() -> Iterator[Case]:
        for dtype in FLOATS:
            yield case(lambda x: make(x, -1), some((3, 19), dtype, -9, 9), oracle=in_torch(lambda x: function(x, -1)))
            large = 6e4 if dtype == "float16" else 1e30
            rows = [[0, 0, 0], [large, -large, 0], [-INF, 0, 1], [INF, 0, 0], [-INF] * 3, [NAN, 0, 0], [-large] * 3]
            special = np.array(rows).astype(some((), dtype).dtype)
            yield case(lambda x: make(x, 1), special, oracle=in_torch(lambda x: function(x, 1)))
        for shape, axis in (
            ((1,), 0),
            ((0,), 0),
            ((5, 0), 1),
            ((5, 0), 0),
            ((2, 1, 7), 1),
            ((2, 17, 3), -2),
            ((33, 2), 0),
        ):
            yield case(lambda x, a=axis: make(x, a), some(shape), oracle=in_torch(lambda x, a=axis: function(x, a)))
        for axis in (0, 1):
            yield case(
                lambda x, n, a=axis: make(x, a),
                some((4, 3)),
                oracle=in_torch(lambda x, a=axis: function(x, a)),
                dims={0: ("n", 3)},
                again=[(some((0, 3)),), (some((1, 3)),), (some((40, 3)),)],
            )

    return cases


ROWS["relax.nn.softmax"] = softmax_cases(nn.softmax, F.softmax)
ROWS["relax.nn.log_softmax"] = softmax_cases(nn.log_softmax, F.log_softmax)


# -- convolutions --

CONV: dict[int, Callable[..., Any]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED: dict[int, Callable[..., Any]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d}
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def moved(x: torch.Tensor, layout: str, to: str) -> torch.Tensor:
    return x.permute([layout.index(c) for c in to])


def convolved(dims: int, **attrs: Any) -> Callable[..., Any]:
    """A convolution by PyTorch, whatever the layouts, and paddings that differ at both ends."""
    count = SPATIAL[dims]
    data, kernel = attrs.get("data_layout", f"NC{count}"), attrs.get("kernel_layout", f"OI{count}")
    padding = attrs.get("padding", 0)
    both = list(padding) if isinstance(padding, tuple) else [padding] * 2 * dims
    both = both if len(both) == 2 * dims else both * 2

    def computed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x, w = moved(x, data, f"NC{count}").double(), moved(w, kernel, f"OI{count}").double()
        x = F.pad(x, [p for i in reversed(range(dims)) for p in (both[i], both[dims + i])])
        rest = {"dilation": attrs.get("dilation", 1), "groups": attrs.get("groups", 1)}
        return moved(CONV[dims](x, w, None, attrs.get("strides", 1), 0, **rest), f"NC{count}", data)

    return in_torch(computed)


def conv_case(dims: int, shape: tuple[int, ...], weight: tuple[int, ...], dtype: str = "float32", **attrs: Any) -> Case:
    operator: Any = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}[dims]
    out = attrs.get("out_dtype") or dtype
    return case(
        lambda x, w: operator(x, w, **attrs),
        some(shape, dtype),
        some(weight, dtype, seed=1),
        oracle=convolved(dims, **attrs),
        dtype=out,
        tolerance=SUMS.get(out),
    )


@row("relax.nn.conv1d")
def conv1d() -> Iterator[Case]:
    for dtype in FLOATS:
        yield conv_case(1, (2, 3, 11), (5, 3, 3), dtype)
    for dtype in ("int8", "uint8", "int16"):
        yield conv_case(1, (2, 3, 11), (5, 3, 3), dtype, out_dtype="int32")
    yield conv_case(1, (1, 4, 9), (6, 2, 3), groups=2, strides=2, padding=(0, 3), dilation=2)
    yield conv_case(1, (2, 7, 5), (3, 5, 4), data_layout="NWC", kernel_layout="WIO", padding=1)
    yield conv_case(1, (1, 1, 1), (1, 1, 1))
    yield conv_case(1, (0, 3, 5), (2, 3, 3))
    yield conv_case(1, (1, 3, 0), (2, 3, 3), padding=2)


@row("relax.nn.conv2d")
def conv2d() -> Iterator[Case]:
    for dtype in FLOATS:
        yield conv_case(2, (1, 3, 7, 6), (5, 3, 3, 3), dtype, padding=1)
    for dtype in ("int8", "uint8"):
        yield conv_case(2, (1, 3, 7, 6), (5, 3, 3, 3), dtype, out_dtype="int32")
    yield conv_case(2, (2, 4, 7, 9), (6, 2, 3, 2), groups=2, strides=(2, 3), padding=(0, 1, 2, 3), dilation=(2, 1))
    yield conv_case(2, (1, 6, 8, 8), (6, 1, 3, 3), groups=6, padding=1)
    yield conv_case(2, (1, 3, 8, 8), (6, 1, 5, 5), groups=3, strides=2, padding=2)
    yield conv_case(2, (2, 6, 5, 3), (3, 3, 3, 4), data_layout="NHWC", kernel_layout="HWIO", padding=1)
    yield conv_case(2, (2, 6, 5, 3), (4, 3, 3, 3), data_layout="NHWC", kernel_layout="OHWI")
    yield conv_case(2, (1, 17, 12, 12), (19, 17, 3, 3), padding=1)
    yield conv_case(2, (3, 33, 1, 1), (31, 33, 1, 1))
    yield conv_case(2, (1, 3, 9, 9), (2, 3, 9, 9))
    yield conv_case(2, (0, 3, 5, 5), (2, 3, 3, 3))
    yield case(
        lambda x, w, n, h: nn.conv2d(x, w, strides=2, padding=1),
        some((2, 3, 9, 8)),
        some((5, 3, 3, 3), seed=1),
        oracle=convolved(2, strides=2, padding=1),
        dims={0: ("n", 3, "h", 8)},
        again=[(some(s), some((5, 3, 3, 3), seed=1)) for s in ((1, 3, 1, 8), (0, 3, 4, 8), (3, 3, 2, 8))],
        tolerance=1e-4,
    )


@row("relax.nn.conv3d")
def conv3d() -> Iterator[Case]:
    for dtype in ("float16", "float32", "float64"):
        yield conv_case(3, (1, 2, 4, 5, 6), (3, 2, 2, 3, 2), dtype, padding=1)
    yield conv_case(3, (1, 4, 5, 5, 5), (4, 2, 3, 2, 1), groups=2, strides=(1, 2, 3), padding=(0, 1, 2, 1, 0, 1))
    yield conv_case(3, (1, 4, 5, 6, 2), (2, 2, 2, 2, 3), data_layout="NDHWC", kernel_layout="DHWIO")
    yield conv_case(3, (1, 2, 5, 5, 5), (3, 2, 2, 2, 2), dilation=2)
    yield conv_case(3, (0, 2, 3, 3, 3), (3, 2, 1, 1, 1))


def transposed_case(dims: int, shape: Any, weight: Any, dtype: str = "float32", **attrs: Any) -> Case:
    operator: Any = {1: nn.conv1d_transpose, 2: nn.conv2d_transpose}[dims]
    padding = attrs.get("padding", 0)
    both = list(padding) if isinstance(padding, tuple) else [padding] * 2 * dims

    def computed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        rest = {"output_padding": attrs.get("output_padding", 0), "groups": attrs.get("groups", 1)}
        whole = TRANSPOSED[dims](x, w, None, attrs.get("strides", 1), 0, **rest)
        inside = [slice(both[i], whole.shape[2 + i] - both[dims + i]) for i in range(dims)]
        return whole[(slice(None), slice(None), *inside)]

    return case(
        lambda x, w: operator(x, w, **attrs),
        some(shape, dtype),
        some(weight, dtype, seed=1),
        oracle=in_torch(computed),
        tolerance=SUMS[dtype],
    )


@row("relax.nn.conv1d_transpose")
def conv1d_transpose() -> Iterator[Case]:
    for dtype in FLOATS:
        yield transposed_case(1, (2, 3, 5), (3, 4, 3), dtype, strides=2)
    yield transposed_case(1, (1, 4, 6), (4, 3, 4), strides=3, padding=(1, 2), output_padding=2, groups=2)
    yield transposed_case(1, (1, 1, 1), (1, 1, 1))
    yield transposed_case(1, (0, 3, 5), (3, 4, 3))
    yield transposed_case(1, (1, 2, 7), (2, 5, 1), strides=2)


@row("relax.nn.conv2d_transpose")
def conv2d_transpose() -> Iterator[Case]:
    for dtype in FLOATS:
        yield transposed_case(2, (1, 3, 4, 5), (3, 4, 3, 2), dtype, strides=2)
    yield transposed_case(
        2, (1, 4, 4, 3), (4, 3, 3, 4), strides=(2, 3), padding=(1, 0, 2, 1), output_padding=(1, 2), groups=2
    )
    yield transposed_case(2, (2, 4, 3, 3), (4, 1, 2, 2), strides=2, groups=4)
    yield transposed_case(2, (0, 3, 4, 4), (3, 2, 2, 2))


# -- pooling --


def pooled(kind: str, dims: int, size: Any, **attrs: Any) -> Callable[..., Any]:
    """Pooling window by window, with PyTorch's rule of which windows there are."""

    def each(value: Any) -> list[int]:
        return list(value) if isinstance(value, tuple) else [value] * dims

    sizes, steps = each(size), each(attrs.get("strides", 1) or size)
    dilation, padding = each(attrs.get("dilation", 1)), attrs.get("padding", 0)
    both = list(padding) if isinstance(padding, tuple) else [padding] * 2 * dims
    both = both if len(both) == 2 * dims else both * 2
    ceil, counted = attrs.get("ceil_mode", False), attrs.get("count_include_pad", kind == "avg" and dims != 2)

    def computed(x: np.ndarray) -> np.ndarray:
        out = []
        for i in range(dims):
            span = x.shape[2 + i] + both[i] + both[dims + i] - (sizes[i] - 1) * dilation[i] - 1
            out.append((-(-span // steps[i]) if ceil else span // steps[i]) + 1)
        result = np.zeros((*x.shape[:2], *out))
        for place in np.ndindex(*out):
            inside, count = [], 1
            for i, p in enumerate(place):
                start = p * steps[i] - both[i]
                reached = [start + k * dilation[i] for k in range(sizes[i])]
                inside.append([r for r in reached if 0 <= r < x.shape[2 + i]])
                count *= len([r for r in reached if r < x.shape[2 + i] + both[dims + i]])
            window = x[(slice(None), slice(None), *np.ix_(*inside))].reshape(
                *x.shape[:2], int(np.prod([len(i) for i in inside]))
            )
            if kind == "max":
                lowest = -INF if x.dtype.kind == "f" else 0
                result[(..., *place)] = window.max(-1) if window.shape[-1] else lowest
            else:
                result[(..., *place)] = window.sum(-1) / max(count if counted else window.shape[-1], 1)
        return result if x.dtype.kind == "f" else np.trunc(result)

    return in_float64(computed)


POOLS: dict[tuple[str, int], Any] = {
    ("max", 1): nn.max_pool1d,
    ("max", 2): nn.max_pool2d,
    ("max", 3): nn.max_pool3d,
    ("avg", 1): nn.avg_pool1d,
    ("avg", 2): nn.avg_pool2d,
    ("avg", 3): nn.avg_pool3d,
}


def pool_cases(kind: str, dims: int) -> Cases:
    operator, letters = POOLS[kind, dims], SPATIAL[dims]
    extents = (9, 8, 5)[:dims]

    def one(size: Any, shape: tuple[int, ...] = (2, 3, *extents), dtype: str = "float32", **attrs: Any) -> Case:
        # Means of uniform numbers near each other: nothing cancels.
        low = 0 if dtype.startswith("u") else -9
        return case(
            lambda x: operator(x, size, **attrs),
            some(shape, dtype, low, 9),
            oracle=pooled(kind, dims, size, **attrs),
        )

    def cases() -> Iterator[Case]:
        for dtype in (*FLOATS, "int8", "int32", "uint8"):
            yield one(3, dtype=dtype, strides=2, padding=1)
        flags = [(False, False), (True, False), *([(False, True), (True, True)] if kind == "avg" else [])]
        for ceil, counted in flags:
            both = tuple((0, 1, 2)[:dims]) + tuple((1, 1, 0)[:dims])
            yield one(3, strides=2, padding=both, ceil_mode=ceil, count_include_pad=counted)
            yield one(2, strides=3, dilation=2, ceil_mode=ceil, count_include_pad=counted)
        yield one(1)
        yield one(extents)
        yield one(2, (0, 3, *extents))
        yield one(2, (1, 1, *[2] * dims))
        # NaN and infinities in windows, and windows of padding only.
        x = some((1, 2, *extents), low=-9, high=9)
        x[(0, 0, *[1] * dims)], x[(0, 1, *[0] * dims)], x[(0, 1, *[4] * dims)] = NAN, -INF, INF
        yield case(
            lambda v: operator(v, 3, strides=2, padding=1), x, oracle=pooled(kind, dims, 3, strides=2, padding=1)
        )
        bottom = np.full((1, 1, *extents), -INF, "float32")
        yield (
            case(lambda v: operator(v, 2, padding=1), bottom, oracle=pooled(kind, dims, 2, padding=1))
            if kind == "max"
            else one(3, padding=1, count_include_pad=True)
        )
        yield case(
            lambda v: operator(v, 2, layout=f"N{letters}C"),
            some((2, *extents, 3)),
            oracle=lambda v: np.moveaxis(pooled(kind, dims, 2)(np.moveaxis(v, -1, 1)), 1, -1),
        )
        rest = tuple(extents[1:])
        yield case(
            lambda v, n, h: operator(v, 2, strides=2, padding=1),
            some((2, 3, *extents)),
            oracle=pooled(kind, dims, 2, strides=2, padding=1),
            dims={0: ("n", 3, "h", *rest)},
            again=[(some((b, 3, h, *rest)),) for b, h in ((1, 1), (0, 4), (3, 2))],
        )

    return cases


for _kind, _dims in POOLS:
    ROWS[f"relax.nn.{_kind}_pool{_dims}d"] = pool_cases(_kind, _dims)

ADAPTIVE: dict[int, tuple[Any, Any]] = {
    1: (nn.adaptive_avg_pool1d, F.adaptive_avg_pool1d),
    2: (nn.adaptive_avg_pool2d, F.adaptive_avg_pool2d),
    3: (nn.adaptive_avg_pool3d, F.adaptive_avg_pool3d),
}


def adaptive_cases(dims: int) -> Cases:
    operator, function = ADAPTIVE[dims]
    extents = (7, 6, 5)[:dims]

    def cases() -> Iterator[Case]:
        for dtype in FLOATS:
            yield case(
                lambda x: operator(x, 3), some((2, 3, *extents), dtype), oracle=in_torch(lambda x: function(x, 3))
            )
        for size in (1, 9, extents, (2, 3, 4)[:dims]):
            yield case(
                lambda x, s=size: operator(x, s),
                some((1, 2, *extents)),
                oracle=in_torch(lambda x, s=size: function(x, s)),
            )
        yield case(operator, some((1, 2, *extents)), oracle=lambda x: x)
        yield case(lambda x: operator(x, 2), some((0, 2, *extents)), oracle=lambda x: np.zeros((0, 2, *[2] * dims)))
        last = f"N{SPATIAL[dims]}C"
        yield case(
            lambda x: operator(x, 2, layout=last),
            some((2, *extents, 3)),
            oracle=in_torch(lambda x: function(x.movedim(-1, 1), 2).movedim(1, -1)),
        )
        yield case(
            lambda x, n, h: operator(x, 2),
            some((2, 3, *extents)),
            oracle=in_torch(lambda x: function(x, 2)),
            dims={0: ("n", 3, "h", *extents[1:])},
            again=[(some((b, 3, h, *extents[1:])),) for b, h in ((1, 1), (0, 4), (3, 5))],
        )

    return cases


for _dims in ADAPTIVE:
    ROWS[f"relax.nn.adaptive_avg_pool{_dims}d"] = adaptive_cases(_dims)
