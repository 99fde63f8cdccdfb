"""Containers of values, under their published module name."""

from __future__ import annotations

from .object import ShapeTuple, String

__all__ = ["ShapeTuple", "String"]
