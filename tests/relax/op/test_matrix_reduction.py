"""Reductions, scans, choosing, searching, sorting, sets and samples, over dtypes, numbers at which they break, and odd
shapes.

A row an operator; the oracles are Python's integers, NumPy's float64, and PyTorch.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from op_cases import ALL, FLOATS, INTS, NUMBERS, Case, Table, case, check_cases, operators_of, some, wide
from op_numbers import exact, special, wrap
from op_testing import infer, var

import oneir
from oneir import relax, tir
from oneir.relax import op
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch

ROWS = Table()
row = ROWS.row
NAN, INF = math.nan, math.inf


def test_every_operator_has_a_row() -> None:
    found = operators_of("statistical", "search", "sorting", "set", "sampling")
    assert found == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_cases(name: str) -> None:
    check_cases(list(ROWS[name]()))


# -- reductions --


def _truncated(total: Any, count: int) -> Any:
    return 0 if count == 0 else int(abs(total) // count * (1 if total > 0 else -1))


def _moments(x: np.ndarray, axes: Any, keepdims: bool) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance; of integers, each division is truncated."""
    count = math.prod(x.shape[a] for a in (range(x.ndim) if axes is None else axes))
    if x.dtype.name in FLOATS:
        with np.errstate(all="ignore"):
            mean = (
                np.sum(wide(x), axes, keepdims=True) / count
                if count
                else np.full(np.sum(x, axes, keepdims=True).shape, NAN)
            )
            variance = np.sum((wide(x) - mean) ** 2, axes, keepdims=True) / count if count else mean
    else:
        divided = np.vectorize(lambda t: _truncated(t, count), otypes=[object])
        total = np.sum(exact(x), axes, keepdims=True)
        mean = divided(wrap(total, x.dtype).astype(object))
        squares = np.sum(
            wrap(wrap(exact(x) - mean, x.dtype).astype(object) ** 2, x.dtype).astype(object), axes, keepdims=True
        )
        variance = divided(wrap(squares, x.dtype).astype(object))
    if not keepdims:
        place = tuple(range(x.ndim)) if axes is None else tuple(a % x.ndim for a in axes)
        mean, variance = np.squeeze(mean, place), np.squeeze(variance, place)
    return wrap(mean, x.dtype), wrap(variance, x.dtype)


def _least(x: np.ndarray, greatest: bool) -> Any:
    """The largest (or smallest) element of nothing."""
    if x.dtype.name in FLOATS:
        return INF if greatest else -INF
    return (np.iinfo(x.dtype).max if greatest else np.iinfo(x.dtype).min) if x.dtype.name in INTS else greatest


def reduction(name: str, dtypes: tuple[str, ...], oracle: Callable[..., Any]) -> None:
    """A row for a reduction; `oracle(x, axes, keepdims)`."""
    function = getattr(op, name)

    def of(axes: Any, keepdims: bool = False) -> dict[str, Any]:
        def expected(x: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):
                return oracle(x, axes, keepdims)

        return {"oracle": expected, "label": f"{name} over {axes}"}

    @row(f"relax.{name}")
    def cases() -> Iterator[Case]:
        for dtype in dtypes:
            for axes in ((0,), (-1,)):
                yield case(lambda x, a=axes: function(x, list(a)), some((5, 33), dtype, -9, 9), **of(axes))
        for axes in (None, (0, 2), (1, -1), (-2,), (0, 1, 2)):
            for keepdims in (False, True):
                yield case(
                    lambda x, a=axes, k=keepdims: function(x, a and list(a), k), some((2, 3, 17)), **of(axes, keepdims)
                )
        shapes: list[tuple[Any, Any]] = [((), None), ((1,), (0,)), ((1, 1, 5), (1,)), ((0, 3), (1,)), ((3, 0, 2), (0,))]
        shapes += [((0,), None), ((2, 0, 3), (1,)), ((2, 0), (0, 1))]
        for shape, axes in shapes:
            yield case(lambda x, a=axes: function(x, a and list(a)), some(shape), **of(axes))
        for axes in (None, (0,), (1,)):
            runs = [(some((n, 3)),) for n in (0, 1, 7, 40)]
            yield case(
                lambda x, n, a=axes: function(x, a and list(a)),
                *runs[0],
                dims={0: ("n", 3)},
                again=runs[1:],
                **of(axes),
            )
        for dtype in ("float16", "bfloat16"):
            # Counting in a bfloat16 ends at 256, in a float16 at 2048; and 65504 is the largest float16.
            many = some((2, 5000), dtype, 0, 9) if name != "prod" else np.ones((2, 5000), dtype)
            yield case(lambda x: function(x, 1), many, **of((1,)), ulps=1)
        broken = np.array([[1, NAN, 2], [INF, 1, 2], [-INF, INF, 0], [-INF, -INF, -INF], [NAN, NAN, NAN]], "float32")
        yield case(lambda x: function(x, 1), broken, **of((1,)))
        if name in ("sum", "prod"):
            either = np.any if name == "sum" else np.all
            truths = np.array([[False, False], [True, False], [True, True]])
            yield case(lambda x: function(x, 1), truths, oracle=lambda x: either(x, 1), label="bools")
        if name in ("max", "min"):
            yield case(lambda x: function(x, 0), special("float64").reshape(1, -1), **of((0,)))


