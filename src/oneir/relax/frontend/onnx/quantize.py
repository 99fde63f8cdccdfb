"""Quantizes ONNX models: pairs of QuantizeLinear and DequantizeLinear around products, and what is between them.

    plan = plan_of(model)                          # which tensors become bytes
    observed = with_outputs(model, plan.tensors)   # the model that gives their values too, for calibration
    quantized = insert_pairs(model, plan, ranges)  # with the smallest and the largest value of each

Weights have a scale for each output and no zero point; activations one scale and zero point; biases are int32 with the
scale of the sums. Results of the model stay floats. Scales are chosen so that 0 is a byte, as padding needs it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ....runtime.error import InvalidValue, UnsupportedError

_FIRST_OPSET = 13
"""Since which scales may be given for each index of an axis."""

_CHANNEL = {"Conv": 0, "Gemm": 1, "MatMul": 1}
"""The dimension of the weight that the outputs are, by kind of product; of a transposed one of Gemm, 0."""

_LIMITERS = ("Relu", "Clip")
"""What follows a product before it is quantized."""

_SELECTING = ("MaxPool", "Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze")
"""What gives elements of its input: the result has the scale of the input."""

_OVER_BYTES = ("Add", "AveragePool", "GlobalAveragePool", "Concat")
"""What is computed of bytes where all inputs are, and gives bytes."""


@dataclass
class Plan:
    """What is quantized of a model."""

    products: list[int] = field(default_factory=list)
    """The products, whose weights are constants, by their places in the graph."""
    tensors: list[str] = field(default_factory=list)
    """Activations that become bytes, in the order in which they are computed."""
    scale_of: dict[str, str] = field(default_factory=dict)
    """Those that share the scale of another."""
    left: list[tuple[str, str]] = field(default_factory=list)
    """Products that stay floats, and why."""


def plan_of(model: onnx.ModelProto, exclude: Sequence[str] = ()) -> Plan:
    """Which products and activations of a model become bytes; `exclude` names nodes that stay as they are.

    Raises `UnsupportedError` for a model of an opset before 13, or quantized already, and `InvalidValue` for names of
    no node.
    """
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset < _FIRST_OPSET:
        raise UnsupportedError(
            f"scales for each channel need opset {_FIRST_OPSET}, the model has {opset}; "
            "onnx.version_converter.convert_version converts it"
        )
    nodes = model.graph.node
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in nodes):
        raise UnsupportedError("the model is quantized already: it has QuantizeLinear or DequantizeLinear")
    unknown = sorted(set(exclude) - {node.name for node in nodes})
    if unknown:
        raise InvalidValue(f"no node of the model is called {', '.join(unknown)}; `exclude` takes names of nodes")
    floats = _float_tensors(model)
    users: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in nodes:
        for name in node.input:
            users[name].append(node)
    constants = _constants(model)
    outputs = {o.name for o in model.graph.output}
    plan, chosen = Plan(), set[str]()

    def choose(name: str, like: str | None = None) -> None:
        if name not in chosen and name not in outputs:
            chosen.add(name)
            plan.tensors.append(name)
            if like is not None:
                plan.scale_of[name] = plan.scale_of.get(like, like)

    for place, node in enumerate(nodes):
        kind, (result, *_) = node.op_type, node.output
        if kind in _CHANNEL:
            why = _refused(node, constants, floats, exclude)
            if why:
                plan.left.append((node.name or result, why))
                continue
            plan.products.append(place)
            choose(node.input[0])
            end = result
            while len(users[end]) == 1 and users[end][0].op_type in _LIMITERS and end not in outputs:
                end = users[end][0].output[0]
            if kind == "Conv" or all(user.op_type in (*_CHANNEL, *_SELECTING) for user in users[end]):
                choose(end)
        elif node.name in exclude:
            continue
        elif kind in _SELECTING and node.input[0] in chosen and len(node.output) == 1:
            choose(result, like=node.input[0])
        elif kind in _OVER_BYTES and chosen.issuperset(node.input):
            end = result
            while len(users[end]) == 1 and users[end][0].op_type in _LIMITERS and end not in outputs:
                end = users[end][0].output[0]
            choose(end)
    return plan


def _refused(
    node: onnx.NodeProto, constants: Mapping[str, np.ndarray], floats: set[str], exclude: Sequence[str]
) -> str:
    """Why a product stays as it is; nothing where it is quantized."""
    weight = constants.get(node.input[1])
    if node.name in exclude:
        return "excluded"
    if weight is None:
        return "its weight is no constant"
    if weight.dtype != np.float32 or node.input[0] not in floats:
        return "it is not of float32"
    if node.op_type != "Conv" and weight.ndim != 2:
        return f"its weight has {weight.ndim} dimensions"
    options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "Gemm" and (options.get("transA") or {options.get(k, 1.0) for k in ("alpha", "beta")} != {1.0}):
        return "it has a factor, or its first operand is transposed"
    if len(node.input) > 2 and node.input[2] and node.input[2] not in constants:
        return "its bias is no constant"
    return ""


def _constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    found = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    """The tensors of float32, as far as ONNX infers."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    known = (*graph.input, *graph.value_info, *graph.output)
    return {v.name for v in known if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}


