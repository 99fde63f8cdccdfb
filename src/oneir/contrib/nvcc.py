"""CUDA C++ compiled by NVRTC, NVIDIA's compiler as a library: `compile_cuda(code, "cubin", arch="sm_90a")`.

It needs neither a GPU nor the CUDA toolkit, only the package `nvidia-cuda-nvrtc`, and has no headers.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from ..runtime.device import cuda
from ..runtime.error import CompileError, InvalidValue, UnsupportedError
from ..runtime.once import once
from ..target.target import Target

_SUCCESS = 0
_PROGRAM_FAILED = 6
_OLDEST = "sm_75"
"""The first architecture that NVRTC 13 knows; PTX for it runs on all later ones."""
_FORMATS = {"ptx": "PTX", "cubin": "CUBIN"}
_MISSING = "NVRTC is not installed: pip install nvidia-cuda-nvrtc"


@once
def _library() -> ctypes.CDLL | None:
    """NVRTC; None where it is not installed."""
    package = importlib.util.find_spec("nvidia")
    folders = [] if package is None else package.submodule_search_locations or []
    # nvidia/cu13/lib/libnvrtc.so.13, nvidia/cuda_nvrtc/lib/libnvrtc.so.12; the newest last
    found = sorted(
        (path for folder in folders for path in Path(folder).glob("*/lib/libnvrtc.so.*")), key=lambda p: p.suffix
    )
    if not found:
        return None
    library = ctypes.CDLL(str(found[-1]))
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
        raise UnsupportedError(_MISSING)
    result = bytearray(_compiled(library, code, form, arguments))
    if path_target is not None:
        Path(path_target).write_bytes(result)
    return result


def _compiled(library: ctypes.CDLL, code: str, form: str, arguments: list[str]) -> bytes:
    program = ctypes.c_void_p()
    status = library.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"program.cu", 0, None, None)
    _check(library, status)
    try:
        texts = (ctypes.c_char_p * len(arguments))(*(argument.encode() for argument in arguments))
        status = library.nvrtcCompileProgram(program, len(arguments), texts)
        if status == _PROGRAM_FAILED:
            raise CompileError(f"NVRTC does not take the program:\n{_log(library, program)}")
        if status != _SUCCESS:
            raise InvalidValue(f"NVRTC does not take the options {' '.join(arguments)}: {_log(library, program)}")
        result = _read(library, program, _FORMATS[form])
        return result.rstrip(b"\0") if form == "ptx" else result
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _log(library: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    return _read(library, program, "ProgramLog").decode(errors="replace").rstrip("\0\n")


def _read(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """What `nvrtcGet...` gives."""
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, data))
    return data.raw


def _check(library: ctypes.CDLL, status: int) -> None:
    if status != _SUCCESS:
        raise CompileError(f"NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")
