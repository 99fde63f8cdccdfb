"""BF16ComputeLegalize, FP8ComputeLegalize, HalfComputeLegalize: arithmetic of narrow floats in a wider one.

C[i] = A[i] * B[i] + A[i]  # all bfloat16

becomes, with `f` for a conversion to float32, `C[i] = bfloat16(f(A[i]) * f(B[i]) + f(A[i]))`: within an expression the
wide values stay wide; a store, or a conversion that was written, rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import operators as ops
from ...ir.container import map_array
from ...ir.dtype import DataType
from ...ir.expr import BinaryOpExpr, Call, Cast, FloatImm, Let, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ..expr import BufferLoad, CommReducer
from ..function import PrimFunc
from ..stmt import BufferStore, Evaluate, LetStmt
from .analyzed import IF_THEN_ELSE
from .pass_base import PrimFuncPass


class BF16ComputeLegalize(PrimFuncPass):
    """Computes bfloat16 arithmetic in float32."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return compute_legalize(func, is_bfloat16, "float32")


class FP8ComputeLegalize(PrimFuncPass):
    """Computes float8 arithmetic in `promote_dtype`."""

    promote_dtype: str = "float32"

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return compute_legalize(func, is_float8, self.promote_dtype)


class HalfComputeLegalize(PrimFuncPass):
    """Computes float16 arithmetic in float32, for processors that convert between the two only by library functions."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return compute_legalize(func, is_float16, "float32")


def is_float16(dtype: DataType) -> bool:
    """Whether lanes are float16."""
    return dtype.is_float and dtype.bits == 16 and dtype.code != "bfloat"


def is_bfloat16(dtype: DataType) -> bool:
    """Whether lanes are bfloat16."""
    return dtype.code == "bfloat"


def is_float8(dtype: DataType) -> bool:
    """Whether lanes are of the float8 family."""
    return dtype.is_float and dtype.bits == 8


class _Promote(Mapper):
    """Promotes expressions of a narrow dtype to the wide one, and casts back only where the narrow value is needed."""

    def __init__(self, narrow: Callable[[DataType], bool], wide: str):
        super().__init__()
        self.narrow, self.wide = narrow, DataType(wide)
        self.widened: dict[Var, Var] = {}

    def wide_dtype(self, dtype: DataType) -> DataType:
        return self.wide.with_lanes(dtype.lanes, dtype.scalable)

    def back(self, old: PrimExpr) -> PrimExpr:
        """A promoted operand, cast back to the dtype that it had."""
        return ops.cast(old.dtype, self.visit(old))

    def visit_FloatImm(self, node: FloatImm) -> Any:
        if not self.narrow(node.dtype):
            return node
        return FloatImm(self.wide, ops.round_float(node.value, node.dtype), span=node.span)

    def visit_Var(self, var: Var) -> Any:
        return self.widened.get(var, var)

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        new = self.generic_visit(node)
        return Cast(self.wide_dtype(new.dtype), new) if self.narrow(new.dtype) else new

    def visit_BinaryOpExpr(self, node: BinaryOpExpr) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        return node if a is node.a and b is node.b else type(node)(a, b, span=node.span)

    def visit_Cast(self, node: Cast) -> Any:
        value = self.visit(node.value)
        if self.narrow(node.dtype):
            rounded = value if value.dtype is node.dtype else Cast(node.dtype, value)
            return Cast(self.wide_dtype(node.dtype), rounded)
        if value is node.value:
            return node
        return value if value.dtype is node.dtype else Cast(node.dtype, value, span=node.span)

    def visit_CommReducer(self, node: CommReducer) -> Any:
        return node  # which names a reduction that has been written out

    def visit_Call(self, node: Call) -> Any:
        elementwise = isinstance(node.op, Op) and (node.op.has_attr("reference") or node.op is IF_THEN_ELSE)
        if elementwise:
            args = map_array(node.args, self.visit)
            dtype = self.wide_dtype(node.dtype) if self.narrow(node.dtype) else node.dtype
            return node if args is node.args and dtype is node.dtype else Call(dtype, node.op, args, span=node.span)
        new = node.replace(args=map_array(node.args, self.exact))
        return Cast(self.wide_dtype(new.dtype), new) if self.narrow(new.dtype) else new

    def exact(self, node: Any) -> Any:
        """An operand of a call that is no arithmetic, in its own dtype: a load whose address is taken stays a load."""
        if isinstance(node, BufferLoad):
            return self.generic_visit(node)
        return self.back(node) if isinstance(node, PrimExpr) and self.narrow(node.dtype) else self.visit(node)

    def visit_Let(self, node: Let) -> Any:
        value = self.visit(node.value)
        return node.replace(value=value, var=self.bound(node.var), body=self.visit(node.body))

    def visit_LetStmt(self, node: LetStmt) -> Any:
        value = self.visit(node.value)
        return node.replace(value=value, var=self.bound(node.var), body=self.visit(node.body))

    def bound(self, var: Var) -> Var:
        if not self.narrow(var.dtype):
            return var
        new = self.widened[var] = var.copy_with_dtype(self.wide_dtype(var.dtype))
        return new

    def visit_BufferStore(self, node: BufferStore) -> Any:
        indices = map_array(node.indices, self.visit)
        value = self.visit(node.value)
        if self.narrow(node.value.dtype):
            value = _rounded(node.value, value)
        predicate = None if node.predicate is None else self.visit(node.predicate)
        return node.replace(buffer=self.visit(node.buffer), value=value, indices=indices, predicate=predicate)

    def visit_Evaluate(self, node: Evaluate) -> Any:
        """A call for its effect, such as `ret`, stays the call."""
        value = self.visit(node.value)
        return node.replace(value=_rounded(node.value, value) if self.narrow(node.value.dtype) else value)


def _rounded(old: PrimExpr, value: PrimExpr) -> PrimExpr:
    """The narrow value to store; a value that was only widened is stored as it was."""
    if isinstance(value, Cast) and value.value.dtype is old.dtype:
        return old if value.value is old else value.value
    return ops.cast(old.dtype, value)


def compute_legalize(func: PrimFunc, narrow: Callable[[DataType], bool], wide: str) -> PrimFunc:
    """The function with arithmetic over dtypes that `narrow` accepts carried out in `wide`."""
    mapper = _Promote(narrow, wide)
    for param in func.params:
        if narrow(param.dtype):
            mapper.widened[param] = param.copy_with_dtype(wide)
    body = mapper(func.body)
    for param in reversed(func.params):
        if param in mapper.widened:
            body = LetStmt(mapper.widened[param], Cast(wide, param), body)
    return func.with_body(body)