reduction("sum", NUMBERS, lambda x, a, k: wrap(np.sum(exact(x), a, keepdims=k), x.dtype))
reduction("prod", NUMBERS, lambda x, a, k: wrap(np.prod(exact(x), a, keepdims=k), x.dtype))
reduction("max", ALL, lambda x, a, k: np.max(wide(x), a, keepdims=k, initial=_least(x, False)))
reduction("min", ALL, lambda x, a, k: np.min(wide(x), a, keepdims=k, initial=_least(x, True)))
reduction("mean", NUMBERS, lambda x, a, k: _moments(x, a, k)[0])
reduction("variance", NUMBERS, lambda x, a, k: _moments(x, a, k)[1])
reduction("std", FLOATS, lambda x, a, k: np.sqrt(_moments(x, a, k)[1]))


def _index_of(name: str, oracle: Callable[..., Any]) -> None:
    function = getattr(op, name)

    @row(f"relax.{name}")
    def cases() -> Iterator[Case]:
        for dtype in ALL:
            # Few different values make equals, of which the first counts.
            for axis in (0, -1):
                yield case(
                    lambda x, a=axis: function(x, a),
                    some((5, 33), dtype, -2, 2),
                    oracle=lambda x, a=axis: oracle(x, a),
                    dtype="int64",
                    label=f"{name} of {dtype} over {axis}",
                )
            last = (
                special(dtype)[[1, 1, 1]]
                if dtype in FLOATS
                else np.array([np.iinfo(dtype).min] * 3, dtype)
                if dtype != "bool"
                else np.zeros(3, bool)
            )
            for values in (last, -last if dtype in FLOATS else ~last):
                yield case(function, values, oracle=lambda x: np.int64(0), dtype="int64", label=f"{name} of {values}")
            yield case(
                function,
                special(dtype),
                oracle=lambda x: oracle(x, None),
                dtype="int64",
                label=f"{name} of special {dtype}",
            )
        for axis, keepdims in ((None, False), (None, True), (1, False), (-3, True)):
            yield case(
                lambda x, a=axis, k=keepdims: function(x, a, k),
                some((2, 3, 17)),
                oracle=lambda x, a=axis, k=keepdims: oracle(x, a, keepdims=k),
                dtype="int64",
                label=f"{name} over {axis}, {keepdims}",
            )
        for shape in ((0,), (0, 3), (3, 0)):
            yield case(
                lambda x: function(x, 0),
                some(shape),
                oracle=lambda x: np.zeros(x.shape[1:]),
                dtype="int64",
                label=f"{name} of {shape}",
            )
        for shape, axis in (((1,), 0), ((0, 3), 1), ((1, 1), None), ((), None)):
            yield case(
                lambda x, a=axis: function(x, a),
                some(shape),
                oracle=lambda x, a=axis: oracle(x, a),
                dtype="int64",
                label=f"{name} of {shape}",
            )
        broken = np.array(
            [
                [1, NAN, NAN],
                [INF, 1, INF],
                [-INF, INF, 0],
                [-INF, -INF, -INF],
                [NAN, NAN, NAN],
                [2, INF, NAN],
                [-0.0, 0.0, 0.0],
                [0.0, -0.0, 0.0],
            ],
            "float32",
        )
        for dtype in FLOATS:
            yield case(
                lambda x: function(x, 1),
                broken.astype(dtype),
                oracle=lambda x: oracle(wide(x), 1),
                dtype="int64",
                label=f"{name} of NaN in {dtype}",
            )
        runs = [(some((n, m), low=-2),) for n, m in ((1, 3), (5, 1), (7, 40))]
        for axis in (None, 0, 1):
            yield case(
                lambda x, n, m, a=axis: function(x, a),
                *runs[0],
                dims={0: ("n", "m")},
                again=runs[1:],
                oracle=lambda x, a=axis: oracle(x, a),
                dtype="int64",
                label="symbolic",
            )


