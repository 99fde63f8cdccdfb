"""`oneir run`: runs a compiled file, or a model, on arrays from files or on random ones."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.device import Device, cpu, device
from ..runtime.driver import find_driver
from ..runtime.error import InvalidValue, UnsupportedError
from ..runtime.module import Module
from ..runtime.profiling import Report
from ..runtime.signature import Param, Signature
from ..runtime.tensor import Tensor
from ..runtime.vm import Executable, VirtualMachine
from ..runtime.vm.profile import of_kernels
from ..runtime.vm.program import VMFunction
from .console import counted, expect_directories_of, progress, table, time_text, writing
from .inputs import Inputs
from .model import add_shape_option, load_program

_EPILOG = """\
examples:
  oneir run model.so                                          on random inputs
  oneir run model.so --input x=x.npy --output results.npz     on an array; all results into one file
  oneir run model.so --input inputs.npz --extent batch=8      arrays by the names of inputs; the others for a batch of 8
  oneir run model.so --repeat 1000 --profile                  how long it takes, and what each kernel takes
  oneir run model.pt2 --device opencl                         on another device than the processor
  oneir run model.so --json                                   results as JSON, for scripts
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run",
        help="run a compiled model, or a model",
        description="Runs a file of `oneir compile`, or a model, which is compiled first. Inputs that are not given "
        "are random.\nSymbolic extents are those of the inputs that are given, or of --extent, else 1 for first "
        "dimensions and 64 for others.\n"
        "A function of loops gets zeros for the tensors that it writes; these are its results.",
        epilog=_EPILOG,
    )
    parser.add_argument("program", type=Path, help="a file of `oneir compile`, or a model")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="an input; also NAME=NUMBER, NAME=- (an array on stdin), FILE.npz (by name), FILE.npy (the only input)",
    )
    parser.add_argument("--extent", action="append", default=[], metavar="NAME=N", help="a symbolic extent")
    add_shape_option(parser)
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the results to a file")
    parser.add_argument("--function", metavar="NAME", help="the function to run (main, or the only one)")
    parser.add_argument(
        "--device", default="cpu", metavar="KIND", help="where it runs: cpu, opencl, opencl:1, vulkan, ... (cpu)"
    )
    parser.add_argument("--repeat", type=int, default=0, metavar="N", help="run N times more and print the times")
    parser.add_argument("--profile", action="store_true", help="print what each kernel takes")
    parser.add_argument("--trace", type=Path, metavar="FILE.json", help="write a trace that Perfetto opens")
    parser.add_argument("--json", action="store_true", help="print inputs, results and times as one JSON object")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (0)")
    parser.set_defaults(run=run)


@dataclass
class _Function:
    """A function that can be run: a call of `run` gives its results."""

    signature: Signature
    run: Callable[..., Any]
    profile: Callable[..., Report] | None
    native: bool = True
    """Whether it runs as a native program, which does nothing between its kernels."""


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    if options.output is not None and options.output.suffix != ".npz":
        raise InvalidValue(f"--output is an archive of arrays, FILE.npz, found {options.output}")
    expect_directories_of(options.output)
    where = device(options.device)
    function = _function(load_program(options.program, options.shape, where), options.function, where)
    profiled = options.profile or options.trace is not None
    driver = find_driver(where.device_type)
    if profiled and where != cpu() and (driver is None or not driver.has_events):
        raise UnsupportedError(f"what each kernel takes is not measured on {where}; --repeat times all")
    if function.profile is None and profiled:
        raise UnsupportedError(f"`{function.signature.name}` is one kernel: there is nothing in it to profile")
    inputs = Inputs(function.signature, options.input, options.extent, options.seed)
    args = [a.copyto(where) if isinstance(a, Tensor) and where != cpu() else a for a in inputs.arguments()]
    outputs, first, times = _times(function, args, options.repeat)
    reports = _profiles(function, args, options.profile) if profiled else []
    names = [function.signature.result_name(i) for i in range(len(outputs))]
    if options.output is not None:
        arrays: dict[str, Any] = {name: _array(o) for name, o in zip(names, outputs, strict=True)}
        with writing(options.output):
            np.savez(options.output, **arrays)
    if options.trace is not None:
        with writing(options.trace):
            reports[0].save_trace(options.trace)
    report = None
    if options.profile:
        report = of_kernels(reports) if function.native else reports[0]
    if options.json:
        found = {
            "function": function.signature.name,
            "inputs": {p.name: _as_json(arg) for p, arg in zip(inputs.params, args, strict=True)},
            "outputs": [
                {"name": name} | _as_json(output) | {"values": _values(output)}
                for name, output in zip(names, outputs, strict=True)
            ],
            "first_ms": first,
            "times_ms": times,
            "profile": None if report is None else json.loads(report.json()),
        }
        print(json.dumps(found))
        return
    rows = [("input", p.name, _kind(a), _origin(p, inputs)) for p, a in zip(inputs.params, args, strict=True)]
    rows += [("output", name, _kind(o), _shown(o)) for name, o in zip(names, outputs, strict=True)]
    print(table(rows, "<<<<"))
    if assumed := inputs.assumptions():
        print(assumed)
    print(_time_text(first, times))
    if report is not None:
        told = f"kernels, each with its shortest time of {counted(len(reports), 'run')}"
        print(f"\n{told if function.native else 'calls of the program, interpreted'}\n\n{report}")


