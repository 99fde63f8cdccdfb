"""Archives of object files, which stand for libraries where no linker is: `tar("lib.tar", ["a.o", "b.o"])`."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from . import cc
from .utils import TempDirectory


def tar(output: str, files: Sequence[str]) -> None:
    """Writes an archive `output` of files by their names without folders; equal names get a number."""
    names: set[str] = set()
    with tarfile.open(output, "w") as archive:
        for file in files:
            stem, suffix = os.path.splitext(os.path.basename(file))
            name, number = stem + suffix, 0
            while name in names:
                number += 1
                name = f"{stem}{number}{suffix}"
            names.add(name)
            archive.add(file, arcname=name)


def untar(tar_file: str, directory: str) -> None:
    """Unpacks an archive of files into a folder. Raises `tarfile.TarError` for members outside of it, and for links."""
    root = Path(directory).resolve()
    with tarfile.open(tar_file) as archive:
        for member in archive:  # `extractall` refuses such members from Python 3.11.4 on only
            place = (root / member.name).resolve()
            if not place.is_relative_to(root) or not (member.isdir() or member.isfile()):
                raise tarfile.ExtractError(f"{tar_file} has `{member.name}`, which is no file inside of the archive")
            if member.isdir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            stream = archive.extractfile(member)
            assert stream is not None
            with open(place, "wb") as file:
                shutil.copyfileobj(stream, file)


def normalize_file_list_by_unpacking_tars(temp: TempDirectory, file_list: Sequence[str]) -> list[str]:
    """The files of a list, with those of its archives, unpacked into `temp`, in the archives' places."""
    files: list[str] = []
    for place, path in enumerate(file_list):
        if not path.endswith(".tar"):
            files.append(path)
            continue
        folder = temp.relpath(f"unpacked{place}")
        os.makedirs(folder)
        untar(path, folder)
        files += sorted(os.path.join(folder, name) for name in os.listdir(folder))
    return files


cc.declare(tar, output_format="tar")
