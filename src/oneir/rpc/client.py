"""Sessions as clients see them. `LocalSession` is one with this process itself: scripts try there what they will
do elsewhere.
"""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..contrib.utils import TempDirectory
from ..runtime.device import Device
from ..runtime.error import InvalidValue
from ..runtime.module import load_module, system_lib
from ..runtime.registry import get_global_func


class RPCSession(ABC):
    """A device to which files are uploaded, and whose functions and modules are called."""

    @abstractmethod
    def get_function(self, name: str) -> Callable[..., Any]:
        """The function that the other side has registered by that name. Raises `NotRegistered` if there is none."""

    @abstractmethod
    def device(self, dev_type: str | int, dev_id: int = 0) -> Device:
        """A device of the other side, on which tensors are made."""

    @abstractmethod
    def upload(self, data: str | bytes | bytearray, target: str | None = None) -> None:
        """Sends a file, by its path, or its content, which needs a name: `target`."""

    @abstractmethod
    def download(self, path: str) -> bytearray:
        """The content of an uploaded file. Raises `InvalidValue` if there is none of that name."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Deletes an uploaded file, if it is there."""

    @abstractmethod
    def listdir(self, path: str = ".") -> str:
        """The names of uploaded files, in order, with commas between them."""

    @abstractmethod
    def load_module(self, path: str) -> Any:
        """The module in an uploaded file; its functions run on the other side."""

    @abstractmethod
    def system_lib(self) -> Any:
        """The module of the functions that are a part of the other side's program itself."""

    def download_linked_module(self, path: str) -> bytearray:
        """The module in an uploaded file as a shared library that this machine's linker makes."""
        with tempfile.TemporaryDirectory() as folder:
            sent = Path(folder) / os.path.basename(path)
            linked = sent.with_suffix(".so")
            sent.write_bytes(self.download(path))
            load_module(sent).export_library(linked)
            return bytearray(linked.read_bytes())

    def cpu(self, dev_id: int = 0) -> Device:
        """The other side's processor."""
        return self.device("cpu", dev_id)

    def cuda(self, dev_id: int = 0) -> Device:
        """One of the other side's NVIDIA GPUs."""
        return self.device("cuda", dev_id)

    def cl(self, dev_id: int = 0) -> Device:
        """One of the other side's OpenCL devices."""
        return self.device("opencl", dev_id)

    def vulkan(self, dev_id: int = 0) -> Device:
        """One of the other side's Vulkan devices."""
        return self.device("vulkan", dev_id)

    def metal(self, dev_id: int = 0) -> Device:
        """One of the other side's Metal devices."""
        return self.device("metal", dev_id)

    def rocm(self, dev_id: int = 0) -> Device:
        """One of the other side's AMD GPUs."""
        return self.device("rocm", dev_id)


class LocalSession(RPCSession):
    """A session whose other side is this process; its files lie in a folder that is deleted with it."""

    def __init__(self) -> None:
        self._files = TempDirectory()

    def get_function(self, name: str) -> Callable[..., Any]:
        return get_global_func(name)

    def device(self, dev_type: str | int, dev_id: int = 0) -> Device:
        return Device(dev_type, dev_id)

    def upload(self, data: str | bytes | bytearray, target: str | None = None) -> None:
        if isinstance(data, str):
            target = os.path.basename(data) if target is None else target
            with open(data, "rb") as file:
                data = file.read()
        if target is None:
            raise InvalidValue("bytes are uploaded under a name; pass target=")
        path = self._path(target)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def download(self, path: str) -> bytearray:
        with open(self._existing(path), "rb") as file:
            return bytearray(file.read())

    def remove(self, path: str) -> None:
        if os.path.exists(self._path(path)):
            os.remove(self._path(path))

    def listdir(self, path: str = ".") -> str:
        return ",".join(sorted(os.listdir(self._path(path))))

    def system_lib(self) -> Any:
        return system_lib()

    def load_module(self, path: str) -> Any:
        return load_module(Path(self._existing(path)))

    def _existing(self, name: str) -> str:
        path = self._path(name)
        if not os.path.isfile(path):
            raise InvalidValue(f"no file {name!r} has been uploaded; there are: {self.listdir() or 'none'}")
        return path

    def _path(self, name: str) -> str:
        """The path of a file of the session. Raises `InvalidValue` for one that would lie elsewhere."""
        path = os.path.normpath(self._files.relpath(name))
        if os.path.commonpath([path, self._files.temp_dir]) != self._files.temp_dir:
            raise InvalidValue(f"files of a session lie in its own folder; found the name {name!r}")
        return path