_index_of("argmax", np.argmax)
_index_of("argmin", np.argmin)


def _scan(name: str, step: Callable[[Any, Any], Any], first: int) -> None:
    function = getattr(op, name)

    def scanned(x: np.ndarray, axis: int | None, dtype: str | None = None, exclusive: bool = False) -> np.ndarray:
        target = np.dtype(dtype or x.dtype)
        values = exact(x).ravel() if axis is None else np.moveaxis(exact(x), axis, 0)
        total: Any = np.full(values.shape[1:], first, object if target.name in INTS else float)
        results = []
        for value in values:
            now = step(total, value)
            results.append(total if exclusive else now)
            total = now
        stacked = np.array(results).reshape(values.shape)
        return wrap(stacked if axis is None else np.moveaxis(stacked, 0, axis), target)

    @row(f"relax.{name}")
    def cases() -> Iterator[Case]:
        for dtype in NUMBERS:
            for axis, exclusive in ((0, False), (-1, True)):
                yield case(
                    lambda x, a=axis, e=exclusive: function(x, a, exclusive=e),
                    some((3, 9), dtype, -3, 3),
                    oracle=lambda x, a=axis, e=exclusive: scanned(x, a, None, e),
                    label=f"{name} of {dtype}",
                )
        for source, target in (
            ("int8", "int64"),
            ("bool", "int32"),
            ("float16", "float32"),
            ("int64", "int8"),
            ("float32", "float64"),
            ("uint8", "float32"),
            ("bool", "float16"),
        ):
            yield case(
                lambda x, t=target: function(x, 0, t, True),
                some((11,), source, -9, 9),
                oracle=lambda x, t=target: scanned(x.astype(t), 0, t, True),
                dtype=target,
                label=f"{name} of {source} in {target}",
            )
        for shape, axis in (
            ((2, 3, 4), None),
            ((2, 3, 4), 1),
            ((), None),
            ((1,), 0),
            ((0,), 0),
            ((0,), None),
            ((2, 0, 3), 1),
            ((0, 3), 1),
        ):
            for exclusive in (False, True):
                yield case(
                    lambda x, a=axis, e=exclusive: function(x, a, exclusive=e),
                    some(shape),
                    oracle=lambda x, a=axis, e=exclusive: scanned(x, a, None, e),
                    label=f"{name} of {shape} over {axis}, {exclusive}",
                )
        yield case(lambda x: function(x, 0), np.array([1, INF, -1, NAN, 2], "float32"), oracle=lambda x: scanned(x, 0))
        either = np.logical_or if name == "cumsum" else np.logical_and
        yield case(lambda x: function(x, 0), some(9, "bool"), oracle=either.accumulate, label="bools")
        for dtype in ("float16", "bfloat16"):
            many = some((1000, 3), dtype, 0, 2) if name == "cumsum" else np.full((1000, 3), 1.001).astype(dtype)
            for axis in (0, None):
                yield case(
                    lambda x, a=axis: function(x, a), many, oracle=lambda x, a=axis: scanned(x, a), ulps=1, label=dtype
                )
        runs = [(some((n, 3)),) for n in (0, 1, 7)]
        for axis in (None, 0, 1):
            yield case(
                lambda x, n, a=axis: function(x, a),
                *runs[0],
                dims={0: ("n", 3)},
                again=runs[1:],
                oracle=lambda x, a=axis: scanned(x, a),
                label="symbolic",
            )


_scan("cumsum", lambda a, b: a + b, 0)
_scan("cumprod", lambda a, b: a * b, 1)


# -- choosing and searching --


