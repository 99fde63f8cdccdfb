"""Errors by the names that programs catch: `except tvm.error.TVMError`."""

from __future__ import annotations

from .runtime.error import (
    InternalError,
    InvalidValue,
    OneIRError,
    ParseError,
    RPCError,
    RPCSessionTimeoutError,
    UnsupportedError,
)

TVMError = OneIRError
OpError = OneIRError
DiagnosticError = ParseError
OpNotImplemented = UnsupportedError
OpAttributeInvalid = OpAttributeRequired = InvalidValue
OpAttributeUnImplemented = UnsupportedError

__all__ = [
    "DiagnosticError",
    "InternalError",
    "OpAttributeInvalid",
    "OpAttributeRequired",
    "OpAttributeUnImplemented",
    "OpError",
    "OpNotImplemented",
    "RPCError",
    "RPCSessionTimeoutError",
    "TVMError",
]
