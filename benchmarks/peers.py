"""The contestants of `benchmarks.models`, and what is prepared for them.

Each loader takes a `Case` and returns a function without arguments that runs the model and gives its result, an array.
All of them compute in float32, with as many threads as the process's OMP_NUM_THREADS says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[], np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model of the zoo with its sizes, and the folder that its files are in."""

    model: str
    batch: int
    seq: int
    folder: Path

    def make(self) -> tuple[Any, Any]:
        from benchmarks.zoo import MODELS

        return MODELS[self.model].make(self.batch, self.seq)

    @property
    def inputs(self) -> list[np.ndarray]:
        """The inputs as arrays, which `reference` saved."""
        with np.load(self.folder / "inputs.npz") as arrays:
            return [arrays[name] for name in sorted(arrays)]


def threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


# -- prepared once for a model, each in a process of its own; the result is the time that counts, in seconds --


def reference(case: Case) -> float:
    """Saves the inputs, and what PyTorch computes from them in float64."""
    import torch

    module, inputs = case.make()
    np.savez(case.folder / "inputs.npz", **{f"x{i}": x.numpy() for i, x in enumerate(inputs)})
    start = time.perf_counter()
    with torch.inference_mode():
        exact = module.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    np.save(case.folder / "reference.npy", exact.numpy())
    return time.perf_counter() - start


def onnx_file(case: Case) -> float:
    """Saves the model as PyTorch's exporter writes it in ONNX."""
    import torch

    module, inputs = case.make()
    start = time.perf_counter()
    names = [f"x{i}" for i in range(len(inputs))]
    torch.onnx.export(module, inputs, str(case.folder / "model.onnx"), dynamo=True, input_names=names, verbose=False)
    return time.perf_counter() - start


def compiled_by_oneir(case: Case) -> float:
    """Saves the model as OneIR compiles it, from an exported program, with no cache."""
    from benchmarks.zoo import exported
    from oneir import relax
    from oneir.relax.frontend.torch import from_exported_program

    program = exported(*case.make())
    start = time.perf_counter()
    relax.build(from_exported_program(program, unwrap_unit_return_tuple=True), "llvm").export_library(
        case.folder / "model.so"
    )
    return time.perf_counter() - start


# -- loaded in the process that is measured --


def oneir(case: Case) -> Run:
    import oneir
    from oneir import relax

    function = relax.VirtualMachine(oneir.runtime.load_module(case.folder / "model.so"), oneir.cpu())["main"]
    inputs = [oneir.runtime.tensor(x) for x in case.inputs]
    return lambda: function(*inputs).numpy()


def eager(case: Case) -> Run:
    import torch

    torch.set_num_threads(threads())
    module, inputs = case.make()

    @torch.inference_mode()
    def run() -> np.ndarray:
        return module(*inputs).numpy()

    return run


def inductor(case: Case) -> Run:
    """`torch.compile`, told that weights do not change, so that it may lay them out as it likes."""
    import torch
    import torch._inductor.config

    torch.set_num_threads(threads())
    torch._inductor.config.freezing = True
    module, inputs = case.make()
    compiled = torch.compile(module, dynamic=False)

    @torch.no_grad()
    def run() -> np.ndarray:
        return compiled(*inputs).numpy()

    return run


def onnx_runtime(case: Case) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads(), 1
    session = onnxruntime.InferenceSession(case.folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    feeds = {entry.name: x for entry, x in zip(session.get_inputs(), case.inputs, strict=True)}
    return lambda: session.run(None, feeds)[0]


def openvino(case: Case) -> Run:
    import openvino

    # Its own choice of precision may be bfloat16.
    config = {"INFERENCE_NUM_THREADS": threads(), "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(case.folder / "model.onnx", "CPU", config)
    request, inputs = compiled.create_infer_request(), case.inputs
    return lambda: request.infer(inputs, share_inputs=True, share_outputs=True)[0]


@dataclass(frozen=True)
class Peer:
    """A contestant: what it is called, its module, what must be prepared, and whether its first run compiles."""

    name: str
    package: str
    load: Callable[[Case], Run]
    prepare: Callable[[Case], float] | None = None
    compiles: bool = False


PEERS = {
    "oneir": Peer("OneIR", "oneir.relax", oneir, compiled_by_oneir),
    "eager": Peer("PyTorch eager", "torch", eager),
    "inductor": Peer("Inductor", "torch", inductor, compiles=True),
    "onnxruntime": Peer("ONNX Runtime", "onnxruntime", onnx_runtime, onnx_file),
    "openvino": Peer("OpenVINO", "openvino", openvino, onnx_file),
}
PREPARATIONS = {function.__name__: function for function in (reference, onnx_file, compiled_by_oneir)}