@row("relax.where")
def where() -> Iterator[Case]:
    for dtype in ALL:
        x = special(dtype)
        yield case(op.where, some(len(x), "bool"), x, x[::-1].copy(), oracle=np.where, dtype=dtype, ulps=0, label=dtype)
    for shapes in (((), (3,), ()), ((3, 1), (1, 4), (2, 1, 1)), ((2, 0), (1,), (2, 1)), ((1,), (0,), ()), ((), (), ())):
        inputs = [some(s, "bool" if i == 0 else "float32", seed=i) for i, s in enumerate(shapes)]
        yield case(op.where, *inputs, oracle=np.where, dtype="float32", label=f"{shapes}")
    runs = [(some((n, 1), "bool"), some((n, m)), some(m, seed=1)) for n, m in ((0, 3), (1, 1), (5, 0), (5, 33))]
    yield case(
        lambda c, x, y, n, m: op.where(c, x, y),
        *runs[0],
        dims={0: ("n", 1), 1: ("n", "m"), 2: ("m",)},
        again=runs[1:],
        oracle=np.where,
        dtype="float32",
        label="symbolic",
    )


@row("relax.bucketize")
def bucketize() -> Iterator[Case]:
    def place(x: np.ndarray, boundaries: np.ndarray, right: bool) -> np.ndarray:
        """How many boundaries are below (or not above) each; NaN is above all."""
        x, boundaries = (exact(v) for v in (x, boundaries))
        inside = np.less_equal.outer(boundaries, x) if right else np.less.outer(boundaries, x)
        return np.where(x != x, len(boundaries), inside.astype(bool).sum(0)).astype("int64")

    for dtype in NUMBERS:
        boundaries = np.array([1, 3, 3, 7, 100], dtype)
        for right in (False, True):
            yield case(
                lambda x, b, r=right: op.bucketize(x, b, False, r),
                special(dtype),
                boundaries,
                oracle=lambda x, b, r=right: place(x, b, r),
                dtype="int64",
                label=f"{dtype} {right}",
            )
    for count in (0, 1, 2, 31, 32, 33):
        yield case(
            lambda x, b: op.bucketize(x, b, True),
            some((3, 5), low=-40, high=40),
            np.arange(count, dtype="float32"),
            oracle=lambda x, b: place(x, b, False),
            dtype="int32",
            label=f"{count} boundaries",
        )
    infinite = np.array([-INF, -1, 0, INF], "float32")
    for right in (False, True):
        yield case(
            lambda x, b, r=right: op.bucketize(x, b, right=r),
            special("float32"),
            infinite,
            oracle=lambda x, b, r=right: place(x, b, r),
            dtype="int64",
            label="infinite",
        )
    for shape in ((), (0,), (2, 0, 3)):
        yield case(
            op.bucketize,
            some(shape),
            np.array([0.0, 1.0], "float32"),
            oracle=lambda x, b: place(x, b, False),
            dtype="int64",
            label=f"{shape}",
        )
    yield case(
        op.bucketize,
        np.array([0, 1, 2, -3]),
        np.array([-0.5, 0.5, 1.0], "float32"),
        oracle=lambda x, b: place(x, b, False),
        dtype="int64",
        label="mixed",
    )
    yield case(
        op.bucketize,
        np.array([0.5, 1.0, 2.5, -3], "float32"),
        np.array([0, 1, 2]),
        oracle=lambda x, b: place(x, b, False),
        dtype="int64",
        label="mixed",
    )
    runs = [(some((n, 3)), np.arange(m, dtype="float32")) for n, m in ((0, 2), (1, 0), (5, 9))]
    yield case(
        lambda x, b, n, m: op.bucketize(x, b),
        *runs[0],
        dims={0: ("n", 3), 1: ("m",)},
        again=runs[1:],
        oracle=lambda x, b: place(x, b, False),
        dtype="int64",
        label="symbolic",
    )


# -- sorting --


def order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The indices in order, one row after the other by Python's stable sort; NaN is above all."""
    rows = np.moveaxis(exact(x), axis, -1)
    result = np.empty(rows.shape, "int64")
    for place in np.ndindex(rows.shape[:-1]):
        keys = [(v != v, 0 if v != v else v) for v in rows[place].tolist()]
        result[place] = sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)
        if descending:
            # Python keeps the order of equals in reverse as well.
            result[place] = sorted(range(len(keys)), key=lambda i: (not keys[i][0], -keys[i][1]))
    return np.moveaxis(result, -1, axis)


DESCENDING = ("float16", "int8", "uint64", "bool")
ORDERED = [
    ((3, 7), 0),
    ((3, 7), -1),
    ((2, 3, 5), 1),
    ((1,), 0),
    ((0,), 0),
    ((0, 3), 1),
    ((3, 0), 1),
    ((1, 33), 1),
    ((65,), 0),
]


