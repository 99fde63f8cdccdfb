"""Libraries of NVIDIA's, from the package index or the CUDA toolkit."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
from collections.abc import Iterable
from pathlib import Path


def find_library(name: str, versions: Iterable[int] = ()) -> ctypes.CDLL | None:
    """The newest library of a name, such as "nvrtc", in the packages `nvidia-...`; else, of some version, where the
    system finds libraries. None where there is none.
    """
    package = importlib.util.find_spec("nvidia")
    folders = [] if package is None else package.submodule_search_locations or []
    # nvidia/cu13/lib/libnvrtc.so.13, nvidia/cuda_nvrtc/lib/libnvrtc.so.12; the newest last
    found = sorted(
        (path for folder in folders for path in Path(folder).glob(f"*/lib/lib{name}.so.*")), key=lambda p: p.suffix
    )
    for path in [*map(str, reversed(found)), *(f"lib{name}.so.{version}" for version in versions)]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    return None
