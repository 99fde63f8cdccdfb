"""`oneir run`: runs a compiled file, or a model, on arrays from files or on random ones."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime import load_module
from ..runtime.device import cpu
from ..runtime.dtype import numpy_dtype
from ..runtime.error import InvalidValue
from ..runtime.signature import Param
from ..runtime.tensor import Tensor, tensor
from ..runtime.vm import Executable, VirtualMachine
from ..runtime.vm.program import VMFunction


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run a compiled model, or a model",
        description="Runs a file of `oneir compile`, or a model, which is compiled first. Inputs without a file are "
        "random; symbolic extents are 1 unless --extent says otherwise.",
    )
    parser.add_argument("program", type=Path, help="a file of `oneir compile`, or a model")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input from a file")
    parser.add_argument("--extent", action="append", default=[], metavar="NAME=N", help="a symbolic extent")
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the results to a file")
    parser.add_argument("--function", default="main", help="the function to run (main)")
    parser.add_argument("--repeat", type=int, default=0, metavar="N", help="run N times more and print the times")
    parser.add_argument("--profile", action="store_true", help="print what each operator takes")
    parser.add_argument("--trace", type=Path, metavar="FILE.json", help="write a trace that Perfetto opens")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (0)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    machine = VirtualMachine(_executable(options.program), cpu())
    function = _function(machine.executable, options.function)
    args = _arguments(function, options)
    call = machine[options.function]
    results = call(*args)
    outputs = list(results) if isinstance(results, tuple) else [results]
    for index, output in enumerate(outputs):
        print(f"output {index}: {_described(output)}")
    if options.output is not None:
        arrays: dict[str, Any] = {f"output_{i}": o.numpy() for i, o in enumerate(outputs) if isinstance(o, Tensor)}
        np.savez(options.output, **arrays)
    if options.repeat > 0:
        _print_times(call, args, options.repeat)
    if options.profile or options.trace is not None:
        report = machine.profile(options.function, *args)
        if options.profile:
            print(report)
        if options.trace is not None:
            report.save_trace(options.trace)


def _executable(path: Path) -> Executable:
    if path.suffix in (".pt2", ".json"):
        from ..driver.graph import build_graph
        from .model import load_model

        return build_graph(load_model(path))
    loaded = load_module(path)
    if not isinstance(loaded, Executable):
        raise InvalidValue(f"{path} holds kernels, and no graph that could be run")
    return loaded


def _function(executable: Executable, name: str) -> VMFunction:
    function = executable.program.functions[executable.place_of(name)]
    assert isinstance(function, VMFunction)
    return function


def _pairs(items: list[str], what: str) -> dict[str, str]:
    for item in items:
        if "=" not in item:
            raise InvalidValue(f"{what} is written NAME=VALUE, found {item!r}")
    return dict(item.split("=", 1) for item in items)


def _arguments(function: VMFunction, options: argparse.Namespace) -> list[Any]:
    files, extents = _pairs(options.input, "--input"), _pairs(options.extent, "--extent")
    unknown = [name for name in files if name not in function.params]
    if unknown:
        raise InvalidValue(f"`{function.name}` has no input {unknown[0]!r}; it has {', '.join(function.params)}")
    rng = np.random.default_rng(options.seed)
    params = function.signature.params if function.signature is not None else ()
    return [
        tensor(np.load(files[p.name], allow_pickle=False)) if p.name in files else _random(p, extents, rng)
        for p in params
    ]


def _random(param: Param, extents: dict[str, str], rng: np.random.Generator) -> Any:
    if param.kind != "tensor" or param.dtype is None or param.shape is None:
        raise InvalidValue(f"the input `{param.name}` is no tensor of known dtype and rank: give it with --input")
    shape = [e if isinstance(e, int) else int(extents.get(str(e), 1)) for e in param.shape]
    dtype = numpy_dtype(param.dtype)
    if dtype.kind in "iu":
        return tensor(rng.integers(0, 2, shape).astype(dtype))
    return tensor(rng.standard_normal(shape).astype(dtype) if dtype.kind != "b" else rng.random(shape) < 0.5)


def _described(output: Any) -> str:
    if not isinstance(output, Tensor):
        return repr(output)
    array = output.numpy()
    flat = ", ".join(f"{v:.4g}" for v in array.reshape(-1)[:6].tolist())
    return f"{output.dtype}{list(output.shape)} [{flat}{', ...' if array.size > 6 else ''}]"


def _print_times(call: Any, args: list[Any], count: int) -> None:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call(*args)
        times.append((time.perf_counter() - start) * 1e3)
    print(f"{count} runs: median {np.median(times):.4f} ms, least {min(times):.4f} ms, most {max(times):.4f} ms")
