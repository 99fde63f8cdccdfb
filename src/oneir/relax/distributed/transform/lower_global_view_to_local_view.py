"""LowerGlobalViewToLocalView: kernels over whole tensors become kernels over each worker's parts.

    y = R.dist.call_tir(cls.matmul, (x, w), out_sinfo=R.DTensor((8, 4), "float32", "mesh[0]", "R"))
    # x is "S[1]" and w is "S[0]": each worker has some terms of the sum
->
    part = R.dist.call_tir_local_view(cls.matmul1, (x, w), out_sinfo=R.DTensor((8, 4), "float32", "mesh[0]", "R"))
    y = R.ccl.allreduce(part, op_type="sum", in_group=True)

Operators are legalized on the way.
"""

from __future__ import annotations

from ....ir.global_info import DeviceMesh
from ....ir.module import IRModule
from ....ir.transform import ModulePass, PassContext
from ....tir.division import divide
from ....tir.stmt_functor import renew_defs
from ...expr import Call, Expr, Tuple, VarBinding
from ...expr_functor import PyExprMutator
from ...op.ccl import allreduce
from ...op.distributed import call_tir_local_view
from ...op.inference import fail
from ...struct_info import DTensorStructInfo, StructInfo
from ..kernel import Kernel, Kernels, asked_for, leaves, mesh_of, outputs_of


class LowerGlobalViewToLocalView(ModulePass):
    """Divides kernels, and puts partial results together.

    Raises `InvalidValue` for placements that no division of a kernel fits.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Lowerer(mod).transform_functions(mod)


class _Lowerer(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.kernels = Kernels(mod)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        call = binding.value
        outputs = outputs_of(binding.var.struct_info)
        mesh = next((info.device_mesh for info in outputs if isinstance(info, DTensorStructInfo)), None)
        if not isinstance(call, Call) or mesh is None:
            super().visit_var_binding_(binding)
            return
        new = self.visit_expr(call)
        kernel = self.kernels.of(new) if isinstance(new, Call) else None
        if kernel is None:
            self.reemit_binding(binding, new)
            return
        mesh_of(new)
        self.reemit_binding(binding, self.local(new, kernel, mesh, binding.var.struct_info))

    def local(self, call: Call, kernel: Kernel, mesh: DeviceMesh, info: StructInfo) -> Expr:
        """The call of a kernel over parts that gives what a call gives."""
        tensors, func, combine = leaves(call), kernel.func, None
        placed = kernel.placements(tensors, info)
        for dim, parts in enumerate(mesh.shape):
            way = asked_for(call, func, self.kernels.divisions(func, parts), dim, placed)
            if way is None:
                continue
            if way.combine is not None:
                if len(mesh.shape) != 1:
                    raise fail(call, f"partial results are put together on meshes of one dimension only, found {mesh}")
                combine = way.combine
            func = divide(func, way)
        # The kernel over whole tensors may stay in the module, so its variables are not shared.
        gvar = self.builder_.add_func(renew_defs(func) if func is not kernel.func else func, kernel.name)
        args = Tuple([tensors[field] if isinstance(field, tuple) else field for field in kernel.fields])
        values = [gvar, args, *kernel.symbols]
        new = Call(call_tir_local_view.op, values, sinfo_args=[info], span=call.span)
        return new if combine is None else allreduce(self.builder_.emit(new), combine)
