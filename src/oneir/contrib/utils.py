"""Temporary folders, and questions about files.

temp = tempdir()
lib.export_library(temp.relpath("lib.so"))
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

_FOLDER = re.compile(r"[\\/]|\.(c|cc|cpp|cu|cl|ll|py|s)$")


class TempDirectory:
    """A folder that is deleted, with what is in it, when the object dies, unless `keep_for_debug`.

    `custom_path` is a folder to create in place of one with a new name.
    """

    def __init__(self, custom_path: str | None = None, keep_for_debug: bool = False):
        if custom_path is None:
            self.temp_dir = tempfile.mkdtemp()
        else:
            os.makedirs(custom_path)
            self.temp_dir = custom_path
        self.keep_for_debug = keep_for_debug

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.temp_dir)

    def relpath(self, name: str) -> str:
        """The path of a file of that name in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """The names of what is in the folder."""
        return os.listdir(self.temp_dir)

    def remove(self) -> None:
        """Deletes the folder now."""
        shutil.rmtree(self.temp_dir, ignore_errors=True)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __del__(self) -> None:
        # A constructor that failed made no folder; at the end of the process, modules may be gone.
        if shutil is not None and hasattr(self, "keep_for_debug") and not self.keep_for_debug:
            self.remove()


def tempdir(custom_path: str | None = None, keep_for_debug: bool = False) -> TempDirectory:
    """A new temporary folder."""
    return TempDirectory(custom_path, keep_for_debug)


def is_source_path(path: str) -> bool:
    """Whether a text is the path of a source file, rather than source."""
    return "\n" not in path and _FOLDER.search(path) is not None and os.path.exists(path)


def which(exec_name: str) -> str | None:
    """The path of an executable that the shell would run by that name; None if there is none."""
    return shutil.which(exec_name)
