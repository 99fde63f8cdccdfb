"""KillAfterLastUse: storages, tensors and other objects that a function makes end after their last use.

    x = R.memory.alloc_tensor(storage, ...)
    cls.f(y, x)
    z = cls.g(x)
    _ = R.memory.kill_tensor(x)

What is returned lives on, and so does what is never used. Names of one value (`y = x`) end together. Shapes, numbers
and functions are no objects of their own.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ..analysis import free_vars
from ..analysis.variables import used_vars
from ..expr import Binding, Call, Constant, Expr, Function, SeqExpr, Var
from ..expr_functor import PyExprMutator
from ..struct_info import FuncStructInfo, PrimStructInfo, ShapeStructInfo, TensorStructInfo
from .canonicalize_bindings import canonicalize_bindings
from .pass_base import FunctionPass

ALLOC_STORAGE = tuple(map(Op.get, ("relax.memory.alloc_storage", "relax.vm.alloc_storage")))
KILLS = tuple(map(Op.get, ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")))


class KillAfterLastUse(FunctionPass):
    """Ends values after their last use."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Killer(mod).visit_expr(canonicalize_bindings(func))


class _Killer(PyExprMutator):
    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        saved = getattr(self, "ends", {})
        self.ends = last_uses(op)
        result = super().visit_seq_expr_(op)
        self.ends = saved
        return result

    def visit_binding(self, binding: Binding) -> None:
        super().visit_binding(binding)
        for kill, var in self.ends.get(binding.var, ()):
            self.builder_.emit(Call(kill, [self.visit_expr(var)]), "_")


def _kill_of(binding: Binding) -> int | None:
    """The place in `KILLS` of what ends a value; None for values that are no objects."""
    value, info = binding.value, binding.var.struct_info_
    if isinstance(value, Call) and value.op in ALLOC_STORAGE:
        return 1
    if isinstance(value, Constant) or isinstance(info, (FuncStructInfo, ShapeStructInfo, PrimStructInfo)):
        return None
    return 0 if isinstance(info, TensorStructInfo) else 2


def last_uses(seq: SeqExpr) -> dict[Var, list[tuple[Op, Var]]]:
    """For each binding, by its variable: the objects that the sequence made and that end after it, tensors first."""
    kinds: dict[Var, int] = {}
    alias: dict[Var, Var] = {}
    last: dict[Var, Var] = {}
    kept: set[Var] = set()
    for block in seq.blocks:
        for binding in block.bindings:
            var, value = binding.var, binding.value
            for used in used_vars(binding):
                root = alias.get(used, used)
                last[root] = var
                if isinstance(value, Call) and value.op in KILLS:
                    kept.add(root)
            if isinstance(value, Var):
                alias[var] = alias.get(value, value)
            elif (kind := _kill_of(binding)) is not None:
                kinds[var] = kind
    kept.update(alias.get(used, used) for used in free_vars(seq.body))
    ends: dict[Var, list[tuple[int, Var]]] = {}
    for var, kind in kinds.items():
        if var in last and var not in kept:
            ends.setdefault(last[var], []).append((kind, var))
    return {at: [(KILLS[k], v) for k, v in sorted(them, key=lambda it: it[0])] for at, them in ends.items()}
