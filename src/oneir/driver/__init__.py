"""The front door: `build` and `compile` turn modules into functions that can be called."""

from .build import build
from .compile import compile

__all__ = ["build", "compile"]
