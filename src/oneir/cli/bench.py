"""`oneir bench`: how fast a model is, next to the peers that are installed, and where OneIR's time goes.

Language models, which are measured by tokens, are in `bench_language_model.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.error import ExecutionError, InvalidValue, UnsupportedError
from ..runtime.signature import Signature
from ..runtime.tensor import Tensor
from ..version import __version__
from . import bench_language_model
from .console import positive, progress
from .inputs import Inputs
from .model import add_model_argument, load_model

OTHERS = {
    "eager": (".pt2",),
    "inductor": (".pt2",),
    "onnxruntime": (".pt2", ".onnx"),
    "openvino": (".pt2", ".onnx"),
}
"""The peers, and the files that each can run."""

_EPILOG = """\
examples:
  oneir bench model.pt2                                      against all peers that are installed
  oneir bench model.pt2 --against eager,onnxruntime --threads 1 2
  oneir bench model.onnx --extent batch=8 --against none     only where OneIR's time goes, for a batch of 8
  oneir bench model.pt2 --json > model.json                  everything, for scripts
  oneir bench qwen3.gguf --prompt 128 2048 --tokens 32       a language model, against llama.cpp

what the columns mean:
  Error     the largest difference from PyTorch in float64 (for ONNX models, from ONNX Runtime without its
            optimizations), over the largest element
  Compile   to a file or a function, with nothing cached; what compiles when it loads has it there
  Load      from the file to the first result
  Memory    the most that the process had
  Roofline  the time that a kernel's operations, or its bytes if that is longer, take at least on this machine, over the
            time that it took; more than 100% is possible, since bytes that come from a cache are faster

of a language model, which reads prompts of random tokens and then some more, one by one:
  Prefill   how fast the prompt is read; First token is how long that takes
  Decode    how fast tokens follow, without choosing them
  GB/s      the weights, keys and values that OneIR reads for each token; Roofline is how much that is of what reading
            memory alone reaches between the rounds
  Compile   the first start, to the first token; short where the cache has the compiled model
  Load      the next start, to the first token
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="time a model, next to other compilers and libraries, and tell where the time goes",
        description="Times a model in OneIR and in its peers, each in a process of its own, which take turns; then "
        "lists OneIR's\nkernels with how much of the machine's speed they reach. Inputs that are not given are random; "
        "symbolic\nextents are those of the inputs that are given, of --extent, or those that a .pt2 was made with.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    parser.add_argument(
        "--against",
        metavar="PEER,...",
        help=f"the peers: some of {', '.join(OTHERS)}, for a language model {bench_language_model.PEER}, or none; all "
        "that are installed",
    )
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--threads", nargs="+", type=positive, default=[count], metavar="N", help=f"({count})")
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="turns of about 0.3 s for each (5)")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input; also FILE.npz")
    parser.add_argument("--extent", action="append", default=[], metavar="NAME=N", help="a symbolic extent")
    parser.add_argument("--seed", type=int, metavar="N", help="of random inputs (0)")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object, times in seconds")
    bench_language_model.add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from ..bench import table
    from ..bench.compare import Measured, compare, preparations, prepare, profile
    from ..bench.contestant import Case
    from ..bench.worker import Failed

    path: Path = options.model
    bench_language_model.check_options(options)
    if bench_language_model.is_language_model(path):
        bench_language_model.run(options, _versions())
        return
    if str(path) == "-":
        raise UnsupportedError("bench reads a model several times, which stdin cannot be: write it to a file")
    peers = ["oneir", *_peers(options)]
    signature, usual = _signature(options)
    inputs, assumed = _inputs(signature, usual, options)
    results: list[Measured] = []
    profiles: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        case = Case("oneir.cli.subject:ModelFile", (str(path.absolute()), folder, options.shape), Path(folder))
        case.save_inputs(inputs)
        wanted = [w for w in preparations(peers) if w != "reference" or _has_reference(path)]
        steps = len(wanted) + len(options.threads) * (len(peers) + options.rounds + 1)
        with progress(f"measuring {path.name}", steps) as step:
            prepared = prepare(case, wanted, max(options.threads), step)
            for what in ("reference", "compiled_by_oneir"):
                if isinstance(failure := prepared.get(what), Failed):
                    raise ExecutionError(f"{path.name}, {what.replace('_', ' ')}: {failure}")
            for threads in options.threads:
                results += compare(path.stem, case, peers, threads, options.rounds, prepared, step)
                step(f"profiling, {threads} threads")
                try:
                    profiles[threads] = profile(case, threads, options.rounds)
                except Failed as failure:
                    raise ExecutionError(f"{path.name}, its profile: {failure}") from None
    shapes = {p.name: f"{x.dtype}{list(x.shape)}" for p, x in zip(signature.params, inputs, strict=True)}
    if options.json:
        found = {
            "model": str(path),
            "machine": table.machine(),
            "versions": _versions(),
            "inputs": shapes,
            "rounds": options.rounds,
            "results": [dataclasses.asdict(result) for result in results],
            "profiles": [{"threads": threads, **found} for threads, found in profiles.items()],
        }
        print(json.dumps(found))
        return
    versions = ", ".join(f"{package} {number}" for package, number in _versions().items())
    print(f"{table.machine()}\n{versions}\nInputs: {', '.join(f'{name} {s}' for name, s in shapes.items())}")
    print(f"{assumed}\n" if assumed else "")
    print(table.comparison(results))
    if failures := table.failures(results):
        print(f"\n{failures}", end="")
    for threads, found in profiles.items():
        print(f"\n{table.profiled(threads, found)}")


