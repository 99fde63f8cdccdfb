"""Where bytes come from: regular files, mapped into memory, and only those of the folder that was named."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path

import numpy as np

from ...runtime.error import InvalidValue

_LARGEST_JSON = 1 << 28
"""Bytes of a JSON file; the largest tokenizers have 35 MB."""


def map_file(path: Path) -> np.ndarray:
    """All bytes of a file as a read-only uint8 array, which holds the map; nothing is read before it is used.

    The file must stay as it is: the process dies of a signal if it reads what was cut off afterwards. Raises
    `InvalidValue` for what is no regular file (a pipe would block) or is empty.
    """
    if not path.is_file():
        raise InvalidValue(f"{path}: expected a file, found {'a folder' if path.is_dir() else 'none'}")
    with _opened(path) as file:
        if not (size := os.fstat(file.fileno()).st_size):
            raise InvalidValue(f"{path}: the file is empty")
        return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)


def read_text(path: Path) -> str:
    """The text of a file in UTF-8. Raises `InvalidValue` for anything else."""
    if not path.is_file():
        raise InvalidValue(f"{path}: expected a file, found {'a folder' if path.is_dir() else 'none'}")
    with _opened(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _LARGEST_JSON:
            raise InvalidValue(f"{path}: expected at most {_LARGEST_JSON} bytes, found {size}")
        content = file.read()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{path}: expected text in UTF-8: {error}") from None


def read_json(path: Path) -> dict:
    """The object in a JSON file. Raises `InvalidValue`, which names the file, for anything else."""
    value = _json(path)
    if not isinstance(value, dict):
        raise InvalidValue(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def read_list(path: Path) -> list:
    """The array in a JSON file. Raises `InvalidValue`, which names the file, for anything else."""
    value = _json(path)
    if not isinstance(value, list):
        raise InvalidValue(f"{path}: expected a JSON array, found {type(value).__name__}")
    return value


def _json(path: Path) -> object:
    try:
        return json.loads(read_text(path))
    except InvalidValue:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{path}: no JSON: {error}") from None


def file_in(folder: Path, name: str) -> Path:
    """The path of a file that lies in a folder itself, whether it exists or not.

    In a cache of the Hugging Face hub (`REPOSITORY/snapshots/REVISION`) files are links to `REPOSITORY/blobs`, so there
    the repository's folder is the border. Raises `InvalidValue` for a name with a folder in it, and for a link that
    leads outside.
    """
    if name in ("", ".", "..") or "\0" in name or name != Path(name).name:
        raise InvalidValue(f"{folder}: expected the name of a file in this folder, found {name!r}")
    root = folder.resolve()
    cached = root.parent.name == "snapshots" and (root.parent.parent / "blobs").is_dir()
    border = root.parent.parent if cached else root
    path = folder / name
    try:
        target = path.resolve()
        path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a name that is too long or no text
        reason = getattr(error, "strerror", None) or error
        raise InvalidValue(f"{folder}: expected the name of a file, found {name[:100]!r}: {reason}") from None
    if not target.is_relative_to(border):
        raise InvalidValue(f"{path} is a link to {target}, which is outside of {border}; copy the file into the folder")
    return path


def _opened(path: Path):
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidValue(f"{path}: {error.strerror}") from None
