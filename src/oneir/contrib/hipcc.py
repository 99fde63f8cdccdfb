"""HIP compiled by HIPRTC, the compiler of ROCm as a library: `compile_hip(code, "gfx90a")`.

Programs are compiled by the function registered as `tvm_callback_hip_compile`, which users may replace.
"""

from __future__ import annotations

import contextlib
import ctypes

from ..runtime.error import TypeMismatch, UnsupportedError
from ..runtime.once import once
from ..runtime.registry import get_global_func, register_func
from ..runtime.rocm import compile_for
from ..target.target import Target
from .rtc import compile_text

_LIBRARIES = ("libhiprtc.so", "libhiprtc.so.7", "libhiprtc.so.6")
MISSING = (
    "HIPRTC, which compiles HIP, was not found: install ROCm, whose library is libhiprtc.so (the machine code that "
    "LLVM makes of kernels is not linked: that would take ld.lld)"
)


@once
def _library() -> ctypes.CDLL | None:
    """HIPRTC; None where it is not installed."""
    for name in _LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def hiprtc_exists() -> bool:
    """Whether HIPRTC is installed."""
    return _library() is not None


def compile_hip(code: str, arch: str) -> bytes:
    """HIP as a code object for an architecture such as `gfx90a`.

    Raises `CompileError` with the compiler's messages for code that it does not take, `InvalidValue` for an unknown
    architecture, and `UnsupportedError` where HIPRTC is not installed.
    """
    library = _library()
    if library is None:
        raise UnsupportedError(MISSING)
    return compile_text(library, "hiprtc", code, "Code", [f"--offload-arch={arch}"])


@register_func("tvm_callback_hip_compile")
def _compile_program(code: str, target: Target) -> bytes:
    return compile_hip(code, target.mcpu)


@compile_for.provide
def _compile_for(code: str, architecture: str) -> bytes:
    image = get_global_func("tvm_callback_hip_compile")(code, Target({"kind": "rocm", "mcpu": architecture}))
    if not isinstance(image, bytes | bytearray):
        raise TypeMismatch(
            f"`tvm_callback_hip_compile` returned a {type(image).__name__}; expected a code object, as bytes"
        )
    return bytes(image)
