"""`oneir run`: runs a compiled file, or a model, on arrays from files or on random ones."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
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
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input, or NAME=NUMBER"
    )
    parser.add_argument("--extent", action="append", default=[], metavar="NAME=N", help="a symbolic extent")
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the results to a file")
    parser.add_argument("--function", default="main", help="the function to run (main)")
    parser.add_argument("--repeat", type=int, default=0, metavar="N", help="run N times more and print the times")
    parser.add_argument("--profile", action="store_true", help="print what each operator takes")
    parser.add_argument("--trace", type=Path, metavar="FILE.json", help="write a trace that Perfetto opens")
    parser.add_argument("--json", action="store_true", help="print inputs, results and times as one JSON object")
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (0)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    machine = VirtualMachine(_executable(options.program), cpu())
    function = _function(machine.executable, options.function)
    args = _arguments(function, options)
    call = machine[options.function]
    outputs = _flat(call(*args))
    times = [_milliseconds(call, args) for _ in range(options.repeat)]
    profiled = options.profile or options.trace is not None
    report = machine.profile(options.function, *args) if profiled else None
    if options.output is not None:
        arrays: dict[str, Any] = {f"output_{i}": o.numpy() for i, o in enumerate(outputs) if isinstance(o, Tensor)}
        np.savez(options.output, **arrays)
    if report is not None and options.trace is not None:
        report.save_trace(options.trace)
    if not options.profile:
        report = None
    if options.json:
        found = {
            "function": function.name,
            "inputs": {name: _as_json(arg) for name, arg in zip(function.params, args, strict=True)},
            "outputs": [_as_json(output) | {"values": _values(output)} for output in outputs],
            "times_ms": times,
            "profile": None if report is None else json.loads(report.json()),
        }
        print(json.dumps(found))
        return
    for index, output in enumerate(outputs):
        print(f"output {index}: {_described(output)}")
    if times:
        median, least, most = np.median(times), min(times), max(times)
        print(f"{len(times)} runs: median {median:.4f} ms, least {least:.4f} ms, most {most:.4f} ms")
    if report is not None:
        print(report)


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


def _pairs(items: list[str], option: str) -> dict[str, str]:
    for item in items:
        if "=" not in item:
            raise InvalidValue(f"{option} is written NAME=VALUE, found {item!r}")
    return dict(item.split("=", 1) for item in items)


def _known(names: Iterable[str], known: Sequence[str], function: VMFunction, what: str) -> None:
    for name in names:
        if name not in known:
            raise InvalidValue(f"`{function.name}` has no {what} {name!r}; it has {', '.join(known) or 'none'}")


def _arguments(function: VMFunction, options: argparse.Namespace) -> list[Any]:
    files, given = _pairs(options.input, "--input"), _pairs(options.extent, "--extent")
    params = function.signature.params if function.signature is not None else ()
    symbols = dict.fromkeys(str(e) for p in params for e in p.shape or () if not isinstance(e, int))
    _known(files, function.params, function, "input")
    _known(given, list(symbols), function, "symbolic extent")
    for name, value in given.items():
        if not value.isdecimal():
            raise InvalidValue(f"--extent {name}={value}: an extent is a number such as 8")
    extents = {name: int(value) for name, value in given.items()}
    rng = np.random.default_rng(options.seed)
    return [_read(p, files[p.name]) if p.name in files else _random(p, extents, rng) for p in params]


def _read(param: Param, text: str) -> Any:
    """The input of `--input NAME=text`: an array from a file, or a number."""
    where = f"--input {param.name}={text}"
    if param.kind in ("int", "float", "bool"):
        try:
            return {"int": int, "float": float, "bool": json.loads}[param.kind](text)
        except ValueError:
            raise InvalidValue(f"{where}: expected a number of dtype {param.dtype}") from None
    try:
        array = np.load(text, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidValue(f"{where}: expected an array that numpy.save wrote: {error}") from error
    if not isinstance(array, np.ndarray):
        raise InvalidValue(f"{where}: expected one array (.npy), found an archive of several (.npz)")
    return tensor(array)


def _random(param: Param, extents: dict[str, int], rng: np.random.Generator) -> Any:
    if param.kind != "tensor" or param.dtype is None or param.shape is None:
        raise InvalidValue(f"the input `{param.name}` is no tensor of known dtype and rank: give it with --input")
    shape = [e if isinstance(e, int) else extents.get(str(e), 1) for e in param.shape]
    dtype = numpy_dtype(param.dtype)
    if dtype.kind in "iu":
        return tensor(rng.integers(0, 2, shape).astype(dtype))
    return tensor(rng.standard_normal(shape).astype(dtype) if dtype.kind != "b" else rng.random(shape) < 0.5)


def _flat(result: Any) -> list[Any]:
    """The values in a result, those in tuples one by one."""
    return [value for part in result for value in _flat(part)] if isinstance(result, (list, tuple)) else [result]


def _described(output: Any) -> str:
    if not isinstance(output, Tensor):
        return repr(output)
    array = output.numpy()
    flat = ", ".join(f"{v:.4g}" for v in array.reshape(-1)[:6].tolist())
    return f"{output.dtype}{list(output.shape)} [{flat}{', ...' if array.size > 6 else ''}]"


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


def _milliseconds(call: Any, args: list[Any]) -> float:
    start = time.perf_counter()
    call(*args)
    return (time.perf_counter() - start) * 1e3
