"""GPUs of NVIDIA's against cuBLAS, memory bandwidth, and PyTorch's compiler: `python -m benchmarks.gpu`.

Matrix products against `torch.matmul` (cuBLAS) in TFLOP/s; row by row operators in GB/s, against that of a copy; and
models against Inductor in ms, both as CUDA graphs. Contestants take turns in one process and one stream, on the same
random normal numbers, and the device's events measure them. Without a GPU it says so, and ends; without a PyTorch for
CUDA it measures OneIR alone.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

import oneir
from benchmarks.zoo import MODELS, Model, OneResult
from oneir import relax
from oneir.ir.transform import PassContext
from oneir.relax import op
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.benchmark import clock_of
from oneir.runtime.error import OneIRError
from oneir.target import Target


def llama_layer() -> torch.nn.Module:
    """A layer of Llama 2's 7B model, between its embedding and its last norm."""
    from transformers import LlamaConfig, LlamaModel

    return OneResult(LlamaModel(LlamaConfig(num_hidden_layers=1, use_cache=False)), "last_hidden_state")


GPU_MODELS = {name: MODELS[name] for name in ("resnet50", "bert_base")} | {
    "llama_layer": Model(llama_layer, lambda batch, seq: (torch.randint(0, 32000, (batch, seq)),), "one layer of 4096")
}
ROW_OPERATORS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: op.nn.softmax(x),
    "layer_norm": lambda x: op.nn.layer_norm(x, *_ones_and_zeros(x), axes=-1),
    "rms_norm": lambda x: op.nn.rms_norm(x, _ones_and_zeros(x)[0], axes=-1),
}

Contestants = Mapping[str, Callable[[], object]]


def _ones_and_zeros(x: Any) -> tuple[Any, Any]:
    width, dtype = int(x.struct_info.shape[-1]), x.struct_info.dtype
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return relax.const(np.ones(width, kind)), relax.const(np.zeros(width, kind))


def target() -> Target:
    """That of the first GPU."""
    return Target(Target.from_device(oneir.cuda()), host="llvm")


def compiled(build: Callable[..., Any], *shapes: tuple[int, ...], dtype: str) -> Callable[..., Any]:
    """A graph on the GPU, of one operator."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(build(*params))
        builder.emit_func_output(output)
    return relax.VirtualMachine(relax.build(builder.get(), target()), oneir.cuda())["main"]


def normal(dtype: str, *shape: int) -> np.ndarray:
    values = np.random.default_rng(0).standard_normal(shape, dtype="float32")
    return values.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


def on_gpu(*arrays: np.ndarray) -> list[oneir.runtime.Tensor]:
    return [oneir.runtime.tensor(array, oneir.cuda()) for array in arrays]


def shared(tensors: list[oneir.runtime.Tensor]) -> list[torch.Tensor]:
    """The same memory for PyTorch, which must have been built for CUDA."""
    return [torch.from_dlpack(tensor) for tensor in tensors]


def interleaved(contestants: Contestants, rounds: int) -> dict[str, float]:
    """The median seconds of a call of each, over rounds in which each gets its turn."""
    clock, repeats = clock_of(oneir.cuda()), {}
    for name, call in contestants.items():
        for count in (3, 3):
            with clock.measured() as seconds:
                for _ in range(count):
                    call()
        repeats[name] = max(1, int(0.05 / max(seconds() / 3, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            with clock.measured() as seconds:
                for _ in range(repeats[name]):
                    call()
            times[name].append(seconds() / repeats[name])
    return {name: statistics.median(values) for name, values in times.items()}


def show(what: str, times: dict[str, float], figure: Callable[[float], float], unit: str) -> None:
    """A line with each contestant's figure, and what OneIR's is of the other's."""
    figures = {name: figure(seconds) for name, seconds in times.items()}
    cells = "".join(f"  {name} {value:9.2f} {unit}" for name, value in figures.items())
    others = [seconds for name, seconds in times.items() if name != "OneIR"]
    share = f"  {others[0] / times['OneIR']:6.1%} of its speed" if others else ""
    print(f"{what:28}{cells}{share}", flush=True)


@contextlib.contextmanager
def case(what: str) -> Iterator[None]:
    """Around a measurement: what OneIR refuses is a line of the report, and the others go on."""
    try:
        yield
    except OneIRError as error:
        print(f"{what:28}  FAILED: {str(error).splitlines()[0]:.120}", flush=True)


