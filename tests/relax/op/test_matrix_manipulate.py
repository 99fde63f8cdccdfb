"""Operators that move elements, over dtypes and odd shapes: a row an operator, each row one compiled program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from op_cases import (
    ALL,
    INTS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Case,
    Table,
    case,
    check_cases,
    in_float64,
    ints,
    operators_of,
    some,
)

from oneir import relax, tir
from oneir.relax import op

ROWS = Table()
row = ROWS.row
ODD = ((), (0,), (1,), (5, 0), (0, 1), (1, 1, 1), (17,), (3, 1, 7), (2, 0, 4))


def test_every_operator_has_a_row() -> None:
    found = operators_of("manipulate", "index", "gather", "scatter", "layout_transform", "memory")
    assert found | {"relax.memory.view"} == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_cases(name: str) -> None:
    check_cases(list(ROWS[name]()))


def over_dtypes(
    make: Callable[..., Any], shape: tuple[int, ...], oracle: Callable[..., Any], dtypes: Sequence[str] = ALL
) -> Iterator[Case]:
    """One case for each dtype."""
    for dtype in dtypes:
        yield case(make, some(shape, dtype), oracle=oracle)


# -- shapes --


@row("relax.broadcast_to")
def broadcast_to() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.broadcast_to(x, (3, 5, 7)), (5, 1), lambda x: np.broadcast_to(x, (3, 5, 7)))
    for shape, to in (((), (2, 3)), ((), ()), ((1,), (0,)), ((0, 1), (0, 17)), ((1, 0), (5, 0)), ((1, 1), (2, 1, 33))):
        yield case(lambda x, to=to: op.broadcast_to(x, to), some(shape), oracle=lambda x, to=to: np.broadcast_to(x, to))
    yield case(
        lambda x, n: op.broadcast_to(x, (2, n, 3)),
        some((4, 1)),
        oracle=lambda x: np.broadcast_to(x, (2, len(x), 3)),
        dims={0: ("n", 1)},
        again=[(some((0, 1)),), (some((1, 1)),), (some((19, 1)),)],
    )


@row("relax.reshape")
def reshape() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.reshape(x, (5, -1)), (2, 5, 3), lambda x: x.reshape(5, 6))
    for shape, to in (((), (1, 1)), ((1, 1), ()), ((0, 3), (0, 1, 3)), ((7,), (7, 1)), ((3, 11), (11, 3))):
        yield case(lambda x, to=to: op.reshape(x, to), some(shape), oracle=lambda x, to=to: x.reshape(to))
    yield case(
        lambda x, n: op.reshape(x, (-1, 6)),
        some((4, 3)),
        oracle=lambda x: x.reshape(-1, 6),
        dims={0: ("n", 3)},
        again=[(some((0, 3)),), (some((2, 3)),), (some((18, 3)),)],
    )
    yield case(
        lambda x, n: op.reshape(op.permute_dims(x), (n * 5, 1)),
        some((4, 5)),
        oracle=lambda x: x.T.reshape(-1, 1),
        dims={0: ("n", 5)},
        again=[(some((0, 5)),), (some((1, 5)),)],
    )


@row("relax.flatten")
def flatten() -> Iterator[Case]:
    yield from over_dtypes(op.flatten, (2, 3, 5), lambda x: x.ravel())
    for shape in ODD:
        yield case(op.flatten, some(shape), oracle=lambda x: x.ravel())
    yield case(
        lambda x, n: op.flatten(x),
        some((4, 3)),
        oracle=lambda x: x.ravel(),
        dims={0: ("n", 3)},
        again=[(some((0, 3)),), (some((1, 3)),)],
    )


@row("relax.expand_dims")
def expand_dims() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.expand_dims(x, [-1, 0]), (2, 3), lambda x: x[None, :, :, None])
    for shape in ODD:
        yield case(lambda x: op.expand_dims(x, -1), some(shape), oracle=lambda x: np.expand_dims(x, -1))
    yield case(lambda x: op.expand_dims(x, [-2, 3]), some((5, 0)), oracle=lambda x: np.expand_dims(x, (-2, 3)))
    yield case(lambda x: op.expand_dims(x, []), some((5,)), oracle=lambda x: x)


@row("relax.squeeze")
def squeeze() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.squeeze(x, -2), (3, 1, 5), lambda x: x[:, 0])
    for shape in ODD:
        yield case(op.squeeze, some(shape), oracle=np.squeeze)
    yield case(lambda x: op.squeeze(x, [0, -1]), some((1, 7, 1)), oracle=lambda x: x[0, :, 0])
    yield case(lambda x: op.squeeze(x, []), some((1, 7)), oracle=lambda x: x)
    yield case(
        lambda x, n: op.squeeze(x, 1),
        some((4, 1)),
        oracle=lambda x: x[:, 0],
        dims={0: ("n", 1)},
        again=[(some((0, 1)),), (some((1, 1)),)],
    )


@row("relax.permute_dims")
def permute_dims() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.permute_dims(x, [-1, 0, 1]), (2, 5, 19), lambda x: x.transpose(2, 0, 1))
    for shape in ODD:
        yield case(op.permute_dims, some(shape), oracle=np.transpose)
    for order in itertools.permutations(range(3)):
        yield case(
            lambda x, order=order: op.permute_dims(x, order),
            some((17, 1, 33)),
            oracle=lambda x, order=order: x.transpose(order),
        )
    yield case(
        lambda x, n: op.permute_dims(x),
        some((4, 3)),
        oracle=lambda x: x.T,
        dims={0: ("n", 3)},
        again=[(some((0, 3)),), (some((1, 3)),), (some((37, 3)),)],
    )


# -- joining and cutting --


@row("relax.concat")
def concat() -> Iterator[Case]:
    for dtype in ALL:
        parts = [some((2, n, 3), dtype, seed=n) for n in (5, 0, 1)]
        yield case(lambda x: op.concat(x, -2), parts, oracle=lambda x: np.concatenate(x, 1))
    for shapes, axis in (
        (((0,), (0,)), 0),
        (((3,),), 0),
        (((0, 3), (0, 3)), 1),
        (((2, 0), (2, 17), (2, 0)), -1),
        (((1, 1), (16, 1), (15, 1)), 0),
    ):
        yield case(
            lambda x, axis=axis: op.concat(x, axis),
            [some(s, seed=i) for i, s in enumerate(shapes)],
            oracle=lambda x, axis=axis: np.concatenate(x, axis),
        )
    yield case(lambda x: op.concat(x, None), [some(3), some(0), some(4)], oracle=np.concatenate)
    yield case(
        lambda x, y, n, m: op.concat([x, y], 0),
        some((4, 3)),
        some((2, 3)),
        oracle=lambda x, y: np.concatenate([x, y]),
        dims={0: ("n", 3), 1: ("m", 3)},
        again=[(some((0, 3)), some((1, 3))), (some((5, 3)), some((0, 3))), (some((0, 3)), some((0, 3)))],
    )


@row("relax.stack")
def stack() -> Iterator[Case]:
    for dtype in ALL:
        parts = [some((2, 3), dtype, seed=n) for n in range(3)]
        yield case(lambda x: op.stack(x, -1), parts, oracle=lambda x: np.stack(x, -1))
    for shape in ODD[::2]:
        yield case(lambda x: op.stack(x, 0), [some(shape), some(shape, seed=1)], oracle=np.stack)
    yield case(lambda x: op.stack(x, 1), [some((5, 0))], oracle=lambda x: np.stack(x, 1))
    yield case(
        lambda x, y, n: op.stack([x, y], 1),
        some((4, 3)),
        some((4, 3), seed=1),
        oracle=lambda x, y: np.stack([x, y], 1),
        dims={0: ("n", 3), 1: ("n", 3)},
        again=[(some((0, 3)), some((0, 3))), (some((1, 3)), some((1, 3)))],
    )


def parts_of(x: np.ndarray, cuts: Any, axis: int) -> list[np.ndarray]:
    """Parts as they are defined: each element goes where its index is."""
    size = x.shape[axis]
    if isinstance(cuts, int):
        each = -(-size // cuts)
        cuts = [each * i for i in range(1, cuts)]
    bounds = [0, *(min(c, size) for c in cuts), size]
    return [np.take(x, range(a, b), axis) for a, b in itertools.pairwise(bounds)]


@row("relax.split")
def split() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.split(x, 3, -1), (2, 7), lambda x: parts_of(x, 3, 1))
    for shape, cuts, axis in (
        ((8,), 4, 0),
        ((5,), 4, 0),
        ((2,), 5, 0),
        ((0, 3), 2, 0),
        ((3, 0), 2, 0),
        ((9, 2), [0, 0, 4, 4], 0),
        ((9, 2), [3, 9, 12], 0),
        ((2, 9), [7], -1),
        ((1,), [0], 0),
    ):
        yield case(
            lambda x, cuts=cuts, axis=axis: op.split(x, cuts, axis),
            some(shape),
            oracle=lambda x, cuts=cuts, axis=axis: parts_of(x, cuts, axis),
        )
    yield case(lambda x: op.split(x, 1), some((4, 3)), oracle=lambda x: x)
    for cuts in (2, 3, [1, 3], [0, 2]):
        # Three equal parts need enough elements for the first two.
        sizes = (0, 3, 5, 8) if cuts == 3 else (0, 1, 2, 7)
        yield case(
            lambda x, n, cuts=cuts: op.split(x, cuts, 0),
            some((6, 3)),
            oracle=lambda x, cuts=cuts: parts_of(x, cuts, 0),
            dims={0: ("n", 3)},
            again=[(some((n, 3)),) for n in sizes],
        )


@row("relax.repeat")
def repeat() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.repeat(x, 3, -1), (2, 5), lambda x: np.repeat(x, 3, 1))
    for shape in ODD:
        yield case(lambda x: op.repeat(x, 2), some(shape), oracle=lambda x: np.repeat(x, 2))
    for times, axis in ((0, 0), (0, None), (1, 1), (7, -2)):
        yield case(
            lambda x, t=times, a=axis: op.repeat(x, t, a),
            some((3, 5)),
            oracle=lambda x, t=times, a=axis: np.repeat(x, t, a),
        )
    yield case(
        lambda x, n: op.repeat(x, 2, 0),
        some((4, 3)),
        oracle=lambda x: np.repeat(x, 2, 0),
        dims={0: ("n", 3)},
        again=[(some((0, 3)),), (some((1, 3)),)],
    )


@row("relax.tile")
def tile() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.tile(x, (2, 1, 3)), (2, 5), lambda x: np.tile(x, (2, 1, 3)))
    for shape in ODD:
        yield case(lambda x: op.tile(x, 2), some(shape), oracle=lambda x: np.tile(x, 2))
    for times in ((0,), (0, 2), (2, 0), (1, 1, 1)):
        yield case(lambda x, t=times: op.tile(x, t), some((3, 5)), oracle=lambda x, t=times: np.tile(x, t))
    yield case(
        lambda x, n: op.tile(x, (2, 2)),
        some((4, 3)),
        oracle=lambda x: np.tile(x, (2, 2)),
        dims={0: ("n", 3)},
        again=[(some((0, 3)),), (some((1, 3)),)],
    )


@row("relax.flip")
def flip() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.flip(x, -1), (2, 19), lambda x: x[:, ::-1])
    for shape in ODD[1:]:
        yield case(lambda x: op.flip(x, 0), some(shape), oracle=lambda x: x[::-1])
    yield case(
        lambda x, n: op.flip(x, 0),
        some((4, 3)),
        oracle=lambda x: x[::-1],
        dims={0: ("n", 3)},
        again=[(some((0, 3)),), (some((1, 3)),)],
    )


def summed(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sums over what broadcasting of `shape` repeats; integers wrap."""
    exact = x.astype(np.int64 if x.dtype.kind in "iu" else np.float64)
    for _ in range(x.ndim - len(shape)):
        exact = exact.sum(0)
    for axis, extent in enumerate(shape):
        if extent == 1:
            exact = exact.sum(axis, keepdims=True)
    return exact.astype(x.dtype) if x.dtype.kind in "iu" else exact


