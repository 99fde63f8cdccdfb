"""`oneir show`: a model as text, at any stage of compilation, and what changes from one stage to another."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.error import NotRegistered, UnsupportedError
from ..runtime.module import Module
from .console import counted, print_code, progress
from .model import add_model_argument, add_target_argument, is_model, load_compiled, load_model

if TYPE_CHECKING:
    from ..driver.stages import Stage

_EPILOG = """\
examples:
  oneir show model.pt2                                    the graph, as imported
  oneir show --stages                                     the stages of compilation, and the passes of each
  oneir show model.pt2 --stage fused --names              the functions after a stage
  oneir show model.pt2 --stage asm --function NAME        the machine code of one kernel
  oneir show model.pt2 --diff imported fused              what the passes between two stages change
  oneir show model.so                                     the program in a file of `oneir compile`
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "show",
        help="print a model at a stage of compilation",
        description="Prints a model after a stage of compilation: as TVMScript, or its program, LLVM IR or machine "
        "code.\nOf a file of `oneir compile`, prints the program.",
        epilog=_EPILOG,
    )
    add_model_argument(parser, nargs="?")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stage", default="imported", help="which stage (imported)")
    what.add_argument("--stages", action="store_true", help="the stages that there are, and the passes that each runs")
    what.add_argument("--diff", nargs=2, metavar=("STAGE", "STAGE"), help="what changes from one stage to the other")
    parser.add_argument("--function", metavar="NAME", help="only the function of this name")
    parser.add_argument("--names", action="store_true", help="only the names of the functions")
    add_target_argument(parser)
    parser.set_defaults(run=run, refuse=parser.error)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from ..driver.build import as_target
    from ..driver.stages import Stages, stages

    known = stages(as_target(options.target))
    if options.stages:
        _print_stages(known)
        return
    names: list[str] = options.diff or [options.stage]
    for name in names:
        if name not in [stage.name for stage in known]:
            options.refuse(f"there is no stage {name!r}; there are {', '.join(stage.name for stage in known)}")
    path: Path = options.model or options.refuse("the following arguments are required: model")
    if not is_model(path):
        _show_compiled(path, options)
        return
    with progress(path.name, len(known) + 1) as step:
        step("reading the model")
        made = Stages(load_model(path, options.shape), options.target, step)
        if options.names:
            texts = ["\n".join(made.names(name)) for name in names]
        elif options.diff is not None and options.function is not None:
            texts = _where_it_is(made, names, options.function)
        else:
            texts = [made.text(name, options.function) for name in names]
    if options.diff is not None:
        _print_diff(texts, names)
    elif options.names:
        print(texts[0])
    else:
        print_code(texts[0], _LANGUAGES.get(names[0], "python"))


def _print_stages(known: Sequence[Stage]) -> None:
    """A line for each stage: its phase, its name, what a module is then; below it, the passes that it runs."""
    width = max(len(stage.name) for stage in known)
    for stage in known:
        print(f"{stage.phase:<11}{stage.name:<{width}}  {stage.what}")
        for one in stage.passes:
            print(f"{'':<{11 + width}}    {one!r}")


_LANGUAGES = {"llvm": "llvm", "asm": "gas", "program": "text"}


def _where_it_is(made: Any, stages: list[str], function: str) -> list[str]:
    """The texts of a function at two stages; nothing where it is not there yet, or any more."""
    texts, errors = [], []
    for stage in stages:
        try:
            texts.append(made.text(stage, function))
        except NotRegistered as error:
            errors.append(error)
            texts.append("")
    if len(errors) == len(stages):
        raise errors[-1]
    return texts


def _print_diff(texts: list[str], stages: list[str]) -> None:
    before, after = (text.splitlines() for text in texts)
    lines = list(difflib.unified_diff(before, after, *stages, lineterm="", n=2))
    if not lines:
        print(f"{stages[0]} and {stages[1]} are the same")
        return
    print_code("\n".join(lines), "diff")
    removed = sum(line.startswith("-") for line in lines[2:])
    added = sum(line.startswith("+") for line in lines[2:])
    if sys.stdout.isatty():
        print(f"{counted(removed, 'line')} removed, {added:,} added")


def _show_compiled(path: Path, options: argparse.Namespace) -> None:
    """What can be seen of a file of compiled code: the program of a graph, the signatures of kernels."""
    loaded = load_compiled(path)
    if options.diff is not None or options.stage not in ("imported", "program"):
        raise UnsupportedError(f"{path} is compiled: only its program can be shown; show the stages of the model")
    if isinstance(loaded, Module):
        print("\n".join(loaded.names if options.names else map(str, loaded.signatures.values())))
        return
    if options.names:
        print("\n".join(loaded.vm_functions))
        return
    print(loaded.stats())
    print_code(loaded.as_text(), "text")
