"""A small network against PyTorch and ONNX Runtime: `python -m benchmarks.mlp`.

The two-layer perceptron 784-256-10 at batch 1, called from Python with prepared tensors. Printed: the time of one call,
what of it is not the kernels, and how long compiling takes, from nothing and from the cache (each in a process of its
own, after the imports).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import oneir
from benchmarks.measure import interleaved, verdict
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program


def perceptron(*sizes: int) -> torch.nn.Module:
    """Linear layers with a ReLU between each two."""
    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers += [torch.nn.ReLU()] * (i > 0) + [torch.nn.Linear(inputs, outputs)]
    return torch.nn.Sequential(*layers).eval()


def imported(model: torch.nn.Module, inputs: int) -> oneir.IRModule:
    """The model as a graph, its weights bound."""
    with torch.no_grad():
        program = torch.export.export(model, (torch.zeros(1, inputs),))
    return from_exported_program(program, unwrap_unit_return_tuple=True)


def compiled(model: torch.nn.Module, inputs: int) -> Any:
    """The function that runs the model natively."""
    return relax.VirtualMachine(relax.build(imported(model, inputs)), oneir.cpu())["main"]


def in_onnx_runtime(model: torch.nn.Module, x: np.ndarray) -> Any:
    """The model in ONNX Runtime, as a function without arguments; None where that is not installed."""
    try:
        import onnx
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return None
    nodes, weights, value = [], [], "x"
    for name, layer in model.named_children():
        result = f"y{name}"
        if isinstance(layer, torch.nn.Linear):
            for part, array in (("w", layer.weight), ("b", layer.bias)):
                weights.append(numpy_helper.from_array(array.detach().numpy(), f"{part}{name}"))
            nodes.append(helper.make_node("Gemm", [value, f"w{name}", f"b{name}"], [result], transB=1))
        else:
            nodes.append(helper.make_node("Relu", [value], [result]))
        value = result
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, (len(x), None))]
    graph = helper.make_graph(nodes, "mlp", inputs, outputs, weights)
    text = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    text.ir_version = 8
    onnx.checker.check_model(text)
    session = onnxruntime.InferenceSession(text.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})


BUILD = """
import time, numpy, torch
from benchmarks.mlp import imported, perceptron
from oneir import relax
import oneir.driver.graph
import llvmlite.binding
mod = imported(perceptron(784, 256, 10), 784)
start = time.perf_counter()
relax.VirtualMachine(relax.build(mod), __import__("oneir").cpu())["main"](numpy.zeros((1, 784), "float32"))
print(time.perf_counter() - start)
"""


def time_to_compile(cache: str) -> float:
    """Seconds to build the model and run it once, in a new process."""
    environment = {**os.environ, "ONEIR_CACHE_DIR": cache}
    done = subprocess.run([sys.executable, "-c", BUILD], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    model, x = perceptron(784, 256, 10), np.random.default_rng(0).random((1, 784), "float32")
    function, data, tensor = compiled(model, 784), oneir.runtime.tensor(x), torch.from_numpy(x)
    tiny, one = compiled(perceptron(1, 1, 1), 1), oneir.runtime.tensor(np.ones((1, 1), "float32"))
    with torch.inference_mode():
        error = float(np.abs(function(data).numpy() - model(tensor).numpy()).max())
        contestants: dict[str, Any] = {
            "oneir": lambda: function(data),
            "torch eager": lambda: model(tensor),
            "oneir, without work": lambda: tiny(one),
        }
        peer = in_onnx_runtime(model, x)
        if peer is not None:
            contestants["ONNX Runtime"] = peer
        times = interleaved(contestants)
    print(f"MLP 784-256-10, batch 1, {torch.get_num_threads()} threads; largest difference from torch {error:.1e}")
    for name, seconds in times.items():
        print(f"  {name:<20} {seconds * 1e6:8.1f} us")
    print(f"  torch / oneir        {times['torch eager'] / times['oneir']:8.2f}    ", end="")
    print(verdict(times["torch eager"] / times["oneir"], 1.0, True))
    if peer is not None:
        print(f"  ONNX Runtime / oneir {times['ONNX Runtime'] / times['oneir']:8.2f}")
    overhead = times["oneir, without work"] * 1e6
    print(f"  all but the kernels  {overhead:8.2f} us {verdict(overhead, 5.0, False)}")
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = time_to_compile(cache), min(time_to_compile(cache) for _ in range(3))
    print(f"  compiled in          {cold:8.2f} s  {verdict(cold, 0.5, False)}")
    print(f"  from the cache in    {warm:8.3f} s  {verdict(warm, 0.1, False)}")


if __name__ == "__main__":
    main()
