"""Copies that transpose: in squares of vectors, by shuffles; what is in no whole square, element by element."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.dlight.cpu import Contraction, Spatial
from oneir.driver.stages import schedule_passes
from oneir.target import Target

AVX512, AVX2, SSE = (f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}" for cpu in ("znver5", "haswell", "x86-64-v2"))
NEON = "llvm -mtriple=aarch64-linux-gnu -mcpu=generic"
RNG = np.random.default_rng(3)


def permuted(shape, axes, dtype="float32", result=None, pad=0) -> tir.PrimFunc:
    """A copy with its axes in another order, converted to another dtype, and with zeros at the end of the last axis."""
    source = te.placeholder(shape, dtype, name="source")
    extents = [shape[axis] for axis in axes]

    def element(*indices):
        places = [indices[axes.index(axis)] for axis in range(len(axes))]
        value = source(*places).astype(result or dtype)
        return tir.if_then_else(indices[-1] < extents[-1], value, tir.const(0, result or dtype)) if pad else value

    return te.create_prim_func([source, te.compute([*extents[:-1], extents[-1] + pad], element, name="result")])


def scheduled(func: tir.PrimFunc, target: str = "llvm") -> tir.PrimFunc:
    with Target(target):
        mod = schedule_passes(Target(target))(oneir.IRModule({"main": func.with_attr("global_symbol", "main")}))
    found = mod["main"]
    assert isinstance(found, tir.PrimFunc)
    return found


def outcome(func: tir.PrimFunc, source: np.ndarray, shape, dtype=None, target: str = "llvm") -> np.ndarray:
    result = oneir.runtime.tensor(np.full(shape, 77, dtype or source.dtype))
    oneir.build(scheduled(func, target), target=target)["main"](oneir.runtime.tensor(source), result)
    return result.numpy()


def in_squares(func: tir.PrimFunc, target: str = AVX512) -> bool:
    return "T.Shuffle" in scheduled(func, target).script()


@pytest.mark.parametrize("shape", [(16, 16), (64, 48), (19, 37), (40, 17), (1, 40), (41, 1), (128, 10), (20, 36)])
def test_matrices(shape):
    x = RNG.standard_normal(shape).astype("float32")
    np.testing.assert_array_equal(outcome(permuted(shape, (1, 0)), x, shape[::-1]), x.T)


@pytest.mark.parametrize("target", [AVX2, SSE])
@pytest.mark.parametrize("shape", [(32, 24), (19, 37)])
def test_matrices_by_shorter_vectors(target, shape):
    x = RNG.standard_normal(shape).astype("float32")
    np.testing.assert_array_equal(outcome(permuted(shape, (1, 0)), x, shape[::-1], target=target), x.T)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((3, 33, 34), (0, 2, 1)),
        ((33, 3, 18), (2, 1, 0)),
        ((2, 40, 5, 9), (0, 2, 3, 1)),
        ((2, 5, 7, 40), (0, 3, 1, 2)),
        ((2, 19, 1, 23), (3, 2, 0, 1)),
    ],
)
def test_axes_inside_of_others(shape, axes):
    x = RNG.standard_normal(shape).astype("float32")
    expected = x.transpose(axes)
    func = permuted(shape, axes)
    assert in_squares(func)
    np.testing.assert_array_equal(outcome(func, x, expected.shape), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint16", "float64", "int64", "bool"])
def test_dtypes(dtype):
    x = (RNG.standard_normal((35, 50)) * 50).astype(getattr(ml_dtypes, dtype, dtype))
    func = permuted(x.shape, (1, 0), dtype)
    assert in_squares(func) == (dtype != "bool")
    np.testing.assert_array_equal(outcome(func, x, (50, 35)), x.T)


def test_conversions():
    x = (RNG.standard_normal((35, 50)) * 50).astype("float32")
    func = permuted(x.shape, (1, 0), result="int16")
    assert in_squares(func)
    np.testing.assert_array_equal(outcome(func, x, (50, 35), "int16"), x.T.astype("int16"))


@pytest.mark.parametrize("shape", [(64, 48), (19, 37), (40, 130)])
def test_what_is_computed_of_elements_is_computed_of_rows(shape):
    source, bias, rows = (
        te.placeholder(s, "float32", name=n) for s, n in ((shape, "source"), (shape[1:], "bias"), (shape[:1], "rows"))
    )
    result = te.compute(
        shape[::-1],
        lambda i, j: te.max(tir.exp(source[j, i] + bias[i]) * rows[j], tir.const(0.5, "float32")),
        name="result",
    )
    func = te.create_prim_func([source, bias, rows, result])
    assert in_squares(func)
    x, b, r = (RNG.standard_normal(s).astype("float32") for s in (shape, shape[1:], shape[:1]))
    found = oneir.runtime.empty(shape[::-1], "float32")
    oneir.build(scheduled(func))["main"](*map(oneir.runtime.tensor, (x, b, r)), found)
    np.testing.assert_allclose(found.numpy(), np.maximum(np.exp(x + b) * r[:, None], 0.5).T, rtol=1e-6)


@pytest.mark.parametrize("rows", [10, 30, 64])
def test_zeros_past_the_end(rows):
    x = RNG.standard_normal((rows, 50)).astype("float32")
    func = permuted(x.shape, (1, 0), pad=6)
    assert in_squares(func)
    np.testing.assert_array_equal(outcome(func, x, (50, rows + 6)), np.pad(x.T, ((0, 0), (0, 6))))


def test_symbolic_extents():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    func = permuted((n, m), (1, 0))
    assert in_squares(func)
    for shape in [(1, 1), (17, 40), (0, 5), (5, 0), (64, 32)]:
        x = RNG.standard_normal(shape).astype("float32")
        np.testing.assert_array_equal(outcome(func, x, shape[::-1]), x.T)


@pytest.mark.parametrize("columns", [10, 37, 64, 256])
def test_products_with_transposed_matrices(columns):
    """Their copies into panels, with zeros at the end of the last one, are transpositions as well."""
    x, w = (RNG.standard_normal((rows, 100)).astype("float32") for rows in (33, columns))
    a, b = (te.placeholder(value.shape, "float32", name=name) for value, name in ((x, "a"), (w, "b")))
    k = te.reduce_axis((0, 100), name="k")
    func = te.create_prim_func([a, b, te.compute((33, columns), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k))])
    schedule = Contraction().apply(func, Target(AVX512))
    assert schedule is not None and "T.Shuffle" in schedule.mod["main"].script()
    schedule = Contraction().apply(func, Target("llvm"))
    assert schedule is not None
    result = oneir.runtime.empty((33, columns), "float32")
    oneir.build(schedule.mod["main"])["main"](*map(oneir.runtime.tensor, (x, w)), result)
    np.testing.assert_allclose(result.numpy(), x @ w.T, rtol=1e-4, atol=1e-4)


def test_what_lies_otherwise_or_is_too_narrow_goes_element_by_element():
    source = te.placeholder((64, 64), "float32", name="source")
    sums = te.compute((64, 64), lambda i, j: source[j, i] + source[i, j], name="sums")
    table = te.compute((64, 64), lambda i, j: source[j, i] * source[i, 3], name="table")
    masked = te.compute((64, 64), lambda i, j: tir.if_then_else(i < j, source[j, i], tir.const(0, "float32")), name="m")
    assert not any(in_squares(te.create_prim_func([source, result])) for result in (sums, table, masked))
    assert not in_squares(permuted((3, 500), (1, 0)))
    assert not in_squares(permuted((64, 64), (0, 1)))
    assert Spatial().apply(permuted((64, 64), (1, 0)), Target("cuda")) is None


@pytest.mark.parametrize("target", [AVX512, AVX2, SSE, NEON])
def test_no_element_is_loaded_by_itself(target):
    func = scheduled(permuted((256, 784), (1, 0)), target)
    asm = oneir.build(func, target=target).inspect_source("asm")
    kernel = asm[: asm.index("_end0")]
    alone = r"insertps|vgather|pinsr|v?movss|\bld1\s*\{ v\d+\.s \}|\bldr\s+s\d|mov\s+v\d+\.s\[\d\], v\d+\.s\[0\]$"
    assert not re.findall(alone, kernel, re.MULTILINE)
    # Nothing that is spilled, either: a square fits into registers.
    assert not re.search(r"\(%[re]sp|\[sp", kernel)
