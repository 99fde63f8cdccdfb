"""`R`: the vocabulary of scripts for graphs.

    from oneir.script import relax as R

    @R.function
    def main(x: R.Tensor((1, 784), "float32"), w: R.Tensor((784, 10), "float32")) -> R.Tensor((1, 10), "float32"):
        with R.dataflow():
            y = R.matmul(x, w)
            gv = R.nn.relu(y)
            R.output(gv)
        return gv

Beside the names imported here, `R` has every operator of `oneir.relax.op` under its name there: `R.add`, `R.nn.relu`.

Arguments that do not fit raise `InvalidValue`, `TypeMismatch` or `ShapeMismatch`. In a script, that becomes a
`ParseError`, which underlines the call.
"""

from __future__ import annotations

import difflib as _difflib
from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from ...ir.global_info import DeviceMesh as _DeviceMesh
from ...relax import op as _op
from ...relax.expr import DataTypeImm as _DataTypeImm
from ...relax.expr import ExternFunc as ExternFunc
from ...relax.expr import PrimValue as _PrimValue
from ...relax.expr import SeqExpr as SeqExpr
from ...relax.expr import ShapeExpr as ShapeExpr
from ...relax.expr import StringImm as _StringImm
from ...relax.expr import Tuple as _Tuple
from ...relax.expr import TupleGetItem as TupleGetItem
from ...relax.expr import const as const
from ...runtime.hook import Hook as _Hook
from ..acting import act_in_builders as _act_in_builders
from ..tir.dtypes import dtype_name as _dtype_name
from ..tir.meta import macro as macro
from ..tir.meta import meta_var as meta_var
from . import distributed as distributed
from .note import Else as Else
from .note import If as If
from .note import Then as Then
from .note import alloc_tensor as alloc_tensor
from .note import arg as arg
from .note import call_packed as call_packed
from .note import dataflow as dataflow
from .note import emit as emit
from .note import emit_match_cast as emit_match_cast
from .note import emit_te as emit_te
from .note import emit_var_binding as emit_var_binding
from .note import func_attr as func_attr
from .note import func_name as func_name
from .note import func_ret_struct_info as func_ret_struct_info
from .note import func_ret_value as func_ret_value
from .note import match_cast as match_cast
from .note import output as output
from .note import to_vdevice as to_vdevice
from .struct_info import Callable as Callable
from .struct_info import DTensor as DTensor
from .struct_info import Object as Object
from .struct_info import Prim as Prim
from .struct_info import Shape as Shape
from .struct_info import Tensor as Tensor
from .struct_info import Tuple as Tuple

from .entry import function as function  # isort: skip
from .entry import rewriter as rewriter  # isort: skip


perform: _Hook[[_Any], _Any] = _Hook("perform", "oneir.script.ir_builder")
"""Carries out, in a builder, what a member gives."""

_act_in_builders(globals(), [f"{__name__}.note"], perform)
_act_in_builders(distributed.__dict__, [distributed.__name__], perform)

dist = distributed
DTensorProxy = type(DTensor)


def device_mesh(shape: _Sequence[int], device_ids: _Any) -> _DeviceMesh:
    """Workers as a grid, for the module's global infos."""
    return _DeviceMesh(shape, device_ids)


def tuple(*fields: _Any) -> _Tuple:
    """Several values as one."""
    return _Tuple(fields)


def shape(value: _Sequence[_Any]) -> ShapeExpr:
    """A shape of extents."""
    return ShapeExpr(value)


def prim_value(value: _Any) -> _PrimValue:
    """A number outside of tensors."""
    return _PrimValue(value)


def str(value: _Any) -> _StringImm:
    """A text as a value."""
    return _StringImm(value)


def dtype(value: _Any) -> _DataTypeImm:
    """A dtype as a value."""
    return _DataTypeImm(_dtype_name(value))


def __getattr__(name: _Any) -> _Any:
    found = None if name.startswith("_") else getattr(_op, name, None)
    if found is None:
        near = _difflib.get_close_matches(name, __dir__(), n=1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise AttributeError(f"R has no member `{name}`{hint}")
    return found


def __dir__() -> list[_Any]:
    return sorted({n for n in (*globals(), *vars(_op)) if not n.startswith("_")})
