"""`oneir compile`: a model as a file that runs with `oneir.runtime` alone."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ..ir.instrument import PassTimingInstrument
from ..ir.transform import PassContext
from ..runtime.error import InvalidValue, UnsupportedError
from ..runtime.module import Module
from ..target.target import Target
from .console import expect_directories_of, progress, size_text, writing
from .model import add_model_argument, add_target_argument, load_model

_EPILOG = """\
examples:
  oneir compile model.pt2                                    writes model.so
  oneir compile model.onnx -o model.so --shape x=1,3,224,224
  oneir compile model.json --target "llvm -mcpu=znver3"      for another processor
  oneir compile model.pt2 -o m.o --header m.h --target raspberry-pi/4b-aarch64
                                                             for C programs, without Python
  oneir compile model.pt2 --time-passes                      where the time goes
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "compile",
        help="compile a model to a file",
        description="Compiles a model. The file holds machine code, the program and the weights; `oneir run` "
        "and\noneir.runtime.load_module read it.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    parser.add_argument("-o", "--output", type=Path, help="the file to write; the model's name with .so")
    add_target_argument(parser)
    alone = parser.add_argument_group("programs that stand alone", "A file for C programs, which needs no Python.")
    alone.add_argument(
        "--header", type=Path, help="the C header to write; with it the output stands alone (.o, .a, .so)"
    )
    alone.add_argument("--weights", type=Path, help="a file of their own for the weights")
    alone.add_argument("--threads", action="store_true", help="loops may have threads")
    parser.add_argument("--time-passes", action="store_true", help="show where the time goes; nothing is cached")
    parser.add_argument("--json", action="store_true", help="print what was written as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from ..driver.compile import compile

    if str(options.model) == "-" and options.output is None:
        raise InvalidValue("a model from stdin has no name: say with -o which file to write")
    output: Path = options.output or options.model.with_suffix(".so")
    expect_directories_of(output, options.header, options.weights)
    timing, target = PassTimingInstrument(), Target(options.target)
    with progress(f"compiling {options.model.name}", 3) as step:
        step("reading the model")
        module = load_model(options.model, options.shape)
        step("compiling")
        with PassContext(instruments=[timing] if options.time_passes else []):
            start = time.perf_counter()
            compiled: Any = compile(module, target)
            seconds = time.perf_counter() - start
        step(f"writing {output}")
        start = time.perf_counter()
        with writing(output):
            alone = {"header": options.header, "weights": options.weights, "threads": options.threads}
            if any(alone.values()) and isinstance(compiled, Module):
                raise UnsupportedError(
                    f"{options.model} holds loops alone; programs that stand alone are made of graphs that call them"
                )
            compiled.export_library(output, **(alone if any(alone.values()) else {}))
        timing.run_after_stage("public forms and linking", time.perf_counter() - start)
    names = compiled.names if isinstance(compiled, Module) else compiled.vm_functions
    size = output.stat().st_size
    others = [path for path in (options.header, options.weights) if path is not None]
    if options.json:
        found = {
            "output": str(output),
            "others": list(map(str, others)),
            "bytes": size,
            "functions": names,
            "seconds": seconds,
        }
        print(json.dumps(found | ({"passes": timing.own_times()} if options.time_passes else {})))
        return
    if options.time_passes:
        print(time_table(timing, target))
    print(f"{output}: {size_text(size)}, functions {', '.join(names)}, compiled in {seconds:.2f} s")
    for path in others:
        print(f"{path}: {size_text(path.stat().st_size)}")


_PHASES = ("graph", "schedules", "lowering", "code")


def _phases(target: Target) -> dict[str, str]:
    """The phase of compiling that each pass, and each stage, belongs to, by its name."""
    from ..driver.stages import stages

    found = {"schedules": "schedules"}
    for stage in stages(target):
        found.update({stage.name: stage.phase}, **{one.info.name: stage.phase for one in stage.passes})
    code = ("writing code", "compiling code", "public forms and linking")
    return found | dict.fromkeys(code, "code")


def time_table(timing: PassTimingInstrument, target: Target) -> str:
    """The seconds that each phase and each of its passes took by itself, how often it ran, and its share.

    Passes that took less than a hundredth of the whole are one line.
    """
    times = timing.own_times()
    total = sum(seconds for _, seconds in times.values()) or 1.0
    lines = [f"{'':<44}{'count':>7}{'seconds':>10}{'share':>9}"]

    def line(name: str, count: int, seconds: float) -> None:
        lines.append(f"{name:<44}{count:>7}{seconds:>10.3f}{seconds / total:>9.1%}")

    phases = _phases(target)
    for phase in _PHASES:
        passes = {name: entry for name, entry in times.items() if phases.get(name, "graph") == phase}
        line(phase, sum(count for count, _ in passes.values()), sum(seconds for _, seconds in passes.values()))
        shown = {name: entry for name, entry in passes.items() if entry[1] >= total / 100}
        for name, (count, seconds) in sorted(shown.items(), key=lambda item: -item[1][1]):
            line(f"  {name}", count, seconds)
        rest = [entry for name, entry in passes.items() if name not in shown]
        if rest:
            line(f"  {len(rest)} others", sum(count for count, _ in rest), sum(seconds for _, seconds in rest))
    line("total", sum(count for count, _ in times.values()), total)
    return "\n".join(lines)
