"""Operators that call: kernels, functions of the runtime, closures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import te
from ...ir.expr import GlobalVar, IntImm, PrimExpr, Select, as_expr
from ...ir.global_info import VDevice
from ...runtime.device import device
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.object import ShapeTuple
from ...te.tensor import Tensor
from ..expr import (
    Call,
    Expr,
    ExternFunc,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    as_graph_expr,
    as_struct_info,
)
from ..normalize import from_sinfo_args, infer_call
from ..operator_facts import FImpureForm, FNormalize, MayReturnArgument
from ..struct_info import VOID, PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .arguments import text_value
from .inference import fail, returns_nothing, returns_object, same_as_input, shape_argument, tensor_argument
from .op_attrs import (
    CallInplacePackedAttrs,
    CallTIRInplaceAttrs,
    CallTIRWithGradAttrs,
    HintOnDeviceAttrs,
    ToVDeviceAttrs,
)
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def result_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    """The call gives what its `sinfo_args` say."""
    return from_sinfo_args(call)


def as_arguments(args: Any) -> Expr:
    """A list, a tuple or a single value as the tuple of arguments of a call."""
    if isinstance(args, Tuple):
        return args
    if isinstance(args, (list, tuple)):
        return Tuple(args)
    value = as_graph_expr(args)
    info = getattr(value, "struct_info_", None)
    return value if isinstance(info, TupleStructInfo) else Tuple([value])


def output_struct_info(out_sinfo: Any, dtype: Any = None) -> StructInfo:
    """What a call gives: struct info, a list of several for a tuple, or, as once was usual, a shape with `dtype`."""
    if dtype is not None:
        shapes = out_sinfo if isinstance(out_sinfo, list) and out_sinfo and _is_shape(out_sinfo[0]) else None
        if shapes is None:
            return TensorStructInfo(out_sinfo, dtype)
        dtypes = dtype if isinstance(dtype, (list, tuple)) else [dtype] * len(shapes)
        return TupleStructInfo([TensorStructInfo(s, d) for s, d in zip(shapes, dtypes, strict=True)])
    if isinstance(out_sinfo, (list, tuple)):
        if not all(isinstance(s, StructInfo) or hasattr(s, "as_struct_info") for s in out_sinfo):
            raise TypeMismatch(
                f"expected the struct info of the result, such as R.Tensor((1, 128), 'float32'), found {out_sinfo!r}; "
                "a shape alone needs dtype="
            )
        infos = [as_struct_info(s) for s in out_sinfo]
        return infos[0] if len(infos) == 1 else TupleStructInfo(infos)
    return as_struct_info(out_sinfo)


def _is_shape(value: Any) -> bool:
    return isinstance(value, (list, tuple, ShapeExpr))


def symbolic_arguments(tir_vars: Any) -> ShapeExpr | None:
    """One integer or several as the shape that passes them; None for none."""
    if tir_vars is None or isinstance(tir_vars, ShapeExpr):
        return tir_vars
    values = tir_vars if isinstance(tir_vars, (list, tuple)) else [tir_vars]
    return ShapeExpr(values)


def inline_argument_tuple(builder: BlockBuilder, call: Call) -> Call:
    """The call with a tuple of its arguments in place of a variable that stands for one."""
    arguments = call.args[1]
    if isinstance(arguments, Tuple):
        return call
    bound: Expr | None = arguments
    while isinstance(bound, Var):
        bound = builder.lookup_binding(bound)
    if not isinstance(bound, Tuple):
        info = arguments.struct_info
        if not isinstance(info, TupleStructInfo):
            raise TypeMismatch(f"{call.op}: expected a tuple of arguments, found {info}")
        bound = Tuple([TupleGetItem(arguments, index) for index in range(len(info.fields))])
    return call.replace(args=[call.args[0], bound, *call.args[2:]])


@operator("relax.call_tir")
def call_tir(gvar: GlobalVar, args: Any, out_sinfo: Any, tir_vars: Any = None, *, dtype: Any = None) -> Call:
    """The result that the PrimFunc `gvar` writes when called with `args` and newly allocated outputs.

    `out_sinfo` is the struct info of the output, or a list of several outputs', which makes the result a tuple.
    `tir_vars` are integers passed after the tensors. A text instead of `gvar` calls a function of the
    runtime (`call_dps_packed`); a shape instead of `out_sinfo` needs `dtype`.
    """
    if isinstance(gvar, (str, ExternFunc)):
        return call_dps_packed(gvar, args, output_struct_info(out_sinfo, dtype))
    if not isinstance(gvar, GlobalVar):
        raise TypeMismatch(f"relax.call_tir expects the GlobalVar of a TensorIR function, found {gvar!r}")
    values = [gvar, as_arguments(args), symbolic_arguments(tir_vars)]
    return Call(call_tir.op, [v for v in values if v is not None], sinfo_args=[output_struct_info(out_sinfo, dtype)])


call_tir.struct_info(result_struct_info)
call_tir.distributed_struct_info(result_struct_info)
FNormalize.set(call_tir.op, inline_argument_tuple)


@operator("relax.call_tir_with_grad", attrs=CallTIRWithGradAttrs)
def call_tir_with_grad(
    gvar: GlobalVar,
    args: Any,
    out_sinfo: Any,
    te_grad_name: str,
    te_grad_kwargs: Any = None,
    tir_vars: Any = None,
) -> Call:
    """As `call_tir`, of a PrimFunc whose gradient is the registered tensor expression `te_grad_name`."""
    values = [gvar, as_arguments(args), symbolic_arguments(tir_vars)]
    attrs = {"te_grad_name": te_grad_name, "te_grad_kwargs": dict(te_grad_kwargs or {})}
    return Call(call_tir_with_grad.op, [v for v in values if v is not None], attrs, [output_struct_info(out_sinfo)])


call_tir_with_grad.struct_info(result_struct_info)
FNormalize.set(call_tir_with_grad.op, inline_argument_tuple)


@operator("relax.call_tir_inplace", attrs=CallTIRInplaceAttrs)
def call_tir_inplace(
    gvar: GlobalVar, args: Any, inplace_indices: int | list[int], out_sinfo: Any, tir_vars: Any = None
) -> Call:
    """As `call_tir`, of a PrimFunc that writes some outputs into arguments.

    `inplace_indices` has, for each output, the position of the argument that it is written to, or -1 for a new tensor.
    Nothing may use such an argument afterwards.
    """
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    arguments, info = as_arguments(args), output_struct_info(out_sinfo)
    outputs = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
    if len(indices) != len(outputs):
        raise InvalidValue(f"call_tir_inplace: {len(outputs)} outputs need as many inplace_indices, found {indices}")
    if all(i < 0 for i in indices):
        raise InvalidValue("call_tir_inplace: no output is written into an argument; use call_tir")
    written = [i for i in indices if i >= 0]
    if len(set(written)) != len(written):
        raise InvalidValue(f"call_tir_inplace: two outputs cannot be written into one argument, found {indices}")
    fields = arguments.fields if isinstance(arguments, Tuple) else ()
    for index in written:
        given = getattr(fields[index], "struct_info_", None) if index < len(fields) else None
        if given is not None and not isinstance(given, TensorStructInfo):
            raise TypeMismatch(
                f"call_tir_inplace: argument {index} is written into, so it must be a tensor, found {given}"
            )
    values = [gvar, arguments, symbolic_arguments(tir_vars)]
    return Call(call_tir_inplace.op, [v for v in values if v is not None], {"inplace_indices": indices}, [info])


call_tir_inplace.struct_info(result_struct_info)
FNormalize.set(call_tir_inplace.op, inline_argument_tuple)


@operator("relax.call_dps_packed")
def call_dps_packed(func: str | Expr, args: Any, out_sinfo: Any, *, dtype: Any = None) -> Call:
    """The result that the runtime's function `func` writes when called with `args` and a freshly made output."""
    callee = ExternFunc(func) if isinstance(func, str) else func
    return Call(call_dps_packed.op, [callee, as_arguments(args)], sinfo_args=[output_struct_info(out_sinfo, dtype)])