def with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with these tensors of float32 as results, in place of its own."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    del new.graph.output[:]
    new.graph.output.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    return new


def insert_pairs(
    model: onnx.ModelProto, plan: Plan, ranges: Mapping[str, tuple[float, float]], dtype: str = "uint8"
) -> onnx.ModelProto:
    """The quantized model. `ranges` has the smallest and the largest value of each tensor of the plan; `dtype` is that
    of activations, "uint8" or "int8".
    """
    new = onnx.ModelProto()
    new.CopyFrom(model)
    constants, graph = _constants(model), new.graph
    parameters = {name: _parameters(*ranges[plan.scale_of.get(name, name)], dtype) for name in plan.tensors}
    made: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    weights: dict[str, str] = {}
    inserted: list[onnx.NodeProto] = []

    def constant(name: str, value: np.ndarray) -> str:
        graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def dequantized(name: str, value: np.ndarray, scale: np.ndarray, axis: int) -> str:
        result = f"{name}_dequantized"
        zero = constant(f"{name}_zero_point", np.zeros(scale.shape, value.dtype))
        inputs = [constant(f"{name}_quantized", value), constant(f"{name}_scale", scale), zero]
        inserted.append(helper.make_node("DequantizeLinear", inputs, [result], f"{name}_dequantize", axis=axis))
        return result

    for name, (scale, zero) in parameters.items():
        pair = [constant(f"{name}_scale", scale), constant(f"{name}_zero_point", zero)]
        quantize = helper.make_node("QuantizeLinear", [name, *pair], [f"{name}_quantized"], f"{name}_quantize")
        back = helper.make_node(
            "DequantizeLinear", [f"{name}_quantized", *pair], [f"{name}_dequantized"], f"{name}_dequantize"
        )
        made[name] = [quantize, back]
    for place in plan.products:
        node = graph.node[place]
        weight = constants[node.input[1]]
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        axis = 0 if transposed else _CHANNEL[node.op_type]
        key = f"{node.input[1]} {axis}"
        values, scales = _symmetric(weight, axis)
        if key not in weights:
            weights[key] = dequantized(f"{node.input[1]}_{axis}", values, scales, axis)
        if len(node.input) > 2 and node.input[2]:
            sums = scales * parameters[node.input[0]][0]
            bias = constants[node.input[2]]
            if bias.shape == sums.shape:
                whole = np.clip(np.rint(bias / sums.astype(np.float64)), -(2**31), 2**31 - 1).astype(np.int32)
                node.input[2] = dequantized(f"{node.output[0]}_bias", whole, sums.astype(np.float32), 0)
        node.input[1] = weights[key]
    _read_bytes(graph, made, inserted)
    return new


def _read_bytes(graph: Any, made: Mapping[str, list[onnx.NodeProto]], first: Sequence[onnx.NodeProto]) -> None:
    """Puts the pairs behind what computes their tensors, whose users then read what comes out of them."""
    nodes: list[onnx.NodeProto] = [*first]
    for value in graph.input:
        nodes += made.get(value.name, [])
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in made:
                node.input[place] = f"{name}_dequantized"
        nodes.append(node)
        for name in node.output:
            nodes += made.get(name, [])
    used = {name for node in nodes for name in node.input} | {o.name for o in graph.output}
    kept = [initializer for initializer in graph.initializer if initializer.name in used]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(copies)
    graph.initializer.extend(kept)


def _parameters(low: float, high: float, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The scale and the zero point of activations from `low` to `high`, of which 0 is one."""
    info = np.iinfo(dtype)
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (info.max - info.min) or 1.0
    zero = int(np.clip(np.rint(info.min - low / scale), info.min, info.max))
    return np.asarray(scale, np.float32), np.asarray(zero, dtype)


def _symmetric(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights as int8 from -127 to 127, and their scales along an axis."""
    others = tuple(i for i in range(weight.ndim) if i != axis)
    largest = np.abs(weight).max(axis=others, initial=0.0, keepdims=True)
    scale = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale.reshape(-1)
