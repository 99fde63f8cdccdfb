"""`oneir doctor`: what this machine has, and whether compiling works on it."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..version import __version__
from .console import counted, progress, size_text, table

_EPILOG = """\
examples:
  oneir doctor             a line for each thing that was looked at; exit code 1 if anything is wrong
  oneir doctor --json      the same for scripts
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="say what this machine has, and whether compiling works",
        description="Looks at Python, LLVM, the processor, threads, the cache and the packages that importers use, "
        "and\ncompiles and runs a small kernel, whose result is compared with NumPy's. Says what to do about what is "
        "wrong.",
        epilog=_EPILOG,
    )
    parser.add_argument("--json", action="store_true", help="print what was found as one JSON object")
    parser.set_defaults(run=run)


@dataclass
class Check:
    """What was looked at, and found. `advice` says what to do; with it, and not `wrong`, something is only missing."""

    name: str
    found: str
    wrong: bool = False
    advice: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns 1 if anything is wrong."""
    checks: list[Check] = []
    with progress("looking", len(_CHECKS)) as step:
        for name, look in _CHECKS.items():
            step(name)
            try:
                checks.append(look(name))
            except Exception as error:  # whatever is broken here is what the command is for
                checks.append(Check(name, f"{type(error).__name__}: {error}", True, "see the message"))
    wrong = [check for check in checks if check.wrong]
    if options.json:
        print(json.dumps({"ok": not wrong, "checks": [asdict(check) for check in checks]}))
        return 1 if wrong else 0
    print(table([("WRONG" if c.wrong else "-" if c.advice else "ok", c.name, _wrapped(c)) for c in checks], "<<<"))
    print(f"\n{counted(len(wrong), 'thing is', 'things are')} wrong" if wrong else "\nOneIR can compile and run here")
    return 1 if wrong else 0


def _wrapped(check: Check) -> str:
    """What was found and what to do, in lines that stand below each other."""
    text = check.found + (f"; {check.advice}" if check.advice else "")
    width = max(shutil.get_terminal_size().columns - 2 - 22, 40)
    return ("\n" + " " * 21).join(textwrap.wrap(text, width, break_on_hyphens=False))


# -- what is looked at --


def _oneir(name: str) -> Check:
    return Check(name, f"{__version__} in {Path(__file__).parent.parent}", facts={"version": __version__})


def _python(name: str) -> Check:
    found = f"{platform.python_version()} ({sys.executable}) on {platform.system()} {platform.machine()}"
    return Check(name, found, facts={"version": platform.python_version(), "executable": sys.executable})


def _llvm(name: str) -> Check:
    if importlib.util.find_spec("llvmlite") is None:
        return Check(name, "llvmlite is not installed", True, "pip install 'llvmlite>=0.50'")
    from ..runtime.llvm import llvm_version

    package = importlib.metadata.version("llvmlite")
    return Check(name, f"{llvm_version()} through llvmlite {package}", facts={"version": llvm_version()})


_NOTABLE = (
    *("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bf16", "avx512vnni", "avxvnni", "amx-tile"),
    *("neon", "sve", "sve2", "dotprod", "fullfp16", "bf16", "i8mm"),
)
"""The features that make a difference to the kernels of models."""


def _processor(name: str) -> Check:
    from ..target import Target, cpu_info, resolve

    triple, cpu, features = resolve(Target("llvm"))
    info = cpu_info(Target("llvm"))
    has = [feature[1:] for feature in features.split(",") if feature.startswith("+")]
    notable = [feature for feature in _NOTABLE if feature in has]
    caches = ", ".join(size_text(size) for size in (info.l1_bytes, info.l2_bytes, info.l3_bytes))
    found = (
        f"{cpu} ({triple}); vectors of {8 * info.vector_bytes} bits in {info.vector_registers} registers; "
        f"caches {caches}; {' '.join(notable) or 'no features that matter'}"
    )
    return Check(name, found, facts={"triple": triple, "cpu": cpu, "features": has, **asdict(info)})


def _threads(name: str) -> Check:
    from ..runtime.pool import num_threads

    asked, here = os.environ.get("OMP_NUM_THREADS"), os.cpu_count()
    why = f"OMP_NUM_THREADS is {asked}" if asked else f"the machine has {counted(here or 1, 'processor')}"
    return Check(name, f"{num_threads()} for parallel loops; {why}", facts={"threads": num_threads(), "machine": here})


def _cache(name: str) -> Check:
    from ..runtime.object_cache import MAX_BYTES, cache_dir

    folder = cache_dir()
    if folder is None:
        return Check(name, "switched off", advice="unset ONEIR_CACHE_DIR to keep compiled code", facts={"folder": None})
    sizes = [entry.stat().st_size for entry in os.scandir(folder)] if folder.is_dir() else []
    facts = {"folder": str(folder), "entries": len(sizes), "bytes": sum(sizes), "limit": MAX_BYTES}
    found = f"{folder}: {counted(len(sizes), 'entry', 'entries')}, {size_text(sum(sizes))} of {size_text(MAX_BYTES)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".writing-", dir=folder):
            pass
    except OSError as error:
        advice = "make it writable, or set ONEIR_CACHE_DIR to a folder that is; until then everything is compiled anew"
        return Check(name, f"{folder} cannot be written: {error.strerror}", True, advice, facts)
    return Check(name, found, facts=facts)


def _linker(name: str) -> Check:
    from ..runtime.library import find_linker

    linker = find_linker()
    if linker is None:
        advice = "`oneir compile` writes object code in place of shared libraries, which OneIR loads as well"
        return Check(name, "none", advice=advice, facts={"program": None})
    return Check(name, f"{linker}, for shared libraries", facts={"program": linker})


def _devices(name: str) -> Check:
    """Lists the devices of a kind, which is the name in lower case."""
    from ..runtime import device
    from ..runtime.driver import find_driver

    kind = name.lower()
    driver = find_driver(device(kind).device_type)
    assert driver is not None
    names = [str(driver.attribute(i, "device_name")) for i in range(driver.count())]
    if not names:
        return Check(name, "no device", advice=driver.requirement, facts={"devices": []})
    return Check(name, ", ".join(f"{kind}:{i} is {text}" for i, text in enumerate(names)), facts={"devices": names})


def _cuda(name: str) -> Check:
    """Lists the CUDA devices, which need a compiler as well."""
    from ..contrib.nvcc import MISSING, nvrtc_exists

    check = _devices(name)
    if check.facts["devices"] and not nvrtc_exists():
        return Check(name, f"{check.found}; no compiler", True, MISSING, check.facts)
    return check


def _rocm(name: str) -> Check:
    """Lists AMD's GPUs, which need a compiler as well."""
    from ..contrib.hipcc import MISSING, hiprtc_exists

    check = _devices(name)
    if check.facts["devices"] and not hiprtc_exists():
        return Check(name, f"{check.found}; no compiler", True, MISSING, check.facts)
    return check


