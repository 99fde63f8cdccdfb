"""`oneir import`: a model as a module of OneIR, in a file, and what is in it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from ..runtime.error import UnsupportedError
from .console import expect_directories_of, progress, size_text, writing
from .model import add_model_argument, load_model

_EPILOG = """\
examples:
  oneir import model.pt2                     what is in the model
  oneir import model.onnx --shape x=1,3,n,n  with the shape of an input that the file leaves open
  oneir import model.pt2 -o model.json       the module, weights included, for other commands and oneir.ir.load_json
  oneir import model.pt2 -o - | oneir compile - -o model.so
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "import",
        help="say what is in a model, and write it as a module",
        description="Imports a model and says what is in it: functions, inputs with dtypes and shapes, weights, "
        "operators.\nWith -o, writes the module, which every command takes in place of the model.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write the module, weights included: .json, .py (TVMScript), or - for TVMScript on stdout",
    )
    parser.add_argument("--json", action="store_true", help="print what is in the model as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from .summary import summarize

    output: Path | None = options.output
    to_stdout = str(output) == "-"
    if output is not None and not to_stdout and output.suffix not in (".json", ".py"):
        raise UnsupportedError(f"modules are written as .json or .py (TVMScript), found {output}")
    expect_directories_of(None if to_stdout else output)
    with progress(f"importing {options.model.name}", 3) as step:
        step("reading the model")
        start = time.perf_counter()
        module = load_model(options.model, options.shape)
        seconds = time.perf_counter() - start
        step("counting")
        summary = summarize(module)
        if output is not None and not to_stdout:
            step(f"writing {output}")
            with writing(output):
                output.write_text(_text(module, output.suffix), encoding="utf-8")
    # What is printed must not mix with a module that goes to stdout.
    report = sys.stderr if to_stdout else sys.stdout
    if to_stdout:
        print(_text(module, ".py"))
    if options.json:
        found = {"model": str(options.model), "seconds": seconds, **summary.as_json()}
        found |= {} if output is None else {"output": str(output)}
        print(json.dumps(found), file=report)
        return
    print(f"{options.model}, imported in {seconds:.2f} s\n\n{summary}", file=report)
    if output is not None and not to_stdout:
        print(f"\n{output}: {size_text(output.stat().st_size)}", file=report)


def _text(module: Any, suffix: str) -> str:
    """The module as text; the weights of a script stand in its metadata."""
    if suffix == ".py":
        return module.script(show_meta=True)
    from ..ir.json import save_json

    return save_json(module)
