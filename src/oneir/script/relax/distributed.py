"""`R.dist`: members of `R` for tensors that workers hold together. Meshes are named by texts, "mesh[0]"."""

from __future__ import annotations

from typing import Any

from ...ir.global_info import DeviceMesh
from ...relax import op
from ...relax.expr import Call, Constant, Expr, as_struct_info
from ...relax.expr import const as _const
from ...relax.op.distributed import call_tir_local_view as call_tir_local_view
from ...relax.op.distributed import redistribute_replica_to_shard as redistribute_replica_to_shard
from ...relax.placement import Placement
from ...relax.struct_info import DTensorStructInfo
from ...runtime.error import TypeMismatch
from .note import Note

call_tir = op.call_tir
"""`R.call_tir`, as it is printed where the result is distributed."""


def const(value: Any, struct_info: Any) -> Constant:
    """A constant, of a number or an array, that all workers have."""
    info = as_struct_info(struct_info)
    if not isinstance(info, DTensorStructInfo):
        raise TypeMismatch(f"R.dist.const expects what R.DTensor gives, found {info}")
    return Constant(_const(value, info.tensor_sinfo.dtype).data, info)


def _placing(rule: Any, value: Expr, device_mesh: DeviceMesh | str, placement: Placement | str) -> Call | Note:
    if isinstance(device_mesh, DeviceMesh):
        return rule(value, device_mesh, placement)
    return Note(lambda state: rule(value, state.device_mesh(device_mesh), placement))


def annotate_sharding(value: Expr, device_mesh: DeviceMesh | str, placement: Placement | str) -> Any:
    """The tensor itself, which `PropagateSharding` places on a mesh in this way."""
    return _placing(op.distributed.annotate_sharding, value, device_mesh, placement)


def redistribute(value: Expr, device_mesh: DeviceMesh | str, placement: Placement | str) -> Any:
    """The same tensor, placed on a mesh in this way."""
    return _placing(op.distributed.redistribute, value, device_mesh, placement)
