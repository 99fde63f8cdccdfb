"""Operators that read and replace elements by indices, slices, and products of vectors and tensors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from op_testing import check, infer, random, tensor, var

from oneir import arith, relax, tir
from oneir.ir.expr import as_int
from oneir.relax import op
from oneir.relax.struct_info import TupleStructInfo
from oneir.runtime.error import OneIRError

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


def ints(shape: Any, high: int, seed: int = 0, dtype: str = "int64") -> np.ndarray:
    return random(shape, dtype, 0, high - 1, seed)


def indices(*shapes: Any) -> relax.Tuple:
    return relax.Tuple([var(s, "int64", name=f"i{k}") for k, s in enumerate(shapes)])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: op.take(var((2, 3)), var((4,), "int64"), 1), tensor((2, 4))),
        (lambda: op.take(var((N, 3)), var((4, M), "int32"), 0), tensor((4, M, 3))),
        (lambda: op.take(var((N, 3)), relax.PrimValue(1), 1), tensor((N,))),
        (lambda: op.take(var((5,)), var(ndim=1, dtype="int64")), tensor(ndim=1)),
        (lambda: op.take(var(), var((4,), "int64"), 0), tensor()),
        (lambda: op.strided_slice(var((8, 9)), [0], [1], [7]), tensor((6, 9))),
        (lambda: op.strided_slice(var((8, 9)), [0, -1], [-3, 8], [99, 0], [1, -3]), tensor((3, 3))),
        (lambda: op.strided_slice(var((8, N)), [0], [1], [4]), tensor((3, N))),
        (lambda: op.strided_slice(var((N, 3)), [0], [1], [N], assume_inbound=True), tensor((N - 1, 3))),
        (lambda: op.strided_slice(var(ndim=2), [0], [1], [4]), tensor(ndim=2)),
        (
            lambda: op.dynamic_strided_slice(var((8, 9)), *(var((2,), "int64", name=n) for n in "bes")),
            tensor(ndim=2),
        ),
        (lambda: op.gather_elements(var((2, N)), var((M, 3), "int64"), 1), tensor((M, 3))),
        (lambda: op.gather_nd(var((2, N, 4)), var((5, 2), "int64")), tensor((5, 4))),
        (lambda: op.gather_nd(var((2, N, 4)), var((2, 1), "int64"), 1), tensor((2, 4))),
        (lambda: op.gather_nd(var((2, 3)), var((5, N), "int64")), tensor()),
        (lambda: op.index_tensor(var((2, N, 4)), indices((3, 1), (5,))), tensor((3, 5, 4))),
        (lambda: op.index_tensor(var(ndim=3), indices((3,))), tensor(ndim=3)),
        (lambda: op.meshgrid((var((N,)), var((3,)))), TupleStructInfo([tensor((N, 3))] * 2)),
        (lambda: op.meshgrid((var((N,)), var((3,))), "xy"), TupleStructInfo([tensor((3, N))] * 2)),
        (lambda: op.meshgrid((var(ndim=1), var((3,)))), TupleStructInfo([tensor(ndim=2)] * 2)),
        (lambda: op.one_hot(var((2, N), "int64"), 1.0, 0.0, 5), tensor((2, N, 5), "float64")),
        (lambda: op.one_hot(var(ndim=2, dtype="int64"), 1, 0, 5, 0), tensor(None, "int64", 3)),
        (lambda: op.scatter_elements(var((2, N)), var((1, 3), "int64"), var((1, 3))), tensor((2, N))),
        (lambda: op.scatter_nd(var((8, N)), var((2, 1), "int64"), var((2, N))), tensor((8, N))),
        (lambda: op.index_put(var((8, N)), indices((2,), (2,)), var((2,))), tensor((8, N))),
        (lambda: op.slice_scatter(var((8, N)), var((3, N)), 1, 4), tensor((8, N))),
        (lambda: op.einsum((var((2, N)), var((N, 4))), "ij,jk->ik"), tensor((2, 4))),
        (lambda: op.einsum((var((2, N)), var((N, 4))), "ij,jk"), tensor((2, 4))),
        (lambda: op.einsum((var(ndim=2), var((N, 4))), "ij,jk->ik"), tensor(ndim=2)),
        (lambda: op.outer(var((N,)), var((4,))), tensor((N, 4))),
        (lambda: op.outer(var(ndim=1), var((4,))), tensor(ndim=2)),
        (lambda: op.matmul(var((2, 3)), var((3, 4)), "float64"), tensor((2, 4), "float64")),
        (lambda: op.matmul(var((N, 1, 2, 3)), var((5, 3, 4))), tensor((N, 5, 2, 4))),
        (lambda: op.matmul(var((3,)), var((2, 3, 4))), tensor((2, 4))),
        (lambda: op.matmul(var((3,)), var((3,))), tensor(())),
        (lambda: op.matmul(var((2, 3)), var(ndim=2)), tensor(ndim=2)),
        (lambda: op.linear(var((2, 3)), var((4, 3)), var((4,))), tensor((2, 4))),
    ],
)
def test_struct_info(call: Any, expected: Any) -> None:
    builder = relax.BlockBuilder()
    with builder.testing_scope([]):
        builder.begin_binding_block()
        assert builder.normalize(call()).struct_info == expected


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take(axis: int, dtype: str) -> None:
    x, at = random((3, 4)), ints((2, 2), 3, dtype=dtype)
    check(lambda a, i: op.take(a, i, axis), x, at)
    check(
        lambda a, i: op.take(a, i, axis),
        x,
        at[0],
        torch_function=lambda a, i: torch.index_select(a, axis, i),
    )


def test_take_outside() -> None:
    x, at = random((3, 4)), np.array([-1, 0, 5], "int64")
    for mode in ("clip", "wrap", "nan"):
        check(lambda a, i, mode=mode: op.take(a, i, 0, mode), x, at)
        check(lambda a, i, mode=mode: op.take(a, i, 1, mode), x, at)


def test_take_one() -> None:
    run = check(lambda a: op.take(a, relax.PrimValue(2), 1), random((3, 4)), torch_function=lambda a: a[:, 2])
    assert run.native.shape == (3,)
    check(lambda a, i: op.take(a, i), random((5,)), ints((3,), 5), torch_function=torch.take)


@pytest.mark.parametrize(
    "bounds",
    [
        ([0], [1], [3], None),
        ([0, 1], [0, -3], [4, -1], None),
        ([1], [5], [0], [-1]),
        ([1], [-1], [-99], [-2]),
        ([0], [3], [1], None),
        ([-1], [0], [99], [4]),
    ],
)
def test_slices(bounds: Any) -> None:
    check(lambda a: op.strided_slice(a, *bounds), random((4, 6)))


def test_slices_of_symbolic_extents() -> None:
    x = random((5, 6))
    check(lambda a, n: op.strided_slice(a, [0], [1], [n], assume_inbound=True), x, shapes={0: ("n", 6)})
    check(lambda a, n: op.strided_slice(a, [1], [1], [5], [2]), x, shapes={0: ("n", 6)})


def test_symbolic_bounds_are_cut_to_the_extent() -> None:
    info: Any = infer(op.strided_slice(var((8, 3)), [0], [2], [N]))
    for end in (2, 5, 8, 99, -1):
        length = tir.stmt_functor.substitute(info.extents[0], {N: tir.IntImm("int64", end)})
        assert as_int(arith.Analyzer().simplify(length)) == len(range(8)[2:end])


def test_slices_with_bounds_in_tensors() -> None:
    x = random((5, 6))
    bounds = [np.array(v, "int64") for v in ([1, 5], [-1, 0], [2, -2])]
    run = check(op.dynamic_strided_slice, x, *bounds)
    np.testing.assert_array_equal(run.native, x[1:-1:2, 5:0:-2])


def test_gathering() -> None:
    x, at = random((3, 4)), ints((3, 2), 3)
    check(lambda a, i: op.gather_elements(a, i, 1), x, at, torch_function=lambda a, i: torch.gather(a, 1, i))
    check(lambda a, i: op.gather_elements(a, i, -2), x, at, torch_function=lambda a, i: torch.gather(a, 0, i))
    cube = random((3, 4, 5))
    check(op.gather_nd, cube, ints((2, 2), 3), torch_function=lambda a, i: a[i[:, 0], i[:, 1]])
    check(lambda a, i: op.gather_nd(a, i, 1), cube, ints((3, 2, 1), 4))
    check(lambda a, i: op.gather_nd(a, i, 1), cube, ints((3, 2), 4))
    check(
        lambda a, i, j: op.index_tensor(a, (i, j)),
        cube,
        ints((2, 1), 3),
        ints((4,), 4),
        torch_function=lambda a, i, j: a[i, j],
    )


def test_grids() -> None:
    a, b = random((2,)), random((3,), seed=1)
    for indexing in ("ij", "xy"):
        check(
            lambda x, y, indexing=indexing: op.meshgrid((x, y), indexing),
            a,
            b,
            torch_function=lambda x, y, indexing=indexing: torch.meshgrid(x, y, indexing=indexing),
        )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    check(lambda i: op.one_hot(i, 1, 0, 4, axis), ints((2, 3), 4))
    if axis == -1:
        check(
            lambda i: op.one_hot(i, 1, 0, 4),
            ints((2, 3), 4),
            torch_function=lambda i: torch.nn.functional.one_hot(i, 4),
        )
    check(lambda i: op.one_hot(i, 2.5, -1.0, 3, axis), np.array([0, 7, -1], "int32"))


@pytest.mark.parametrize("reduction", ["update", "add", "mul", "max", "min"])
def test_scattering(reduction: str) -> None:
    x, updates = random((4, 5)), random((2, 3), seed=1)
    at = np.array([[0, 2, 1], [3, 0, 2]], "int64")
    check(lambda a, i, u: op.scatter_elements(a, i, u, 0, reduction), x, at, updates)
    check(lambda a, i, u: op.scatter_elements(a, i, u, -1, reduction), x, at, updates)
    rows = np.array([[3], [1]], "int64")
    check(lambda a, i, u: op.scatter_nd(a, i, u, reduction), x, rows, random((2, 5), seed=1))
    places = np.array([[3, 0], [1, 4], [0, 0]], "int64")
    check(lambda a, i, u: op.scatter_nd(a, i, u, reduction), x, places, random((3,), seed=1))


def test_scattering_like_pytorch() -> None:
    x, updates = random((4, 5)), random((2, 3), seed=1)
    at = np.array([[0, 2, 1], [3, 0, 2]], "int64")
    check(
        lambda a, i, u: op.scatter_elements(a, i, u, 1),
        x,
        at,
        updates,
        torch_function=lambda a, i, u: a.scatter(1, i, u),
    )
    check(
        lambda a, i, u: op.scatter_elements(a, i, u, 0, "add"),
        x,
        at,
        updates,
        torch_function=lambda a, i, u: a.scatter_add(0, i, u),
    )


@pytest.mark.parametrize("accumulate", [True, False])
def test_putting(accumulate: bool) -> None:
    check(
        lambda a, i, j, v: op.index_put(a, (i, j), v, accumulate),
        random((4, 5)),
        np.array([0, 3, 1], "int64"),
        np.array([4, 0, 4], "int64"),
        random((3,), seed=1),
        torch_function=lambda a, i, j, v: a.index_put((i, j), v, accumulate),
    )


def test_replacing_slices() -> None:
    x = random((6, 3))
    for start, end, step, count in ((1, 4, 1, 3), (0, 6, 2, 3), (2, 3, 5, 1)):
        check(
            lambda a, s, b=(start, end, step): op.slice_scatter(a, s, *b, axis=0),
            x,
            random((count, 3), seed=1),
            torch_function=lambda a, s, b=(start, end, step): torch.slice_scatter(a, s, 0, *b),
        )


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 1, 2, 3), (4, 3, 2)), ((2, 0), (0, 3))],
)
def test_products(shapes: Any, dtype: str) -> None:
    a, b = (random(s, dtype, seed=i) for i, s in enumerate(shapes))
    check(op.matmul, a, b, torch_function=torch.matmul, tolerance=1e-2 if dtype == "float16" else None)


def test_products_with_wider_sums() -> None:
    a, b = random((2, 3), "int8", -100, 100), random((3, 4), "int8", -100, 100, 1)
    run = check(lambda x, y: op.matmul(x, y, "int32"), a, b)
    np.testing.assert_array_equal(run.native, a.astype("int32") @ b.astype("int32"))


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bij,bjk->bik", ((2, 2, 3), (2, 3, 2))),
        ("ij->ji", ((2, 3),)),
        ("ij->", ((2, 3),)),
        ("i,i", ((3,), (3,))),
        ("...ij,...jk->...ik", ((2, 2, 3), (2, 3, 2))),
    ],
)
def test_einsum(subscripts: str, shapes: Any) -> None:
    arrays = [random(s, seed=i) for i, s in enumerate(shapes)]
    check(lambda *a: op.einsum(a, subscripts), *arrays, torch_function=lambda *a: torch.einsum(subscripts, *a))


def test_outer() -> None:
    check(op.outer, random((3,)), random((4,), seed=1), torch_function=torch.outer)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.take(var((2, 3)), var((2,))), "relax.take: the indices must be integers, found dtype float32"),
        (lambda: op.take(var((2, 3)), var((2,), "int64")), "relax.take: without an axis, expected a tensor of one"),
        (lambda: op.take(var((2, 3)), var((2,), "int64"), 2), "relax.take: axis 2 is outside"),
        (lambda: op.take(var((2,)), var((2,), "int64"), mode="far"), 'relax.take: expected the mode "fast"'),
        (lambda: op.strided_slice(var((2, 3)), [0], [1], [2], [0]), "relax.strided_slice: the strides must not be 0"),
        (lambda: op.strided_slice(var((2, 3)), [0], [1, 2], [2]), "expected as many values in axes, begin, end"),
        (lambda: op.strided_slice(var((2, 3)), [2], [1], [2]), "axis 2 is outside"),
        (lambda: op.strided_slice(var((2, 3)), [0], [1.5], [2]), "argument begin must be a tuple of integers"),
        (
            lambda: op.dynamic_strided_slice(var((2, 3)), *(var((3,), "int64", name=n) for n in "bes")),
            "argument begin has 3 elements for a tensor of 2 dimensions",
        ),
        (lambda: op.gather_elements(var((2, 3)), var((2,), "int64")), "expected indices of 2 dimensions"),
        (lambda: op.gather_nd(var((2, 3)), var((4, 3), "int64")), "each index names 3 places in data of 2"),
        (lambda: op.index_tensor(var((2,)), indices((3,), (3,))), "found 2 index tensors for data of 1 dimensions"),
        (lambda: op.index_tensor(var((2, 2)), indices((3,), (4,))), "cannot be broadcast"),
        (lambda: op.meshgrid((var((2, 2)),)), "relax.meshgrid: expected vectors, found a tensor of 2 dimensions"),
        (lambda: op.one_hot(var((2,), "int64"), 1, 0.0, 4), "must be numbers of one dtype"),
        (lambda: op.one_hot(var((2,), "int64"), 1, 0, 0), "expected a depth of at least 1, found 0"),
        (lambda: op.scatter_elements(var((2,)), var((2,), "int64"), var((3,))), "must have one shape"),
        (lambda: op.scatter_elements(var((2,)), var((2,), "int64"), var((2,)), 0, "sub"), "expected the reduction"),
        (lambda: op.scatter_nd(var((8, 3)), var((2, 1), "int64"), var((2, 4))), "expected updates of the shape"),
        (lambda: op.index_put(var((8,)), indices((2,), (2,)), var((2,))), "expected 1 to 1 index tensors, found 2"),
        (lambda: op.slice_scatter(var((8,)), var((3,)), 1, 6), "expected src of the shape"),
        (lambda: op.slice_scatter(var((8,)), var((3,)), 1, 4, 0), "the step must be at least 1"),
        (lambda: op.einsum((var((2, 3)),), "ij,jk->ik"), "are for 2 tensors, found 1"),
        (lambda: op.einsum((var((2, 3)), var((4, 5))), "ij,jk->ik"), "the subscript 'j' stands for the extents"),
        (lambda: op.outer(var((2, 3)), var((2,))), "relax.outer: expected two vectors, found a tensor of 2"),
        (lambda: op.matmul(var((2, 3)), var((4, 5))), "relax.matmul: the last extent of x1"),
        (lambda: op.matmul(var(()), var((4, 5))), "expected tensors of at least one dimension, found a scalar"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())