def _times(function: _Function, args: list[Any], count: int) -> tuple[Any, float, list[float]]:
    """The results of a first call, its milliseconds, and those of `count` further ones."""
    with progress(f"running {function.signature.name}", 1 + count, between=True) as step:
        step("first call")
        first, outputs = _timed(function.run, args)
        times = []
        for number in range(count):
            step(f"{number + 1} of {count}")
            times.append(_timed(function.run, args)[0])
    return outputs, first, times


def _profiles(function: _Function, args: list[Any], several: bool) -> list[Report]:
    """Profiles of as many calls as a second has, up to 100; of one call of a program that is interpreted anyway."""
    assert function.profile is not None
    reports, end = [function.profile(*args)], time.perf_counter() + 1
    while several and function.native and len(reports) < 100 and time.perf_counter() < end:
        reports.append(function.profile(*args))
    return reports


# -- what is run --


def _function(loaded: Executable | Module, name: str | None, where: Device) -> _Function:
    """A function of what was loaded: the one of that name, else the only one, or `main`."""
    names = loaded.vm_functions if isinstance(loaded, Executable) else loaded.names
    name = name or (names[0] if len(names) == 1 else "main")
    if isinstance(loaded, Module):
        return _kernel(loaded, name, where)
    machine = VirtualMachine(loaded, where)
    function = loaded.program.functions[loaded.place_of(name)]
    assert isinstance(function, VMFunction)
    unknown = Signature(name, tuple(Param(p, "handle") for p in function.params))
    call = machine[name]

    def run(*args: Any) -> list[Any]:
        results = _flat(call(*args))
        where.sync()
        return results

    native = name in loaded.natives
    return _Function(function.signature or unknown, run, lambda *args: machine.profile(name, *args), native)


def _kernel(module: Module, name: str, where: Device) -> _Function:
    """A function of loops, whose results are the tensors that it writes."""
    kernel, signature = module[name], module.signatures[name]
    written = [i for i, param in enumerate(signature.params) if param.writable]

    def call(*args: Any) -> list[Any]:
        kernel(*args)
        where.sync()
        return [args[i] for i in written]

    return _Function(signature, call, None)


def _flat(result: Any) -> list[Any]:
    """The values in a result, those in tuples one by one."""
    return [value for part in result for value in _flat(part)] if isinstance(result, (list, tuple)) else [result]


# -- how long it takes --


def _timed(call: Callable[..., Any], args: list[Any]) -> tuple[float, Any]:
    """The milliseconds of a call, and what it gives."""
    start = time.perf_counter()
    result = call(*args)
    return (time.perf_counter() - start) * 1e3, result


def _time_text(first: float, times: list[float]) -> str:
    if not times:
        return f"{time_text(first)} for the first call; --repeat N tells how long later ones take"
    median, least, most = (time_text(time) for time in (float(np.median(times)), min(times), max(times)))
    return f"{counted(len(times), 'run')}: median {median}, least {least}, most {most}"


# -- values --


def _kind(value: Any) -> str:
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]" if isinstance(value, Tensor) else type(value).__name__


def _origin(param: Param, inputs: Inputs) -> str:
    if param.name in inputs.found:
        return "given"
    return "zeros, to be written" if param.writable else "random"


def _shown(output: Any) -> str:
    if not isinstance(output, Tensor):
        return repr(output)
    array = output.numpy()
    flat = ", ".join(f"{v:.4g}" for v in array.reshape(-1)[:6].tolist())
    return f"[{flat}{', ...' if array.size > 6 else ''}]"


def _array(output: Any) -> Any:
    return output.numpy() if isinstance(output, Tensor) else np.asarray(output)


def _as_json(value: Any) -> dict[str, Any]:
    if not isinstance(value, Tensor):
        return {"type": type(value).__name__}
    return {"type": "Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}


def _values(value: Any) -> Any:
    """The elements as nested lists; a number as itself; of anything else the text."""
    if isinstance(value, Tensor):
        array = value.numpy()
        return (array.astype("float32") if array.dtype.kind == "V" else array).tolist()
    return value if isinstance(value, (bool, int, float)) else str(value)
