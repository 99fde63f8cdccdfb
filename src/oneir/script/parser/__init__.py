"""Reads TVMScript: the syntax tree of Python, walked by evaluators that build nodes.

The vocabularies go by this package's name as well: `from oneir.script.parser import ir as I, relax as R, tir as T`.
"""

from __future__ import annotations

from typing import Any

_VOCABULARIES = ("ir", "relax", "tir")


def __getattr__(name: str) -> Any:
    if name not in _VOCABULARIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"oneir.script.{name}")
