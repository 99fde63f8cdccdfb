"""Paths to parts of a structure."""

from __future__ import annotations

from ...ir.access_path import AccessKind, AccessPath, AccessStep

__all__ = ["AccessKind", "AccessPath", "AccessStep"]
