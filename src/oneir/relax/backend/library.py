"""Functions of libraries for `RunCodegen`: which operator a function for a library is, and the module that calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...runtime.error import InvalidValue, UnsupportedError
from ..expr import Call, Expr, Function, Var, VarBinding


class LibraryModule:
    """Functions by name, which write their results into their last arguments; a module that programs import."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]):
        self.functions = dict(functions)

    def implements_function(self, name: str) -> bool:
        """Whether there is a function of that name."""
        return name in self.functions

    def get_function(self, name: str) -> Callable[..., Any]:
        """The function of that name."""
        return self.functions[name]


@dataclass(frozen=True)
class Composite:
    """What a pattern matched in a function for a library."""

    name: str
    """That of the pattern."""
    calls: Mapping[str, Call]
    """The calls by operator."""
    places: Mapping[Var, int]
    """Where among the function's arguments a parameter of the match is."""
    values: Mapping[Var, Expr]
    """What variables of the match are bound to."""

    def place(self, expr: Expr) -> int:
        """Where among the function's arguments a value is, or the one that it is a transposition of."""
        while isinstance(expr, Var) and expr in self.values:
            expr = self.values[expr]
        if isinstance(expr, Call):
            return self.place(expr.args[0])
        if not isinstance(expr, Var):
            raise UnsupportedError(
                f"`{self.name}` takes tensors as arguments, found the constant {expr}; partition with "
                "bind_constants=False"
            )
        return self.places[expr]


def composite_of(func: Function) -> Composite:
    """The one match in a function for a library. Raises `InvalidValue` where there is none, or there are several."""
    found: list[tuple[Function, Call]] = []
    functions: dict[Var, Function] = {}
    for binding in _bindings(func):
        if isinstance(binding.value, Function):
            functions[binding.var] = binding.value
        elif isinstance(binding.value, Call) and isinstance(binding.value.op, Var):
            found.append((functions[binding.value.op], binding.value))
    if len(found) != 1 or "Composite" not in found[0][0].attrs:
        raise InvalidValue(
            f"a function for a library is one call of what a pattern matched, found {len(found)} calls in "
            f"`{func.attrs.get('global_symbol')}`"
        )
    ((inner, call),) = found
    places = {param: func.params.index(argument) for param, argument in zip(inner.params, call.args, strict=True)}
    values = {binding.var: binding.value for binding in _bindings(inner)}
    calls = {value.op.name: value for value in values.values() if isinstance(value, Call)}
    return Composite(inner.attrs["Composite"], calls, places, values)


def _bindings(func: Function) -> list[VarBinding]:
    return [b for block in func.body.blocks for b in block.bindings if isinstance(b, VarBinding)]
