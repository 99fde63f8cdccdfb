"""Whether a call of a PrimFunc (`call_tir`, `call_tir_inplace`, ...) passes what the PrimFunc takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arith import Analyzer
from ...ir.expr import GlobalVar, IntImm, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...tir.function import PrimFunc
from ...tir.stmt_functor import substitute
from ..expr import Call, ShapeExpr
from ..struct_info import (
    VOID,
    DTensorStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

_LOCAL = "relax.dist.call_tir_local_view"
"""Passes a kernel the workers' parts of distributed tensors, where others pass the whole."""
_CALLS = ("relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad", _LOCAL)


def check_kernel_arguments(call: Call, mod: IRModule, analyzer: Analyzer) -> str | None:
    """What is wrong with the arguments and outputs of a call of a PrimFunc; None if nothing is, or it calls none."""
    if not isinstance(call.op, Op) or call.op.name not in _CALLS:
        return None
    callee = call.args[0] if call.args else None
    if not isinstance(callee, GlobalVar):
        return f"`{call.op.name}` calls a function of the module, found `{callee}`"
    func = mod.functions.get(callee)
    if not isinstance(func, PrimFunc):
        return f"`{call.op.name}` calls loops, but `{callee.name_hint}` is a {type(func).__name__}"
    passed = _passed(call)
    if isinstance(passed, str):
        return passed
    name = callee.name_hint
    if len(passed) != len(func.params):
        inputs = ", ".join(p.name for p in func.params)
        return f"`{name}` takes {len(func.params)} arguments ({inputs}), found {len(passed)} with the outputs"
    values: dict[TirVar, PrimExpr] = {}
    pairs = [(func.buffer_map.get(param), param, info) for param, info in zip(func.params, passed, strict=True)]
    for buffer, param, info in pairs:
        if buffer is None:
            if isinstance(info, PrimStructInfo) and info.value is not None:
                values.setdefault(param, info.value)
        elif isinstance(info, TensorStructInfo) and info.extents is not None and len(info.extents) == len(buffer.shape):
            for extent, given in zip(buffer.shape, info.extents, strict=True):
                if isinstance(extent, TirVar):
                    values.setdefault(extent, given)
    for position, (buffer, param, info) in enumerate(pairs):
        problem = _scalar(param, info) if buffer is None else _tensor(buffer, info, values, analyzer)
        if problem is not None:
            what = param.name if buffer is None else buffer.name
            return f"argument {position} (`{what}`) of `{name}`: {problem}"
    return None


def _passed(call: Call) -> list[StructInfo] | str:
    """What the PrimFunc gets, in the order of its parameters: inputs, new outputs, numbers."""
    if len(call.args) < 2 or len(call.sinfo_args) != 1:
        return f"`{call.op.name}` takes a function, a tuple of arguments and the struct info of the result"
    arguments = getattr(call.args[1], "struct_info_", None)
    if not isinstance(arguments, TupleStructInfo):
        return f"the arguments of `{call.op.name}` must be a tuple, found `{call.args[1]}`"
    inputs = list(arguments.fields)
    result = call.sinfo_args[0]
    outputs = list(result.fields) if isinstance(result, TupleStructInfo) else [result]
    if call.op.name == "relax.call_tir_inplace":
        indices = call.attrs["inplace_indices"]
        if len(indices) != len(outputs):
            return f"`{call.op.name}` has {len(outputs)} outputs and inplace_indices for {len(indices)}"
        for index in indices:
            if int(index) >= len(inputs):
                return f"`{call.op.name}` writes an output into argument {index}, but takes only {len(inputs)}"
        outputs = [o for o, index in zip(outputs, indices, strict=True) if int(index) < 0]
    numbers: list[StructInfo] = []
    if len(call.args) > 2:
        shape = call.args[2]
        if isinstance(shape, ShapeExpr):
            numbers = [PrimStructInfo(value=v) for v in shape.values]
        else:
            info = getattr(shape, "struct_info_", None)
            count = info.ndim if isinstance(info, ShapeStructInfo) else -1
            if count < 0:
                return f"the numbers that `{call.op.name}` passes must be a shape, found `{shape}`"
            numbers = [PrimStructInfo("int64")] * count
    local = call.op.name == _LOCAL
    return [_seen(info, local) for info in (*inputs, *outputs, *numbers)]


def _seen(info: StructInfo, local: bool) -> StructInfo:
    """What a kernel sees of a tensor."""
    if not isinstance(info, DTensorStructInfo):
        return info
    return info.local if local else info.tensor_sinfo


def _scalar(param: TirVar, info: StructInfo) -> str | None:
    if isinstance(info, PrimStructInfo):
        if info.dtype == param.dtype or (info.dtype.is_int and param.dtype.is_int):
            return None
        return f"expected a number of dtype {param.dtype}, found {info}"
    if isinstance(info, (TensorStructInfo, ShapeStructInfo)) and not param.dtype.is_handle:
        return f"expected a number of dtype {param.dtype}, found {info}"
    return None


def _tensor(buffer: Any, info: StructInfo, values: Mapping[TirVar, PrimExpr], analyzer: Analyzer) -> str | None:
    shape = ", ".join(str(e.value) if isinstance(e, IntImm) else str(e) for e in buffer.shape)
    expected = f"a tensor of shape [{shape}] and dtype {buffer.dtype}"
    if not isinstance(info, TensorStructInfo):
        return None if isinstance(info, ObjectStructInfo) else f"expected {expected}, found {info}"
    if info.dtype != VOID and info.dtype != buffer.dtype:
        return f"expected {expected}, found {info}"
    if info.ndim not in (-1, len(buffer.shape)):
        return f"expected {expected}, found {info}"
    for extent, given in zip(buffer.shape, info.extents or (), strict=False):
        if _differ(substitute(extent, values) if values else extent, given, analyzer):
            return f"expected {expected}, found {info}"
    return None


def _differ(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool:
    """Whether two extents are known to differ."""
    if a is b:
        return False
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value != b.value
    return analyzer.can_prove(a.astype("int64") != b.astype("int64"))
