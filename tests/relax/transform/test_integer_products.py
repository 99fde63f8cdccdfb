"""IntegerProducts and FoldRequantization: what is computed with integers, and what becomes of scales and zero points.

The numbers are those of the graph as it was, each of whose operators is computed by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir import IRModule
from oneir.relax import op
from oneir.relax.transform import FoldRequantization, IntegerProducts


def module(dtype: str, shape: list[Any], body: Callable[[relax.BlockBuilder, relax.Expr], relax.Expr]) -> IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def operators(mod: IRModule) -> list[str]:
    found: list[str] = []

    def note(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call):
            found.append(expr.op.name.removeprefix("relax."))

    relax.analysis.post_order_visit(mod["main"].body, note)
    return found


def run(mod: IRModule, x: np.ndarray) -> np.ndarray:
    """What a graph computes, operator by operator."""
    built = relax.build(mod, "llvm", relax_pipeline=relax.get_pipeline("default_build"))
    return relax.VirtualMachine(built, oneir.cpu())["main"](oneir.runtime.tensor(x)).numpy()


def dequantized(value: Any, scale: Any, zero: Any, axis: int = 0) -> relax.Call:
    return op.dequantize(value, relax.const(np.float32(scale)), relax.const(zero), axis)


def data_of(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(3).integers(info.min, info.max + 1, shape).astype(dtype)


WEIGHT = np.random.default_rng(4).integers(-127, 128, (6, 5, 3, 3)).astype("int8")
SCALES = np.linspace(0.001, 0.002, 6).astype("float32")


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", np.uint8(0)), ("uint8", np.uint8(9)), ("int8", np.int8(-7))])
def test_convolutions(dtype: str, zero: Any) -> None:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        data = b.emit(dequantized(x, 0.1, zero))
        return op.nn.conv2d(data, dequantized(WEIGHT_CONSTANT, SCALES, np.zeros(6, "int8")), padding=(1, 0, 0, 2))

    before, x = module(dtype, [2, 5, 7, 6], body), data_of(dtype, (2, 5, 7, 6))
    after = IntegerProducts()(before)
    found = operators(after)
    assert found.count("nn.conv2d") == 1 and "dequantize" not in found and found[-1] == "multiply"
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=1e-5)


WEIGHT_CONSTANT = relax.const(WEIGHT)


@pytest.mark.parametrize("transposed", [False, True])
def test_matrix_products_by_weights_with_a_zero_point(transposed: bool) -> None:
    weight = np.random.default_rng(5).integers(100, 150, (9, 4)).astype("uint8")

    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        scales, zeros = np.linspace(0.01, 0.02, 4), np.array([120, 128, 130, 125], "uint8")
        constant = relax.const(weight.T if transposed else weight)
        w = b.emit(dequantized(constant, scales, zeros, 0 if transposed else 1))
        w = b.emit(op.permute_dims(w)) if transposed else w
        return op.matmul(b.emit(dequantized(x, 0.1, np.uint8(77))), w)

    before, x = module("uint8", [2, 3, 9], body), data_of("uint8", (2, 3, 9))
    after = IntegerProducts()(before)
    assert "dequantize" not in operators(after)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=1e-5)


def test_weights_outside_of_int8_stay_floats() -> None:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        w = dequantized(relax.const(np.array([[0, 255]] * 4, "uint8")), 0.1, np.uint8(100))
        return op.matmul(b.emit(dequantized(x, 0.1, np.uint8(0))), b.emit(w))

    before = module("uint8", [3, 4], body)
    assert operators(IntegerProducts()(before)) == operators(before)


def test_what_is_no_constant_stays() -> None:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        data = b.emit(dequantized(x, 0.1, np.uint8(0)))
        return op.matmul(data, data)

    before = module("uint8", [4, 4], body)
    assert operators(IntegerProducts()(before)) == operators(before)


def test_scales_along_the_sum_stay() -> None:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        w = dequantized(relax.const(np.ones((4, 3), "int8")), np.linspace(1, 2, 4), np.zeros(4, "int8"), 0)
        return op.matmul(b.emit(dequantized(x, 0.1, np.uint8(0))), b.emit(w))

    before = module("uint8", [2, 4], body)
    assert operators(IntegerProducts()(before)) == operators(before)


def test_sums_that_could_exceed_32_bits_stay() -> None:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        w = dequantized(relax.const(np.ones((1 << 17, 2), "int8")), 0.1, np.int8(0))
        return op.matmul(b.emit(dequantized(x, 0.1, np.uint8(0))), b.emit(w))

    before = module("uint8", [1, 1 << 17], body)
    assert operators(IntegerProducts()(before)) == operators(before)


def test_what_moves_bytes_is_done_before_they_become_floats() -> None:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        data = b.emit(dequantized(x, 0.1, np.uint8(3)))
        pooled = b.emit(op.nn.max_pool2d(data, (3, 3), padding=1))
        flat = b.emit(op.reshape(b.emit(op.permute_dims(pooled, [0, 2, 3, 1])), (1, -1)))
        return op.quantize(flat, relax.const(np.float32(0.1)), relax.const(np.uint8(3)), 0, "uint8")

    before, x = module("uint8", [1, 2, 6, 6], body), data_of("uint8", (1, 2, 6, 6))
    after = IntegerProducts()(before)
    assert operators(after) == ["nn.max_pool2d", "permute_dims", "reshape"]
    np.testing.assert_array_equal(run(after, x), run(before, x))


def requantized(limits: Callable[[relax.Expr], relax.Expr], zero: Any) -> IRModule:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        scale, shift = (np.linspace(v, 2 * v, 5).astype("float32") for v in (0.01, -3.0))
        value = b.emit(op.multiply(b.emit(op.astype(x, "float32")), relax.const(scale)))
        value = b.emit(limits(b.emit(op.add(value, relax.const(shift)))))
        return op.quantize(value, relax.const(np.float32(0.25)), relax.const(zero), 0, str(zero.dtype))

    return module("int32", [400, 5], body)


LIMITS: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "none": lambda x: op.add(x, relax.const(np.float32(1.5))),
    "relu": op.nn.relu,
    "clip": lambda x: op.clip(x, -1.4, 6.0),
    "clip and relu": lambda x: op.nn.relu(op.clip(x, -9.0, 4.0)),
}


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(130), np.int8(-11)])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_scales_and_limits_become_one(limits: Callable[[relax.Expr], relax.Expr], zero: Any) -> None:
    before = requantized(limits, zero)
    after = FoldRequantization()(before)
    found = operators(after)
    assert "quantize" not in found and "nn.relu" not in found and found.count("multiply") == 1
    x = np.random.default_rng(6).integers(-3000, 3000, (400, 5)).astype("int32")
    difference = np.abs(run(after, x).astype(int) - run(before, x).astype(int))
    assert difference.max() <= 1 and (difference > 0).mean() < 0.01


def test_floats_that_are_used_elsewhere_stay() -> None:
    def body(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        value = b.emit(op.astype(x, "float32"))
        bytes_ = b.emit(op.quantize(value, relax.const(np.float32(2)), relax.const(np.int8(0)), 0, "int8"))
        return op.add(value, op.astype(bytes_, "float32"))

    before = module("int32", [3], body)
    assert operators(FoldRequantization()(before)) == operators(before)