call_dps_packed.struct_info(result_struct_info)


@operator("relax.call_py_func", pure=False)
def call_py_func(func_name: str | StringImm, args: Any, out_sinfo: Any) -> Call:
    """The result of a Python function that belongs to the module, called by its name."""
    name = StringImm(func_name) if isinstance(func_name, str) else func_name
    return Call(call_py_func.op, [name, as_arguments(args)], sinfo_args=[output_struct_info(out_sinfo)])


call_py_func.struct_info(result_struct_info)


@operator("relax.call_pure_packed")
def call_pure_packed(func: str | Expr, *args: Any, sinfo_args: Any = None) -> Call:
    """The value that the runtime's function `func` returns; the function has no side effect."""
    callee = ExternFunc(func) if isinstance(func, str) else func
    return Call(call_pure_packed.op, [callee, *map(as_graph_expr, args)], sinfo_args=sinfo_args)


def _derived(call: Call, builder: BlockBuilder) -> StructInfo:
    return infer_call(Call(call.args[0], call.args[1:], sinfo_args=call.sinfo_args, span=call.span), builder)


MayReturnArgument.set(call_pure_packed.op, True)
call_pure_packed.struct_info(_derived)


def _packed_call(call: Call) -> Call:
    """The call of the function itself, of which nothing says that it is pure."""
    return Call(call.args[0], call.args[1:], sinfo_args=call.sinfo_args, span=call.span)


