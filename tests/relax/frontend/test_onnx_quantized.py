"""Quantized ONNX models: what integer kernels compute beside the definition of ONNX, whatever the shapes and zero points.

Sums are exact, so results differ from the definition, in float64 here, only where that lies within rounding of a tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import oneir
from oneir import relax
from oneir.relax.frontend.onnx import from_onnx


class Model:
    """A graph in the QDQ format that is written node by node."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def quantized(self, x: str, scale: float, zero: Any) -> str:
        parameters = [self.constant(np.float32(scale)), self.constant(zero)]
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *parameters), *parameters)

    def weight(self, shape: tuple[int, ...], axis: int, dtype: str = "int8", zero: int = 0) -> str:
        info = np.iinfo(dtype)
        low, high = max(info.min, zero - 127), min(info.max, zero + 127)
        value = self.rng.integers(low, high + 1, shape).astype(dtype)
        scales = self.rng.uniform(0.002, 0.004, shape[axis]).astype(np.float32)
        zeros = np.full(shape[axis], zero, dtype)
        return self.node("DequantizeLinear", *map(self.constant, (value, scales, zeros)), axis=axis)

    def made(self, result: str, shape: list[Any]) -> Any:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "quantized", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def compiled(model: Any) -> Any:
    return relax.VirtualMachine(relax.build(from_onnx(model), "llvm"), oneir.cpu())["main"]


def check(model: Any, *shapes: tuple[int, ...], step: float) -> None:
    """Results are those of ONNX's definition but for one step in a few places."""
    function, definition = compiled(model), ReferenceEvaluator(model)
    for shape in shapes:
        x = np.random.default_rng(7).normal(0, 2, shape).astype(np.float32)
        result, (expected,) = function(oneir.runtime.tensor(x)).numpy(), definition.run(None, {"x": x})
        assert result.shape == expected.shape
        steps = np.abs(result - expected) / step
        assert not steps.size or (steps.max() < 1.001 and (steps > 0.5).mean() < 0.01)
        assert not steps.size or len(np.unique(result)) > 10


ZEROS = {"uint8": np.uint8(117), "uint8 of positive numbers": np.uint8(0), "int8": np.int8(-13)}