@row("relax.collapse_sum_to")
def collapse_sum_to() -> Iterator[Case]:
    for dtype in NUMBERS:
        x = some((3, 5, 7), dtype, -120, 120) if dtype in INTS else some((3, 5, 7), dtype)
        tolerance = 0.1 if dtype == "bfloat16" else 2e-2 if dtype == "float16" else None
        yield case(lambda x: op.collapse_sum_to(x, (5, 1)), x, oracle=lambda x: summed(x, (5, 1)), tolerance=tolerance)
    for shape, to in (((), ()), ((5, 0), (5, 1)), ((0, 3), (1, 3)), ((0, 3), ()), ((1, 1), (1,)), ((33, 19), (19,))):
        yield case(lambda x, to=to: op.collapse_sum_to(x, to), some(shape), oracle=lambda x, to=to: summed(x, to))
    yield case(
        lambda x, n: op.collapse_sum_to(x, (1, 3)),
        some((4, 3)),
        oracle=lambda x: summed(x, (1, 3)),
        dims={0: ("n", 3)},
        again=[(some((0, 3)),), (some((1, 3)),), (some((40, 3)),)],
    )


@row("relax.collapse_sum_like")
def collapse_sum_like() -> Iterator[Case]:
    for dtype in ("float32", "float64", "int8", "uint16"):
        yield case(
            op.collapse_sum_like,
            some((4, 3, 5), dtype),
            some((3, 1), dtype),
            oracle=lambda x, like: summed(x, like.shape),
        )
    yield case(
        lambda x, like, n: op.collapse_sum_like(x, like),
        some((2, 4)),
        some((4,)),
        oracle=lambda x, like: summed(x, like.shape),
        dims={0: (2, "n"), 1: ("n",)},
        again=[(some((2, 0)), some((0,))), (some((2, 1)), some((1,)))],
    )


