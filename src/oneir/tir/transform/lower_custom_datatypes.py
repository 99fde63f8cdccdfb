"""LowerCustomDatatypes: values of custom dtypes as unsigned integers, and what is computed from them as calls.

C[i] = A[i] + B[i]      ->      C[i] = T.call_pure_extern("uint32", "Posit32Add", A[i], B[i])

It comes before all other passes, so that none of them meets a custom dtype.
"""

from __future__ import annotations

from typing import Any

from ...ir.container import map_array
from ...ir.dtype import DataType
from ...ir.expr import BinaryOpExpr, Call, Cast, FloatImm
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...runtime.dtype import any_custom
from ...runtime.error import InvalidValue, NotRegistered
from ...target import datatype
from ..function import PrimFunc
from .pass_base import PrimFuncPass
from .stored_dtypes import StoredDtypes


class LowerCustomDatatypes(PrimFuncPass):
    """Lowers what is computed in custom dtypes by the functions of `oneir.target.datatype` for the target's kind.

    Memory and variables of a custom dtype, parameters too, become unsigned integers of its width. Raises
    `InvalidValue` for a function without a target, and `NotRegistered` for an operation that has no function.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if not any_custom():
            return func
        target: Any = func.get_attr("target")
        if target is None:
            raise InvalidValue(
                "LowerCustomDatatypes expects a function with a target, but "
                f"{func.get_attr('global_symbol', 'the function')!r} has none: run BindTarget first"
            )
        lower = _Lower(target.kind.name)
        params = map_array(func.params, lower.define)
        buffers = {param: lower(buffer) for param, buffer in func.buffer_map.items()}
        changed = any(buffer is not func.buffer_map[param] for param, buffer in buffers.items())
        return func.replace(params=params, buffer_map=buffers if changed else func.buffer_map, body=lower(func.body))


class _Lower(StoredDtypes):
    def __init__(self, target_kind: str):
        super().__init__()
        self.target_kind = target_kind

    def stored(self, dtype: DataType) -> DataType:
        return datatype.stored(dtype)

    def lowered(self, node: Any, src: DataType) -> Any:
        """An expression with lowered operands, which were of a dtype, by the function registered for it."""
        lower = datatype.lower_func_of(self.target_kind, node, src)
        if lower is None:
            raise NotRegistered(
                f"{type(node).__name__} of {src} has no lowering function for the target {self.target_kind}: `{node}`; "
                "register one with oneir.target.datatype.register_op"
            )
        return lower(node)

    def visit_FloatImm(self, node: FloatImm) -> Any:
        return self.lowered(node, node.dtype) if node.dtype.is_custom else node

    def visit_Cast(self, node: Cast) -> Any:
        src = node.value.dtype
        value = self.visit(node.value)
        if node.dtype.is_custom or src.is_custom:
            return self.lowered(Cast(node.dtype, value, span=node.span), src)
        return node if value is node.value else Cast(node.dtype, value, span=node.span)

    def visit_BinaryOpExpr(self, node: BinaryOpExpr) -> Any:
        new = self.generic_visit(node)
        return self.lowered(new, node.a.dtype) if node.a.dtype.is_custom else new

    def visit_Call(self, node: Call) -> Any:
        new = self.generic_visit(node)
        src = next((part.dtype for part in (node, *node.args) if part.dtype.is_custom), None)
        # An address is one of whatever lies there.
        return new if src is None or node.dtype.is_handle else self.lowered(new, src)
