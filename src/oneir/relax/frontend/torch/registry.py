"""How PyTorch's operators are converted: once each, whatever importer meets them.

    @converter("softmax")
    def softmax(g: Importer, x: Expr, dim: int = -1, dtype: Any = None) -> Expr: ...

A converter has the arguments of the operator in PyTorch's order, with its defaults; tensors come as expressions,
symbolic integers as `PrimExpr`, the rest as Python values. A name is that of an operator of ATen ("add"), of one
overload of it ("pow.Scalar"), or of a function or method that only traced modules call ("expand_as"). An operator that
works in place (`relu_`) has the converter of the one that does not.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ....runtime.error import InternalError

Converter = Callable[..., Any]
_CONVERTERS: dict[str, Converter] = {}

# Arguments that say where and how a tensor lies in memory, which a graph does not say.
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


class Refused(Exception):
    """Raised by a converter: why a call of the operator cannot be imported.

    Then PyTorch may break the operator into smaller ones.
    """


class Impossible(Refused):
    """The same, of what smaller operators would not help: random numbers, shapes that depend on data."""


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Registers a function as the converter of the operators of these names."""

    def register(function: Converter) -> Converter:
        for name in names:
            if name in _CONVERTERS:
                raise InternalError(f"the operator {name} has two converters")
            _CONVERTERS[name] = function
        return function

    return register


def find_converter(name: str, overload: str = "") -> Converter | None:
    """The converter of an operator, looked for by overload first; None if there is none."""
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    for key in (f"{name}.{overload}", f"{plain}.{overload}", name, plain):
        if key in _CONVERTERS:
            return _CONVERTERS[key]
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


def call_converter(function: Converter, g: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a converter; arguments that it does not know are refused."""
    kwargs = {k: v for k, v in kwargs.items() if k not in IGNORED}
    signature = inspect.signature(function)
    names = list(signature.parameters)
    # What is None was not given.
    kwargs = {k: v for k, v in kwargs.items() if v is not None or k in names}
    for first in ("self", "input"):
        # PyTorch's own name of the first argument.
        if first in kwargs and first not in names and not args:
            args = (kwargs.pop(first),)
    try:
        signature.bind(g, *args, **kwargs)
    except TypeError as error:
        raise Refused(f"the importer does not know these arguments ({error})") from None
    return function(g, *args, **kwargs)
