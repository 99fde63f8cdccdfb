"""StaticPlanBlockMemory: the tensors that a function allocates lie in one storage, their places planned.

    a = R.builtin.alloc_tensor(R.shape([256]), ...)          storage = R.memory.alloc_storage(R.shape([2048]), ...)
    b = R.builtin.alloc_tensor(R.shape([256]), ...)    ->    a = R.memory.alloc_tensor(storage, R.prim_value(0), ...)
                                                             b = R.memory.alloc_tensor(storage, R.prim_value(1024), ...)

How places are chosen stands in `analysis/memory_plan.py`. What is returned keeps memory of its own.
"""

from __future__ import annotations

from ...ir.expr import PrimExpr, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..analysis.memory_plan import MemoryPlan, plan_sequence, upper_bounds
from ..expr import Call, Expr, Function, SeqExpr, Var, VarBinding
from ..expr_functor import PyExprMutator
from ..normalize import merge_blocks
from ..op import memory
from .pass_base import FunctionPass


class StaticPlanBlockMemory(FunctionPass):
    """Plans the memory of each function, and of each branch in it."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Placer(mod, upper_bounds(func)).visit_expr(func)


class _Placer(PyExprMutator):
    def __init__(self, mod: IRModule, bounds: dict[str, int]):
        super().__init__(mod)
        self.mod, self.bounds = mod, bounds
        self.places: dict[Var, tuple[Var, PrimExpr]] = {}

    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        plan = plan_sequence(op, self.mod, self.bounds)
        if not plan.parts:
            return super().visit_seq_expr_(op)
        self.builder_.begin_binding_block()
        self.emit_storages(plan)
        storages = self.builder_.end_block()
        rest = super().visit_seq_expr_(op)
        assert isinstance(rest, SeqExpr)
        return SeqExpr(merge_blocks([storages, *rest.blocks]), rest.body, span=op.span)

    def emit_storages(self, plan: MemoryPlan) -> None:
        for (device, scope), parts in plan.arenas().items():
            bases: list[PrimExpr] = []
            total: PrimExpr = const(0, "int64")
            for part in parts:
                bases.append(total)
                total = total + part.factor * part.size
            storage = self.builder_.emit(memory.alloc_storage([total], device, scope, "uint8"), "storage")
            for part, base in zip(parts, bases, strict=True):
                for tensor in part.tensors:
                    self.places[tensor.var] = (storage, base + part.factor * tensor.offset)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        place = self.places.get(binding.var)
        if place is None or not isinstance(binding.value, Call):
            super().visit_var_binding_(binding)
            return
        shape, dtype, device, _ = binding.value.args
        storage, offset = place
        self.reemit_binding(binding, memory.alloc_tensor(storage, offset, shape, dtype, device))
