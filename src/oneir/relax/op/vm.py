"""What the virtual machine does for a lowered program: storages, tensors in them, kernels with computed shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.error import TypeMismatch
from ..expr import Call, DataTypeImm, Expr, ExternFunc, ShapeExpr, Tuple, as_graph_expr
from ..operator_facts import TAllocator
from ..struct_info import VOID, ShapeStructInfo, StructInfo, TensorStructInfo
from .arguments import dtype_value, number_value, shape_value, text_value
from .inference import fail, returns_nothing, returns_object
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator("relax.vm.alloc_storage")
def alloc_storage(shape: Any, runtime_device_index: Any, dtype: Any, storage_scope: Any = "global") -> Call:
    """Memory for elements of a dtype, as many as the shape has; -1 is the device index of the host."""
    return alloc_storage.call(
        shape_value(shape), number_value(runtime_device_index), dtype_value(dtype), text_value(storage_scope)
    )


alloc_storage.struct_info(returns_object)
TAllocator.set(alloc_storage.op, True)


@operator("relax.vm.alloc_tensor")
def alloc_tensor(storage: Expr, offset: Any, shape: Any, dtype: Any, runtime_device_ind: Any = 0) -> Call:
    """A tensor that lies in a storage, from the byte `offset` on."""
    return alloc_tensor.call(
        storage, number_value(offset), shape_value(shape), dtype_value(dtype), number_value(runtime_device_ind)
    )


@alloc_tensor.struct_info
def tensor_in_storage(call: Call, builder: BlockBuilder) -> StructInfo:
    """A tensor of the shape and dtype that are the third and the fourth argument."""
    shape, dtype = call.args[2], call.args[3]
    known = dtype.value if isinstance(dtype, DataTypeImm) else VOID
    info = shape.struct_info
    if not isinstance(info, ShapeStructInfo):
        raise fail(
            call, f"argument shape must be a shape, such as R.shape([2, 3]), found `{shape}`: {info}", TypeMismatch
        )
    if isinstance(shape, ShapeExpr):
        return TensorStructInfo(shape, known)
    if info.values is not None:
        return TensorStructInfo(info.values, known)
    return TensorStructInfo(None, known, ndim=info.ndim)


TAllocator.set(alloc_tensor.op, True)


@operator("relax.vm.kill_object", pure=False)
def kill_object(obj: Expr) -> Call:
    """Ends the life of a value: the machine forgets it."""
    return kill_object.call(obj)


kill_object.struct_info(returns_nothing)


@operator("relax.vm.call_tir_dyn", pure=False)
def call_tir_dyn(func: Any, args: Any) -> Call:
    """Calls a kernel with tensors and, as the last argument, a shape, whose extents it gets as integers."""
    callee = ExternFunc(func) if isinstance(func, str) else func
    return call_tir_dyn.call(callee, Tuple(args) if isinstance(args, (list, tuple)) else as_graph_expr(args))


call_tir_dyn.struct_info(returns_nothing)
