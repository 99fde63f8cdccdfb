"""Model files: what a command gets a module from."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..ir.json import load_json
from ..ir.module import IRModule
from ..runtime.error import InvalidValue, UnsupportedError


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """The argument that names a model."""
    parser.add_argument("model", type=Path, help="a model: .pt2 (torch.export.save) or .json (oneir.ir.save_json)")


def add_target_argument(parser: argparse.ArgumentParser) -> None:
    """The option that names a target."""
    parser.add_argument("--target", default="llvm", help='what to compile for, as "llvm -mcpu=znver3"; this machine')


def load_model(path: Path) -> IRModule:
    """The module of a model file, its weights bound."""
    if not path.exists():
        raise InvalidValue(f"there is no file {path}")
    if path.suffix == ".pt2":
        return _exported_program(path)
    if path.suffix == ".json":
        module = load_json(path.read_text())
        if not isinstance(module, IRModule):
            raise InvalidValue(f"{path} holds a {type(module).__name__}, not a module")
        return module
    raise UnsupportedError(
        f"{path.name}: models are .pt2 (saved by torch.export.save) or .json (saved by oneir.ir.save_json), "
        f"found {path.suffix or 'no suffix'}"
    )


def _exported_program(path: Path) -> IRModule:
    try:
        import torch
    except ImportError:
        raise UnsupportedError("reading a .pt2 file needs PyTorch: pip install 'oneir[torch]'") from None
    from ..relax.frontend.torch import from_exported_program

    try:
        program = torch.export.load(path)
    except Exception as error:  # torch raises errors of many kinds for files that it cannot read
        raise InvalidValue(f"{path} is no program that torch.export.load reads: {error}") from error
    return from_exported_program(program)
