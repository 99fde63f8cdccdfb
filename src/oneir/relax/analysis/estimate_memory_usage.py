"""How much memory the functions of a module take, with memory planning and without."""

from __future__ import annotations

from ...ir.expr import IntImm, PrimExpr
from ...ir.module import IRModule
from ...runtime.hook import Hook
from ..expr import Function
from ..struct_info import TensorStructInfo
from .memory_plan import ALLOC_TENSOR, MemoryPlan, plan_memory

GIB = 1 << 30

with_allocations: Hook[[IRModule], IRModule] = Hook("with_allocations", "oneir.relax.pipeline")
"""The module with its operators lowered as far as to calls that allocate their results."""


def estimate_memory_usage(mod: IRModule | Function) -> str:
    """A text that says, for each function, what its intermediate tensors take with planning and without.

    The module is one of operators or of `call_tir`; it is lowered as far as needed. Sizes with symbolic extents are
    given as expressions.
    """
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    module = with_allocations(module)
    lines = ["Memory usage estimation:"]
    for var, func in module.functions_items():
        if isinstance(func, Function) and not func.attrs.get("Primitive"):
            lines += _of_function(var.name_hint, func, plan_memory(func, module))
    return "\n".join(lines)


def _of_function(name: str, func: Function, plan: MemoryPlan) -> list[str]:
    static, dynamic = 0, 0
    for block in func.body.blocks:
        for binding in block.bindings:
            if getattr(binding.value, "op", None) is ALLOC_TENSOR:
                info = binding.var.struct_info
                assert isinstance(info, TensorStructInfo)
                if all(isinstance(e, IntImm) for e in info.extents or ()):
                    static += 1
                else:
                    dynamic += 1
    return [
        f"- Function {name}:",
        f" * Without memory planning, there are {static} constant-size memory allocation(s) with total size "
        f"{_size(plan.unplanned)}, and {dynamic} of symbolic size.",
        f" * With memory planning, there are {len(plan.arenas())} arena(s) of {_size(plan.size)}, for at most "
        f"{_size(plan.peak)} alive at once; {len(plan.kept)} tensor(s) are returned and have memory of their own.",
    ]


def _size(expr: PrimExpr) -> str:
    if not isinstance(expr, IntImm):
        return f"{expr} bytes"
    return f"{expr.value / GIB:.4g} GiB" if expr.value >= GIB // 1024 else f"{expr.value} bytes"