# -- parts --


@row("relax.strided_slice")
def strided_slice() -> Iterator[Case]:
    yield from over_dtypes(lambda x: op.strided_slice(x, [1], [9], [0], [-2]), (2, 11), lambda x: x[:, 9:0:-2])
    far = 2**40
    bounds = [
        (begin, end, step)
        for begin in (-far, -7, -1, 0, 2, 6, far)
        for end in (-far, -2, 0, 5, far)
        for step in (1, -3)
    ]
    # Two slices in a call keep the kernels few.
    for first, second in zip(bounds[::2], bounds[1::2], strict=True):
        begin, end, step = ([a, b] for a, b in zip(first, second, strict=True))
        yield case(
            lambda x, b=begin, e=end, s=step: op.strided_slice(x, [0, 1], b, e, s),
            some((6, 7)),
            oracle=lambda x, f=first, s=second: x[range_of(6, *f)][:, range_of(7, *s)],
        )
    yield case(lambda x: op.strided_slice(x, [0], [0], [9]), some((0, 3)), oracle=lambda x: x)
    yield case(lambda x: op.strided_slice(x, [], [], []), some((2, 3)), oracle=lambda x: x)
    for begin, end, step in ((1, 5, 2), (-3, 2**31, 1), (4, -99, -1), (-1, -(2**40), -2), (2, 2, 1), (6, 1, 1)):
        yield case(
            lambda x, n, b=begin, e=end, s=step: op.strided_slice(x, [0], [b], [e], [s]),
            some((6, 3)),
            oracle=lambda x, b=begin, e=end, s=step: x[range_of(len(x), b, e, s)],
            dims={0: ("n", 3)},
            again=[(some((n, 3)),) for n in (0, 1, 2, 9)],
        )
    yield case(
        lambda x, y, n: op.strided_slice(x, [0], [1], [n]),
        some((6, 3)),
        some((4,)),
        oracle=lambda x, y: x[1 : len(y)],
        dims={1: ("n",)},
        again=[(some((6, 3)), some((n,))) for n in (0, 1, 6, 9)],
    )


