"""KillAfterLastUse: storages, tensors and other objects that a function makes end after their last use.

    x = R.memory.alloc_tensor(storage, ...)
    cls.f(y, x)
    z = cls.g(x)
    _ = R.memory.kill_tensor(x)

What is returned lives on. Names of one value (`y = x`) end together.
"""

from __future__ import annotations

from ...ir.op import Op
from ...ir.transform import Pass
from ..analysis import free_vars
from ..analysis.variables import used_vars
from ..expr import Binding, Call, Expr, ExternFunc, SeqExpr, Var, VarBinding
from ..expr_functor import PyExprMutator
from ..op import memory, vm
from ..struct_info import TupleStructInfo
from .pass_base import graph_pass

ALLOC_TENSOR, ALLOC_STORAGE = Op.get("relax.memory.alloc_tensor"), Op.get("relax.memory.alloc_storage")


def KillAfterLastUse() -> Pass:
    """A pass that ends values after their last use."""
    return graph_pass(lambda func, mod: _Killer(mod).visit_expr(func), "KillAfterLastUse")


class _Killer(PyExprMutator):
    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        saved = getattr(self, "ends", {})
        self.ends = last_uses(op)
        result = super().visit_seq_expr_(op)
        self.ends = saved
        return result

    def visit_binding(self, binding: Binding) -> None:
        super().visit_binding(binding)
        for var, value in self.ends.get(binding.var, ()):
            self.builder_.emit(_kill(self.visit_expr(var), value), "_")


def _kill(var: Expr, value: Call) -> Call:
    if value.op is ALLOC_TENSOR:
        return memory.kill_tensor(var)
    if value.op is ALLOC_STORAGE:
        return memory.kill_storage(var)
    return vm.kill_object(var)


def _makes_object(value: Expr) -> bool:
    """Whether a call gives a new object, not nothing or a number."""
    if not isinstance(value, Call):
        return False
    if value.op in (ALLOC_TENSOR, ALLOC_STORAGE):
        return True
    nothing = isinstance(value.struct_info, TupleStructInfo) and not value.struct_info.fields
    return isinstance(value.op, (ExternFunc, Op)) and not nothing and not _is_kill(value)


def _is_kill(value: Call) -> bool:
    return value.op in (memory.kill_tensor.op, memory.kill_storage.op, vm.kill_object.op)


def last_uses(seq: SeqExpr) -> dict[Var, list[tuple[Var, Call]]]:
    """For each binding, by its variable: the objects that the sequence made and that end after it."""
    bindings = [b for block in seq.blocks for b in block.bindings]
    made: dict[Var, Call] = {}
    alias: dict[Var, Var] = {}
    last: dict[Var, Binding] = {}
    kept: set[Var] = set()
    for binding in bindings:
        value = binding.value
        for used in used_vars(binding):
            root = alias.get(used, used)
            last[root] = binding
            if isinstance(value, Call) and _is_kill(value):
                kept.add(root)
        if isinstance(value, Var):
            alias[binding.var] = alias.get(value, value)
        elif isinstance(binding, VarBinding) and isinstance(value, Call) and _makes_object(value):
            made[binding.var] = value
            last[binding.var] = binding
    for used in free_vars(seq.body):
        kept.add(alias.get(used, used))
    ends: dict[Var, list[tuple[Var, Call]]] = {}
    for var, value in made.items():
        if var not in kept:
            ends.setdefault(last[var].var, []).append((var, value))
    return ends
