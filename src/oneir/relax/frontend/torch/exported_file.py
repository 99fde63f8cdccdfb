"""Files of torch.export.save."""

from __future__ import annotations

import importlib
import logging
import re
import zipfile
from pathlib import Path
from typing import Any

from ....runtime.error import InvalidValue, UnsupportedError


def load_exported(path: Path) -> Any:
    """The `torch.export.ExportedProgram` in a file.

    Raises `InvalidValue` for other files, and `UnsupportedError` where a package that the program needs is missing.
    """
    try:
        import torch
    except ImportError:
        raise UnsupportedError("reading a .pt2 file needs PyTorch: pip install 'oneir[torch]'") from None

    if not zipfile.is_zipfile(path):
        raise InvalidValue(f"{path} is no program of torch.export.save, which is a zip archive; it may be cut short")
    _make_containers_known(path)
    # torch logs with a traceback what it then raises as well.
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises errors of many kinds for files that it cannot read
        raise InvalidValue(
            f"{path} is no program that torch.export.load of PyTorch {torch.__version__} reads; export it again"
        ) from error
    finally:
        logger.setLevel(level)


def _make_containers_known(path: Path) -> None:
    """Sees to it that PyTorch knows the classes of what a program takes and returns, besides tuples, lists and dicts.

    A library makes its classes known when it is imported. Models of transformers return such objects, so that one is
    imported here; a file shall not choose what else is.
    """
    from torch.utils import _pytree as pytree

    known = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
    wanted = [name for name in _containers(path) if name not in known]
    for name in wanted:
        if name.startswith("transformers."):
            try:
                importlib.import_module(name.rpartition(".")[0])
            except ImportError as error:
                raise UnsupportedError(
                    f"{path}: the program takes or returns a {name}, which cannot be imported ({error}): "
                    "pip install transformers"
                ) from None
    if missing := [name for name in wanted if name not in known]:
        raise UnsupportedError(
            f"{path}: the program takes or returns {', '.join(missing)}, of which PyTorch knows nothing before "
            "the library that defines it is imported. Export a model whose forward takes and returns tensors; or "
            "import that library in Python, and compile from_exported_program(torch.export.load(path))"
        )


def _containers(path: Path) -> list[str]:
    """The classes that the file says arguments and results are made of; none if it is no program."""
    names: dict[str, None] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                if re.search(r"(^|/)(models/[^/]+|serialized_exported_program)\.json$", member):
                    # Their structure is JSON in a text of this JSON.
                    text = archive.read(member).decode(errors="replace")
                    names |= dict.fromkeys(re.findall(r'\{\\"type\\": \\"([\w.]+)\\"', text))
    except (OSError, zipfile.BadZipFile):
        return []
    return list(names)
