"""Collectives: what the workers of a session (`oneir.runtime.disco`) do together with tensors of one shape.

All workers run the same program, so they meet in the same call. `in_group` means the workers of one group, and
otherwise all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import topi
from ...ir import operators as ops
from ...ir.expr import PrimExpr, const
from ...runtime.disco import REDUCE_OPS
from ...runtime.error import InvalidValue
from ...runtime.object import ShapeTuple
from ...runtime.registry import get_global_func
from ...runtime.tensor import empty, wrap_array
from ..expr import Call, Expr, ShapeExpr
from ..operator_facts import NeedsWorkers
from ..placement import Placement
from ..struct_info import DTensorStructInfo, StructInfo, TensorStructInfo
from .base import call_dps_packed
from .infer_layout import keep_layout
from .inference import fail, normalize_axis, same_as_input, tensor_argument
from .op_attrs import AllGatherAttrs, AllReduceAttrs, ScatterCollectiveAttrs
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def _computed(name: str, x: np.ndarray, *args: Any, shape: tuple[int, ...]) -> np.ndarray:
    """What a collective gives on the worker that asks; only workers have others to meet."""
    result = empty(shape, x.dtype)
    get_global_func(f"runtime.disco.{name}")(wrap_array(np.ascontiguousarray(x)), *args, result)
    return result.numpy()


def _checked_count(name: str, num_workers: int) -> int:
    if num_workers < 1:
        raise InvalidValue(f"relax.ccl.{name}: expected a positive number of workers, found {num_workers}")
    return int(num_workers)


# -- allreduce --


@operator("relax.ccl.allreduce", attrs=AllReduceAttrs)
def allreduce(x: Expr, op_type: str = "sum", in_group: bool = True) -> Call:
    """The "sum", "prod", "min", "max" or "avg" of the tensors of all workers, elementwise, on each of them.

    Integers wrap, and their average is rounded down.
    """
    if op_type not in REDUCE_OPS:
        raise InvalidValue(f"relax.ccl.allreduce: expected one of {', '.join(REDUCE_OPS)}, found {op_type!r}")
    return allreduce.call(x, op_type=op_type, in_group=bool(in_group))


allreduce.struct_info(same_as_input)
allreduce.distributed_struct_info(lambda call, builder: call.args[0].struct_info)
allreduce.infer_layout(keep_layout)


@allreduce.reference
def _allreduce_reference(x: np.ndarray, op_type: str, in_group: bool) -> np.ndarray:
    return _computed("allreduce", x, ShapeTuple([REDUCE_OPS[op_type]]), in_group, shape=x.shape)


@allreduce.legalize_as
def _legalize_allreduce(builder: BlockBuilder, call: Call) -> Expr:
    kind = ShapeExpr([REDUCE_OPS[str(call.attrs["op_type"])]])
    args = [call.args[0], kind, bool(call.attrs["in_group"])]
    return call_dps_packed("runtime.disco.allreduce", args, call.args[0].struct_info)


# -- allgather --


@operator("relax.ccl.allgather", attrs=AllGatherAttrs)
def allgather(x: Expr, num_workers: int, in_group: bool = True) -> Call:
    """The tensors of `num_workers` workers, one after the other along the first axis, on each of them."""
    count = _checked_count("allgather", num_workers)
    return allgather.call(x, num_workers=count, in_group=bool(in_group))


@allgather.struct_info
def _allgather_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    if info.ndim == 0:
        raise fail(call, "a tensor without dimensions cannot be gathered: there is no first axis")
    if info.extents is None:
        return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
    first, *others = info.extents
    whole = builder.analyzer.simplify(ops.multiply(first, const(call.attrs["num_workers"], first.dtype)))
    return TensorStructInfo([whole, *others], info.dtype, info.vdevice)


@allgather.distributed_struct_info
def _allgathered(call: Call, builder: BlockBuilder) -> StructInfo:
    """All workers hold what was divided along the first axis."""
    info, count = call.args[0].struct_info, call.attrs["num_workers"]
    if (
        not isinstance(info, DTensorStructInfo)
        or list(info.device_mesh.shape) != [count]
        or info.placement.axes != {0: 0}
    ):
        raise fail(call, f'expected a tensor "S[0]" on a mesh of {count} workers in a row, found {info}')
    return info.replace(placement=Placement.of_axes({}, info.device_mesh))


@allgather.reference
def _allgather_reference(x: np.ndarray, num_workers: int, in_group: bool) -> np.ndarray:
    return _computed("allgather", x, in_group, shape=(x.shape[0] * num_workers, *x.shape[1:]))


@allgather.legalize_as
def _legalize_allgather(builder: BlockBuilder, call: Call) -> Expr:
    args = [call.args[0], bool(call.attrs["in_group"])]
    return call_dps_packed("runtime.disco.allgather", args, call.struct_info)


# -- broadcast_from_worker0 --


@operator("relax.ccl.broadcast_from_worker0")
def broadcast_from_worker0(x: Expr) -> Call:
    """Worker 0's tensor, on all workers."""
    return broadcast_from_worker0.call(x)