FImpureForm.set(call_pure_packed.op, _packed_call)


@operator("relax.call_inplace_packed", attrs=CallInplacePackedAttrs)
def call_inplace_packed(func: str | Expr, *args: Any, inplace_indices: int | list[int], sinfo_args: Any = None) -> Call:
    """The value that the runtime's function `func` returns, which lies in some of the arguments."""
    callee = ExternFunc(func) if isinstance(func, str) else func
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    values = [callee, *map(as_graph_expr, args)]
    return Call(call_inplace_packed.op, values, {"inplace_indices": indices}, sinfo_args)


call_inplace_packed.struct_info(_derived)
FImpureForm.set(call_inplace_packed.op, _packed_call)


@operator("relax.invoke_pure_closure")
def invoke_pure_closure(closure: Expr, args: Any, sinfo_args: Any) -> Call:
    """The value of a closure without side effects."""
    return Call(invoke_pure_closure.op, [closure, as_arguments(args)], sinfo_args=sinfo_args)


invoke_pure_closure.struct_info(result_struct_info)


@operator("relax.make_closure")
def make_closure(func: Expr, args: Any) -> Call:
    """A function with its last parameters fixed."""
    return Call(make_closure.op, [func, as_arguments(args)])


make_closure.struct_info(returns_object)


@operator("relax.invoke_closure", pure=False)
def invoke_closure(closure: Expr, args: Any, sinfo_args: Any) -> Call:
    """The value of a closure."""
    return Call(invoke_closure.op, [closure, as_arguments(args)], sinfo_args=sinfo_args)


invoke_closure.struct_info(result_struct_info)
FImpureForm.set(invoke_pure_closure.op, lambda call: call.replace(op=invoke_closure.op))


@operator("relax.call_builtin_with_ctx", pure=False)
def call_builtin_with_ctx(func: str | Expr, args: Any, *, sinfo_args: Any = None) -> Call:
    """The value of a function of the virtual machine, which is called with the machine first."""
    callee = ExternFunc(func) if isinstance(func, str) else func
    return Call(call_builtin_with_ctx.op, [callee, as_arguments(args)], sinfo_args=sinfo_args)


call_builtin_with_ctx.struct_info(result_struct_info)


@operator("relax.null_value")
def null_value() -> Call:
    """No object at all."""
    return null_value.call()


null_value.struct_info(returns_object)


@operator("relax.print", pure=False)
def print(*values: Any, format: str | Expr = "") -> Call:
    """Prints values when the program runs, put into `format` as `str.format` does."""
    return Call(print.op, [text_value(format), *map(as_graph_expr, values)])


print.struct_info(returns_nothing)


@operator("relax.assert_op", pure=False)
def assert_op(condition: Any, format_args: Any = None, format: Any = "") -> Call:
    """Ends the program with an error unless `condition`, a bool, holds."""
    values = [] if format_args is None else format_args if isinstance(format_args, (list, tuple)) else [format_args]
    return Call(assert_op.op, [as_graph_expr(condition), text_value(format), *map(as_graph_expr, values)])


