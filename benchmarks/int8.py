"""Models of 8 bits: OneIR beside ONNX Runtime, and OpenVINO where it is installed, on the same quantized files.

    python -m benchmarks.int8                       # ResNet-50, MobileNetV2, BERT; one thread and two
    python -m benchmarks.int8 --models resnet50 --threads 1

ONNX Runtime's own tool quantizes what `torch.onnx` exports, with seeded random weights and inputs, to pairs of
QuantizeLinear and DequantizeLinear: int8 weights with a scale for each channel, activations as uint8 or int8. All
compute in one process and take turns. Errors are the largest difference from ONNX Runtime's results in float32, over
the largest of these; models of random weights keep the magnitude of numbers, but say nothing of accuracy on a task.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks import zoo
from benchmarks.measure import interleaved
from oneir.bench.table import digits

CALIBRATION = 4
"""Inputs that scales are chosen for."""

ACTIVATIONS = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}


def bert() -> torch.nn.Module:
    """Four of BERT-base's layers."""
    from transformers import BertConfig, BertModel

    return zoo.OneResult(BertModel(BertConfig(num_hidden_layers=4)), "last_hidden_state")


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], torch.Tensor], dict[str, Any]]] = {
    "resnet50": (zoo.MODELS["resnet50"].build, lambda: torch.randn(1, 3, 224, 224), {}),
    "mobilenet_v2": (zoo.MODELS["mobilenet_v2"].build, lambda: torch.randn(1, 3, 224, 224), {}),
    # Products of weights only, since those of attention stay floats in both.
    "bert_4_layers": (
        bert,
        lambda: torch.randint(0, 30522, (1, 128)),
        {"op_types_to_quantize": ["MatMul", "Gemm"], "extra_options": {"MatMulConstBOnly": True}},
    ),
}


class Data(CalibrationDataReader):
    """Inputs one after the other, as ONNX Runtime's tool takes them."""

    def __init__(self, inputs: list[torch.Tensor]):
        self.inputs = iter(inputs)

    def get_next(self) -> Any:
        found = next(self.inputs, None)
        return None if found is None else {"x": found.numpy()}


def export(name: str, folder: Path) -> None:
    """Writes a model in float32, and quantized in each way."""
    build, make, options = MODELS[name]
    torch.manual_seed(0)
    module, inputs = build().eval(), [make() for _ in range(CALIBRATION + 1)]
    plain, prepared = folder / f"{name}.onnx", folder / f"{name}.prepared.onnx"
    torch.onnx.export(module, (inputs[0],), str(plain), input_names=["x"], opset_version=17, dynamo=False)
    quant_pre_process(plain, prepared, skip_symbolic_shape=True)
    for dtype, kind in ACTIVATIONS.items():
        quantize_static(
            prepared,
            folder / f"{name}.{dtype}.onnx",
            Data(inputs[1:]),
            quant_format=QuantFormat.QDQ,
            activation_type=kind,
            weight_type=QuantType.QInt8,
            per_channel=True,
            **options,
        )
    np.save(folder / f"{name}.npy", inputs[0].numpy())


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """A model in ONNX Runtime, with so many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


Run = Callable[[np.ndarray], np.ndarray]


def openvino_of(path: Path, threads: int) -> Run:
    """A model in OpenVINO, with so many threads."""
    openvino = importlib.import_module("openvino")
    config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(path, "CPU", config).create_infer_request()
    return lambda x: next(iter(request.infer([x], share_inputs=True, share_outputs=True).values()))


def onnxruntime_of(path: Path, threads: int) -> Run:
    """A model in ONNX Runtime, with so many threads."""
    theirs = session(path, threads)
    return lambda x: np.asarray(theirs.run(None, {"x": x})[0])


def contest(name: str, dtype: str, folder: Path, threads: int, rounds: int) -> None:
    """Prints the figures of one file."""
    import oneir

    path, x = folder / f"{name}.{dtype}.onnx", np.load(folder / f"{name}.npy")
    start = time.process_time()
    ours = oneir.load(path)
    compiling = time.process_time() - start
    runs: dict[str, Run] = {"OneIR": lambda x: ours(x)[0].numpy(), "ONNX Runtime": onnxruntime_of(path, threads)}
    if find_spec("openvino") is not None:
        runs["OpenVINO"] = openvino_of(path, threads)
    exact = onnxruntime_of(folder / f"{name}.onnx", threads)(x)
    errors = {who: np.abs(run(x) - exact).max() / np.abs(exact).max() for who, run in runs.items()}
    seconds = interleaved({who: lambda run=run: run(x) for who, run in runs.items()}, rounds, 0.1)
    best = min(s for who, s in seconds.items() if who != "OneIR")
    times = [digits(s * 1e3) for s in seconds.values()]
    row = [name, dtype, threads, *times, f"{seconds['OneIR'] / best:.2f}", *(f"{e:.4f}" for e in errors.values())]
    print("|", " | ".join(map(str, [*row, f"{compiling:.1f}"])), "|", flush=True)


def head() -> str:
    """The head of the table."""
    peers = ["OneIR", "ONNX Runtime"] + ["OpenVINO"] * (find_spec("openvino") is not None)
    names = ["model", "activations", "threads", *(f"{peer}, ms" for peer in peers), "OneIR / best"]
    names += [*(f"error of {peer}" for peer in peers), "compile s"]
    return f"| {' | '.join(names)} |\n| --- | --- |{' ---: |' * (len(names) - 2)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--folder", type=Path, help="where exported models are, and stay")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        for name in options.models:
            for dtype in ACTIVATIONS:
                contest(name, dtype, options.folder, options.threads[0], options.rounds)
        return
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        folder: Path = options.folder or Path(made)
        for name in options.models:
            if not (folder / f"{name}.npy").exists():
                export(name, folder)
        print(head(), flush=True)
        for threads in options.threads:
            # How many threads parallel loops have is read once, when a process starts.
            command = [
                sys.executable,
                "-m",
                "benchmarks.int8",
                "--worker",
                "--threads",
                str(threads),
                "--folder",
                folder,
            ]
            command += ["--rounds", str(options.rounds), "--models", *options.models]
            environment = os.environ | {"OMP_NUM_THREADS": str(threads), "ONEIR_CACHE_DIR": ""}
            subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    main()
