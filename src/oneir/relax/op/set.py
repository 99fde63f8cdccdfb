"""Operators whose results are as long as the data says: the different elements, the elements that are not zero.

They have no kernels: the program calls functions of the runtime, `numpy_unique` and `numpy_nonzero`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.expr import as_int
from ...runtime.error import TypeMismatch
from ...runtime.vm.builtins import run_nonzero as numpy_nonzero
from ...runtime.vm.builtins import run_unique as numpy_unique
from ..expr import Call, Expr, ExternFunc
from ..operator_facts import FDataDependent, OpPattern, RequiresArgumentShapes
from ..struct_info import PrimStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from . import reference as numerics
from .arguments import number_value
from .inference import fail, normalize_axis, tensor_argument
from .registry import Operator, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder

__all__ = ["nonzero", "numpy_nonzero", "numpy_unique", "unique"]


def _runs(made: Operator[..., Any], name: str) -> None:
    """Registers that a call is one of the runtime's function `name`."""
    FDataDependent.set(made.op, True)
    RequiresArgumentShapes.set(made.op, False)
    made.legalize_as(
        lambda builder, call: Call(ExternFunc(name), call.args, sinfo_args=[call.struct_info], span=call.span)
    )


@operator("relax.unique", pattern=OpPattern.OPAQUE)
def unique(
    x: Expr,
    sorted: Any = True,
    return_index: Any = False,
    return_inverse: Any = False,
    return_counts: Any = False,
    axis: Any = None,
) -> Call:
    """The different elements, or along an axis the different parts, in ascending order or in that of `x`.

    After them, as far as asked for: where each first stands, for each element of `x` which one it is, how often each
    stands.
    """
    flags = [number_value(v) for v in (sorted, return_index, return_inverse, return_counts)]
    return unique.call(x, *flags, None if axis is None else number_value(axis))


def _known(call: Call, index: int, name: str) -> int:
    info = call.args[index].struct_info
    value = as_int(info.value) if isinstance(info, PrimStructInfo) else None
    if value is None:
        raise fail(call, f"argument {name} must be a constant, found `{call.args[index]}`", TypeMismatch)
    return value


@unique.struct_info
def _unique_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    along = len(call.args) == 6
    if along and info.ndim != -1:
        normalize_axis(call, _known(call, 5, "axis"), info.ndim)
    shape = [1] if info.ndim == 0 else None
    results: list[StructInfo] = [TensorStructInfo(shape, info.dtype, info.vdevice, info.ndim if along else 1)]
    for i, name in ((2, "return_index"), (3, "return_inverse"), (4, "return_counts")):
        if _known(call, i, name):
            results.append(TensorStructInfo(shape, "int64", info.vdevice, 1))
    return results[0] if len(results) == 1 else TupleStructInfo(results)


def _unique(
    x: np.ndarray, sorted: bool, index: bool, inverse: bool, counts: bool, axis: int | None = None
) -> list[np.ndarray]:
    values, first, which, times = np.unique(numerics.comparable(x), True, True, True, axis)
    values = values.astype(x.dtype)
    order = np.arange(len(first)) if sorted else np.argsort(first)
    rank = np.argsort(order)
    results = [np.take(values, order, 0 if axis is None else axis)]
    results += [first[order].astype(np.int64)] if index else []
    results += [rank[which.reshape(-1)].astype(np.int64)] if inverse else []
    return results + ([times[order].astype(np.int64)] if counts else [])


@unique.reference
def _unique_reference(x: np.ndarray, *flags: Any) -> Any:
    results = _unique(x, *flags)
    return results if len(results) > 1 else results[0]


_runs(unique, "relax.run.unique")


@operator("relax.nonzero", pattern=OpPattern.OPAQUE)
def nonzero(x: Expr) -> Call:
    """The indices of the elements that are not zero, a row for each dimension and a column for each element."""
    return nonzero.call(x)


@nonzero.struct_info
def _nonzero_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    return TensorStructInfo(None, "int64", info.vdevice, 2)


nonzero.reference(lambda x: np.stack(np.atleast_1d(x).nonzero()).astype(np.int64))


_runs(nonzero, "relax.run.nonzero")
