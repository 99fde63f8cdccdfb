"""Functions of the runtime as nodes: what a program refers to by the name under which it is registered."""

from __future__ import annotations

from typing import Any

from ..runtime.registry import get_global_func
from .node import Node


class EnvFunc(Node):
    """The function registered as `name`; saved by its name, and looked up when it is called."""

    name: str

    @staticmethod
    def get(name: str) -> EnvFunc:
        """The function registered as `name`; `NotRegistered` when there is none."""
        get_global_func(name)
        return EnvFunc(name)

    @property
    def func(self) -> Any:
        """The function itself."""
        return get_global_func(self.name)

    def __call__(self, *args: Any) -> Any:
        """Calls the function."""
        return self.func(*args)