def range_of(size: int, begin: int, end: int, step: int) -> list[int]:
    """Which indices a slice takes: bounds count from the end where negative, once, and are cut to the extent."""
    begin, end = (b + size if b < 0 else b for b in (begin, end))
    inside = [0, size] if step > 0 else [-1, size - 1]
    begin, end = (min(max(b, inside[0]), inside[1]) for b in (begin, end))
    return list(range(begin, end, step))


@row("relax.dynamic_strided_slice")
def dynamic_strided_slice() -> Iterator[Case]:
    def oracle(x: np.ndarray, begin: Any, end: Any, step: Any) -> np.ndarray:
        for axis, bounds in enumerate(zip(begin.tolist(), end.tolist(), step.tolist(), strict=True)):
            x = np.take(x, range_of(x.shape[axis], *bounds), axis)
        return x

    def vectors(*values: tuple[int, int]) -> list[np.ndarray]:
        return [np.array(v, "int64") for v in values]

    yield from (
        case(
            op.dynamic_strided_slice,
            some((5, 7), dtype),
            *vectors((1, -1), (-1, 0), (2, -3)),
            oracle=oracle,
        )
        for dtype in ALL
    )
    runs = [
        ((0, 0), (5, 7), (1, 1)),
        ((-99, 99), (99, -99), (1, -1)),
        ((4, 3), (4, 3), (1, 1)),
        ((99, 0), (-99, 7), (-2, 4)),
    ]
    yield case(
        op.dynamic_strided_slice,
        some((5, 7)),
        *vectors(*runs[0]),
        oracle=oracle,
        again=[(some((5, 7)), *vectors(*r)) for r in runs[1:]],
    )
    yield case(
        lambda x, b, e, s, n: op.dynamic_strided_slice(x, b, e, s),
        some((5, 7)),
        *vectors((1, 0), (9, 7), (1, 2)),
        oracle=oracle,
        dims={0: ("n", 7)},
        again=[(some((n, 7)), *vectors((-2, 6), (9, -8), (1, -1))) for n in (0, 1, 3)],
    )


# -- indices --

LIMITS = {d: (np.iinfo(d).min, np.iinfo(d).max) for d in INTS}


@row("relax.take")
def take() -> Iterator[Case]:
    for dtype in ALL:
        yield case(lambda x, i: op.take(x, i, 1), some((3, 5, 2), dtype), ints((2, 2), 5), oracle=lambda x, i: x[:, i])
    for dtype in ("int8", "int32", "int64", "uint8", "uint32", "uint64"):
        low, high = LIMITS[dtype]
        outside = np.array([0, 1, 2, 3, 4, 9, high, high - 1, low, low + 1], dtype)
        outside = np.concatenate([outside, np.array([-1, -3, -4], dtype)]) if low else outside
        x, wide = some((3, 2)), outside.tolist()
        yield case(
            lambda x, i: op.take(x, i, 0, "clip"),
            x,
            outside,
            oracle=lambda x, i, wide=wide: x[[min(max(k, 0), 2) for k in wide]],
        )
        yield case(
            lambda x, i: op.take(x, i, 0, "wrap"),
            x,
            outside,
            oracle=lambda x, i, wide=wide: x[[k % 3 for k in wide]],
        )
        yield case(
            lambda x, i: op.take(x, i, 0, "nan"),
            x,
            outside,
            oracle=lambda x, i, wide=wide: np.stack([x[k] if 0 <= k < 3 else [np.nan] * 2 for k in wide]),
        )
    # Extents that indices of the dtype cannot hold.
    small = np.array([0, 1, 127, -128, -1], "int8")
    for mode, places in (("clip", [0, 1, 127, 0, 0]), ("wrap", [0, 1, 127, 172, 299])):
        yield case(lambda x, i, m=mode: op.take(x, i, 0, m), some((300,)), small, oracle=lambda x, i, p=places: x[p])
    yield case(lambda x, i: op.take(x, i), some((9,)), ints((0,), 9), oracle=lambda x, i: x[i])
    yield case(lambda x, i: op.take(x, i), some((9,)), np.asarray(4, "int32"), oracle=lambda x, i: x[i])
    yield case(lambda x, i: op.take(x, i, -1), some((3, 0, 5)), ints((3, 1), 5), oracle=lambda x, i: x[..., i])
    yield case(lambda x: op.take(x, relax.PrimValue(2), -1), some((3, 5)), oracle=lambda x: x[:, 2])
    yield case(
        lambda x, i, n, m: op.take(x, i, 0),
        some((4, 3)),
        ints((5,), 4),
        oracle=lambda x, i: x[i],
        dims={0: ("n", 3), 1: ("m",)},
        again=[(some((1, 3)), ints((2,), 1)), (some((4, 3)), ints((0,), 4)), (some((0, 3)), ints((0,), 1))],
    )