@assert_op.struct_info
def _assert_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = call.args[0].struct_info
    dtype = info.dtype if isinstance(info, (PrimStructInfo, TensorStructInfo)) else None
    tensor_of_many = isinstance(info, TensorStructInfo) and info.ndim not in (0, -1)
    if dtype is None or tensor_of_many or (dtype != VOID and not dtype.is_bool):
        raise fail(call, f"the condition must be one bool, found `{call.args[0]}`: {info}", TypeMismatch)
    return returns_nothing(call, builder)


@operator("relax.shape_of")
def shape_of(expr: Expr) -> Call:
    """The shape of a tensor."""
    return shape_of.call(expr)


@shape_of.struct_info
def _shape_of_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    return ShapeStructInfo(info.extents, -1 if info.extents is not None else info.ndim)


@operator("relax.tensor_to_shape")
def tensor_to_shape(expr: Expr) -> Call:
    """A one-dimensional tensor of integers as a shape."""
    return tensor_to_shape.call(expr)


@tensor_to_shape.struct_info
def _tensor_to_shape_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    if info.ndim not in (1, -1) or not (info.dtype == VOID or info.dtype.is_int):
        raise fail(call, f"expected a one-dimensional tensor of integers, found {info}", TypeMismatch)
    extents = info.extents
    extent = extents[0] if extents is not None else None
    return ShapeStructInfo(ndim=extent.value if isinstance(extent, IntImm) else -1)


tensor_to_shape.reference(lambda expr: ShapeTuple(int(e) for e in expr))


@operator("relax.shape_to_tensor")
def shape_to_tensor(expr: Expr) -> Call:
    """A shape as a one-dimensional tensor of int64."""
    return shape_to_tensor.call(expr)


@shape_to_tensor.struct_info
def _shape_to_tensor_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = shape_argument(call, 0)
    return TensorStructInfo([info.ndim], "int64") if info.ndim >= 0 else TensorStructInfo(None, "int64", ndim=1)


shape_to_tensor.reference(lambda expr: np.array(expr, "int64"))


@shape_to_tensor.legalize_as
def _legalize_shape_to_tensor(builder: BlockBuilder, call: Call) -> Expr:
    """A kernel of the extents, if they are few: it fuses with what computes with them, and stays native code."""
    info = shape_argument(call, 0)
    if info.values is None or not 0 < len(info.values) <= _FEW_EXTENTS:
        return call
    return builder.call_te(te_numbers, ShapeExpr(info.values), primfunc_name_hint="shape_to_tensor")


_FEW_EXTENTS = 16


def te_numbers(values: Sequence[PrimExpr]) -> Tensor:
    """A tensor of int64 of some numbers."""

    def number(i: PrimExpr) -> PrimExpr:
        chosen = as_expr(values[-1]).astype("int64")
        for place in range(len(values) - 2, -1, -1):
            chosen = Select(i.equal(place), as_expr(values[place]).astype("int64"), chosen)
        return chosen

    return te.compute((len(values),), number, name="T_numbers")


@operator("relax.to_vdevice", attrs=ToVDeviceAttrs)
def to_vdevice(data: Expr, dst_vdevice: Any) -> Call:
    """The tensor on another device of the program."""
    return to_vdevice.call(data, dst_vdevice=dst_vdevice)


@operator("relax.hint_on_device", attrs=HintOnDeviceAttrs)
def hint_on_device(data: Expr, dst_vdevice: Any, memory_scope: str = "global") -> Call:
    """The tensor itself, with the hint that it lies on a device."""
    if not isinstance(dst_vdevice, VDevice):
        given = device(dst_vdevice)
        kind = "llvm" if given.type == "cpu" else given.type
        dst_vdevice = VDevice(kind, given.device_id, memory_scope)
    return hint_on_device.call(data, dst_vdevice=dst_vdevice)


def _on_vdevice(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    return TensorStructInfo(info.shape, info.dtype, call.attrs["dst_vdevice"], info.ndim)


to_vdevice.struct_info(_on_vdevice)
# A hint says nothing that holds: `RealizeVDevice` follows it.
hint_on_device.struct_info(same_as_input)
