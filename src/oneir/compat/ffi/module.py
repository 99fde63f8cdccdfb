"""Compiled programs."""

from __future__ import annotations

from ...runtime import Module, load_module

__all__ = ["Module", "load_module"]
