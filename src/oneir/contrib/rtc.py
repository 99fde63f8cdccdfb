"""Compilers of device code that are libraries, NVRTC and HIPRTC: they have one interface, under two prefixes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ..runtime.error import CompileError, InvalidValue

_PROGRAM_FAILED = 6


def compile_text(library: ctypes.CDLL, prefix: str, code: str, result: str, arguments: Sequence[str]) -> bytes:
    """What the compiler of a prefix such as "nvrtc" makes of a program: its `result`, such as "PTX".

    Raises `CompileError` with the compiler's messages for code that it does not take, and `InvalidValue` for options.
    """
    name, program = prefix.upper(), ctypes.c_void_p()
    getattr(library, f"{prefix}GetErrorString").restype = ctypes.c_char_p

    def check(status: int) -> None:
        if status:
            raise CompileError(f"{name} failed: {getattr(library, f'{prefix}GetErrorString')(status).decode()}")

    def read(what: str) -> bytes:
        size = ctypes.c_size_t()
        check(getattr(library, f"{prefix}Get{what}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(size.value)
        check(getattr(library, f"{prefix}Get{what}")(program, data))
        return data.raw

    def log() -> str:
        return read("ProgramLog").decode(errors="replace").rstrip("\0\n")

    create = getattr(library, f"{prefix}CreateProgram")
    check(create(ctypes.byref(program), code.encode(), b"program.cu", 0, None, None))
    try:
        texts = (ctypes.c_char_p * len(arguments))(*(argument.encode() for argument in arguments))
        status = getattr(library, f"{prefix}CompileProgram")(program, len(arguments), texts)
        if status == _PROGRAM_FAILED:
            raise CompileError(f"{name} does not take the program:\n{log()}")
        if status:
            raise InvalidValue(f"{name} does not take the options {' '.join(arguments)}: {log()}")
        return read(result)
    finally:
        getattr(library, f"{prefix}DestroyProgram")(ctypes.byref(program))