broadcast_from_worker0.struct_info(same_as_input)
broadcast_from_worker0.infer_layout(keep_layout)
broadcast_from_worker0.reference(lambda x: _computed("broadcast_from_worker0", x, False, shape=x.shape))


@broadcast_from_worker0.legalize_as
def _legalize_broadcast(builder: BlockBuilder, call: Call) -> Expr:
    return call_dps_packed("runtime.disco.broadcast_from_worker0", [call.args[0], False], call.args[0].struct_info)


# -- scatter_from_worker0 --


@operator("relax.ccl.scatter_from_worker0", attrs=ScatterCollectiveAttrs)
def scatter_from_worker0(x: Expr, num_workers: int, axis: int = 0) -> Call:
    """For each worker, its part of worker 0's tensor, of equal ones along an axis."""
    count = _checked_count("scatter_from_worker0", num_workers)
    return scatter_from_worker0.call(x, num_workers=count, axis=int(axis))


def divided(call: Call, info: TensorStructInfo, builder: BlockBuilder) -> tuple[int, list[PrimExpr]]:
    """The axis of a call that divides a tensor among workers, and the shape of a part."""
    count = call.attrs["num_workers"]
    if info.extents is None:
        raise fail(call, f"the shape of the tensor must be known, found {info}")
    axis = normalize_axis(call, call.attrs["axis"], info.ndim)
    shape = list(info.extents)
    divisor = const(count, shape[axis].dtype)
    if builder.analyzer.can_prove(ops.not_equal(ops.floormod(shape[axis], divisor), const(0, divisor.dtype))):
        raise fail(call, f"the extent {shape[axis]} of axis {axis} is no multiple of the {count} workers")
    shape[axis] = builder.analyzer.simplify(ops.floordiv(shape[axis], divisor))
    return axis, shape


@scatter_from_worker0.struct_info
def _scatter_struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    return TensorStructInfo(divided(call, info, builder)[1], info.dtype, info.vdevice)


@scatter_from_worker0.reference
def _scatter_reference(x: np.ndarray, num_workers: int, axis: int) -> np.ndarray:
    parts = np.stack(np.split(x, num_workers, axis))
    return _computed("scatter_from_worker0", parts, False, shape=parts.shape[1:])


@scatter_from_worker0.legalize_as
def _legalize_scatter(builder: BlockBuilder, call: Call) -> Expr:
    axis, part = divided(call, tensor_argument(call, 0), builder)
    count = call.attrs["num_workers"]
    # The runtime cuts along the first axis.
    parts = builder.emit(builder.call_te(topi.reshape, call.args[0], [*part[:axis], count, *part[axis:]]))
    if axis:
        order = [axis, *(i for i in range(len(part) + 1) if i != axis)]
        parts = builder.emit(builder.call_te(topi.transpose, parts, order))
    return call_dps_packed("runtime.disco.scatter_from_worker0", [parts, False], call.struct_info)


for _collective in (allreduce, allgather, broadcast_from_worker0, scatter_from_worker0):
    NeedsWorkers.set(_collective.op, True)
