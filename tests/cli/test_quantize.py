"""`oneir quantize`: the model that it writes, what it says of it, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_results import fails, succeeds
from onnx import TensorProto, helper, numpy_helper
from small_decoders import saved

from benchmarks.llm import Shape, write_gguf
from oneir.driver.load import load
from oneir.relax.frontend.onnx import from_onnx
from oneir.relax.transform import IntegerProducts


def network(batch: int | str = 1, opset: int = 17) -> onnx.ModelProto:
    """Two convolutions with a shortcut, and a classifier."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(0, 0.3, (8, 4, 3, 3)),
        "b1": rng.normal(0, 0.3, 8),
        "w2": rng.normal(0, 0.2, (8, 8, 3, 3)),
        "w3": rng.normal(0, 0.5, (8, 10)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "second", pads=[1] * 4),
        helper.make_node("Add", ["c2", "r1"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def data(tmp_path: Path) -> np.ndarray:
    """`net.onnx` and `calib.npz`, with inputs for 20 calls, in the folder where commands run."""
    onnx.save(network(), tmp_path / "net.onnx")
    x = np.random.default_rng(1).normal(0, 1, (20, 4, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", x=x)
    return x


@pytest.mark.parametrize(
    "options", [[], ["--activations", "int8"], ["--method", "percentile"]], ids=["uint8", "int8", "percentile"]
)
def test_results_are_near_those_of_float32_here_and_in_onnx_runtime(cli, data, tmp_path: Path, options: list[str]):
    text = succeeds(cli("quantize", "net.onnx", "-o", "int8.onnx", "--data", "calib.npz", *options))
    assert "3 products and 7 activations of 8 bits" in text and "same class: " in text
    onnx.checker.check_model(str(tmp_path / "int8.onnx"), full_check=True)
    exact, quantized = load(tmp_path / "net.onnx"), load(tmp_path / "int8.onnx")
    runtime = pytest.importorskip("onnxruntime")
    options_of_session = runtime.SessionOptions()
    # Without it ONNX Runtime's sums of two products saturate on processors without VNNI.
    options_of_session.add_session_config_entry("session.x64quantprecision", "1")
    session = runtime.InferenceSession(tmp_path / "int8.onnx", options_of_session)
    for x in data[:5]:
        expected, found = exact(x[None])[0].numpy(), quantized(x[None])[0].numpy()
        by_runtime = session.run(None, {"x": x[None]})[0]
        scale = np.abs(expected).max()
        assert np.abs(found - expected).max() < 0.1 * scale and np.abs(found - by_runtime).max() < 0.02 * scale
        assert np.abs(found - expected).max() > 0


def test_all_products_are_computed_with_integers(cli, data, tmp_path: Path):
    succeeds(cli("quantize", "net.onnx", "-o", "int8.onnx", "--data", "calib.npz"))
    text = IntegerProducts()(from_onnx(tmp_path / "int8.onnx")).script()
    products = [line for line in text.splitlines() if "R.nn.conv2d" in line or "R.matmul" in line]
    assert len(products) == 3 and all('out_dtype="int32"' in line for line in products)
    assert "R.nn.max_pool2d" in text and '"uint8") = R.nn.max_pool2d' in text


def test_figures_as_json_with_labels_and_what_is_excluded(cli, data, tmp_path: Path):
    exact = load(tmp_path / "net.onnx")
    labels = np.array([exact(x[None])[0].numpy().argmax() for x in data])
    labels[:5] = (labels[:5] + 1) % 10
    np.save(tmp_path / "labels.npy", labels)
    more = ["--labels", "labels.npy", "--exclude", "first", "last", "--json"]
    found = json.loads(succeeds(cli("quantize", "net.onnx", "-o", "int8.onnx", "--data", "calib.npz", *more)))
    assert found["products"] == 1 and found["left"] == {"first": "excluded", "last": "excluded"}
    assert found["accuracy_in_float32"] == 0.75 and 0.5 <= found["accuracy_quantized"] <= 1
    assert 0 < found["errors"]["y"]["rms"] < 0.1 and found["bytes"][1] > 0


def test_a_symbolic_batch(cli, tmp_path: Path):
    onnx.save(network("n"), tmp_path / "net.onnx")
    x = np.random.default_rng(1).normal(0, 1, (6, 4, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", x=x)
    succeeds(cli("quantize", "net.onnx", "-o", "int8.onnx", "--data", "calib.npz"))
    quantized = load(tmp_path / "int8.onnx")
    whole = quantized(x)[0].numpy()
    assert quantized(x[:0])[0].shape == (0, 10)
    for row, expected in zip(x, whole, strict=True):
        np.testing.assert_array_equal(quantized(row[None])[0].numpy()[0], expected)


def test_what_is_refused(cli, data, tmp_path: Path):
    message = fails(cli("quantize", "{models}/net.pt2", "-o", "a.onnx", "--data", "calib.npz"))
    assert (
        "an ONNX model, whose name ends in .onnx, or a language model, a folder or .gguf file, is quantized; found"
        in message
    )
    message = fails(cli("quantize", "nowhere", "-o", "small", "--form", "q4_0"))
    assert message == "oneir quantize: there is no file or folder nowhere"
    np.savez(tmp_path / "other.npz", image=data)
    message = fails(cli("quantize", "net.onnx", "-o", "a.onnx", "--data", "other.npz"))
    assert "other.npz has no array for the input x; it has image" in message
    np.savez(tmp_path / "wide.npz", x=data[:, :, :7])
    message = fails(cli("quantize", "net.onnx", "-o", "a.onnx", "--data", "wide.npz"))
    assert "the input `x` is float32[1, 4, 8, 8]; the array in wide.npz has the shape (20, 4, 7, 8)" in message
    message = fails(cli("quantize", "net.onnx", "-o", "a.onnx", "--data", "calib.npz", "--exclude", "third"))
    assert "no node of the model is called third" in message
    message = fails(cli("quantize", "net.onnx", "-o", "a.onnx", "--data", "calib.npz", "--percentile", "5"))
    assert "expected a percentile above 50 and at most 100, found 5" in message
    data[3, 0, 0, 0] = np.nan
    np.savez(tmp_path / "calib.npz", x=data)
    message = fails(cli("quantize", "net.onnx", "-o", "a.onnx", "--data", "calib.npz"))
    assert "the tensor x has values that are not finite" in message


def test_models_that_cannot_be_quantized(cli, data, tmp_path: Path):
    onnx.save(network(opset=12), tmp_path / "old.onnx")
    message = fails(cli("quantize", "old.onnx", "-o", "a.onnx", "--data", "calib.npz"))
    assert "scales for each channel need opset 13, the model has 12" in message
    succeeds(cli("quantize", "net.onnx", "-o", "int8.onnx", "--data", "calib.npz"))
    message = fails(cli("quantize", "int8.onnx", "-o", "a.onnx", "--data", "calib.npz"))
    assert "the model is quantized already" in message
    both = ["--exclude", "first", "second", "last"]
    message = fails(cli("quantize", "net.onnx", "-o", "a.onnx", "--data", "calib.npz", *both))
    assert "no convolution or matrix product of float32 with constant weights" in message
    assert "first: excluded" in message


def test_a_folder_gets_blocks_for_weights(cli, tmp_path: Path):
    source = tmp_path / "model"
    saved(source, "LlamaConfig", {})
    printed = succeeds(cli("quantize", str(source), "-o", str(tmp_path / "small")))
    assert re.fullmatch(r".*small: [\d.]+ \w+, from [\d.]+ \w+; 16 weights of q4_0\n", printed)
    assert json.loads((tmp_path / "small" / "config.json").read_text())["quantization_config"]["format"] == "Q4_0"
    message = fails(cli("quantize", str(source), "-o", str(tmp_path / "other"), "--data", "x.npz"))
    assert "whose weights alone are quantized" in message


def test_a_gguf_file_becomes_another(cli, tmp_path: Path):
    write_gguf(tmp_path / "floats.gguf", Shape("llama", 1, 64, 2, 1, 32, 96, 320, tied=False), "bf16")
    printed = succeeds(cli("quantize", "floats.gguf", "-o", "small.gguf", "--form", "q8_0"))
    assert re.fullmatch(r"small.gguf: [\d.]+ kB, from [\d.]+ kB; 9 weights of q8_0\n", printed)
    message = fails(cli("quantize", "small.gguf", "-o", "smaller.gguf"))
    assert message.startswith(
        "oneir quantize: small.gguf: the weights are quantized already, token_embd.weight is Q8_0;"
    )
    assert "name it with .gguf at its end, found small" in fails(cli("quantize", "floats.gguf", "-o", "small"))
    assert "nowhere/small.gguf" in fails(cli("quantize", "floats.gguf", "-o", "nowhere/small.gguf"))
    assert "missing.gguf: expected a file, found none" in fails(cli("quantize", "missing.gguf", "-o", "a.gguf"))
    assert sorted(path.name for path in tmp_path.glob("*.gguf*")) == ["floats.gguf", "small.gguf"]


def test_options_of_the_other_kind(cli, data):
    message = fails(cli("quantize", "net.onnx", "-o", "a.onnx", "--data", "calib.npz", "--form", "q4_0"))
    assert "net.onnx is an ONNX model: --form is for language models" in message
    assert "calibration needs --data FILE.npz" in fails(cli("quantize", "net.onnx", "-o", "a.onnx"))
