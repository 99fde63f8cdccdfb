"""Reads functions, classes and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..module import from_source
from .diagnostics import Source
from .utils import inspect_class_capture, inspect_function_capture


def parse(program: Any, extra_vars: Mapping[str, Any] | None = None, check_well_formed: bool = True) -> Any:
    """The function or module that a function, a class or a text in TVMScript describes.

    `extra_vars` are names that it may use, beside those that it sees where it stands. Raises `ParseError`, which
    underlines the place, for what cannot be read.
    """
    seen: dict[str, Any] = {}
    if not isinstance(program, str):
        seen = inspect_class_capture(program) if isinstance(program, type) else inspect_function_capture(program)
    return from_source(Source(program).source, {**seen, **(extra_vars or {})}, check_well_formed)