def _peers(options: argparse.Namespace) -> list[str]:
    """The peers to compare with; an error says which is not installed, or cannot run such a file."""
    from ..bench.contestant import PEERS

    suffix = options.model.suffix
    if options.against is None:
        return [name for name, suffixes in OTHERS.items() if suffix in suffixes and not PEERS[name].missing]
    names = [] if options.against == "none" else options.against.split(",")
    for name in names:
        if name not in OTHERS:
            raise InvalidValue(f"--against {options.against}: there is no peer {name!r}; there are {', '.join(OTHERS)}")
        title, missing = PEERS[name].name, PEERS[name].missing
        if suffix not in OTHERS[name]:
            what = f"{title} runs {' and '.join(OTHERS[name])} files, found {options.model.name}"
            raise UnsupportedError(f"--against {name}: {what}")
        if missing:
            needs = f"{title} needs {' and '.join(missing)}: pip install 'oneir[bench,torch]'"
            raise UnsupportedError(f"--against {name}: {needs}")
    return list(dict.fromkeys(names))


def _has_reference(path: Path) -> bool:
    """Whether there is something to compare results with."""
    from ..bench.contestant import PEERS

    return path.suffix == ".pt2" or (path.suffix == ".onnx" and not PEERS["onnxruntime"].missing)


def _signature(options: argparse.Namespace) -> tuple[Signature, dict[str, int]]:
    """What the model takes, and the symbolic extents that it was exported with."""
    from ..codegen.program.bytecode import signature_of_graph
    from ..relax.expr import Function

    module = load_model(options.model, options.shape)
    if "main" not in module or not isinstance(module["main"], Function):
        names = ", ".join(var.name_hint for var in module.get_global_vars())
        raise InvalidValue(
            f"{options.model.name} has no graph function `main`, which is what bench runs; it has {names}"
        )
    signature, usual = signature_of_graph("main", module["main"]), dict[str, int]()
    for param, example in zip(signature.params, _examples(options.model), strict=False):
        usual.update((str(e), n) for e, n in zip(param.shape or (), example, strict=False) if not isinstance(e, int))
    return signature, usual


def _examples(path: Path) -> list[tuple[int, ...]]:
    """The shapes of the inputs that a .pt2 file was exported with."""
    if path.suffix != ".pt2":
        return []
    from torch.utils import _pytree as pytree

    from ..relax.frontend.torch.exported_file import load_exported

    return [tuple(getattr(leaf, "shape", ())) for leaf in pytree.tree_leaves(load_exported(path).example_inputs)]


def _inputs(signature: Signature, usual: dict[str, int], options: argparse.Namespace) -> tuple[list[np.ndarray], str]:
    """The inputs as arrays, which can be given to every contestant, and which extents were made up."""
    inputs = Inputs(signature, options.input, options.extent, options.seed or 0)
    inputs.extents = {**usual, **inputs.extents}
    arrays = []
    for param, value in zip(signature.params, inputs.arguments(), strict=True):
        if not isinstance(value, Tensor) or value.numpy().dtype.kind == "V":
            raise UnsupportedError(f"the input `{param.name}` is no tensor of a dtype of NumPy's, which bench needs")
        arrays.append(value.numpy())
    return arrays, inputs.assumptions()


def _versions() -> dict[str, str]:
    found = {"oneir": __version__, "python": platform.python_version()}
    for package in ("torch", "onnxruntime", "openvino", "llama-cpp-python", "numpy", "llvmlite"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