@row("relax.gather_elements")
def gather_elements() -> Iterator[Case]:
    def oracle(axis: int) -> Callable[..., np.ndarray]:
        def computed(x: np.ndarray, i: np.ndarray) -> np.ndarray:
            result = np.zeros(i.shape, x.dtype)
            for place in np.ndindex(i.shape):
                source = list(place)
                source[axis] = i[place]
                result[place] = x[tuple(source)]
            return result

        return computed

    for dtype, index in zip(ALL, itertools.cycle(INTS)):
        yield case(
            lambda x, i: op.gather_elements(x, i, -1), some((3, 5), dtype), ints((2, 7), 5, index), oracle=oracle(1)
        )
    for shape, taken in (((5,), (0,)), ((3, 1), (1, 1)), ((2, 3, 4), (2, 1, 3)), ((0, 3), (0, 2))):
        last = len(shape) - 1
        yield case(
            lambda x, i, a=last: op.gather_elements(x, i, a), some(shape), ints(taken, shape[-1]), oracle=oracle(last)
        )
    yield case(
        lambda x, i, n, m: op.gather_elements(x, i, 0),
        some((4, 3)),
        ints((5, 3), 4),
        oracle=oracle(0),
        dims={0: ("n", 3), 1: ("m", 3)},
        again=[(some((4, 3)), ints((0, 3), 4)), (some((1, 3)), ints((2, 3), 1))],
    )


@row("relax.gather_nd")
def gather_nd() -> Iterator[Case]:
    def oracle(batch: int) -> Callable[..., np.ndarray]:
        def computed(x: np.ndarray, i: np.ndarray) -> np.ndarray:
            rest = x.shape[batch + i.shape[-1] :]
            result = np.zeros((*i.shape[:-1], *rest), x.dtype)
            for place in np.ndindex(i.shape[:-1]):
                result[place] = x[(*place[:batch], *i[place].tolist())]
            return result

        return computed

    for dtype, index in zip(ALL, itertools.cycle(INTS)):
        yield case(op.gather_nd, some((3, 3, 2), dtype), ints((5, 2), 3, index), oracle=oracle(0))
    for shape, places, batch in (
        ((3, 3), (0, 2), 0),
        ((3, 3), (2,), 0),
        ((2, 4, 3), (2, 5, 1), 1),
        ((2, 4, 3), (2, 2), 1),
        ((2, 3, 4), (2, 3, 6, 1), 2),
        ((4, 0), (2, 1), 0),
    ):
        yield case(
            lambda x, i, b=batch: op.gather_nd(x, i, b), some(shape), ints(places, 3, seed=1), oracle=oracle(batch)
        )
    yield case(
        lambda x, i, n, m: op.gather_nd(x, i),
        some((4, 3)),
        ints((5, 2), 3),
        oracle=oracle(0),
        dims={0: ("n", 3), 1: ("m", 2)},
        again=[(some((4, 3)), ints((0, 2), 3)), (some((3, 3)), ints((1, 2), 3))],
    )


@row("relax.index_tensor")
def index_tensor() -> Iterator[Case]:
    def oracle(x: np.ndarray, places: list[np.ndarray]) -> np.ndarray:
        return x[tuple(p.astype(np.int64) for p in places)]

    for dtype, index in zip(ALL, itertools.cycle(INTS)):
        yield case(op.index_tensor, some((3, 4, 2), dtype), [ints((2, 1), 3), ints((5,), 4, index)], oracle=oracle)
    for shape, places in (
        ((5,), [(0,)]),
        ((5, 3), [(), (2, 3)]),
        ((3, 0), [(2,)]),
        ((3, 4), [(1, 1), (7,)]),
        ((4,), [()]),
    ):
        yield case(op.index_tensor, some(shape), [ints(p, 3) for p in places], oracle=oracle)
    yield case(
        lambda x, i, n, m: op.index_tensor(x, i),
        some((4, 3)),
        [ints((5,), 4)],
        oracle=oracle,
        dims={0: ("n", 3), 1: ("m",)},
        again=[(some((4, 3)), [ints((0,), 4)]), (some((1, 3)), [ints((2,), 1)])],
    )


def grids(vectors: list[np.ndarray], indexing: Any) -> list[np.ndarray]:
    return list(np.meshgrid(*vectors, indexing=indexing))


@row("relax.meshgrid")
def meshgrid() -> Iterator[Case]:
    for dtype in ALL:
        yield case(op.meshgrid, [some(3, dtype), some(5, dtype)], oracle=lambda x: np.meshgrid(*x, indexing="ij"))
    for sizes, indexing in (((1,), "ij"), ((0, 3), "ij"), ((3, 0, 2), "xy"), ((1, 17), "xy"), ((4, 3, 2), "ij")):
        yield case(
            lambda x, i=indexing: op.meshgrid(x, i),
            [some(n, seed=k) for k, n in enumerate(sizes)],
            oracle=lambda x, i=indexing: grids(x, i),
        )
    yield case(
        lambda x, y, n, m: op.meshgrid([x, y]),
        some(3),
        some(4),
        oracle=lambda x, y: np.meshgrid(x, y, indexing="ij"),
        dims={0: ("n",), 1: ("m",)},
        again=[(some(0), some(2)), (some(1), some(0))],
    )