@row("relax.sort")
def sort() -> Iterator[Case]:
    def result(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
        return np.take_along_axis(x, order(x, axis, descending), axis)

    for descending in (False, True):
        for dtype in DESCENDING if descending else ALL:
            yield case(
                lambda x, d=descending: op.sort(x, descending=d),
                special(dtype),
                oracle=lambda x, d=descending: result(x, 0, d),
                ulps=0,
                label=f"{dtype} {descending}",
            )
        for shape, axis in ORDERED:
            yield case(
                lambda x, a=axis, d=descending: op.sort(x, a, d),
                some(shape),
                oracle=lambda x, a=axis, d=descending: result(x, a, d),
                label=f"{shape} {axis} {descending}",
            )
    runs = [(some((n, m)),) for n, m in ((0, 3), (1, 1), (5, 0), (2, 40))]
    yield case(
        lambda x, n, m: op.sort(x, 1),
        *runs[0],
        dims={0: ("n", "m")},
        again=runs[1:],
        oracle=lambda x: result(x, 1, False),
        label="symbolic",
    )


@row("relax.argsort")
def argsort() -> Iterator[Case]:
    for descending in (False, True):
        for dtype in DESCENDING if descending else ALL:
            # Few different values make equals, which stay in order.
            for x in (special(dtype), some(40, dtype, -2, 2)):
                yield case(
                    lambda x, d=descending: op.argsort(x, descending=d),
                    x,
                    oracle=lambda x, d=descending: order(x, 0, d),
                    dtype="int32",
                    label=f"{dtype} {descending}",
                )
        for shape, axis in ORDERED:
            yield case(
                lambda x, a=axis, d=descending: op.argsort(x, a, d, "int64"),
                some(shape),
                oracle=lambda x, a=axis, d=descending: order(x, a, d),
                dtype="int64",
                label=f"{shape} {axis} {descending}",
            )
    for dtype in ("float32", "uint8", "float16"):
        yield case(
            lambda x, t=dtype: op.argsort(x, dtype=t),
            some(9),
            oracle=lambda x: order(x, 0, False),
            dtype=dtype,
            label=f"indices in {dtype}",
        )
    runs = [(some((n, m)),) for n, m in ((0, 3), (1, 1), (5, 0), (2, 40))]
    yield case(
        lambda x, n, m: op.argsort(x, 0),
        *runs[0],
        dims={0: ("n", "m")},
        again=runs[1:],
        oracle=lambda x: order(x, 0, False),
        dtype="int32",
        label="symbolic",
    )


@row("relax.topk")
def topk() -> Iterator[Case]:
    def best(x: np.ndarray, k: int, axis: int, largest: bool) -> list[np.ndarray]:
        count = x.shape[axis] if k < 1 else k
        indices = np.take(order(x, axis, largest), np.arange(count), axis)
        return [np.take_along_axis(x, indices, axis), indices]

    for largest in (False, True):
        for dtype in ALL if largest else DESCENDING:
            yield case(
                lambda x, g=largest: op.topk(x, 3, largest=g),
                special(dtype),
                oracle=lambda x, g=largest: best(x, 3, 0, g),
                dtype=[dtype, "int32"],
                ulps=0,
                label=f"{dtype} {largest}",
            )
        for k in (0, -1, 1, 7, 40):
            yield case(
                lambda x, k=k, g=largest: op.topk(x, k, 1, "both", g, "int64"),
                some((2, 40)),
                oracle=lambda x, k=k, g=largest: best(x, k, 1, g),
                dtype=["float32", "int64"],
                label=f"k={k} {largest}",
            )
        yield case(
            lambda x, g=largest: op.topk(x, 5, 0, "indices", g),
            some((40, 2), "int8"),
            oracle=lambda x, g=largest: best(x, 5, 0, g)[1],
            dtype="int32",
            label="equals",
        )
    for shape, axis, k in (((1,), 0, 1), ((0,), 0, 0), ((0, 3), 1, 2), ((3, 0), 1, 0), ((2, 3, 5), -2, 2)):
        yield case(
            lambda x, a=axis, k=k: op.topk(x, k, a, "values"),
            some(shape),
            oracle=lambda x, a=axis, k=k: best(x, k, a, True)[0],
            label=f"{shape} {axis} {k}",
        )
    for k in (0, 3, 33):
        runs = [(some((n, m)),) for n, m in ((0, 50), (1, 33), (5, 40))]
        yield case(
            lambda x, n, m, k=k: op.topk(x, k, 1),
            *runs[0],
            dims={0: ("n", "m")},
            again=runs[1:],
            oracle=lambda x, k=k: best(x, k, 1, True),
            dtype=["float32", "int32"],
            label=f"symbolic {k}",
        )


# -- sets --


def distinct(x: np.ndarray, axis: int | None, ordered: bool) -> tuple[list[Any], list[int], list[int], list[int]]:
    """The different values (or slices), where each first is, which one each is, how often each is."""
    parts = [p.tolist() for p in (x.ravel() if axis is None else np.moveaxis(x, axis, 0))]
    values: list[Any] = []
    for part in parts:
        if part not in values:
            values.append(part)
    if ordered:
        values.sort()
    which = [values.index(p) for p in parts]
    return values, [which.index(i) for i in range(len(values))], which, [which.count(i) for i in range(len(values))]


@row("relax.unique")
def unique() -> Iterator[Case]:
    def of(x: np.ndarray, axis: int | None, ordered: bool, flags: tuple[bool, ...]) -> list[np.ndarray]:
        values, *more = distinct(x, axis, ordered)
        if axis is None:
            made = np.array(values, x.dtype)
        else:
            made = np.moveaxis(np.array(values, x.dtype).reshape(-1, *np.moveaxis(x, axis, 0).shape[1:]), 0, axis)
        return [made, *(np.array(v, "int64") for v, wanted in zip(more, flags, strict=True) if wanted)]

    for dtype in ALL:
        yield case(op.unique, some((3, 5), dtype, -3, 3), oracle=lambda x: of(x, None, True, (False,) * 3), label=dtype)
    for dtype in FLOATS:
        # NaNs are one value, the last; so are both zeros, of which the first stays.
        x = special(dtype)[[0, 1, 0, 3, 4, 2, 1]]
        yield case(op.unique, x, oracle=lambda x: x[[5, 3, 1, 0]], label=f"special {dtype}")
    x = np.array([[3, 1, 3, 1], [2, 2, 2, 2], [3, 1, 3, 1]], "int32")
    for ordered, axis in itertools.product((True, False), (None, 0, 1, -1)):
        for flags in itertools.product((False, True), repeat=3):
            yield case(
                lambda x, o=ordered, f=flags, a=axis: op.unique(x, o, *f, a),
                x,
                oracle=lambda x, o=ordered, f=flags, a=axis: of(x, a, o, f),
                dtype=["int32", *["int64"] * sum(flags)],
                label=f"{ordered} {flags} {axis}",
            )
    for shape in ((), (0,), (1,), (2, 0), (100,)):
        yield case(
            lambda x: op.unique(x, True, True, True, True),
            some(shape),
            oracle=lambda x: of(x, None, True, (True,) * 3),
            dtype=["float32", *["int64"] * 3],
            label=f"{shape}",
        )


@row("relax.nonzero")
def nonzero() -> Iterator[Case]:
    def places(x: np.ndarray) -> np.ndarray:
        """Those of a scalar are those of a vector of one element."""
        whole = x.reshape(1) if x.ndim == 0 else x
        found = [p for p in np.ndindex(whole.shape) if whole[p] != 0]
        return np.array(found, "int64").reshape(-1, whole.ndim).T

    for dtype in ALL:
        yield case(op.nonzero, special(dtype), oracle=places, dtype="int64", label=dtype)
    for shape in ((), (0,), (1,), (2, 0, 3), (3, 4), (2, 3, 5)):
        yield case(op.nonzero, some(shape, "int8", 0, 1), oracle=places, dtype="int64", label=f"{shape}")


# -- samples --


@row("relax.multinomial_from_uniform")
def multinomial_from_uniform() -> Iterator[Case]:
    def drawn(prob: np.ndarray, uniform: np.ndarray, rows: np.ndarray) -> np.ndarray:
        result = []
        for number, which in zip(wide(uniform)[:, 0].tolist(), rows[:, 0].tolist(), strict=True):
            sums = itertools.accumulate(wide(prob)[which].tolist())
            below = sum(s <= number for s in sums)
            result.append(min(below, prob.shape[1] - 1))
        return np.array(result, "int64").reshape(-1, 1)

    for dtype in FLOATS:
        prob = np.array([[0.25, 0.25, 0.5], [0, 1, 0], [0.5, 0, 0.5]], dtype)
        uniform = np.array([[0.0], [0.25], [0.5], [0.999], [0.0], [0.5], [2.0]], dtype)
        for index in ("int64", "int32"):
            rows = np.array([[0], [0], [0], [0], [1], [2], [2]], index)
            yield case(
                lambda p, u, r: op.multinomial_from_uniform(p, u, r, "int32"),
                prob,
                uniform,
                rows,
                oracle=drawn,
                dtype="int32",
                label=f"{dtype} {index}",
            )
    prob = np.array([[0.25, 0.75]], "float32")
    runs = [(prob, some((n, 1), low=0, high=1), np.zeros((n, 1), "int64")) for n in (0, 1, 17)]
    yield case(
        lambda p, u, r, n: op.multinomial_from_uniform(p, u, r),
        *runs[0],
        dims={1: ("n", 1), 2: ("n", 1)},
        again=runs[1:],
        oracle=drawn,
        dtype="int64",
        label="symbolic",
    )


# -- refusals --


def tensors(*shapes: Any, dtype: str = "float32") -> list[relax.Var]:
    """Variables of these shapes."""
    return [var(shape, dtype, name=f"x{i}") for i, shape in enumerate(shapes)]


A, B, V = tensors((2, 3, 4), (4, 5), (3,))
INTEGERS = var((2, 3), "int32")
SHAPE = relax.Var("s", relax.ShapeStructInfo([2, 3]))
AXES = (
    "sum",
    "prod",
    "max",
    "min",
    "mean",
    "variance",
    "std",
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "sort",
    "argsort",
)


@pytest.mark.parametrize("name", AXES)
def test_axes_that_are_none_are_refused(name: str) -> None:
    function = getattr(op, name)
    for axis in (3, -4):
        message = f"relax.{name}: axis {axis} is outside of a tensor of 3 dimensions (allowed: -3 to 2)"
        with pytest.raises(InvalidValue, match=re.escape(message)):
            infer(function(A, axis))
    with pytest.raises(InvalidValue, match=re.escape(f"relax.{name}: axis 0 is outside of a tensor of 0 dimensions")):
        infer(function(var(()), 0))
    with pytest.raises(TypeMismatch, match=re.escape(f"relax.{name}: argument 0 must be a tensor, found `s`")):
        infer(function(SHAPE, 0))
    with pytest.raises(TypeMismatch, match=re.escape(f"relax.{name}: expected an integer, found 'x'")):
        function(A, "x")


@pytest.mark.parametrize("name", AXES[:7])
def test_axes_given_twice_are_refused(name: str) -> None:
    for axes in ([0, 0], [1, -2]):
        message = f"relax.{name}: axes {axes} name a dimension of the 3 twice"
        with pytest.raises(InvalidValue, match=re.escape(message)):
            infer(getattr(op, name)(A, axes))


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: op.matmul(A, V),
        "relax.matmul: the last extent of x1 and the only extent of x2 must be equal, found 4 and 3 in the shapes [2, 3, 4] and [3]",
    ),
    (
        lambda: op.matmul(A, A),
        "relax.matmul: the last extent of x1 and the second last extent of x2 must be equal, found 4 and 3",
    ),
    (lambda: op.matmul(A, var(())), "relax.matmul: expected tensors of at least one dimension, found a scalar"),
    (
        lambda: op.matmul(var((3, 2, 3)), var((2, 3, 4))),
        "relax.matmul: shapes (3) and (2) cannot be broadcast: extents 3 and 2",
    ),
    (
        lambda: op.matmul(var((2, 2)), INTEGERS),
        "relax.matmul: expected arguments of one dtype, found float32 and int32",
    ),
    (lambda: op.matmul(A, SHAPE), "relax.matmul: argument x2 must be a tensor, found `s`"),
    (lambda: op.outer(V, B), "relax.outer: expected two vectors, found a tensor of 2 dimensions"),
    (lambda: op.outer(V, var((3,), "int8")), "relax.outer: expected arguments of one dtype, found float32 and int8"),
    (lambda: op.einsum((B, V), "ij,jk->ik"), "relax.einsum: the subscripts 'jk' do not fit a tensor of 1 dimensions"),
    (lambda: op.einsum((B, B), "ij,jk->ik"), "relax.einsum: the subscript 'j' stands for the extents 5 and 4"),
    (lambda: op.einsum((B,), "ij,jk->ik"), "relax.einsum: the subscripts 'ij,jk->ik' are for 2 tensors, found 1"),
    (lambda: op.einsum((), "->"), "relax.einsum: expected at least one tensor, found none"),
    (
        lambda: op.einsum((B,), "ij->k"),
        "relax.einsum: each label of the result must be one of an operand, and stand once, found 'ij->k'",
    ),
    (
        lambda: op.einsum((B,), "ij->ii"),
        "relax.einsum: each label of the result must be one of an operand, and stand once, found 'ij->ii'",
    ),
    (
        lambda: op.einsum((B,), "i1->i"),
        "relax.einsum: expected subscripts such as 'ij,jk->ik' or '...ij->...ji', found 'i1->i'",
    ),
    (
        lambda: op.einsum((V,), "...ij->i"),
        "relax.einsum: the subscripts '...ij' of '...ij->i' do not fit the shape (3,)",
    ),
    (
        lambda: op.einsum((B, var((5, 2), "int8")), "ij,jk->ik"),
        "relax.einsum: expected arguments of one dtype, found float32 and int8",
    ),
    (lambda: op.topk(A, 5), "relax.topk: k=5 is more than the 4 elements along axis 2"),
    (lambda: op.topk(A, 1, 3), "relax.topk: axis 3 is outside of a tensor of 3 dimensions"),
    (
        lambda: op.topk(A, 1, ret_type="all"),
        'relax.topk: expected ret_type "both", "values" or "indices", found \'all\'',
    ),
    (lambda: op.unique(A, axis=3), "relax.unique: axis 3 is outside of a tensor of 3 dimensions"),
    (lambda: op.nonzero(SHAPE), "relax.nonzero: argument 0 must be a tensor, found `s`"),
    (lambda: op.bucketize(A, B), "relax.bucketize: argument boundaries must have one dimension, found 2"),
    (lambda: op.bucketize(SHAPE, V), "relax.bucketize: argument input_tensor must be a tensor, found `s`"),
    (lambda: op.where(A, A, A), "relax.where: the condition must be a tensor of bools, found dtype float32"),
    (
        lambda: op.where(var((4,), "bool"), var((4,)), V),
        "relax.where: shapes (4) and (3) cannot be broadcast: extents 4 and 3",
    ),
    (
        lambda: op.multinomial_from_uniform(INTEGERS, var((4, 1)), var((4, 1), "int64")),
        "relax.multinomial_from_uniform: argument prob must be a tensor of floats, found dtype int32",
    ),
    (
        lambda: op.multinomial_from_uniform(B, var((4, 1)), var((4, 1))),
        "relax.multinomial_from_uniform: argument sample_indices must",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_refusals(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())


def test_dtypes_that_an_operator_is_not_for_are_refused() -> None:
    for name, dtype, kind in (
        ("mean", "bool", "numbers"),
        ("variance", "bool", "numbers"),
        ("std", "int32", "floats"),
        ("matmul", "bool", "numbers"),
    ):
        inputs = [var((3,), dtype, name=f"x{i}") for i in range(2 if name == "matmul" else 1)]
        builder = relax.BlockBuilder()
        with builder.function("main", inputs):
            builder.emit_func_output(builder.emit(getattr(op, name)(*inputs)))
        message = f"relax.{name}: expected {kind}, found argument 0 of dtype {dtype}; convert it with astype"
        with pytest.raises(TypeMismatch, match=re.escape(message)):
            relax.transform.LegalizeOps()(builder.finalize())


def test_more_elements_than_there_are_when_the_program_runs_are_refused() -> None:
    builder = relax.BlockBuilder()
    x = var((tir.Var("m", "int64"), tir.Var("n", "int64")))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.topk(x, 5)))
    main = relax.VirtualMachine(oneir.compile(builder.finalize(), "llvm"), oneir.cpu())["main"]
    assert main(oneir.runtime.tensor(some((2, 5))))[0].shape == (2, 5)
    for shape in ((2, 4), (3, 0)):
        message = "topk: expected k of at most the number of elements along axis 1, found 5"
        with pytest.raises(OneIRError, match=re.escape(message)):
            main(oneir.runtime.tensor(some(shape)))
