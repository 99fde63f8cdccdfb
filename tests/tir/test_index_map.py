"""Index maps: shapes, data and inverses, compared with NumPy and with going through all indices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oneir import tir
from oneir.runtime import tensor
from oneir.runtime.error import InvalidValue
from oneir.tir.index_map import evaluate_on_arrays

MAPS: list[tuple[Callable[..., Any], list[int], list[int]]] = [
    (lambda i, j: [j, i], [3, 4], [4, 3]),
    (lambda i: [i // 4, i % 4], [16], [4, 4]),
    (lambda i, j: [i * 8 + j], [4, 8], [32]),
    (lambda n, h, w, c: [n, c // 4, h, w, c % 4], [2, 3, 3, 8], [2, 2, 3, 3, 4]),
    (lambda i, j: [i // 4, j // 8, i % 4, j % 8], [8, 16], [2, 2, 4, 8]),
    (lambda i, j: [(i * 6 + j) // 4, (i * 6 + j) % 4], [4, 6], [6, 4]),
    (lambda i, j: [i, 7 - j], [2, 8], [2, 8]),
    (lambda i, j: [i * 8 + j], [1, 8], [8]),
]
PADDED: list[tuple[Callable[..., Any], list[int], list[int]]] = [
    (lambda i: [i // 4, i % 4], [14], [4, 4]),
    (lambda i: [(i + 3) // 4, (i + 3) % 4], [14], [5, 4]),
    (lambda i, j: [i // 4, j // 8, i % 4, j % 8], [7, 12], [2, 2, 4, 8]),
    (lambda i: [i // 8, i // 4 % 2, i % 4], [21], [3, 2, 4]),
    (lambda i: [i % 3 // 2, i // 3, i % 3 % 2], [9], [2, 3, 2]),
    # Blocks are whole, also if there is not enough for one.
    (lambda i: [i // 4, i % 4], [3], [1, 4]),
    (lambda i, j: [i // 8, j, i % 8 // 4, i % 4], [3, 2], [1, 2, 2, 4]),
    # Divisions that want another padding each are digits of one mark.
    (lambda i: [(i + 7) // 24, (i + 7) // 3 % 8, (i + 7) % 3], [30], [2, 8, 3]),
    (lambda i: [(i + 7) // 3 % 8, (i + 7) % 3, (i + 7) // 24], [30], [8, 3, 2]),
]


def value(expr: Any, variables: Any, point: tuple[int, ...]) -> int:
    return int(evaluate_on_arrays(expr, dict(zip(variables, point, strict=True))))


def apply(index_map: tir.IndexMap, point: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(value(index, index_map.initial_indices, point) for index in index_map.final_indices)


def indices(shape: list[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, shape)))


@pytest.mark.parametrize(("function", "shape", "mapped"), MAPS + PADDED)
def test_map_shape(function: Callable[..., Any], shape: list[int], mapped: list[int]) -> None:
    assert [int(dim) for dim in tir.IndexMap.from_func(function).map_shape(shape)] == mapped


@pytest.mark.parametrize(("function", "shape", "mapped"), MAPS)
def test_map_tensor(function: Callable[..., Any], shape: list[int], mapped: list[int]) -> None:
    data = np.arange(np.prod(shape), dtype="int32").reshape(shape)
    found = tir.IndexMap.from_func(function).map_tensor(tensor(data)).numpy()
    assert found.shape == tuple(mapped)
    for point in indices(shape):
        assert found[function(*point)[0] if len(mapped) == 1 else tuple(function(*point))] == data[point]


@pytest.mark.parametrize(("function", "shape", "mapped"), MAPS)
def test_inverse_leads_back(function: Callable[..., Any], shape: list[int], mapped: list[int]) -> None:
    index_map = tir.IndexMap.from_func(function)
    back = index_map.inverse(shape)
    assert isinstance(back, tir.IndexMap)
    for point in indices(shape):
        assert apply(back, apply(index_map, point)) == point


@pytest.mark.parametrize(("function", "shape", "mapped"), MAPS + PADDED)
def test_non_surjective_inverse_says_what_is_padding(
    function: Callable[..., Any], shape: list[int], mapped: list[int]
) -> None:
    index_map = tir.IndexMap.from_func(function)
    back, padding = index_map.non_surjective_inverse(shape)
    reached = {apply(index_map, point): point for point in indices(shape)}
    for point in indices(mapped):
        is_padding = bool(_holds(padding, back.initial_indices, point))
        assert is_padding == (point not in reached), f"{point}: {padding}"
        if point in reached:
            assert apply(back, point) == reached[point]


def _holds(condition: Any, variables: Any, point: tuple[int, ...]) -> bool:
    """The truth of a condition of comparisons, `and` and `or`."""
    match condition:
        case tir.IntImm(value=known):
            return bool(known)
        case tir.And(a=a, b=b):
            return _holds(a, variables, point) and _holds(b, variables, point)
        case tir.Or(a=a, b=b):
            return _holds(a, variables, point) or _holds(b, variables, point)
    a, b = (value(side, variables, point) for side in (condition.a, condition.b))
    return {tir.LT: a < b, tir.LE: a <= b, tir.GT: a > b, tir.GE: a >= b, tir.EQ: a == b, tir.NE: a != b}[
        type(condition)
    ]


def test_an_inverse_given_beforehand_is_used() -> None:
    index_map = tir.IndexMap.from_func(lambda i: [i // 4, i % 4], inverse_index_map=lambda a, b: [a * 4 + b])
    assert index_map.inverse([16]) is index_map.inverse_index_map


def test_inverse_over_a_symbolic_shape() -> None:
    n = tir.SizeVar("n", "int64")
    back, padding = tir.IndexMap.from_func(lambda i: [i // 4, i % 4]).non_surjective_inverse([n])
    assert str(back.final_indices[0]) == "axis0 * T.int64(4) + axis1"
    assert str(padding) == "n <= axis0 * T.int64(4) + axis1"


def test_padding_is_told_over_the_indices_within_the_last_block() -> None:
    # 100 of 105: of the last block of 35, the five last ones. They are asked for by the index in the block.
    index_map = tir.IndexMap.from_func(lambda i: [i // 35, i // 7 % 5, i % 7], index_dtype="int32")
    _, padding = index_map.non_surjective_inverse([100])
    assert str(padding) == "axis0 == 2 and 30 <= axis1 * 7 + axis2"


def test_the_inverse_names_blocks_of_which_there_is_one() -> None:
    # The inverse of a shape is that of a larger one; only the padding depends on how many blocks there are.
    index_map = tir.IndexMap.from_func(lambda i: [i // 8, i % 8], index_dtype="int32")
    back, padding = index_map.non_surjective_inverse([5])
    assert str(back.final_indices[0]) == "axis0 * 8 + axis1"
    assert back.is_equivalent_to(index_map.inverse([64]))
    assert str(padding) == "5 <= axis1"


@pytest.mark.parametrize(("function", "shape", "mapped"), PADDED)
def test_inverse_refuses_padding(function: Callable[..., Any], shape: list[int], mapped: list[int]) -> None:
    with pytest.raises(InvalidValue, match="not one to one over the shape"):
        tir.IndexMap.from_func(function).inverse(shape)


LOST: list[tuple[Callable[..., Any], list[int], str]] = [
    (lambda i, j: [i], [4, 4], r"the iterator j in \[0, T.int64\(4\)\) is not used"),
    (lambda i: [i // 4], [16], "not independent"),
    (lambda i, j: [i + j], [4, 4], "neighbouring digits"),
    (lambda i: [i, i], [4], "not independent"),
]


@pytest.mark.parametrize(("function", "shape", "message"), LOST)
def test_maps_that_lose_indices_have_no_inverse(function: Callable[..., Any], shape: list[int], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        tir.IndexMap.from_func(function).non_surjective_inverse(shape)


def test_inverse_refuses_a_shape_of_another_rank() -> None:
    with pytest.raises(InvalidValue, match="takes 2 indices, found the shape"):
        tir.IndexMap.from_func(lambda i, j: [j, i]).inverse([4])


def test_equivalent_maps() -> None:
    one = tir.IndexMap.from_func(lambda i, j: [i * 4 + j])
    assert one.is_equivalent_to(tir.IndexMap.from_func(lambda a, b: [b + a * 4]))
    assert not one.is_equivalent_to(tir.IndexMap.from_func(lambda a, b: [a + b * 4]))


def test_an_index_without_bounds_has_no_extent() -> None:
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    index_map = tir.IndexMap.from_func(lambda i, j: [i * m + j])
    with pytest.raises(InvalidValue, match=r"the extent of the index .* over the shape \[n, m\] cannot be bounded"):
        index_map.map_shape([n, m])