def product(dtype: str, rows: int, n: int, options: argparse.Namespace) -> None:
    """A matrix product; with one row, in GB/s of the matrix."""
    tensors = on_gpu(normal(dtype, rows, n), normal(dtype, n, n))
    run, nbytes = compiled(op.matmul, (rows, n), (n, n), dtype=dtype), tensors[1].nbytes
    contestants: dict[str, Callable[[], object]] = {"OneIR": lambda: run(*tensors)}
    wrong = 0.0
    if options.torch:
        a, b = shared(tensors)
        contestants["cuBLAS"] = lambda: torch.matmul(a, b)
        expected = torch.matmul(a.double(), b.double())
        wrong = ((torch.from_dlpack(run(*tensors)) - expected).abs().max() / expected.abs().max()).item()
    times = interleaved(contestants, options.rounds)
    if rows == 1:
        show(f"GEMV {n} {dtype}", times, lambda s: nbytes / s / 1e9, "GB/s")
    else:
        show(f"GEMM {n} {dtype}", times, lambda s: 2 * n**3 / s / 1e12, "TFLOP/s")
    if wrong > 0.01:
        print(f"  WRONG: it differs from the exact result by {wrong:.1%} of the largest number")


def row_operator(name: str, dtype: str, n: int, options: argparse.Namespace) -> None:
    """An operator that reads and writes each number once, and a copy, which is what memory can do."""
    tensors = on_gpu(normal(dtype, n, n))
    run = compiled(ROW_OPERATORS[name], (n, n), dtype=dtype)
    contestants: dict[str, Callable[[], object]] = {"OneIR": lambda: run(*tensors)}
    if options.torch:
        contestants["copy"] = shared(tensors)[0].clone
    times = interleaved(contestants, options.rounds)
    show(f"{name} {n}² {dtype}", times, lambda s: 2 * tensors[0].nbytes / s / 1e9, "GB/s")


def model(name: str, options: argparse.Namespace) -> None:
    """A whole model in float32, imported from PyTorch."""
    module, inputs = GPU_MODELS[name].make(options.batch, options.seq)
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    graph = from_exported_program(program, unwrap_unit_return_tuple=True)
    with PassContext(config={"relax.backend.use_cuda_graph": True}):
        executable = relax.build(graph, target())
    run = relax.VirtualMachine(executable, oneir.cuda())["main"]
    tensors = on_gpu(*(x.numpy() for x in inputs))
    contestants: dict[str, Callable[[], object]] = {"OneIR": lambda: run(*tensors)}
    if options.torch:
        fast, there = torch.compile(module.cuda(), mode="reduce-overhead"), [x.cuda() for x in inputs]
        contestants["Inductor"] = lambda: fast(*there)
    with torch.inference_mode():
        show(f"{name}, batch {options.batch}", interleaved(contestants, options.rounds), lambda s: s * 1e3, "ms")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--sizes", nargs="*", type=int, default=[4096, 8192], help="of matrices")
    parser.add_argument("--models", nargs="*", choices=GPU_MODELS, default=list(GPU_MODELS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--rounds", type=int, default=7, help="turns that each contestant gets")
    options = parser.parse_args()
    device = oneir.cuda()
    if not device.exist:
        print(f"nothing to measure: {oneir.runtime.cuda_driver.Cuda.requirement}")
        return
    options.torch = torch.cuda.is_available()
    print(f"{device.device_name}, compute capability {device.compute_version}")
    if not options.torch:
        print("this PyTorch is not for CUDA, so cuBLAS, copies and Inductor are missing: OneIR alone")
    for dtype in ("float16", "bfloat16", "float32"):
        for n in options.sizes:
            for rows in (n, 1):
                with case(f"{'GEMV' if rows == 1 else 'GEMM'} {n} {dtype}"):
                    product(dtype, rows, n, options)
    for dtype in ("float16", "float32"):
        for name in ROW_OPERATORS if options.sizes else ():
            with case(f"{name} {dtype}"):
                row_operator(name, dtype, options.sizes[0], options)
    for name in options.models:
        with case(name):
            model(name, options)


if __name__ == "__main__":
    main()
