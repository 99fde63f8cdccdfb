"""Products of bfloat16 with constant weights: by the dot products of the processor, where it has some."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from processors import target_with

import oneir
from oneir import relax
from oneir.ir import IRModule
from oneir.relax import op
from oneir.target import Target

TARGETS = {
    "this machine": ("llvm", ()),
    "AVX2": ("llvm -mcpu=x86-64-v3", ("avx2", "fma", "bmi2")),
    "dot products": ("llvm -mcpu=znver4", ("avx512f", "avx512vl", "avx512bf16", "vaes", "clwb")),
}


def random(*shape: int) -> np.ndarray:
    # Sixteenths of few bits: products and sums are exact in float32, in any order.
    return (np.random.default_rng(3).integers(-16, 17, shape) / 16).astype(ml_dtypes.bfloat16)


def product(rows: object, w: np.ndarray, transposed: bool = False) -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo([w.shape[0], rows] if transposed else [rows, w.shape[0]], "bfloat16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            data = builder.emit(op.permute_dims(x)) if transposed else x
            y = builder.emit(op.matmul(data, relax.const(w), out_dtype="bfloat16"))
            result = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(result)
    return builder.get()


def run(mod: IRModule, target: Target | str, x: np.ndarray) -> np.ndarray:
    return relax.VirtualMachine(relax.build(mod, target), oneir.cpu())["main"](oneir.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(64, 128, 96), (7, 30, 33), (5, 9, 16), (1, 64, 48)])
def test_matrix_products(name: str, transposed: bool, rows: int, depth: int, columns: int) -> None:
    target = target_with(*TARGETS[name])
    x, w = random(rows, depth), random(depth, columns)
    expected = np.maximum(x.astype("float64") @ w.astype("float64"), 0).astype(ml_dtypes.bfloat16)
    given = np.ascontiguousarray(x.T) if transposed else x
    np.testing.assert_array_equal(run(product(rows, w, transposed), target, given), expected)


@pytest.mark.parametrize("name", TARGETS)
def test_any_number_of_rows(name: str) -> None:
    w = random(64, 80)
    built = relax.build(product(oneir.tir.Var("n", "int64"), w), target_with(*TARGETS[name]))
    main = relax.VirtualMachine(built, oneir.cpu())["main"]
    for rows in (1, 6, 17, 33):
        x = random(rows, 64)
        expected = np.maximum(x.astype("float64") @ w.astype("float64"), 0).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(main(oneir.runtime.tensor(x)).numpy(), expected)


@pytest.mark.parametrize("name", TARGETS)
def test_convolutions(name: str) -> None:
    target = target_with(*TARGETS[name])
    x, w = random(1, 16, 9, 14), random(40, 16, 3, 3)
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorStructInfo(x.shape, "bfloat16"))
    with builder.function("main", [data]):
        with builder.dataflow():
            sums = op.nn.conv2d(data, relax.const(w), padding=1, out_dtype="bfloat16")
            result = builder.emit_output(op.nn.relu(builder.emit(sums)))
        builder.emit_func_output(result)
    padded = np.pad(x.astype("float64"), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.maximum(np.einsum("nchwyx,ocyx->nohw", windows, w.astype("float64")), 0)
    np.testing.assert_array_equal(run(builder.get(), target, x), expected.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(("cpu", "found"), [("znver4", True), ("haswell", False), ("emeraldrapids", False)])
def test_the_instruction_is_used_where_it_is_fast(cpu: str, found: bool) -> None:
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    text = relax.build(product(64, random(64, 64)), target).mod.inspect_source("asm")
    assert ("vdpbf16ps" in text) == found
