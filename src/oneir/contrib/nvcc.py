"""CUDA C++ compiled by NVRTC, NVIDIA's compiler as a library: `compile_cuda(code, "cubin", arch="sm_90a")`.

Programs are compiled by the function registered as `tvm_callback_cuda_compile`, which users may replace. NVRTC needs
neither a GPU nor the CUDA toolkit, only the package `nvidia-cuda-nvrtc`, and has no headers.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path

from ..runtime.cuda import compile_for
from ..runtime.device import cuda
from ..runtime.error import CompileError, InvalidValue, TypeMismatch, UnsupportedError
from ..runtime.once import once
from ..runtime.registry import get_global_func, register_func
from ..target.target import Target
from .nvidia import find_library
from .rtc import compile_text

_OLDEST = "sm_75"
"""The first architecture that NVRTC 13 knows; PTX for it runs on all later ones."""
_SPECIFIC = 90
"""The first architecture that has instructions of its own alone."""
_FORMATS = {"ptx": "PTX", "cubin": "CUBIN"}
MISSING = "NVRTC is not installed: pip install nvidia-cuda-nvrtc"


@once
def _library() -> ctypes.CDLL | None:
    """NVRTC; None where it is not installed."""
    library = find_library("nvrtc")
    if library is None:
        return None
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def nvrtc_exists() -> bool:
    """Whether NVRTC is installed."""
    return _library() is not None


def _default_arch() -> str:
    """The architecture of the current target, else that of this machine's GPU, else the oldest that is known."""
    target = Target.current(allow_none=True)
    if target is not None and target.kind.name == "cuda" and target.arch:
        return target.arch
    version = cuda(0).compute_version
    return f"sm_{version.replace('.', '')}" if version else _OLDEST


def compile_cuda(
    code: str,
    target_format: str | None = None,
    arch: str | None = None,
    options: str | Sequence[str] | None = None,
    path_target: str | None = None,
    compiler: str = "nvrtc",
) -> bytearray:
    """CUDA C++ as PTX (`target_format="ptx"`, the default) or as machine code (`"cubin"`).

    `arch` is an architecture such as `sm_80`; None is that of the current target, or of this machine's GPU. `options`
    are passed on to the compiler. The code is written to the file `path_target` as well, if one is given.

    Raises `CompileError` with the compiler's messages for code that it does not take, `InvalidValue` for an unknown
    format, architecture or compiler, and `UnsupportedError` where NVRTC is not installed.
    """
    form = target_format or "ptx"
    if form not in _FORMATS:
        raise InvalidValue(f'expected the format "ptx" or "cubin", found {form!r}')
    if compiler != "nvrtc":
        raise InvalidValue(f'expected the compiler "nvrtc", found {compiler!r}')
    arch = arch or _default_arch()
    if not re.fullmatch(r"(sm|compute)_\d+[af]?", arch):
        raise InvalidValue(f"expected an architecture such as sm_80, found {arch!r}")
    if form == "cubin" and arch.startswith("compute"):
        raise InvalidValue(f"machine code needs a real architecture such as sm_80, found {arch!r}")
    arguments = [f"--gpu-architecture={arch}", *([options] if isinstance(options, str) else options or [])]
    library = _library()
    if library is None:
        raise UnsupportedError(MISSING)
    data = compile_text(library, "nvrtc", code, _FORMATS[form], arguments)
    result = bytearray(data.rstrip(b"\0") if form == "ptx" else data)
    if path_target is not None:
        Path(path_target).write_bytes(result)
    return result


@register_func("tvm_callback_cuda_compile")
def _compile_program(code: str, target: Target) -> bytes:
    """The program that a device loads: machine code for the target's architecture; or PTX, which the driver compiles,
    where NVRTC is older than the architecture.
    """
    number = int(re.sub(r"\D", "", target.arch or _OLDEST))
    known = supported_architectures()
    if not known:
        raise UnsupportedError(MISSING)
    if number in known:
        # The suffix allows instructions of this architecture alone, such as those of its tensor cores.
        return bytes(compile_cuda(code, "cubin", f"sm_{number}{'a' if number >= _SPECIFIC else ''}"))
    older = [other for other in known if other < number]
    if not older:
        raise CompileError(
            f"NVRTC compiles for sm_{known[0]} and newer, not for sm_{number}; install an older one: "
            "pip install nvidia-cuda-nvrtc-cu12"
        )
    return bytes(compile_cuda(code, "ptx", f"compute_{older[-1]}"))


@compile_for.provide
def _compile_for(code: str, compute_version: str) -> bytes:
    arch = f"sm_{compute_version.replace('.', '')}"
    image = get_global_func("tvm_callback_cuda_compile")(code, Target({"kind": "cuda", "arch": arch}))
    if isinstance(image, str):
        image = image.encode()
    if not isinstance(image, bytes | bytearray):
        raise TypeMismatch(
            f"`tvm_callback_cuda_compile` returned a {type(image).__name__}; "
            "expected PTX or machine code, as a str or bytes"
        )
    return bytes(image)


def supported_architectures() -> list[int]:
    """The architectures that NVRTC compiles for, such as 75 for sm_75, in ascending order; none where it is missing."""
    library, count = _library(), ctypes.c_int()
    if library is None:
        return []
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(library, library.nvrtcGetSupportedArchs(numbers))
    return sorted(numbers)


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise CompileError(f"NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")
