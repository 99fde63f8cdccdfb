"""Model files: what a command gets a module from."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..ir.json import load_json
from ..ir.module import BaseFunc, IRModule
from ..runtime.device import Device, cpu
from ..runtime.error import InvalidValue, LibraryError, OneIRError, ParseError, UnsupportedError
from ..runtime.module import Module, load_module
from ..runtime.vm import Executable
from .console import progress

KINDS = {
    ".pt2": "torch.export.save",
    ".onnx": "ONNX",
    ".py": "TVMScript",
    ".json": "oneir.ir.save_json",
}
"""The endings of model files, and what writes them."""


COMPILED = (".so", ".dylib", ".dll", ".o", ".obj", ".tar")
"""The endings of compiled files."""


def add_model_argument(parser: argparse.ArgumentParser, **options: Any) -> None:
    """The argument that names a model, and the option for the shapes of its inputs."""
    parser.add_argument(
        "model", type=Path, help=f"a model: {_kinds()}; - reads TVMScript or JSON from stdin", **options
    )
    add_shape_option(parser)


def add_shape_option(parser: argparse._ActionsContainer) -> None:
    """The option for shapes of inputs."""
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=N,N,...",
        help="the shape of an input of an ONNX model, in place of what the file says; a name is a symbolic extent",
    )


def add_target_argument(parser: argparse.ArgumentParser) -> None:
    """The option that names a target."""
    parser.add_argument("--target", default="llvm", help='what to compile for, as "llvm -mcpu=znver3"; this machine')


def load_model(path: Path, shapes: Sequence[str] = ()) -> IRModule:
    """The module of a model file, its weights bound; `shapes` are as `--shape` takes them.

    Raises `OneIRError` for what is no model, and what cannot be imported.
    """
    if str(path) == "-":
        return _from_text(sys.stdin.buffer.read(), "<stdin>")
    if path.is_dir():
        raise InvalidValue(f"{path} is a folder; expected a model file: {_kinds()}")
    if not path.is_file():
        raise InvalidValue(f"there is no file {path}")
    if path.stat().st_size == 0:
        raise InvalidValue(f"{path} is empty: what was to write it did not")
    if path.suffix == ".onnx":
        return _onnx(path, shapes)
    if shapes:
        raise UnsupportedError(f"--shape is for ONNX models; the inputs of a {path.suffix} file have their shapes")
    if path.suffix == ".pt2":
        return _exported_program(path)
    if path.suffix in (".json", ".py"):
        return _from_text(path.read_bytes(), str(path))
    raise _unknown(path, "")


def is_model(path: Path) -> bool:
    """Whether a name is that of a model; others may be those of compiled files."""
    return path.suffix in KINDS or str(path) == "-" or not path.is_file()


def load_compiled(path: Path) -> Executable | Module:
    """What is in a file of `oneir compile`; `OneIRError` for other files."""
    try:
        return load_module(path)
    except LibraryError:
        if path.suffix in COMPILED:
            raise
        raise _unknown(path, "; or a file of `oneir compile`") from None


def load_program(path: Path, shapes: Sequence[str], where: Device) -> Executable | Module:
    """What is in a compiled file; or a model, compiled for a device, with a bar meanwhile."""
    if not is_model(path):
        return load_compiled(path)
    from ..driver.compile import compile

    with progress(path.name, 2) as step:
        step("reading the model")
        module = load_model(path, shapes)
        step("compiling")
        return compile(module, None if where == cpu() else where.type)


def _unknown(path: Path, more: str) -> OneIRError:
    """The error for a file that is no model, nor what else is expected."""
    found = f"{path.name}: expected a model: {_kinds()}{more}; found {path.suffix or 'no suffix'}"
    if path.suffix in COMPILED:
        found += ".\nIt is compiled already: give this command the model that it was compiled from"
    if path.suffix in (".pt", ".pth", ".bin", ".safetensors"):
        found += (
            ".\nSuch files hold weights. In Python, make the model that they belong to, load them, and write a .pt2:"
            '\n  torch.export.save(torch.export.export(model, (example_input,)), "model.pt2")'
        )
    return UnsupportedError(found)


def _kinds() -> str:
    return ", ".join(f"{suffix} ({writer})" for suffix, writer in KINDS.items())


def _from_text(data: bytes, name: str) -> IRModule:
    """A module in TVMScript, or as JSON, which begins with a brace."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        what = "expected TVMScript or a program as JSON, found bytes that are no UTF-8 text"
        raise InvalidValue(f"{name}: {what}") from None
    # What JSON may hold is known once graphs have declared their nodes.
    importlib.import_module("oneir.relax")
    is_json = name.endswith(".json") or text.lstrip().startswith("{")
    try:
        module = load_json(text) if is_json else _from_script(text, name)
    except OneIRError as error:
        raise type(error)(f"{name}: {error}") from error
    if isinstance(module, BaseFunc):
        module = IRModule.from_expr(module)
    if not isinstance(module, IRModule):
        raise InvalidValue(f"{name} holds a {type(module).__name__}, not a module")
    return module


def _from_script(text: str, name: str) -> Any:
    from ..script import from_source

    try:
        return from_source(_without_main(text))
    except ParseError as error:
        # Messages say where in the text; its name is that of the file.
        raise ParseError(re.sub(r"<script [0-9a-f]{8}>", name, str(error))) from error


def _without_main(text: str) -> str:
    """A script without what it does when it is executed, which it is not here; lines keep their numbers."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the parser says where, and shows it
        return text
    lines = text.splitlines(keepends=True)
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            end = node.end_lineno or node.lineno
            lines[node.lineno - 1 : end] = ["\n"] * (end - node.lineno + 1)
    return "".join(lines)


def _onnx(path: Path, shapes: Sequence[str]) -> IRModule:
    from ..relax.frontend.onnx import from_onnx

    told = _shapes(shapes)
    try:
        return from_onnx(path, told)
    except OneIRError as error:
        message = str(error) if str(path) in str(error) else f"{path}: {error}"
        raise type(error)(message + _shape_options(message)) from error


def _shape_options(message: str) -> str:
    """The options that give the shapes that a message asks for by `shape_dict`."""
    if "shape_dict" not in message:
        return ""
    asked = dict(re.findall(r'"([^"]+)": \(([^()]*)\)', message))
    options = [f"--shape {name}={extents.replace(' ', '').strip(',')}" for name, extents in asked.items()]
    return f"\nOn the command line: {' '.join(options) or '--shape NAME=1,3,n'}, with numbers or names for the extents"


def _shapes(items: Sequence[str]) -> dict[str, list[int | str]]:
    """The shapes that `--shape NAME=N,N,...` gives, by the names of inputs."""
    found: dict[str, list[int | str]] = {}
    for item in items:
        name, equals, extents = item.partition("=")
        parts = [part.strip() for part in extents.split(",")] if extents.strip() else []
        if not equals or not all(part.isdecimal() or part.isidentifier() for part in parts):
            raise InvalidValue(f"--shape is written NAME=N,N,... with numbers or names of extents, found {item!r}")
        found[name] = [int(part) if part.isdecimal() else part for part in parts]
    return found


def _exported_program(path: Path) -> IRModule:
    from ..relax.frontend.torch import from_exported_program
    from ..relax.frontend.torch.exported_file import load_exported

    return from_exported_program(load_exported(path))
