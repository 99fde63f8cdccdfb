"""Products of bytes: exact sums on every kind of processor, by the instructions that it has for them."""

from __future__ import annotations

import numpy as np
import pytest
from processors import target_with

import oneir
from oneir import relax
from oneir.dlight.cpu.relayout import WordPanels
from oneir.ir import IRModule
from oneir.relax import op
from oneir.target import Target

TARGETS = {
    "this machine": ("llvm", ()),
    "AVX2": ("llvm -mcpu=haswell", ("avx2", "fma", "bmi2")),
    "vectors of 32 bytes": ("llvm -mcpu=znver4 -vector-width=256", ("avx512vnni", "avx512vl", "avx512bf16")),
    "no instructions for bytes": ("llvm -mcpu=x86-64-v2", ("sse4.2",)),
}


def computed(mod: IRModule, target: Target, x: np.ndarray) -> np.ndarray:
    return relax.VirtualMachine(relax.build(mod, target), oneir.cpu())["main"](oneir.runtime.tensor(x)).numpy()


def product(rows: object, w: np.ndarray) -> IRModule:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorStructInfo([rows, w.shape[0]], "uint8"))
    with builder.function("main", [data]):
        with builder.dataflow():
            result = builder.emit_output(op.matmul(data, relax.const(w), out_dtype="int32"))
        builder.emit_func_output(result)
    return builder.get()


def convolution(x: np.ndarray, w: np.ndarray, strides: tuple[int, int], padding: int) -> IRModule:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorStructInfo(x.shape, "uint8"))
    with builder.function("main", [data]):
        with builder.dataflow():
            sums = op.nn.conv2d(data, relax.const(w), strides=strides, padding=padding, out_dtype="int32")
            # Of inner values, the layout may be chosen.
            result = builder.emit_output(op.add(builder.emit(sums), relax.const(1, "int32")))
        builder.emit_func_output(result)
    return builder.get()


def expected(x: np.ndarray, w: np.ndarray, strides: tuple[int, int], padding: int) -> np.ndarray:
    wide = np.pad(x.astype(np.int64), [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, w.shape[2:], (2, 3))[:, :, :: strides[0], :: strides[1]]
    return np.einsum("nchwyx,ocyx->nohw", windows, w.astype(np.int64)) + 1


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "strides", "padding"),
    [(64, 64, 1, (1, 1), 0), (12, 35, 3, (2, 1), 1), (3, 8, 3, (1, 1), 1), (16, 100, 2, (2, 2), 0)],
)
def test_convolutions_are_exact(name, channels: int, outputs: int, kernel: int, strides, padding: int) -> None:
    target, rng = target_with(*TARGETS[name]), np.random.default_rng(1)
    x = rng.integers(0, 256, (2, channels, 9, 14)).astype("uint8")
    w = rng.integers(-128, 128, (outputs, channels, kernel, kernel)).astype("int8")
    # Bytes at the ends of their range, where sums in 16 bits saturate.
    x[0, :, :4], w[: outputs // 2] = 255, -128
    result = computed(convolution(x, w, strides, padding), target, x)
    np.testing.assert_array_equal(result, expected(x, w, strides, padding))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 64, 48), (7, 20, 33), (40, 128, 96), (5, 9, 16)])
def test_matrix_products_are_exact(name: str, rows: int, depth: int, columns: int) -> None:
    target, rng = target_with(*TARGETS[name]), np.random.default_rng(2)
    x = rng.integers(0, 256, (rows, depth)).astype("uint8")
    w = rng.integers(-128, 128, (depth, columns)).astype("int8")
    result = computed(product(rows, w), target, x)
    np.testing.assert_array_equal(result, x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.parametrize("name", TARGETS)
def test_any_number_of_rows(name: str) -> None:
    target, rng = target_with(*TARGETS[name]), np.random.default_rng(3)
    w = rng.integers(-128, 128, (64, 80)).astype("int8")
    main = relax.VirtualMachine(relax.build(product(oneir.tir.Var("n", "int64"), w), target), oneir.cpu())["main"]
    for rows in (0, 1, 6, 17, 33):
        x = rng.integers(0, 256, (rows, 64)).astype("uint8")
        result = main(oneir.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(result, x.astype(np.int64) @ w.astype(np.int64))


@pytest.mark.parametrize(
    ("cpu", "instruction"), [("znver4", "vpdpbusd"), ("alderlake", "vpdpbusd"), ("haswell", "vpmaddwd")]
)
def test_processors_use_their_instructions(cpu: str, instruction: str) -> None:
    x, w = np.zeros((1, 64, 8, 8), "uint8"), np.ones((64, 64, 1, 1), "int8")
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    text = relax.build(convolution(x, w, (1, 1), 0), target).mod.inspect_source("asm")
    assert instruction in text
    # Adds up products in 16 bits, which saturate.
    assert "vpmaddubsw" not in text


def test_panels_of_bytes_end_in_zeros() -> None:
    w = np.arange(2 * 8 * 5, dtype="int8").reshape(2, 8, 5)
    packed = WordPanels((0, 1, 2), 4, 4).in_memory(w).numpy()
    assert packed.shape == (2, 2, 2, 4, 4)
    for panel, outer, quad, lane, four in np.ndindex(packed.shape):
        column = 4 * panel + lane
        assert packed[panel, outer, quad, lane, four] == (w[outer, 4 * quad + four, column] if column < 5 else 0)
