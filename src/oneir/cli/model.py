"""Model files: what a command gets a module from."""

from __future__ import annotations

import argparse
import logging
import zipfile
from pathlib import Path

from ..ir.json import load_json
from ..ir.module import IRModule
from ..runtime.error import InvalidValue, OneIRError, UnsupportedError


def add_model_argument(parser: argparse.ArgumentParser) -> None:
    """The argument that names a model."""
    parser.add_argument("model", type=Path, help="a model: .pt2 (torch.export.save) or .json (oneir.ir.save_json)")


def add_target_argument(parser: argparse.ArgumentParser) -> None:
    """The option that names a target."""
    parser.add_argument("--target", default="llvm", help='what to compile for, as "llvm -mcpu=znver3"; this machine')


def load_model(path: Path) -> IRModule:
    """The module of a model file, its weights bound."""
    if not path.is_file():
        raise InvalidValue(f"there is no file {path}")
    if path.suffix == ".pt2":
        return _exported_program(path)
    if path.suffix == ".json":
        return _saved_module(path)
    raise UnsupportedError(
        f"{path.name}: models are .pt2 (saved by torch.export.save) or .json (saved by oneir.ir.save_json), "
        f"found {path.suffix or 'no suffix'}"
    )


def _saved_module(path: Path) -> IRModule:
    try:
        module = load_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidValue(f"{path}: expected a program as JSON, found bytes that are no UTF-8 text") from None
    except OneIRError as error:
        raise type(error)(f"{path}: {error}") from error
    if not isinstance(module, IRModule):
        raise InvalidValue(f"{path} holds a {type(module).__name__}, not a module")
    return module


def _exported_program(path: Path) -> IRModule:
    try:
        import torch
    except ImportError:
        raise UnsupportedError("reading a .pt2 file needs PyTorch: pip install 'oneir[torch]'") from None
    from ..relax.frontend.torch import from_exported_program

    if not zipfile.is_zipfile(path):
        raise InvalidValue(f"{path} is no program of torch.export.save, which is a zip archive; it may be cut short")
    # torch logs with a traceback what it then raises as well.
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        program = torch.export.load(path)
    except Exception as error:  # torch raises errors of many kinds for files that it cannot read
        raise InvalidValue(
            f"{path} is no program that torch.export.load of PyTorch {torch.__version__} reads; export it again"
        ) from error
    finally:
        logger.setLevel(level)
    return from_exported_program(program)
