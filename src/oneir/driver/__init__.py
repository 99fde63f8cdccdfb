"""The front door: `build` and `compile` turn modules into functions that can be called."""

from ..target import codegen
from .build import build, compile

codegen.module_builder = build

__all__ = ["build", "compile"]