@row("relax.one_hot")
def one_hot() -> Iterator[Case]:
    def oracle(depth: int, axis: int, on: Any, off: Any) -> Callable[..., np.ndarray]:
        def computed(i: np.ndarray) -> np.ndarray:
            result = np.full((*i.shape, depth), off)
            for place in np.ndindex(i.shape):
                if 0 <= int(i[place]) < depth:
                    result[(*place, int(i[place]))] = on
            return np.moveaxis(result, -1, axis)

        return computed

    for dtype in INTS:
        yield case(
            lambda i: op.one_hot(i, 5, -1, 4, 0), ints((3, 2), 7, dtype), oracle=oracle(4, 0, 5, -1), dtype="int64"
        )
    for dtype in NUMBERS:
        on, off = relax.PrimValue(tir.const(3, dtype)), relax.PrimValue(tir.const(1, dtype))
        yield case(
            lambda i, on=on, off=off: op.one_hot(i, on, off, 3),
            np.array([-1, 2, 0, 99], "int32"),
            oracle=oracle(3, -1, 3, 1),
            dtype=dtype,
        )
    for shape in ((), (0,), (3, 0), (1, 1)):
        yield case(
            lambda i: op.one_hot(i, 1.5, 0.0, 17), ints(shape, 17), oracle=oracle(17, -1, 1.5, 0.0), dtype="float64"
        )
    yield case(
        lambda i, n: op.one_hot(i, 1, 0, 3, 1),
        ints((4, 2), 3),
        oracle=oracle(3, 1, 1, 0),
        dims={0: ("n", 2)},
        again=[(ints((0, 2), 3),), (ints((1, 2), 3),)],
    )


# -- elements replaced --

COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": min,
    "max": max,
    "mean": lambda old, new: (old + new) / 2,
}


def wrapped(value: int, dtype: np.dtype) -> int:
    """An integer as its dtype holds it."""
    bits = dtype.itemsize * 8
    value %= 2**bits
    return value - 2**bits if dtype.kind == "i" and value >= 2 ** (bits - 1) else value


def combined(result: np.ndarray, target: tuple[int, ...], new: Any, reduction: str) -> None:
    """Changes an element, in Python's numbers; integers wrap, and their mean is truncated."""
    old, new = result[target].item(), new.item()
    if result.dtype.kind in "iu":
        if reduction == "mean":
            total = wrapped(old + new, result.dtype)
            result[target] = total // 2 if total >= 0 else -(-total // 2)
        else:
            result[target] = wrapped(COMBINE[reduction](old, new), result.dtype)
    else:
        result[target] = COMBINE[reduction](old, new)


