"""`T`: the vocabulary of scripts for loops and buffers.

    from oneir.script import tir as T

    @T.prim_func
    def double(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
        for i in range(128):
            with T.block("B"):
                vi = T.axis.spatial(128, i)
                B[vi] = A[vi] * T.float32(2)

Beside the names imported here, `T` has every dtype (`T.float32x4`), every operator of `oneir.tir.op` (`T.exp`), and the
classes of expressions (`T.Add`). All can be used outside of scripts too.

Arguments that do not fit raise `InvalidValue` or `TypeMismatch`. In a script, that becomes a `ParseError`, which
underlines the call.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from ...ir import expr as _expr
from ...ir.dtype import DataType as _DataType
from ...ir.expr import Range as Range
from ...ir.operators import maximum as max
from ...ir.operators import minimum as min
from ...runtime.error import OneIRError as _OneIRError
from ...runtime.hook import Hook as _Hook
from ...target import llvm_lookup_intrinsic_id as llvm_lookup_intrinsic_id
from ...tir import expr as _tir_expr
from ...tir import op as _op
from ...tir import op_hopper as _op_hopper
from ...tir import op_vendor as _op_vendor
from ...tir.buffer import Buffer as _Buffer
from ...tir.index_map import IndexMap as IndexMap
from ...tir.stmt import BufferRegion as BufferRegion
from ..acting import act_in_builders as _act_in_builders
from . import axis as axis
from .buffer import buffer as buffer
from .dtypes import DTypeMember as _DTypeMember
from .dtypes import Ptr as Ptr
from .dtypes import buffer_var as buffer_var
from .dtypes import handle as handle
from .dtypes import ptr as ptr
from .dtypes import var as var
from .frame import Assert as Assert
from .frame import BlockFrame as block
from .frame import Else as Else
from .frame import If as If
from .frame import Init as init
from .frame import LaunchThread as launch_thread
from .frame import LetStmt_ as LetStmt
from .frame import Then as Then
from .frame import While_ as While
from .frame import allocate as allocate
from .frame import allocate_const as allocate_const
from .frame import attr as attr
from .frame import decl_buffer as decl_buffer
from .frame import realize as realize
from .loop import grid as grid
from .loop import parallel as parallel
from .loop import serial as serial
from .loop import thread_binding as thread_binding
from .loop import unroll as unroll
from .loop import vectorized as vectorized
from .meta import Let as Let
from .meta import inline as inline
from .meta import macro as macro
from .meta import meta_var as meta_var
from .note import alloc_buffer as alloc_buffer
from .note import arg as arg
from .note import block_attr as block_attr
from .note import env_thread as env_thread
from .note import func_attr as func_attr
from .note import func_name as func_name
from .note import func_ret as func_ret
from .note import match_buffer as match_buffer
from .note import reads as reads
from .note import where as where
from .note import writes as writes
from .values import buffer_store as buffer_store
from .values import cast as cast
from .values import comm_reducer as comm_reducer
from .values import evaluate as evaluate
from .values import func_gen as func_gen
from .values import index_map as index_map
from .values import iter_var as iter_var
from .values import let as let
from .values import target as target

from .entry import prim_func as prim_func  # isort: skip

perform: _Hook[[Any], Any] = _Hook("perform", "oneir.script.ir_builder")
"""Carries out, in a builder, what a member gives."""

_ACTING = ("frame", "loop", "note", "values", "axis")
for _names in (globals(), axis.__dict__):
    _act_in_builders(_names, [f"{__name__}.{module}" for module in _ACTING], perform)

Buffer = buffer_decl = buffer
sblock, sblock_alloc_buffer, sblock_attr = block, alloc_buffer, block_attr
unrolled = unroll
boolean = _DTypeMember("bool")
void = _DTypeMember("void")
ramp, broadcast = _expr.Ramp, _expr.Broadcast

_OTHER_NAMES = {
    "fabs": "abs",
    "tvm_call_packed": "call_packed",
    "tvm_call_cpacked": "call_cpacked",
    "tvm_call_packed_lowered": "call_packed_lowered",
    "tvm_call_cpacked_lowered": "call_cpacked_lowered",
}


def _takes_dtype_first(function: Any) -> bool:
    return next(iter(inspect.signature(function).parameters), "") == "dtype"


def _operator(function: Any) -> Any:
    """An operator as scripts call it: older ones pass `dtype=` by name to every operator."""
    first = _takes_dtype_first(function)
    if "dtype" in inspect.signature(function).parameters and not first:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            dtype = kwargs.pop("dtype")
            args = (dtype, *args) if first else args
        return function(*args, **kwargs)

    return call


def _find(name: str) -> Any:
    for module in (_expr, _tir_expr):
        member = getattr(module, name, None)
        if isinstance(member, type):
            return member
    for module in (_op, _op_vendor, _op_hopper):
        member = getattr(module, _OTHER_NAMES.get(name, name), None)
        if inspect.isfunction(member):
            return _operator(member)
    try:
        return _DTypeMember(_DataType(name))
    except _OneIRError:
        return None


def __getattr__(name: str) -> Any:
    found = None if name.startswith("_") else _find(name)
    if found is None:
        raise AttributeError(f"T has no member `{name}`")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    names = {n for n in globals() if not n.startswith("_")}
    for module in (_op, _op_vendor, _op_hopper):
        names.update(n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__)
    names = {n for n in names if not n.startswith("_") and n != "annotations"}
    return sorted(names)
