"""Recurrent layers of ONNX over a number of steps that is known only when the model runs, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import oneir
from oneir import relax
from oneir.relax.frontend.onnx import from_onnx
from oneir.runtime.error import UnsupportedError

onnxruntime = pytest.importorskip("onnxruntime")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SIZE = 4


def layer(kind: str, units: int, given: tuple[str, ...] = (), bias: bool = True, **attributes: Any) -> onnx.ModelProto:
    """A model of one layer; `given` are inputs that it has besides the data: lengths, h0, c0, and the weights P."""
    rng = np.random.default_rng(units)
    both = attributes.get("direction") == "bidirectional"
    directions, gates = 1 + both, GATES[kind] * units
    shapes = {"W": (directions, gates, SIZE), "R": (directions, gates, units)}
    if bias:
        shapes["B"] = (directions, 2 * gates)
    if "P" in given:
        shapes["P"] = (directions, 3 * units)
    weights = [numpy_helper.from_array(rng.uniform(-0.5, 0.5, s).astype("float32"), n) for n, s in shapes.items()]
    declared = {"X": ["steps", "batch", SIZE], "lengths": ["batch"]}
    declared |= {name: [directions, "batch", units] for name in ("h0", "c0")}
    if attributes.get("layout"):
        declared = {name: [d[1], d[0], *d[2:]] for name, d in declared.items() if len(d) == 3}
    inputs = [n for n in ("X", "lengths", "h0", "c0") if n == "X" or n in given]
    names = ["X", "W", "R", "B", "lengths", "h0", "c0", "P"]
    outputs = ["Y", "Y_h", "Y_c"] if kind == "LSTM" else ["Y", "Y_h"]
    present = [n if n in shapes or n in inputs else "" for n in names]
    while not present[-1]:
        present.pop()
    node = helper.make_node(kind, present, outputs, hidden_size=units, **attributes)
    kinds = {"lengths": onnx.TensorProto.INT32}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, kinds.get(n, onnx.TensorProto.FLOAT), declared[n]) for n in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feed(model: onnx.ModelProto, steps: int, batch: int) -> list[np.ndarray]:
    """Inputs for so many steps and sequences; the lengths are all different as far as that can be."""
    rng = np.random.default_rng(steps)
    made = []
    for value in model.graph.input:
        known = {"steps": steps, "batch": batch}
        shape = [known.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
        if value.name == "lengths":
            made.append((1 + np.arange(batch, dtype="int32") * 3 % steps).astype("int32"))
        else:
            made.append(rng.standard_normal(shape).astype("float32"))
    return made


def check(model: onnx.ModelProto, *sizes: tuple[int, int]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    machine = relax.VirtualMachine(oneir.compile(from_onnx(model), "llvm"), oneir.cpu())
    for steps, batch in sizes:
        inputs = feed(model, steps, batch)
        names = [i.name for i in model.graph.input]
        expected = session.run(None, dict(zip(names, inputs, strict=True)))
        found = machine["main"](*map(oneir.nd.array, inputs))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_any_number_of_steps_and_sequences(kind, direction):
    # More units than two vectors, and no whole number of them; whole tiles of sequences, and less than one.
    check(layer(kind, 37, direction=direction), (7, 5), (1, 1), (4, 8))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_sequences_of_different_lengths(kind, direction):
    states = ("h0", "c0") if kind == "LSTM" else ("h0",)
    check(layer(kind, 16, ("lengths", *states), direction=direction), (7, 5), (3, 2))


@pytest.mark.parametrize("kind", GATES)
def test_weights_that_no_core_keeps(monkeypatch, kind):
    # Threads share the units of each step then, and one direction follows the other.
    monkeypatch.setattr("oneir.topi.nn.recurrent.MOST_KEPT", 0)
    states = ("h0", "c0") if kind == "LSTM" else ("h0",)
    check(layer(kind, 37, ("lengths", *states), direction="bidirectional"), (7, 5), (4, 8), (3, 2))


@pytest.mark.parametrize(
    ("kind", "given", "attributes"),
    [
        ("GRU", (), {"linear_before_reset": 1}),
        ("GRU", (), {"linear_before_reset": 1, "direction": "bidirectional", "clip": 0.4}),
        ("LSTM", ("P", "c0", "h0"), {"direction": "bidirectional"}),
        ("LSTM", ("P",), {"input_forget": 1, "clip": 0.3}),
        (
            "LSTM",
            (),
            {
                "direction": "bidirectional",
                "activations": ["HardSigmoid", "Relu", "Tanh", "Sigmoid", "Softsign", "LeakyRelu"],
                "activation_alpha": [0.25, 0.02],
                "activation_beta": [0.4],
            },
        ),
        ("GRU", (), {"activations": ["Sigmoid", "ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [2.0]}),
        ("RNN", (), {"activations": ["Softplus"]}),
        ("RNN", (), {"activations": ["Elu"], "activation_alpha": [0.7]}),
        ("RNN", (), {"activations": ["ThresholdedRelu"], "activation_alpha": [0.1]}),
        ("RNN", (), {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
    ],
)
def test_options(kind, given, attributes):
    check(layer(kind, 5, given, **attributes), (6, 3))


def test_without_biases():
    for kind in GATES:
        check(layer(kind, 9, bias=False), (4, 2))
    check(layer("GRU", 9, bias=False, linear_before_reset=1), (4, 2))


def test_no_steps():
    model = layer("GRU", 5, ("h0",))
    machine = relax.VirtualMachine(oneir.compile(from_onnx(model), "llvm"), oneir.cpu())
    inputs = feed(model, 1, 2)
    outputs, last = machine["main"](oneir.nd.array(inputs[0][:0]), oneir.nd.array(inputs[1]))
    assert outputs.shape == (0, 1, 2, 5)
    np.testing.assert_array_equal(last.numpy(), inputs[1])


def test_batches_first():
    # ONNX Runtime has no such layout: the same layer with time first is what it must equal.
    plain, turned = (from_onnx(layer("LSTM", 6, ("h0", "c0"), layout=layout)) for layout in (0, 1))
    x, h, c = feed(layer("LSTM", 6, ("h0", "c0")), 5, 3)

    def run(mod: Any, *args: np.ndarray) -> list[np.ndarray]:
        machine = relax.VirtualMachine(oneir.compile(mod, "llvm"), oneir.cpu())
        return [r.numpy() for r in machine["main"](*[oneir.nd.array(np.ascontiguousarray(a)) for a in args])]

    y, *last = run(plain, x, h, c)
    found, *states = run(turned, *(a.transpose(1, 0, 2) for a in (x, h, c)))
    np.testing.assert_allclose(found, y.transpose(2, 0, 1, 3), rtol=1e-6)
    for a, b in zip(states, last, strict=True):
        np.testing.assert_allclose(a, b.transpose(1, 0, 2), rtol=1e-6)


def test_what_is_refused():
    with pytest.raises(UnsupportedError, match="the activation Gelu; these are known: Affine, Elu"):
        from_onnx(layer("RNN", 5, activations=["Gelu"]))
    with pytest.raises(UnsupportedError, match="expected 3 activations for each direction, found 2"):
        from_onnx(layer("LSTM", 5, activations=["Sigmoid", "Tanh"]))
    with pytest.raises(UnsupportedError, match="the direction 'up'; forward, reverse and bidirectional are known"):
        from_onnx(layer("RNN", 5, direction="up"))
    source = layer("LSTM", 5)
    source.graph.input[0].type.tensor_type.shape.dim.add(dim_value=2)
    with pytest.raises(
        UnsupportedError, match="expected sequences of three dimensions, steps, batch and size, found R"
    ):
        from_onnx(source)


def test_a_branch_with_a_layer_of_another_rank_may_be_imported():
    source, other = layer("LSTM", 5), layer("LSTM", 5)
    other.graph.node[0].input[0] = "X4"
    other.graph.node.insert(0, helper.make_node("Unsqueeze", ["X", "axis"], ["X4"]))
    other.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axis"))
    graphs = {"then_branch": source.graph, "else_branch": other.graph}
    for graph in graphs.values():
        del graph.input[:], graph.output[1:]
    value = helper.make_tensor_value_info
    inputs = [value("X", 1, ["steps", "batch", SIZE]), value("go", onnx.TensorProto.BOOL, [])]
    graph = helper.make_graph(
        [helper.make_node("If", ["go"], ["out"], **graphs)], "g", inputs, [onnx.ValueInfoProto(name="out")]
    )
    mod = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert mod["main"].ret_struct_info.ndim == 4
