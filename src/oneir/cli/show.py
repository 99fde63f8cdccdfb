"""`oneir show`: a model as text, at any stage of compilation."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import Any

from ..ir.module import IRModule
from ..relax import transform
from ..relax.pipeline import dataflow_lower_passes, finalize_passes, legalize_passes
from ..runtime.error import InvalidValue, NotRegistered
from ..target.target import Target
from .model import add_model_argument, add_target_argument, load_model

STAGES = ("imported", "legalized", "fused", "lowered", "planned", "program", "llvm", "asm")


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "show",
        help="print a model at a stage of compilation",
        description="Prints a model as TVMScript after a stage: imported (operators), legalized (loops), fused, "
        "lowered (explicit memory), planned (one arena, runtime calls); or as program (bytecode), llvm, asm.",
    )
    add_model_argument(parser)
    parser.add_argument("--stage", choices=STAGES, default="imported", help="which stage (imported)")
    parser.add_argument("--diff", choices=STAGES, help="print what changes from this stage to the other")
    parser.add_argument("--function", help="only the function of this name")
    parser.add_argument("--names", action="store_true", help="only the names of the functions")
    add_target_argument(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    module = load_model(options.model)
    target = Target(options.target)
    text = _text(module, options.stage, target, options)
    if options.diff is not None:
        before = _text(module, options.diff, target, options)
        lines = difflib.unified_diff(
            before.splitlines(), text.splitlines(), options.diff, options.stage, lineterm="", n=2
        )
        text = "\n".join(lines) or f"{options.diff} and {options.stage} are the same"
    print(_colored(text) if sys.stdout.isatty() else text)


def at_stage(module: IRModule, stage: str, target: Target) -> IRModule:
    """The module after the passes up to a stage."""
    passes: list[Any] = []
    if stage == "legalized":
        passes = [transform.LegalizeOps()]
    elif stage != "imported":
        module = transform.resolve_outputs(module)
        passes = legalize_passes(target)
        if stage in ("lowered", "planned"):
            passes += dataflow_lower_passes(target)
        if stage == "planned":
            passes += finalize_passes(target)
    with target:
        for step in passes:
            module = step(module)
    return module


def _text(module: IRModule, stage: str, target: Target, options: argparse.Namespace) -> str:
    if stage in ("program", "llvm", "asm"):
        if options.names or options.function is not None:
            raise InvalidValue(f"--names and --function are for stages that are modules; {stage} is none")
        from ..driver.graph import build_graph

        executable = build_graph(module, target)
        if stage == "program":
            return executable.as_text()
        if executable.library is None:
            return ""
        return executable.library.inspect_source("ll" if stage == "llvm" else "asm")
    module = at_stage(module, stage, target)
    if options.names:
        return "\n".join(var.name_hint for var in module.get_global_vars())
    if options.function is None:
        return module.script()
    if options.function not in module:
        names = ", ".join(var.name_hint for var in module.get_global_vars())
        raise NotRegistered(f"after the stage {stage} there is no function {options.function!r}; there are {names}")
    # As a module of one function, since only a module knows the names of functions that are private.
    return IRModule({options.function: module[options.function]}).script()


def _colored(text: str) -> str:
    from rich.console import Console
    from rich.syntax import Syntax

    console = Console()
    with console.capture() as capture:
        console.print(Syntax(text, "python", background_color="default", word_wrap=False))
    return capture.get().rstrip("\n")
