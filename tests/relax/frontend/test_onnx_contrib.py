"""Operators of ONNX Runtime's own domain, against ONNX Runtime."""

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


def single(operator: str, inputs: list[np.ndarray | None], outputs: int, **attributes: Any) -> onnx.ModelProto:
    """A model of one operator, all inputs but the left out ones inputs of the model."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    results = [f"y{i}" if i in (0, outputs - 1) else "" for i in range(outputs)]
    node = helper.make_node(operator, names, results, domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in zip(names, inputs, strict=True)
            if x is not None
        ],
        [onnx.ValueInfoProto(name=name) for name in results if name],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, high, shape).astype(np.int32)


X, SKIP, SCALE = random(2, 5, 8), random(2, 5, 8) * 2, random(8)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "attributes"),
    [
        ("Gelu", [X], 1, {}),
        ("BiasGelu", [X, SCALE], 1, {}),
        ("FastGelu", [X], 1, {}),
        ("FastGelu", [X, SCALE], 1, {}),
        ("QuickGelu", [X], 1, {"alpha": 1.5}),
        ("FusedMatMul", [X, random(2, 3, 8)], 1, {"transB": 1, "alpha": 0.5}),
        ("SkipLayerNormalization", [X, SKIP, SCALE, random(8)], 1, {"epsilon": 1e-5}),
        ("SkipLayerNormalization", [X, SKIP, SCALE, random(8), random(8)], 4, {"epsilon": 1e-5}),
        ("SkipSimplifiedLayerNormalization", [X, SKIP, SCALE], 4, {"epsilon": 1e-5}),
        (
            "EmbedLayerNormalization",
            [integers(9, 2, 5), integers(2, 2, 5), random(9, 8), random(6, 8), random(2, 8), SCALE, random(8), MASK],
            2,
            {"epsilon": 1e-5},
        ),
        ("Attention", [X, random(8, 24), random(24)], 1, {"num_heads": 2}),
        ("Attention", [X, random(8, 24), random(24), MASK], 1, {"num_heads": 2}),
        (
            "Attention",
            [X, random(8, 24), random(24), None, None, random(2, 2, 5, 5)],
            1,
            {"num_heads": 2, "scale": 0.3},
        ),
        ("MultiHeadAttention", [X, SKIP, random(2, 5, 8)], 1, {"num_heads": 2}),
        ("MultiHeadAttention", [X, random(2, 3, 8), random(2, 3, 8), random(24)], 1, {"num_heads": 2, "scale": 0.3}),
        (
            "MultiHeadAttention",
            [X, SKIP, random(2, 5, 8), None, MASK, random(1, 2, 5, 5)],
            1,
            {"num_heads": 2},
        ),
    ],
)
def test_same_as_onnx_runtime(operator, inputs, outputs, attributes):
    source = single(operator, inputs, outputs, **attributes)
    given = [x for x in inputs if x is not None]
    session = onnxruntime.InferenceSession(source.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {i.name: x for i, x in zip(session.get_inputs(), given, strict=True)})
    found = relax.VirtualMachine(oneir.compile(from_onnx(source), "llvm"), oneir.cpu())["main"](
        *map(oneir.nd.array, given)
    )
    for a, b in zip([found] if len(expected) == 1 else found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=2e-4, atol=2e-4)


def test_what_attention_does_not_do():
    with pytest.raises(
        UnsupportedError, match=r"Attention of com\.microsoft 1\n    a mask of attention given as lengths"
    ):
        from_onnx(single("Attention", [X, random(8, 24), None, integers(4, 2)], 1, num_heads=2))
    with pytest.raises(UnsupportedError, match="attention with past keys and values, a direction or rotations"):
        from_onnx(single("Attention", [X, random(8, 24)], 1, num_heads=2, unidirectional=1))
    with pytest.raises(UnsupportedError, match="queries, keys and values are packed in one tensor"):
        from_onnx(single("MultiHeadAttention", [random(2, 5, 2, 3, 4)], 1, num_heads=2))
    with pytest.raises(UnsupportedError, match="products with transBatchA or transBatchB"):
        from_onnx(single("FusedMatMul", [X, X], 1, transBatchA=1))
