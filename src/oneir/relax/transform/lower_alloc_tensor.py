"""LowerAllocTensor: what memory planning left alone gets a storage of its own.

    x = R.builtin.alloc_tensor(R.shape([2, 3]), R.dtype("float32"), R.prim_value(0), R.str("global"))
->
    storage = R.memory.alloc_storage(R.shape([24]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
    x = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([2, 3]), R.dtype("float32"), R.prim_value(0))
"""

from __future__ import annotations

from ...ir.dtype import DataType
from ...ir.expr import PrimExpr, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ..expr import Call, DataTypeImm, Expr, Function, ShapeExpr
from ..expr_functor import PyExprMutator
from ..op import memory
from .pass_base import FunctionPass

ALLOC_TENSOR = Op.get("relax.builtin.alloc_tensor")


class LowerAllocTensor(FunctionPass):
    """Lowers `R.builtin.alloc_tensor` to `R.memory.alloc_storage` and `R.memory.alloc_tensor`."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Lower(mod).visit_expr(func)


def bytes_of(shape: ShapeExpr, dtype: str) -> PrimExpr:
    """How many bytes a tensor takes."""
    size: PrimExpr = const((DataType(dtype).bits + 7) // 8, "int64")
    for extent in shape.values:
        size = size * extent
    return size


class _Lower(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or call.op is not ALLOC_TENSOR:
            return call
        shape, dtype, device, scope = call.args
        assert isinstance(shape, ShapeExpr) and isinstance(dtype, DataTypeImm)
        size = ShapeExpr([bytes_of(shape, dtype.value)])
        storage = self.builder_.emit(memory.alloc_storage(size, device, scope, "uint8"), "storage")
        return memory.alloc_tensor(storage, 0, shape, dtype, device)
