"""From ONNX to native code: the convolutional network of Fashion-MNIST, as an ONNX file, classifies 1,000 images.

    python -m examples.onnx_cnn [--output FILE.onnx]

Writes the file with `onnx.helper` out of trained weights, imports and compiles it, and compares answers and times with
ONNX Runtime, where that is installed, and with the labels of the images.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import oneir
from examples.fashion_mnist.models import CLASSES, FOLDER, load_images
from oneir import relax
from oneir.relax.frontend.onnx import from_onnx
from oneir.runtime import load_param_dict_from_file

console = Console()


def onnx_model() -> onnx.ModelProto:
    """Two convolutions with batch norm and max pooling, a linear layer: float32 (batch, 1, 28, 28) to (batch, 10)."""
    weights = {name: value.numpy() for name, value in load_param_dict_from_file(FOLDER / "cnn.safetensors").items()}
    nodes, value = [], "images"
    for layer in ("1", "2"):
        norm = [f"bn{layer}.{name}" for name in ("weight", "bias", "running_mean", "running_var")]
        conv, normal, relu, pool = (f"{name}{layer}" for name in ("convolved", "normal", "relu", "pooled"))
        nodes += [
            helper.make_node("Conv", [value, f"conv{layer}.weight"], [conv], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [conv, *norm], [normal]),
            helper.make_node("Relu", [normal], [relu]),
            helper.make_node("MaxPool", [relu], [pool], kernel_shape=[2, 2], strides=[2, 2]),
        ]
        value = pool
    nodes += [
        helper.make_node("Flatten", [value], ["features"]),
        helper.make_node("Gemm", ["features", "fc.weight", "fc.bias"], ["logits"], transB=1),
    ]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "fashion_mnist_cnn",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 1, 28, 28])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def compiled(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """The model of a file as a function of images; says what it does on the way."""
    mod = from_onnx(path)
    start = time.perf_counter()
    program = relax.build(mod, "llvm")
    console.print(f"compiled for this machine in {time.perf_counter() - start:.2f} s")
    run = relax.VirtualMachine(program, oneir.cpu())["main"]
    return lambda images: run(images).numpy()


def onnx_runtime(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """The model of a file in ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"images": images})[0]


def milliseconds(call: Callable[[], object]) -> float:
    """The median time of a call, of as many as fit into 0.3 s."""
    times: list[float] = []
    while sum(times) < 300 and len(times) < 200:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("build/fashion_cnn.onnx"), help="where to write the model")
    path = parser.parse_args().output
    console.rule("ONNX: a convolutional network for Fashion-MNIST")
    model = onnx_model()
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    console.print(f"{path}: {', '.join(node.op_type for node in model.graph.node)}; {path.stat().st_size:,} bytes")
    runtimes = {"OneIR": compiled(path)}
    if importlib.util.find_spec("onnxruntime") is not None:
        runtimes["ONNX Runtime"] = onnx_runtime(path)
    images, labels = load_images()
    x = (images.astype("float32") / 255).reshape(-1, 1, 28, 28)
    logits = {name: run(x) for name, run in runtimes.items()}
    ours = logits["OneIR"].argmax(axis=1)
    for image in range(5):
        console.print(f"image {image}: {CLASSES[ours[image]]}, labelled {CLASSES[labels[image]]}", highlight=False)
    table = Table(title="1,000 test images, and one image at a time: milliseconds")
    for column in ("runtime", "right", "same answers", "difference", "1,000 images", "one image"):
        table.add_column(column, justify="left" if column == "runtime" else "right")
    for name, run in runtimes.items():
        found = logits[name].argmax(axis=1)
        table.add_row(
            name,
            f"{(found == labels).mean():.1%}",
            f"{(found == ours).sum()}/{len(labels)}",
            f"{np.abs(logits[name] - logits['OneIR']).max():.1e}",
            f"{milliseconds(lambda run=run: run(x)):.1f}",
            f"{milliseconds(lambda run=run: run(x[:1])):.3f}",
        )
        assert (found == ours).all(), f"{name} and OneIR give different answers"
    console.print(table)
    console.print(f"the same on the command line: oneir run {path} --extent batch=8 --repeat 100", highlight=False)


if __name__ == "__main__":
    main()
