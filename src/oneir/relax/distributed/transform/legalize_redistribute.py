"""LegalizeRedistribute: a tensor that changes its place is gathered, and cut into other parts.

"S[0]" -> "R"       R.ccl.allgather; the axis is brought to the front before, and back after it
"R" -> "S[1]"       R.dist.redistribute_replica_to_shard, for which nothing is sent
"S[0]" -> "S[1]"    one after the other
"""

from __future__ import annotations

from ....ir.module import IRModule
from ....ir.structural import structural_equal
from ....ir.transform import ModulePass, PassContext
from ...expr import Call, Expr
from ...expr_functor import PyExprMutator
from ...op.ccl import allgather
from ...op.distributed import redistribute, redistribute_replica_to_shard
from ...op.inference import fail
from ...op.manipulate import permute_dims
from ...struct_info import DTensorStructInfo


class LegalizeRedistribute(ModulePass):
    """Replaces `redistribute` by collectives.

    Raises `InvalidValue` for another mesh than the tensor's, and for one of several dimensions.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Legalizer(mod).transform_functions(mod)


class _Legalizer(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or call.op is not redistribute.op:
            return call
        value, info = call.args[0], call.args[0].struct_info
        mesh, place = call.attrs["device_mesh"], call.attrs["placement"]
        if not isinstance(info, DTensorStructInfo):
            raise fail(call, f"`{value}` has no place yet; run PropagateSharding first")
        if not structural_equal(mesh, info.device_mesh):
            raise fail(call, "a tensor cannot be moved to another mesh")
        if info.placement == place:
            return value
        if len(mesh.shape) != 1:
            raise fail(call, f"tensors are moved on meshes of one dimension only, found {len(mesh.shape)}")
        count, ndim = mesh.shape[0], info.tensor_sinfo.ndim
        if info.placement.axes:
            (axis,) = info.placement.axes.values()
            front = [axis, *(i for i in range(ndim) if i != axis)]
            if axis:
                value = self.builder_.emit(permute_dims(value, front))
            value = allgather(value, count)
            if axis:
                value = permute_dims(self.builder_.emit(value), [front.index(i) for i in range(ndim)])
        if place.axes:
            (axis,) = place.axes.values()
            value = redistribute_replica_to_shard(self.builder_.normalize_argument(value), count, axis)
        return value
