"""The codes of functions of the virtual machine, for tests of lowered graphs."""

from __future__ import annotations

from ...runtime.vm.builtins import MakeShapeCode, MatchShapeCode

__all__ = ["MakeShapeCode", "MatchShapeCode"]
