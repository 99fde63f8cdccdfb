"""Operators on tensors that workers hold together: what is said of their placements, and how these change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir import operators as ops
from ...ir.expr import GlobalVar
from ...ir.expr import Var as TirVar
from ...ir.global_info import DeviceMesh
from ...runtime.error import TypeMismatch
from ...runtime.registry import get_global_func
from ..expr import Call, Expr
from ..operator_facts import FNormalize, NeedsWorkers
from ..placement import Placement
from ..struct_info import DTensorStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from .base import (
    as_arguments,
    call_pure_packed,
    inline_argument_tuple,
    output_struct_info,
    result_struct_info,
    symbolic_arguments,
)
from .ccl import divided
from .index import strided_slice
from .inference import fail, same_as_input, tensor_argument
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def _as_placement(placement: Placement | str) -> Placement:
    return Placement.from_text(placement) if isinstance(placement, str) else placement


# -- annotate_sharding --


@operator("relax.dist.annotate_sharding")
def annotate_sharding(input: Expr, device_mesh: DeviceMesh, placement: Placement | str) -> Call:
    """The tensor itself, which `PropagateSharding` places on a mesh in this way."""
    return annotate_sharding.call(input, device_mesh=device_mesh, placement=_as_placement(placement))


annotate_sharding.struct_info(same_as_input)
annotate_sharding.reference(lambda input, device_mesh, placement: input)
annotate_sharding.distributed_struct_info(lambda call, builder: call.args[0].struct_info)


# -- redistribute --


@operator("relax.dist.redistribute")
def redistribute(input: Expr, device_mesh: DeviceMesh, placement: Placement | str) -> Call:
    """The same tensor, placed on a mesh in this way. Placements do not spread through it."""
    return redistribute.call(input, device_mesh=device_mesh, placement=_as_placement(placement))


redistribute.struct_info(same_as_input)
redistribute.reference(lambda input, device_mesh, placement: input)


@redistribute.distributed_struct_info
def _redistributed(call: Call, builder: BlockBuilder) -> StructInfo:
    info = call.args[0].struct_info
    assert isinstance(info, DTensorStructInfo)
    return DTensorStructInfo(info.tensor_sinfo, call.attrs["device_mesh"], call.attrs["placement"])


# -- call_tir_local_view --


@operator("relax.dist.call_tir_local_view")
def call_tir_local_view(gvar: GlobalVar, args: Any, out_sinfo: Any, tir_vars: Any = None) -> Call:
    """What the PrimFunc `gvar` gives when each worker calls it with its parts of the arguments.

    `out_sinfo` is the struct info of the whole output, distributed, or a list of several outputs'. `tir_vars` are
    integers passed after the tensors.
    """
    if not isinstance(gvar, GlobalVar):
        raise TypeMismatch(f"relax.dist.call_tir_local_view expects the GlobalVar of a PrimFunc, found {gvar!r}")
    info = output_struct_info(out_sinfo)
    for output in info.fields if isinstance(info, TupleStructInfo) else [info]:
        if not isinstance(output, DTensorStructInfo):
            raise TypeMismatch(f"relax.dist.call_tir_local_view gives distributed tensors, found {output}")
    values = [gvar, as_arguments(args)] + ([] if tir_vars is None else [symbolic_arguments(tir_vars)])
    return Call(call_tir_local_view.op, values, sinfo_args=[info])


call_tir_local_view.struct_info(result_struct_info)
call_tir_local_view.distributed_struct_info(result_struct_info)
FNormalize.set(call_tir_local_view.op, inline_argument_tuple)


# -- redistribute_replica_to_shard --


@operator("relax.dist.redistribute_replica_to_shard")
def redistribute_replica_to_shard(input: Expr, num_workers: int, axis: int) -> Call:
    """For each worker its part of a tensor that all hold, of equal ones along an axis."""
    return redistribute_replica_to_shard.call(input, num_workers=int(num_workers), axis=int(axis))


@redistribute_replica_to_shard.struct_info
def _part_of_whole(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    return TensorStructInfo(divided(call, info, builder)[1], info.dtype, info.vdevice)


@redistribute_replica_to_shard.distributed_struct_info
def _divided(call: Call, builder: BlockBuilder) -> StructInfo:
    info, count = call.args[0].struct_info, call.attrs["num_workers"]
    if not isinstance(info, DTensorStructInfo) or list(info.device_mesh.shape) != [count] or info.placement.axes:
        raise fail(call, f'expected a tensor "R" on a mesh of {count} workers in a row, found {info}')
    axis, _ = divided(call, info.tensor_sinfo, builder)
    return info.replace(placement=Placement.of_axes({0: axis}, info.device_mesh))


@redistribute_replica_to_shard.reference
def _part_of_array(input: np.ndarray, num_workers: int, axis: int) -> np.ndarray:
    (worker,) = get_global_func("runtime.disco.worker_id")()
    return np.split(input, num_workers, axis)[worker]


@redistribute_replica_to_shard.legalize_as
def _legalize_replica_to_shard(builder: BlockBuilder, call: Call) -> Expr:
    axis, part = divided(call, tensor_argument(call, 0), builder)
    worker = TirVar("worker_id", "int64")
    number = builder.emit(call_pure_packed("runtime.disco.worker_id", sinfo_args=[ShapeStructInfo()]))
    builder.match_cast(number, ShapeStructInfo([worker]))
    begin = ops.multiply(worker, part[axis])
    return strided_slice(call.args[0], [axis], [begin], [ops.add(begin, part[axis])], assume_inbound=True)


for _placing in (annotate_sharding, redistribute, redistribute_replica_to_shard):
    NeedsWorkers.set(_placing.op, True)  # constants, too, have places