def scattered_elements(axis: int, reduction: str) -> Callable[..., np.ndarray]:
    def computed(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
        result = x.copy()
        for place in np.ndindex(i.shape):
            target = list(place)
            target[axis] = int(i[place])
            combined(result, tuple(target), u[place], reduction)
        return result

    return computed


@row("relax.scatter_elements")
def scatter_elements() -> Iterator[Case]:
    twice = np.array([[0, 2, 0], [-1, -3, 2], [1, 1, 1]], "int64")
    for dtype, index in zip(ALL, itertools.cycle(SIGNED)):
        yield case(
            lambda x, i, u: op.scatter_elements(x, i, u, 1),
            some((4, 3), dtype),
            twice.astype(index),
            some((3, 3), dtype, seed=1),
            oracle=scattered_elements(1, "update"),
        )
    pairs = [*itertools.product(("float32", "int8"), COMBINE), ("float16", "add"), ("int64", "mul"), ("uint8", "mean")]
    for dtype, reduction in pairs:
        whole = dtype in INTS
        yield case(
            lambda x, i, u, r=reduction: op.scatter_elements(x, i, u, 0, r),
            some((3, 4), dtype, *((-120, 120) if whole else ())),
            twice,
            some((3, 3), dtype, *((-120, 120) if whole else ()), seed=1),
            oracle=scattered_elements(0, reduction) if whole else in_float64(scattered_elements(0, reduction)),
            tolerance=2e-2 if dtype == "float16" else None,
        )
    for dtype in UNSIGNED:
        places = np.array([2, 0, 0, 1], dtype)
        yield case(
            lambda x, i, u: op.scatter_elements(x, i, u, 0, "add"),
            some((3,)),
            places,
            some((4,), seed=1),
            oracle=scattered_elements(0, "add"),
        )
    for shape, taken in (((5,), (0,)), ((1,), (1,)), ((3, 0), (3, 0)), ((2, 3, 4), (1, 2, 4)), ((19,), (40,))):
        yield case(
            lambda x, i, u: op.scatter_elements(x, i, u, -1, "add"),
            some(shape),
            ints(taken, max(shape[-1], 1)),
            some(taken, seed=1),
            oracle=in_float64(scattered_elements(len(shape) - 1, "add")),
        )
    yield case(
        lambda x, i, u, n, m: op.scatter_elements(x, i, u, 0, "max"),
        some((4, 3)),
        ints((5, 3), 4),
        some((5, 3), seed=1),
        oracle=scattered_elements(0, "max"),
        dims={0: ("n", 3), 1: ("m", 3), 2: ("m", 3)},
        again=[
            (some((4, 3)), ints((0, 3), 4), some((0, 3))),
            (some((0, 3)), ints((0, 3), 1), some((0, 3))),
            (some((1, 3)), ints((2, 3), 1), some((2, 3))),
        ],
    )


def scattered_parts(reduction: str) -> Callable[..., np.ndarray]:
    def computed(x: np.ndarray, i: np.ndarray, u: np.ndarray) -> np.ndarray:
        result = x.copy()
        for place in np.ndindex(u.shape):
            head = i.ndim - 1
            combined(result, (*i[place[:head]].tolist(), *place[head:]), u[place], reduction)
        return result

    return computed


@row("relax.scatter_nd")
def scatter_nd() -> Iterator[Case]:
    twice = np.array([[0, 2], [-1, -3], [0, 2], [2, 0]], "int64")
    for dtype in ALL:
        yield case(
            op.scatter_nd,
            some((3, 3, 2), dtype),
            twice,
            some((4, 2), dtype, seed=1),
            oracle=scattered_parts("update"),
            dtype=dtype,
        )
    pairs = [
        *itertools.product(("float64", "int8"), ("add", "mul", "min", "max")),
        ("float32", "add"),
        ("uint16", "mul"),
    ]
    for dtype, reduction in pairs:
        yield case(
            lambda x, i, u, r=reduction: op.scatter_nd(x, i, u, r),
            some((3, 3), dtype, -100, 100),
            twice,
            some((4,), dtype, -100, 100, seed=1),
            oracle=scattered_parts(reduction),
            tolerance=1e-5 if dtype == "float32" else None,
        )
    for shape, places in (((5,), (0, 1)), ((1,), (2, 1)), ((3, 0), (2, 1)), ((2, 2, 3), (2, 4, 2)), ((4,), (1,))):
        updates = (*places[:-1], *shape[places[-1] :])
        yield case(
            lambda x, i, u: op.scatter_nd(x, i, u, "add"),
            some(shape),
            ints(places, min(shape[: places[-1]])),
            some(updates, seed=1),
            oracle=in_float64(scattered_parts("add")),
        )
    yield case(
        lambda x, i, u, n, m: op.scatter_nd(x, i, u, "update"),
        some((4, 3)),
        ints((5, 1), 4),
        some((5, 3), seed=1),
        oracle=scattered_parts("update"),
        dims={0: ("n", 3), 1: ("m", 1), 2: ("m", 3)},
        again=[(some((4, 3)), ints((0, 1), 4), some((0, 3))), (some((1, 3)), ints((2, 1), 1), some((2, 3)))],
    )


@row("relax.index_put")
def index_put() -> Iterator[Case]:
    def oracle(accumulate: bool) -> Callable[..., np.ndarray]:
        def computed(x: np.ndarray, places: list[np.ndarray], values: np.ndarray) -> np.ndarray:
            result = x.copy()
            common = np.broadcast_arrays(*places)
            rest = x.shape[len(places) :]
            values = np.broadcast_to(values, (*common[0].shape, *rest))
            for place in np.ndindex(values.shape):
                head, tail = place[: common[0].ndim], place[common[0].ndim :]
                target = (*(int(c[head]) for c in common), *tail)
                combined(result, target, values[place], "add" if accumulate else "update")
            return result

        return computed

    for dtype in ALL:
        yield case(
            op.index_put,
            some((3, 4, 2), dtype),
            [np.array([[0], [-1], [0]]), np.array([1, -4, 1])],
            some((3, 3, 2), dtype, seed=1),
            oracle=oracle(False),
            dtype=dtype,
        )
    for dtype in ("float32", "int8", "int64", "uint8", "uint32"):
        yield case(
            lambda x, i, v: op.index_put(x, i, v, True),
            some((3, 4), dtype, -120, 120),
            [np.array([0, 2, 0, 0], dtype if dtype in INTS else "int32")],
            some((4,), dtype, -120, 120, seed=1),
            oracle=oracle(True),
            tolerance=1e-5 if dtype == "float32" else None,
        )
    for shape, places, values in (
        ((5,), [(0,)], (0,)),
        ((5,), [(3,)], ()),
        ((3, 0), [(2,)], (2, 0)),
        ((3, 4), [(), (2, 3)], (1, 3)),
        ((3, 4), [(2, 1), (1, 3)], (1,)),
        ((4,), [()], ()),
    ):
        yield case(op.index_put, some(shape), [ints(p, 3) for p in places], some(values, seed=1), oracle=oracle(False))
    yield case(
        lambda x, i, v, n, m: op.index_put(x, i, v),
        some((4, 3)),
        [ints((5,), 4)],
        some((5, 3), seed=1),
        oracle=oracle(False),
        dims={0: ("n", 3), 1: ("m",), 2: ("m", 3)},
        again=[(some((4, 3)), [ints((0,), 4)], some((0, 3))), (some((1, 3)), [ints((2,), 1)], some((2, 3)))],
    )


@row("relax.slice_scatter")
def slice_scatter() -> Iterator[Case]:
    def oracle(start: int, end: int, step: int, axis: int) -> Callable[..., np.ndarray]:
        def computed(x: np.ndarray, src: np.ndarray) -> np.ndarray:
            result = np.moveaxis(x, axis, 0).copy()
            result[start:end:step] = np.moveaxis(src, axis, 0)
            return np.moveaxis(result, 0, axis)

        return computed

    for dtype in ALL:
        yield case(
            lambda x, s: op.slice_scatter(x, s, 1, 6, 2, -1),
            some((2, 7), dtype),
            some((2, 3), dtype, seed=1),
            oracle=oracle(1, 6, 2, -1),
        )
    for shape, src, start, end, step in (
        ((5,), (0,), 2, 2, 1),
        ((1,), (1,), 0, 1, 1),
        ((0, 3), (0, 3), 0, 0, 1),
        ((9, 0), (4, 0), 0, 8, 2),
    ):
        yield case(
            lambda x, s, a=start, b=end, c=step: op.slice_scatter(x, s, a, b, c),
            some(shape),
            some(src, seed=1),
            oracle=oracle(start, end, step, 0),
        )
    yield case(
        lambda x, s, n: op.slice_scatter(x, s, 1, 3),
        some((4, 3)),
        some((2, 3), seed=1),
        oracle=oracle(1, 3, 1, 0),
        dims={0: ("n", 3)},
        again=[(some((3, 3)), some((2, 3))), (some((17, 3)), some((2, 3)))],
    )
    for start, end, step in ((-3, -1, 1), (1, -1, 2), (-5, 99, 3)):
        src = some((len(range(5)[start:end:step]), 2), seed=1)
        yield case(
            lambda x, s, a=start, b=end, c=step: op.slice_scatter(x, s, a, b, c),
            some((5, 2)),
            src,
            oracle=oracle(start, end, step, 0),
        )
    yield case(
        lambda x, s, n: op.slice_scatter(x, s, -3, -1),
        some((4, 3)),
        some((2, 3), seed=1),
        oracle=oracle(-3, -1, 1, 0),
        dims={0: ("n", 3)},
        again=[(some((3, 3)), some((2, 3))), (some((17, 3)), some((2, 3)))],
    )


# -- layouts and memory --


@row("relax.layout_transform")
def layout_transform() -> Iterator[Case]:
    def blocked(i: Any, j: Any) -> Any:
        return j // 4, i, j % 4

    def oracle(filling: Any) -> Callable[..., np.ndarray]:
        def computed(x: np.ndarray) -> np.ndarray:
            # Extents are as large as indices get, so a part of a block is no whole one where there is but one.
            result = np.full((-(-x.shape[1] // 4), x.shape[0], min(x.shape[1], 4)), filling, x.dtype)
            for i, j in np.ndindex(x.shape):
                result[j // 4, i, j % 4] = x[i, j]
            return result

        return computed

    yield from over_dtypes(lambda x: op.layout_transform(x, blocked), (3, 8), oracle(0))
    for dtype in NUMBERS:
        yield case(lambda x: op.layout_transform(x, blocked, 2), some((3, 7), dtype), oracle=oracle(2))
    for shape in ((1, 4), (5, 1), (1, 1)):
        yield case(lambda x: op.layout_transform(x, blocked, -1.0), some(shape), oracle=oracle(-1))
    yield case(
        lambda x, n: op.layout_transform(x, blocked),
        some((4, 8)),
        oracle=oracle(0),
        dims={0: ("n", 8)},
        again=[(some((0, 8)),), (some((1, 8)),)],
    )


@row("relax.memory.view")
def view() -> Iterator[Case]:
    for dtype in NUMBERS:
        yield case(
            lambda x, d=dtype: op.memory.view(x, (8 // np.dtype(d).itemsize if d != "bfloat16" else 4,), d, 4),
            ints((16,), 256, "uint8"),
            oracle=lambda x, d=dtype: x[4:12].view(some((), d).dtype),
            dtype=dtype,
            tolerance=0,
        )
    yield case(lambda x: op.memory.view(x, (3, 2)), some((2, 3)), oracle=lambda x: x.reshape(3, 2))
    yield case(lambda x: op.memory.view(x, (0,)), some((2, 3)), oracle=lambda x: x.ravel()[:0])
    yield case(lambda x: op.memory.view(x, (), None, 8), some((5,)), oracle=lambda x: x[2])


@row("relax.memory.ensure_zero_offset")
def ensure_zero_offset() -> Iterator[Case]:
    for dtype in ("float32", "int8", "bool"):
        yield case(op.memory.ensure_zero_offset, some((3, 5), dtype), oracle=lambda x: x)
    yield case(
        lambda x: op.memory.ensure_zero_offset(op.memory.view(x, (3,), None, 8)), some((5,)), oracle=lambda x: x[2:]
    )