@pytest.mark.parametrize("zero", ZEROS.values(), ids=ZEROS)
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "attributes"),
    [
        (8, 16, (1, 1), {}),
        (3, 5, (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        (6, 33, (3, 2), {"pads": [0, 2, 1, 0], "dilations": [2, 1]}),
        (12, 4, (5, 5), {"pads": [2, 2, 2, 2]}),
    ],
)
def test_convolutions(zero: Any, channels: int, outputs: int, kernel: tuple[int, int], attributes: Any) -> None:
    m = Model()
    x = m.quantized("x", 0.05, zero)
    bias = m.constant(m.rng.normal(0, 1, outputs).astype(np.float32))
    y = m.node("Conv", x, m.weight((outputs, channels, *kernel), 0), bias, **attributes)
    result = m.quantized(m.node("Relu", y), 0.03, zero)
    check(m.made(result, ["n", channels, 11, 9]), (1, channels, 11, 9), (3, channels, 11, 9), step=0.03)


@pytest.mark.parametrize("groups", [2, 6])
def test_groups(groups: int) -> None:
    m = Model()
    y = m.node("Conv", m.quantized("x", 0.05, np.uint8(100)), m.weight((12, 6 // groups, 3, 3), 0), group=groups)
    check(m.made(m.quantized(y, 0.02, np.uint8(128)), [2, 6, 8, 8]), (2, 6, 8, 8), step=0.02)


@pytest.mark.parametrize(("dtype", "weight_zero"), [("int8", 0), ("uint8", 128), ("int8", 3)])
def test_products_of_matrices_of_any_number_of_rows(dtype: str, weight_zero: int) -> None:
    m = Model()
    y = m.node("MatMul", m.quantized("x", 0.05, np.uint8(120)), m.weight((19, 21), 1, dtype, weight_zero))
    y = m.node("Add", y, m.constant(m.rng.normal(0, 1, 21).astype(np.float32)))
    model = m.made(m.quantized(y, 0.02, np.int8(3)), ["n", 5, 19])
    check(model, (1, 5, 19), (4, 5, 19), (0, 5, 19), step=0.02)


def test_gemm_of_a_transposed_weight() -> None:
    m = Model()
    bias = m.constant(m.rng.normal(0, 1, 10).astype(np.float32))
    y = m.node("Gemm", m.quantized("x", 0.05, np.uint8(0)), m.weight((10, 32), 0), bias, transB=1)
    check(m.made(m.quantized(y, 0.01, np.uint8(128)), [3, 32]), (3, 32), step=0.01)


def test_residual_blocks_with_pooling() -> None:
    m = Model()
    x = m.quantized("x", 0.05, np.int8(-5))
    first = m.quantized(
        m.node("Relu", m.node("Conv", x, m.weight((16, 4, 3, 3), 0), pads=[1] * 4)), 0.02, np.int8(-128)
    )
    second = m.quantized(m.node("Conv", first, m.weight((16, 16, 1, 1), 0)), 0.03, np.int8(9))
    total = m.quantized(m.node("Relu", m.node("Add", second, first)), 0.04, np.int8(-128))
    pooled = m.node("MaxPool", total, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    pooled = m.quantized(pooled, 0.04, np.int8(-128))
    mean = m.quantized(m.node("GlobalAveragePool", pooled), 0.02, np.int8(-128))
    flat = m.node("Flatten", mean)
    result = m.quantized(m.node("MatMul", flat, m.weight((16, 40), 1)), 0.01, np.int8(0))
    # Each of the layers may round to the other side, so the result may be some steps away in places.
    model = m.made(result, ["n", 4, 10, 10])
    function, definition = compiled(model), ReferenceEvaluator(model)
    data = m.rng.normal(0, 2, (2, 4, 10, 10)).astype(np.float32)
    values, (expected,) = function(oneir.runtime.tensor(data)).numpy(), definition.run(None, {"x": data})
    assert np.abs(values - expected).max() <= 2.001 * 0.01


def test_rounding_is_half_to_even_and_saturates() -> None:
    m = Model()
    model = m.made(m.quantized("x", 0.5, np.uint8(10)), [8])
    x = np.array([0.25, 0.75, 1.25, -0.25, -0.75, 1e9, -1e9, 122.5], np.float32)
    values = compiled(model)(oneir.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(values, [0, 1, 1, 0, -1, 122.5, -5, 122.5])


def test_onnx_runtime_gives_the_same_bytes() -> None:
    runtime = pytest.importorskip("onnxruntime")
    m = Model()
    x = m.quantized("x", 0.05, np.uint8(113))
    y = m.quantized(m.node("Conv", x, m.weight((24, 16, 3, 3), 0), pads=[1] * 4), 0.05, np.uint8(120))
    z = m.quantized(m.node("Conv", y, m.weight((8, 24, 1, 1), 0)), 0.05, np.uint8(125))
    model = m.made(z, [1, 16, 14, 14])
    data = m.rng.normal(0, 2, (1, 16, 14, 14)).astype(np.float32)
    options = runtime.SessionOptions()
    # Without it, sums of two products saturate at 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": data})[0]
    values = compiled(model)(oneir.runtime.tensor(data)).numpy()
    steps = np.abs(values - expected) / 0.05
    assert steps.max() < 1.001 and (steps > 0.5).mean() < 0.01


@pytest.mark.parametrize(
    ("shape", "weight", "attributes"),
    [
        ((2, 6, 20), (9, 6, 3), {"pads": [2, 0]}),
        ((1, 5, 6, 6, 6), (7, 5, 2, 2, 2), {"pads": [1] * 6, "strides": [2, 1, 1]}),
    ],
)
def test_convolutions_of_one_and_three_dimensions_and_of_no_image(shape: Any, weight: Any, attributes: Any) -> None:
    m = Model()
    y = m.node("Conv", m.quantized("x", 0.05, np.uint8(90)), m.weight(weight, 0), **attributes)
    model = m.made(m.quantized(y, 0.02, np.uint8(128)), ["n", *shape[1:]])
    check(model, shape, (0, *shape[1:]), step=0.02)


def test_bytes_that_a_product_and_an_operator_of_floats_read() -> None:
    m = Model()
    x = m.quantized("x", 0.05, np.int8(-9))
    y = m.node("Add", m.node("Conv", x, m.weight((8, 8, 1, 1), 0)), m.node("Sigmoid", x))
    check(m.made(m.quantized(y, 0.02, np.uint8(128)), ["n", 8, 5, 5]), (2, 8, 5, 5), step=0.02)
