"""Quantized and fused operators of ONNX Runtime's own domain, as its quantizer and optimizer write them, against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import oneir
from oneir import relax
from oneir.relax.frontend.onnx import from_onnx
from oneir.runtime.error import UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")


def single(operator: str, inputs: list[np.ndarray | None], **attributes: Any) -> onnx.ModelProto:
    """A model of one operator, all inputs but the left out ones inputs of the model."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    given = [(n, x) for n, x in zip(names, inputs, strict=True) if x is not None]
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), np.shape(x))
        for n, x in given
    ]
    node = helper.make_node(operator, names, ["y"], domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def integers(dtype: str, *shape: int) -> np.ndarray:
    info, rng = np.iinfo(dtype), np.random.default_rng(sum(shape))
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def real(value: float) -> np.ndarray:
    return np.float32(value)


A, B, IMAGE = integers("uint8", 2, 3, 8), integers("uint8", 3, 8), integers("uint8", 1, 3, 6, 6)
S, T, U = (real(v) for v in (0.0213, 0.0517, 0.0731))
Z = np.uint8(120)
# ONNX Runtime's sums of two products, unsigned by signed, saturate at 16 bits on processors without VNNI; not these.
WEIGHTS = integers("int8", 4, 8) // 2
CASES = {
    "add": ("QLinearAdd", [A, S, Z, B, T, np.uint8(7), U, Z], {}),
    "mul": ("QLinearMul", [A, S, Z, B, T, Z, real(0.1), Z], {}),
    "signed": (
        "QLinearAdd",
        [integers("int8", 4, 5), S, np.int8(3), integers("int8", 5), T, np.int8(-4), U, np.int8(0)],
        {},
    ),
    "leaky": ("QLinearLeakyRelu", [A, S, Z, T, Z], {"alpha": 0.2}),
    "sigmoid": ("QLinearSigmoid", [A, S, Z, real(1 / 256), np.uint8(0)], {}),
    "softmax": ("QLinearSoftmax", [A, S, Z, real(1 / 256), np.uint8(0)], {"axis": -1, "opset": 13}),
    "means": ("QLinearGlobalAveragePool", [IMAGE, S, Z, T, Z], {}),
    "pool": ("QLinearAveragePool", [IMAGE, S, Z, T, Z], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "concat": ("QLinearConcat", [U, Z, A, S, Z, A, T, np.uint8(9)], {"axis": 1}),
    "gemm": (
        "QGemm",
        [B, S, Z, WEIGHTS, T, np.int8(0), np.arange(4, dtype="int32"), real(0.3), Z],
        {"transB": 1, "alpha": 0.5},
    ),
    "gemm, a scale for each column": (
        "QGemm",
        [B, S, Z, WEIGHTS.reshape(8, 4), np.linspace(0.01, 0.04, 4, dtype="float32"), np.zeros(4, "int8")],
        {"alpha": 1.0},
    ),
    "convolution": ("FusedConv", [floats(1, 3, 6, 6), floats(4, 3, 3, 3), floats(4)], {"activation": "Relu"}),
    "residual": (
        "FusedConv",
        [floats(1, 3, 6, 6), floats(4, 3, 3, 3), floats(4), floats(1, 4, 4, 4)],
        {"activation": "Relu", "kernel_shape": [3, 3]},
    ),
    "clipped": (
        "FusedConv",
        [floats(1, 3, 6, 6), floats(4, 3, 3, 3)],
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
    ),
    "product": (
        "FusedGemm",
        [floats(3, 8), floats(4, 8), floats(4)],
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_onnx_runtime(name):
    operator, inputs, attributes = CASES[name]
    source = single(operator, inputs, **attributes)
    given = [np.asarray(x) for x in inputs if x is not None]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {i.name: x for i, x in zip(session.get_inputs(), given, strict=True)})
    machine = relax.VirtualMachine(oneir.compile(from_onnx(source), "llvm"), oneir.cpu())
    found = machine["main"](*map(oneir.nd.array, given)).numpy()
    assert found.dtype == expected.dtype
    # Where a number lies between two steps, rounding errors decide which one it becomes.
    step = 1 if expected.dtype.kind in "iu" else 1e-4
    difference = np.abs(found.astype("float64") - expected.astype("float64"))
    assert difference.max() <= step and (difference > step / 2).mean() < 0.02


def test_what_is_refused():
    with pytest.raises(UnsupportedError, match="a quantized softmax over several axes, as before opset 13"):
        from_onnx(single("QLinearSoftmax", [A, S, Z, T, Z], axis=1, opset=12))
    with pytest.raises(UnsupportedError, match="quantized images with channels last"):
        from_onnx(single("QLinearGlobalAveragePool", [IMAGE, S, Z, T, Z], channels_last=1))
    with pytest.raises(UnsupportedError, match="the activation Mish after a product"):
        from_onnx(single("FusedConv", [floats(1, 3, 6, 6), floats(4, 3, 3, 3)], activation="Mish"))
