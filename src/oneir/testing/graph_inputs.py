"""Random arguments for a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtype import DataType
from ..ir.expr import PrimExpr, Var, const
from ..relax.analysis import definable_tir_vars_in_struct_info, post_order_visit
from ..relax.expr import Call, Expr, Function
from ..relax.struct_info import (
    VOID,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..runtime.error import InvalidValue
from ..runtime.object import ShapeTuple
from .random_values import ODD_EXTENTS, extent_value, random_array

UNKNOWN_EXTENT = 3
"""What an extent is of which nothing is known: always the same, so that shapes fit together."""


def random_graph_inputs(func: Function, rng: np.random.Generator) -> list[Any]:
    """Arguments by the struct info of the parameters.

    Symbolic variables keep to the attributes `tir_var_lower_bound` and `tir_var_upper_bound` of the function.
    """
    infos = [param.struct_info for param in func.params]
    low, high = (func.attrs.get(f"tir_var_{end}_bound") or {} for end in ("lower", "upper"))
    symbols: dict[Var, PrimExpr] = {}
    for info in infos:
        for var in definable_tir_vars_in_struct_info(info):
            if var not in symbols:
                extent = max(int(rng.choice(ODD_EXTENTS)), int(low.get(var.name, 0)))
                symbols[var] = const(min(extent, int(high.get(var.name, extent))), var.dtype)
    choice = _Choice(symbols, rng)
    if _takes_indices(func):
        choice.high = min((e for info in infos for e in choice.extents(info)), default=1)
    return [choice.value(param.name, info) for param, info in zip(func.params, infos, strict=True)]


class _Choice:
    """Random values; integers are below `high`, where that is set."""

    def __init__(self, symbols: dict[Var, PrimExpr], rng: np.random.Generator):
        self.symbols, self.rng = symbols, rng
        self.high: int | None = None

    def shape(self, name: str, info: TensorStructInfo | ShapeStructInfo) -> tuple[int, ...]:
        """The extents of a tensor or shape."""
        extents = info.values if isinstance(info, ShapeStructInfo) else info.extents
        if extents is None:
            return (UNKNOWN_EXTENT,) * (2 if info.ndim < 0 else info.ndim)
        return tuple(extent_value(e, self.symbols, f"the struct info of `{name}`") for e in extents)

    def extents(self, info: StructInfo) -> list[int]:
        """The extents, other than 0, of all tensors in a value."""
        if isinstance(info, TupleStructInfo):
            return [e for field in info.fields for e in self.extents(field)]
        return [e for e in self.shape("", info) if e > 0] if isinstance(info, TensorStructInfo) else []

    def value(self, name: str, info: StructInfo) -> Any:
        """A value that struct info describes."""
        if isinstance(info, TensorStructInfo):
            dtype = DataType("float32") if info.dtype == VOID else info.dtype
            high = self.high if dtype.is_int else None
            return random_array(dtype, self.shape(name, info), high, self.rng)
        if isinstance(info, ShapeStructInfo):
            return ShapeTuple(self.shape(name, info))
        if isinstance(info, TupleStructInfo):
            return tuple(self.value(f"{name}[{i}]", field) for i, field in enumerate(info.fields))
        if isinstance(info, PrimStructInfo):
            if info.value is not None and info.dtype.is_int:
                return extent_value(info.value, self.symbols, f"the struct info of `{name}`")
            return random_array(info.dtype, (), self.high, self.rng).item()
        raise InvalidValue(f"no random argument can be made for `{name}`, of which all that is known is {info}")


def _takes_indices(func: Function) -> bool:
    """Whether integers of the function may be indices: a call takes tensors of integers together with others."""
    found = False

    def visit(expr: Expr) -> None:
        nonlocal found
        if isinstance(expr, Call):
            kinds = {kind for a in expr.args for kind in _kinds(getattr(a, "struct_info_", None))}
            found = found or len(kinds) > 1

    post_order_visit(func, visit)
    return found


def _kinds(info: StructInfo | None) -> set[bool]:
    """Which kinds of tensors, other than bool, a value contains: True for integers, False for floats."""
    if isinstance(info, TupleStructInfo):
        return {kind for field in info.fields for kind in _kinds(field)}
    if isinstance(info, TensorStructInfo) and not info.dtype.is_bool:
        return {info.dtype.is_int}
    return set()
