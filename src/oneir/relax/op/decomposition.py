"""Operators in terms of simpler ones: the facts FDecompose and FDecomposeForTraining.

Each is a rule `rule(call, builder) -> expr`, which may emit bindings; the call itself where it stays.
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import Var as TirVar
from ..expr import Call, Expr, MatchCast, ShapeExpr, Var
from ..struct_info import ShapeStructInfo
from .base import call_pure_packed, tensor_to_shape


def _tensor_to_shape(call: Call, builder: Any) -> Expr:
    """The shape that a function of the runtime reads, with a symbolic variable for each extent."""
    info = call.struct_info
    if info.ndim < 0:
        return call
    shape = builder.emit(call_pure_packed("vm.builtin.tensor_to_shape", call.args[0], sinfo_args=info))
    extents = [TirVar("x", "int64") for _ in range(info.ndim)]
    builder.emit_normalized(MatchCast(Var("y", ShapeStructInfo(extents)), shape, ShapeStructInfo(extents)))
    return ShapeExpr(extents)


tensor_to_shape.op.set_attr("FDecompose", _tensor_to_shape)
