"""`oneir export-web`: a model as a folder for browsers and npm."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from ..runtime.error import InvalidValue
from ..target.target import Target
from .console import progress, size_text, writing
from .model import add_model_argument, load_model

_EPILOG = """\
examples:
  oneir export-web model.onnx web                            writes web/index.html, web/model.mjs, web/model.wasm, ...
  oneir export-web model.pt2 web --labels labels.txt --normalize imagenet
  python -m http.server -d web                               then open http://localhost:8000
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "export-web",
        help="write a model for browsers and npm",
        description="Compiles a model to WebAssembly and writes a folder with it, an ES module with types that runs "
        "it, a page\nthat tries it on an image or on numbers, and package.json. Needs wasm-ld, or the package ziglang.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    parser.add_argument("folder", type=Path, help="where the files are written; it is made if there is none")
    parser.add_argument("--name", help="what files and functions are called; the model's name")
    parser.add_argument("--title", help="what the page is called")
    parser.add_argument("--labels", type=Path, help="a file with the names of classes, one a line")
    parser.add_argument(
        "--normalize",
        default="unit",
        choices=("unit", "signed", "imagenet", "raw"),
        help="what the page makes of an image's bytes: 0 to 1 (unit), -1 to 1, ImageNet's mean and deviation, 0 to 255",
    )
    parser.add_argument("--target", default="wasm/simd", help="what to compile for; wasm/simd, which all browsers run")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from ..driver.compile import compile
    from ..driver.web import Page, export_web
    from ..target.cpu import architecture, resolve

    target = Target(options.target)
    if architecture(resolve(target)[0]) != "wasm":
        raise InvalidValue(f"expected a target of WebAssembly, such as wasm/simd; found {options.target}")
    if options.labels is not None and not options.labels.is_file():
        raise InvalidValue(f"there is no file {options.labels}")
    labels = [] if options.labels is None else options.labels.read_text(encoding="utf-8").splitlines()
    name = options.name or re.sub(r"\W", "_", options.model.stem, flags=re.ASCII)
    if not options.name and not re.match("[A-Za-z_]", name):
        name = f"model_{name}"
    page = Page(options.title or name, labels, options.normalize)
    with progress(f"compiling {options.model.name}", 3) as step:
        step("reading the model")
        module = load_model(options.model, options.shape)
        step("compiling")
        compiled: Any = compile(module, target)
        step(f"writing {options.folder}")
        with writing(options.folder):
            files = export_web(compiled, options.folder, name, page)
    for file in files:
        print(f"{file}: {size_text(file.stat().st_size)}")
