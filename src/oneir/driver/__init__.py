"""The front door: `build` and `compile` turn modules into functions that can be called."""

from .build import build, compile

__all__ = ["build", "compile"]