def _package(package: str, extra: str, use: str) -> Callable[[str], Check]:
    """Looks for a package that something needs; it is not imported, which would take seconds."""

    def look(name: str) -> Check:
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found, advice = f"not installed; {use}", f"pip install 'oneir[{extra}]'"
            return Check(name, found, advice=advice, facts={"version": None})
        return Check(name, f"{version}; {use}", facts={"version": version})

    return look


_KERNEL_SECONDS = 300


def _kernel(name: str) -> Check:
    """Compiles and runs a kernel, in another process: a machine that lacks what it says it has ends that."""
    command = [sys.executable, "-c", "from oneir.cli.doctor import run_kernel; run_kernel()"]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=_KERNEL_SECONDS,
        check=False,
    )
    if done.returncode < 0:
        advice = (
            "the processor does not do what LLVM was told that it does (see the line above), as in some emulators and "
            'virtual machines; compile for a plainer one: --target "llvm -mcpu=x86-64-v3"'
        )
        return Check(name, f"the kernel was ended by signal {-done.returncode}", True, advice)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return Check(name, f"compiling and running failed: {last[0]}", True, "ONEIR_DEBUG=1 oneir doctor says more")
    facts = json.loads(done.stdout)
    if facts["error"] > facts["tolerance"]:
        advice = "results cannot be trusted here: report it, with the output of `oneir doctor --json`"
        return Check(name, f"the result differs from NumPy's by {facts['error']:.2g}", True, advice, facts)
    found = (
        f"compiled in {facts['compile_seconds']:.2f} s, ran in {facts['run_seconds'] * 1e6:.0f} us on "
        f"{counted(facts['threads'], 'thread')}, agrees with NumPy to {facts['error']:.1g}"
    )
    return Check(name, found, facts=facts)


def run_kernel() -> None:
    """Compiles a matrix product in parallel, without the cache, runs it, and prints how far it is from NumPy's."""
    import time

    import numpy as np

    from .. import te
    from ..driver.build import build
    from ..ir.instrument import PassTimingInstrument
    from ..ir.transform import PassContext
    from ..runtime.pool import num_threads
    from ..tir import Schedule

    size = 128
    a, b = (te.placeholder((size, size), "float32", name=name) for name in "AB")
    k = te.reduce_axis((0, size), name="k")
    product = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    schedule = Schedule(te.create_prim_func([a, b, product]))
    i, j, inner = schedule.get_loops(schedule.get_block("C"))
    schedule.reorder(i, inner, j)
    schedule.parallel(i)
    start = time.perf_counter()
    # What an instrument watches is not taken from the cache.
    with PassContext(instruments=[PassTimingInstrument()]):
        kernel = build(schedule.mod)["main"]
    compiled = time.perf_counter() - start
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((size, size), dtype="float32") for _ in range(2))
    z = np.empty((size, size), "float32")
    kernel(x, y, z)
    start = time.perf_counter()
    kernel(x, y, z)
    ran = time.perf_counter() - start
    exact = x.astype("float64") @ y.astype("float64")
    facts = {
        "compile_seconds": compiled,
        "run_seconds": ran,
        "threads": num_threads(),
        "error": float(np.abs(z - exact).max()),
        # As many roundings as there are terms, of sums that stay below a few times the square root of their number.
        "tolerance": float(size * np.finfo("float32").eps * np.abs(exact).max()),
    }
    print(json.dumps(facts))


_CHECKS: dict[str, Callable[[str], Check]] = {
    "OneIR": _oneir,
    "Python": _python,
    "LLVM": _llvm,
    "processor": _processor,
    "threads": _threads,
    "cache": _cache,
    "linker": _linker,
    "OpenCL": _devices,
    "CUDA": _cuda,
    "ROCm": _rocm,
    "Vulkan": _devices,
    "WebGPU": _devices,
    "torch": _package("torch", "torch", "imports .pt2 files"),
    "onnx": _package("onnx", "onnx", "imports .onnx files"),
    "onnxruntime": _package("onnxruntime", "bench", "what `oneir bench` compares with"),
    "kernel": _kernel,
}
