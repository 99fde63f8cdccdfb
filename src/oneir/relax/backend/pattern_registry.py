"""Patterns by name, which those who know them register.

register_patterns([("mine.matmul", is_op("relax.matmul")(wildcard(), wildcard()))])
mod = FuseOpsByPattern(get_patterns_with_prefix("mine"))(mod)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...runtime.error import TypeMismatch
from ..transform.fuse_ops_by_pattern import FusionPattern

Pattern = FusionPattern | tuple[Any, ...]

_patterns: list[FusionPattern] = []


def register_patterns(patterns: Sequence[Pattern]) -> None:
    """Adds patterns, each a `FusionPattern` or a tuple of its arguments; later ones have priority."""
    added: list[FusionPattern] = []
    for pattern in patterns:
        if not isinstance(pattern, (FusionPattern, tuple)):
            raise TypeMismatch(
                f"a pattern to register is a FusionPattern or a tuple of its arguments, found {type(pattern).__name__}"
            )
        added.append(pattern if isinstance(pattern, FusionPattern) else FusionPattern(*pattern))
    _patterns.extend(added)


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """The patterns whose names start with `prefix`, those of the highest priority first."""
    return [pattern for pattern in reversed(_patterns) if pattern.name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """The pattern of that name that was registered last; None if there is none."""
    return next((pattern for pattern in reversed(_patterns) if pattern.name == name), None)
