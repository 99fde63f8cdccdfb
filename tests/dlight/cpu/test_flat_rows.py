"""Axes that lie one after the other in memory become one, where that makes better tiles or an extent is unknown."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import oneir
from oneir import relax, te, tir
from oneir.dlight.analysis.leaves import leaves
from oneir.dlight.cpu.flat_rows import with_flat_axes, with_flat_rows
from oneir.relax import op
from oneir.script import tir as T
from oneir.target import Target
from oneir.target.cpu import cpu_info
from oneir.testing import interpret
from oneir.tir.schedule import Schedule

INFO = cpu_info(Target("llvm -mcpu=x86-64-v3"))
N, M = te.var("n", "int64"), te.var("m", "int64")
Epilogue = Callable[..., tir.PrimExpr]


def product(*rows: int | tir.Var, epilogue: Epilogue | None = None, by_batch: bool = False) -> tir.PrimFunc:
    """Rows of 4 elements by 4 x 16, which may be a matrix for each batch; and what `epilogue` makes of the result."""
    a = te.placeholder((*rows, 4), name="A")
    b = te.placeholder((rows[0], 4, 16) if by_batch else (4, 16), name="B")
    other = te.placeholder((*rows, 16), name="other")
    k = te.reduce_axis((0, 4), name="k")

    def elements(*axes: tir.Var) -> tir.PrimExpr:
        *row, column = axes
        weight = b[row[0], k, column] if by_batch else b[k, column]
        return te.sum(a[(*row, k)] * weight, axis=k)

    c = te.compute((*rows, 16), elements, name="C")
    if epilogue is None:
        return te.create_prim_func([a, b, c])
    d = te.compute((*rows, 16), lambda *axes: epilogue(c, other, *axes), name="D")
    return te.create_prim_func([a, b, other, d])


def flat(func: tir.PrimFunc) -> Schedule:
    return with_flat_rows(Schedule(func), "C", INFO)


def axes(sch: Schedule) -> dict[str, int]:
    """How many axes each block has."""
    return {leaf.block.name_hint: len(leaf.block.iter_vars) for leaf in leaves(sch) or ()}


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        pytest.param(product(N, M), {"C": 3}, id="batch and length"),
        pytest.param(product(N, 3, M), {"C": 3}, id="three axes"),
        pytest.param(product(3, M), {"C": 3}, id="a known batch"),
        pytest.param(product(4, 37), {"C": 3}, id="148 known rows"),
        pytest.param(product(1, 13, 13), {"C": 4}, id="lines of a known image"),
        pytest.param(product(N, M, epilogue=lambda c, x, i, j, k: c[i, j, k] + x[i, j, k]), {"C": 3, "D": 2}, id="sum"),
    ],
)
def test_rows_become_one_axis(func: tir.PrimFunc, expected: dict[str, int]) -> None:
    assert axes(flat(func)) == expected


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        pytest.param(product(N, 7), {"C": 4}, id="a known length"),
        pytest.param(product(8, 6), {"C": 4}, id="rows of whole tiles"),
        pytest.param(product(1, M), {"C": 4}, id="one matrix"),
        pytest.param(product(N, M, by_batch=True), {"C": 4}, id="a matrix of its own for each batch"),
        pytest.param(
            product(N, M, epilogue=lambda c, x, i, j, k: c[i, j, k] + x[0, j, k]), {"C": 4, "D": 3}, id="broadcast rows"
        ),
        pytest.param(
            product(N, M, epilogue=lambda c, x, i, j, k: te.if_then_else(j < 3, c[i, j, k], 0.0)),
            {"C": 4, "D": 3},
            id="a condition on an axis",
        ),
        pytest.param(
            product(N, M, epilogue=lambda c, x, i, j, k: c[i, j, k] + x[i, M - 1 - j, k]),
            {"C": 4, "D": 3},
            id="reversed",
        ),
    ],
)
def test_rows_that_are_no_one_axis_for_all_blocks_stay(func: tir.PrimFunc, expected: dict[str, int]) -> None:
    sch = Schedule(func)
    assert with_flat_rows(sch, "C", INFO) is sch and axes(sch) == expected


@pytest.mark.parametrize("shape", [(2, 3), (1, 5), (0, 4)])
def test_the_interpreter_computes_the_same(shape: tuple[int, int]) -> None:
    func = flat(product(N, M, epilogue=lambda c, x, i, j, k: te.max(c[i, j, k], x[i, j, k]))).mod["main"]
    rng = np.random.default_rng(0)
    a, b, x = (rng.standard_normal(s, dtype="float32") for s in ((*shape, 4), (4, 16), (*shape, 16)))
    found = np.zeros((*shape, 16), "float32")
    interpret(func, a, b, x, found)
    np.testing.assert_allclose(found, np.maximum(a @ b, x), atol=1e-6)


def elementwise(element: Epilogue, *shape: int | tir.Var) -> tir.PrimFunc:
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="y")
    return te.create_prim_func([x, y, te.compute(shape, lambda *axes: element(x, y, *axes), name="z")])


@pytest.mark.parametrize(
    ("func", "count"),
    [
        pytest.param(elementwise(lambda x, y, *axes: te.exp(x[axes]), N, M, te.var("k", "int64")), 1, id="all of them"),
        pytest.param(elementwise(lambda x, y, *axes: te.exp(x[axes]), N, 8, 3), 1, id="all, though some are known"),
        pytest.param(elementwise(lambda x, y, *axes: x[axes] + y[axes[-1]], N, M, 3), 2, id="those but the last"),
        pytest.param(elementwise(lambda x, y, i, j: x[i, M - 1 - j], N, M), 2, id="none that is read backwards"),
        pytest.param(elementwise(lambda x, y, *axes: x[axes], 4, 3), 2, id="none of known extents"),
    ],
)
def test_axes_of_elementwise_kernels(func: tir.PrimFunc, count: int) -> None:
    assert axes(with_flat_axes(Schedule(func))) == {"z": count}


def mean_and_rest(*shape: int | tir.Var, backwards: bool = False) -> tir.PrimFunc:
    """Rows of matrices without their sums: both axes of a matrix are summed, and then run along."""
    x = te.placeholder(shape, name="x")
    i, j = (te.reduce_axis((0, extent), name) for extent, name in zip(shape[1:], "ij", strict=True))
    total = te.compute(
        shape[:1], lambda b: te.sum(x[b, i, shape[2] - 1 - j if backwards else j], axis=[i, j]), name="s"
    )
    return te.create_prim_func([x, te.compute(shape, lambda b, i, j: x[b, i, j] - total[b], name="z")])


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        pytest.param(mean_and_rest(4, N, M), {"s": 2, "z": 2}, id="sums along both"),
        pytest.param(mean_and_rest(4, N, 7), {"s": 2, "z": 2}, id="one of them known"),
        pytest.param(mean_and_rest(4, 3, 7), {"s": 3, "z": 3}, id="both known"),
        pytest.param(mean_and_rest(N, M, 7, backwards=True), {"s": 3, "z": 3}, id="read backwards by one"),
    ],
)
def test_axes_of_reductions(func: tir.PrimFunc, expected: dict[str, int]) -> None:
    found = with_flat_axes(Schedule(func))
    assert axes(found) == expected
    x = np.random.default_rng(0).standard_normal((4, 3, 7), dtype="float32")
    z = np.zeros_like(x)
    interpret(found.mod["main"], x, z)
    np.testing.assert_allclose(z, x - x.sum((1, 2), keepdims=True), atol=1e-5)


@pytest.mark.parametrize(("shape", "count"), [((9, 3, 7), 1), ((9, 3, 8), 2), ((9, 1, 7), 2)])
def test_short_rows_of_sums_become_one_axis(shape: tuple[int, int, int], count: int) -> None:
    x = te.placeholder(shape, name="x")
    k = te.reduce_axis((0, shape[0]), "k")
    func = te.create_prim_func([x, te.compute(shape[1:], lambda i, j: te.sum(x[k, i, j], axis=k), name="s")])
    found = with_flat_axes(Schedule(func), short=8)
    assert axes(found) == {"s": count + 1}
    data, total = np.ones(shape, "float32"), np.zeros(shape[1:], "float32")
    interpret(found.mod["main"], data, total)
    np.testing.assert_array_equal(total, np.full(shape[1:], 9))


def test_the_diagonal_of_a_matrix_is_no_row() -> None:
    x, n = te.placeholder((4, 5, 5), name="x"), te.reduce_axis((0, 4), "n")
    func = te.create_prim_func([x, te.compute((5,), lambda i: te.sum(x[n, i, i], axis=n), name="s")])
    sch = Schedule(func)
    assert with_flat_axes(sch, short=8) is sch


def test_blocks_in_one_loop_nest_stay() -> None:
    @T.prim_func
    def func(x: T.handle, y: T.handle, z: T.handle):
        n, m = T.int64(), T.int64()
        A = T.match_buffer(x, (n, m))
        B = T.match_buffer(y, (n, m))
        C = T.match_buffer(z, (n, m))
        for i, j in T.grid(n, m):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2)

    sch = Schedule(func)
    assert with_flat_axes(sch) is sch


def test_short_last_axes_of_unknown_extent() -> None:
    k = te.var("k", "int64")
    program = compiled((N, M, k), lambda x: op.multiply(op.sigmoid(x), x))
    for shape in [(5, 7, 3), (1, 1, 1), (40, 50, 9), (3, 0, 2)]:
        x = np.random.default_rng(0).standard_normal(shape, dtype="float32")
        np.testing.assert_allclose(program(oneir.runtime.tensor(x)).numpy(), x / (1 + np.exp(-x)), rtol=1e-6)


def compiled(shape: tuple[object, ...], make: Callable[[relax.Expr], relax.Expr], dtype: str = "float32"):
    builder = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    with builder.function("main", [param]):
        with builder.dataflow():
            result = builder.emit_output(make(param))
        builder.emit_func_output(result)
    return relax.VirtualMachine(relax.build(builder.get(), "llvm"), oneir.cpu())["main"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_linear_layer_of_unknown_batch_and_length(dtype: str) -> None:
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((24, 40)).astype(dtype), rng.standard_normal(40).astype(dtype)
    program = compiled((N, M, 24), lambda x: op.add(op.matmul(x, relax.const(weight)), relax.const(bias)), dtype)
    for shape in [(1, 1), (2, 7), (3, 5), (4, 33), (5, 0)]:
        x = rng.standard_normal((*shape, 24)).astype(dtype)
        expected = torch.from_numpy(x).double() @ torch.from_numpy(weight).double() + torch.from_numpy(bias).double()
        found = program(oneir.runtime.tensor(x)).numpy()
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(found, expected.numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("strides", [1, 2])
def test_a_convolution_of_one_pixel_of_unknown_images(strides: int) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((20, 8, 1, 1), dtype="float32")
    height, width = te.var("height", "int64"), te.var("width", "int64")
    program = compiled(
        (N, 8, height, width), lambda x: op.nn.relu(op.nn.conv2d(x, relax.const(weight), strides=strides))
    )
    for shape in [(1, 13, 13), (2, 5, 7), (3, 1, 1), (1, 32, 9)]:
        x = rng.standard_normal((shape[0], 8, *shape[1:]), dtype="float32")
        expected = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(weight), stride=strides).relu()
        np.testing.assert_allclose(program(oneir.runtime.tensor(x)).numpy(), expected.numpy(), atol=1e-5)
