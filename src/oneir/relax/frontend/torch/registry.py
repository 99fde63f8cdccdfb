"""The table of converters of PyTorch's operators, which all importers of PyTorch share.

    @converter("softmax")
    def softmax(g: Importer, x: Expr, dim: int = -1, dtype: torch.dtype | None = None) -> Expr: ...

A converter has the arguments of the operator in PyTorch's order, with its defaults; tensors come as expressions,
symbolic integers as `PrimExpr`, the rest as Python values. A name is that of an operator of ATen ("add"), of one
overload of it ("pow.Scalar"), or of a function or method that only traced modules call ("expand_as"). An operator that
works in place (`relu_`) has the converter of the one that does not.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....runtime.error import UnsupportedError
from ..importer import Converter, ConverterTable
from ..importer import call_converter as call_with_known_arguments

if TYPE_CHECKING:
    pass

_CONVERTERS = ConverterTable()
converter = _CONVERTERS.register

# Arguments for the device and the layout of a tensor in memory, which graphs do not have.
IGNORED = frozenset(
    {
        "copy",
        "device",
        "generator",
        "inplace",
        "layout",
        "memory_format",
        "non_blocking",
        "pin_memory",
        "requires_grad",
        "_stacklevel",
    }
)


class NotDecomposable(UnsupportedError):
    """Raised by a converter where the smaller operators that PyTorch decomposes the operator into would not help
    either: random numbers, shapes that depend on data.
    """


def find_converter(name: str, overload: str = "") -> Converter | None:
    """The converter of an operator, looked for by overload first; None if there is none."""
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    for key in (f"{name}.{overload}", f"{plain}.{overload}", name, plain):
        function = _CONVERTERS.find(key)
        if function is not None:
            return function
    return None


def scalars_as_vectors(function: Converter) -> Converter:
    """For operators along dimensions: PyTorch takes a tensor without dimensions for a vector of one element."""

    @functools.wraps(function)
    def convert(g: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not g.is_scalar(x):
            return function(g, x, *args, **kwargs)
        args = tuple(g.reshaped(a, [1]) if g.is_scalar(a) else a for a in args)
        kwargs = {k: g.reshaped(a, [1]) if g.is_scalar(a) else a for k, a in kwargs.items()}
        result = function(g, g.reshaped(x, [1]), *args, **kwargs)
        return tuple(g.reshaped(r, []) for r in result) if isinstance(result, tuple) else g.reshaped(result, [])

    return convert


def call_converter(function: Converter, g: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls a converter with PyTorch's arguments. Raises `UnsupportedError` for arguments that it does not know."""
    names = list(inspect.signature(function).parameters)
    # None means that the argument was not given.
    kwargs = {k: v for k, v in kwargs.items() if k not in IGNORED and (v is not None or k in names)}
    for first in ("self", "input"):
        # PyTorch's own name of the first argument.
        if first in kwargs and first not in names and not args:
            args = (kwargs.pop(first),)
    return call_with_known_arguments(function, g, args, kwargs)
