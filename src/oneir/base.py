"""The base of all errors by its published place, `except tvm.base.TVMError`, and the native library that is used."""

from __future__ import annotations

from typing import Any

from .error import TVMError

__all__ = ["TVMError"]


def __getattr__(name: str) -> Any:
    if name == "_LIB":  # LLVM's, since no other one is loaded; scripts read the path of its file, `_LIB._name`
        from llvmlite import binding

        return binding.ffi.lib
    raise AttributeError(f"module 'oneir.base' has no attribute {name!r}")
