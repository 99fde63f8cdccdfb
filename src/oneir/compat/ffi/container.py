"""Sequences and mappings."""

from __future__ import annotations

from ...ir.container import Array, Map

__all__ = ["Array", "Map"]
