"""The base of all errors by its published place: `except tvm.base.TVMError`."""

from .error import TVMError

__all__ = ["TVMError"]
