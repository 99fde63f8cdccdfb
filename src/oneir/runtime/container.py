"""Containers of values, under their published module name."""

from __future__ import annotations

from .object import ShapeTuple, String
from .registry import register_func

__all__ = ["ShapeTuple", "String"]

register_func("ffi.Shape", lambda *extents: ShapeTuple(extents))
