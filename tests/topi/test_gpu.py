"""Sorting and scanning by blocks of threads compute what NumPy computes: interpreted with barriers, and on devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from devices import needs_compiler, needs_opencl

import oneir
from oneir import te, tir, topi
from oneir.ir.transform import Sequential
from oneir.runtime.error import InvalidValue, OneIRError
from oneir.target import Target
from oneir.testing import interpret
from oneir.testing.cuda_host import cuda_on_host
from oneir.tir import transform

rng = np.random.default_rng(3)
BARRIERS = Sequential(
    [
        transform.LowerInitBlock(),
        transform.ConvertBlocksToOpaque(),
        transform.UnifyThreadBinding(),
        transform.LowerOpaqueBlock(),
        transform.FlattenBuffer(),
        transform.Simplify(),
        transform.HoistIfThenElse(),
        transform.ThreadSync("shared"),
    ]
)


def function(make: Callable[..., Any], *arrays: np.ndarray, dynamic: bool = False) -> tir.PrimFunc:
    """A function of arrays as these; `dynamic`: with symbolic extents."""
    inputs = [
        te.placeholder(
            [
                tir.Var(f"n{i}_{d}", "int64") if dynamic else tir.const(extent, "int64")
                for d, extent in enumerate(a.shape)
            ],
            a.dtype.name,
            f"A{i}",
        )
        for i, a in enumerate(arrays)
    ]
    made = make(*inputs)
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    return te.create_prim_func([*inputs, *outputs]).with_attr("tir.is_scheduled", True)


def on_device(func: tir.PrimFunc, kind: str, results: list[np.ndarray], *arrays: np.ndarray) -> list[np.ndarray]:
    device = oneir.device(kind, 0)
    program = oneir.build(func, target=Target(kind, host="llvm"))
    outs = [oneir.runtime.tensor(result, device) for result in results]
    program(*(oneir.runtime.tensor(a, device) for a in arrays), *outs)
    return [out.numpy() for out in outs]


def results_like(*arrays: np.ndarray) -> list[np.ndarray]:
    """Memory for results, full of what is none of them."""
    made = [np.empty_like(a) for a in arrays]
    for result in made:
        result.reshape(-1).view(np.uint8).fill(0xA5)
    return made


def few(*shape: int, dtype: Any = "float32") -> np.ndarray:
    """Numbers of which many are equal."""
    return rng.integers(0, 7, shape).astype(dtype)


# -- every barrier is there: the interpreter runs threads by turns, and reports what is read too early --


def test_threads_wait_for_one_another_where_they_sort():
    a = few(2, 5)
    func = function(lambda x: topi.gpu.topk(x, 3, dtype="int32"), a)
    kernel = BARRIERS(oneir.ir.IRModule({"main": func}))["main"]
    values, indices = results_like(a[:, :3], a[:, :3].astype("int32"))
    interpret(kernel, a, values, indices)
    np.testing.assert_array_equal(indices, np.argsort(-a, 1, kind="stable")[:, :3])
    np.testing.assert_array_equal(values, -np.sort(-a, 1)[:, :3])


def test_threads_wait_for_one_another_where_they_scan():
    a = few(2, 20)
    func = function(lambda x: topi.gpu.scanop(x, lambda p, q: p + q, 0, "cumsum", 1, threads=4, items=2), a)
    kernel = BARRIERS(oneir.ir.IRModule({"main": func}))["main"]
    (sums,) = results_like(a)
    interpret(kernel, a, sums)
    np.testing.assert_array_equal(sums, np.cumsum(a, 1))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("shape", [(300,), (2, 5), ()], ids=str)
def test_a_thread_searches_each_value(right: bool, shape: tuple[int, ...]):
    sequence, values = np.sort(few(7)), few(*shape)
    func = function(lambda s, v: topi.gpu.searchsorted(s, v, right, "int32"), sequence, values)
    assert "threadIdx.x" in func.script()
    (found,) = results_like(np.zeros(shape, "int32"))
    interpret(BARRIERS(oneir.ir.IRModule({"main": func}))["main"], sequence, values, found)
    np.testing.assert_array_equal(found, np.searchsorted(sequence, values, "right" if right else "left"))


def test_threads_search_each_sequence_for_its_own_values():
    sequences, values = np.sort(few(3, 6), 1), few(3, 4)
    func = function(topi.gpu.searchsorted, sequences, values, dynamic=True)
    (found,) = results_like(values.astype("int64"))
    interpret(func, sequences, values, found)
    expected = [np.searchsorted(s, v) for s, v in zip(sequences, values, strict=True)]
    np.testing.assert_array_equal(found, expected)
    (found,) = results_like(np.zeros((0, 4), "int64"))
    interpret(func, sequences[:0], values[:0], found)
    with pytest.raises(OneIRError, match="expected a vector, or sequences with the leading extents"):
        function(topi.gpu.searchsorted, sequences, few(2, 4))


def test_kernels_that_sort_for_extern_tensors():
    a = few(3, 40)

    def sorted_pairs(x: te.Tensor) -> list[te.Tensor]:
        def body(ins: Any, outs: Any) -> Any:
            return topi.gpu.sort_ir(ins[0], outs[0], outs[2], -1, False, outs[1], outs[3])

        made = te.extern([x.shape] * 4, [x], body, dtype=["float32", "int32", "float32", "int32"])
        return made[:2]

    values, indices = results_like(a, a.astype("int32"))
    func = function(sorted_pairs, a)
    interpret(BARRIERS(oneir.ir.IRModule({"main": func}))["main"], a, values, indices)
    np.testing.assert_array_equal(indices, np.argsort(-a, 1, kind="stable"))
    np.testing.assert_array_equal(values, -np.sort(-a, 1))


def test_buffers_of_another_shape_are_not_sorted_into():
    data, out = tir.decl_buffer((3, 4), "float32", "data"), tir.decl_buffer((3, 5), "float32", "out")
    with pytest.raises(OneIRError, match=r"expected buffers of the shape \(3, 4\), found `out` of \(3, 5\)"):
        topi.gpu.sort_ir(data, out, out, 1, True)


# -- on a device --

SHAPES = [
    (shape, dynamic)
    for shape, ways in {
        (3, 1000): (False, True),
        (1, 1): (False,),
        (300, 3): (False,),
        (2, 0): (False, True),
        (2, 3, 40): (False,),
    }.items()
    for dynamic in ways
]


@needs_opencl
@pytest.mark.parametrize(("shape", "dynamic"), SHAPES, ids=str)
def test_sort_and_argsort_along_any_axis(shape, dynamic):
    a = few(*shape)
    for axis in range(a.ndim):
        func = function(lambda x, axis=axis: [topi.gpu.argsort(x, axis=axis, dtype="int64")], a, dynamic=dynamic)
        found = on_device(func, "opencl", results_like(a.astype("int64")), a)
        np.testing.assert_array_equal(found[0], np.argsort(a, axis, kind="stable"))
        func = function(lambda x, axis=axis: [topi.gpu.sort(x, axis, False)], a, dynamic=dynamic)
        np.testing.assert_array_equal(on_device(func, "opencl", results_like(a), a)[0], -np.sort(-a, axis))


@needs_opencl
@pytest.mark.parametrize(("shape", "dynamic"), [*SHAPES, ((2, 9000), False)], ids=str)
def test_cumulative_along_any_axis(shape, dynamic):
    a = few(*shape, dtype="int32")
    for axis in (None, *range(a.ndim)):
        expected = np.cumsum(a, axis, dtype="int32")
        func = function(
            lambda x, k=axis: [topi.gpu.cumsum(x, k), topi.gpu.cumsum(x, k, exclusive=True)], a, dynamic=dynamic
        )
        up_to, before = on_device(func, "opencl", results_like(expected, expected), a)
        np.testing.assert_array_equal(up_to, expected)
        np.testing.assert_array_equal(before, expected - (a.ravel() if axis is None else a))


@needs_opencl
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64"])
def test_every_dtype(dtype):
    a = few(2, 300) > 3 if dtype == "bool" else few(2, 300, dtype=getattr(ml_dtypes, dtype, dtype))
    up, down = (
        function(lambda x, ascend=ascend: topi.gpu.argsort(x, is_ascend=ascend, dtype="int32"), a)
        for ascend in (True, False)
    )
    like = results_like(a.astype("int32"))
    wide = a.astype("float64")
    np.testing.assert_array_equal(on_device(up, "opencl", like, a)[0], np.argsort(wide, kind="stable"))
    np.testing.assert_array_equal(on_device(down, "opencl", like, a)[0], np.argsort(-wide, kind="stable"))
    sums = on_device(function(lambda x: topi.gpu.cumsum(x, 1), a), "opencl", results_like(a), a)[0]
    # Sums of 16 bits are those of float32, rounded: so 300 numbers below 7 are exact before.
    expected = np.logical_or.accumulate(a, 1) if dtype == "bool" else np.cumsum(wide, 1).astype("int64").astype(a.dtype)
    np.testing.assert_array_equal(sums, expected)


@needs_opencl
def test_products_and_other_operations_are_scanned_in_order():
    a = rng.integers(1, 3, (3, 300)).astype("float64")
    found = on_device(function(lambda x: topi.gpu.cumprod(x, 1), a), "opencl", results_like(a), a)[0]
    np.testing.assert_array_equal(found, np.cumprod(a, 1))
    b = few(3, 1300)
    last = function(lambda x: topi.gpu.scanop(x, lambda p, q: tir.if_then_else(q > 5, q, p), 0, "last", 1, items=2), b)
    assert np.isin(on_device(last, "opencl", results_like(b), b)[0], [0, 6]).all()
    most = function(lambda x: topi.gpu.scanop(x, te.max, tir.min_value("float32"), "most", 1, threads=32), b)
    np.testing.assert_array_equal(on_device(most, "opencl", results_like(b), b)[0], np.maximum.accumulate(b, 1))


@needs_opencl
def test_nan_is_greater_than_any_number():
    a = np.array([3, np.nan, -np.inf, np.inf, np.nan, 0, -0.0], "float32")
    up = function(lambda x: topi.gpu.argsort(x, dtype="int32"), a)
    down = function(lambda x: topi.gpu.argsort(x, is_ascend=False, dtype="int32"), a)
    like = results_like(np.zeros(7, "int32"))
    assert on_device(up, "opencl", like, a)[0].tolist() == [2, 5, 6, 0, 3, 1, 4]
    assert on_device(down, "opencl", like, a)[0].tolist() == [1, 4, 3, 0, 5, 6, 2]


@needs_opencl
@pytest.mark.parametrize("extent", [300, 9])
def test_argsort_of_the_first_elements_of_each_row(extent):
    a, counts = few(4, extent), np.array([0, 5, extent, extent - 1], "int32")
    func = function(lambda x, n: topi.gpu.argsort(x, n, 1), a, counts)
    found = on_device(func, "opencl", results_like(a.astype("int32")), a, counts)[0]
    for row, count, indices in zip(a, counts, found, strict=True):
        expected = [*np.argsort(row[:count], kind="stable"), *range(count, extent)]
        np.testing.assert_array_equal(indices, expected)


@needs_opencl
@pytest.mark.parametrize("k", [0, 1, 5, 300])
def test_topk(k):
    a = few(3, 300)
    values, indices = on_device(
        function(lambda x: topi.gpu.topk(x, k), a),
        "opencl",
        results_like(a[:, : k or 300], a[:, : k or 300].astype("int64")),
        a,
    )
    np.testing.assert_array_equal(indices, np.argsort(-a, 1, kind="stable")[:, : k or 300])
    np.testing.assert_array_equal(values, np.take_along_axis(a, indices, 1))


@needs_opencl
def test_more_than_there_are_is_an_error_when_the_extent_is_known_at_last():
    a = few(2, 3)
    func = function(lambda x: topi.gpu.topk(x, 5, ret_type="values"), a, dynamic=True)
    with pytest.raises(OneIRError, match="topk: expected k of at most the number of elements along axis 1, found 5"):
        on_device(func, "opencl", results_like(few(2, 5)), a)


def test_what_cannot_be_sorted_is_refused():
    data = te.placeholder((4,), "float32")
    with pytest.raises(InvalidValue, match=r"expected k of at most 4 for .* found 5"):
        topi.gpu.topk(data, 5)
    with pytest.raises(InvalidValue, match="expected at most 1073741824 elements along axis 0, found 2147483648"):
        topi.gpu.sort(te.placeholder((1 << 31,), "float32"))


@needs_compiler
def test_on_the_host_as_cuda_in_another_order_of_threads():
    a = few(2, 600)
    with cuda_on_host("backward"):
        order = function(lambda x: topi.gpu.argsort(x, dtype="int32"), a)
        found = on_device(order, "cuda", results_like(a.astype("int32")), a)[0]
        np.testing.assert_array_equal(found, np.argsort(a, kind="stable"))
        sums = function(lambda x: topi.gpu.scanop(x, lambda p, q: p + q, 0, "cumsum", 1, threads=32, items=2), a)
        np.testing.assert_array_equal(on_device(sums, "cuda", results_like(a), a)[0], np.cumsum(a, 1))
