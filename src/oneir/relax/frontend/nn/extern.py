"""Functions that other programs provide, called from exported modules.

    ext = nn.ExternModule({"ext_add": lambda a, b: nn.Tensor.placeholder(a.shape, a.dtype)})
    y = ext["ext_add"](x, x)

Each function is described by what infers its results: from the arguments, tensors like those that it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....runtime.error import InvalidValue
from .core import Module


class ExternModule(Module):
    """Functions by name, each with what infers its results."""

    def __init__(self, symbols: Mapping[str, Callable[..., Any]]):
        self.symbols = dict(symbols)

    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        """The function, which may be called with tensors, expressions, numbers and texts."""
        from .exporter import Exporter
        from .op import extern

        if func_name not in self.symbols:
            raise InvalidValue(f"the external module has no function `{func_name}`; it has {', '.join(self.symbols)}")
        infer = self.symbols[func_name]
        exporter = Exporter.current()
        if self not in exporter.extern_mods:
            exporter.add_external_module(self)

        def call(*args: Any) -> Any:
            return extern(func_name, args, infer(*args))

        return call
