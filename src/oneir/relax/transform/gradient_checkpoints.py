"""Checkpoints of `Gradient`: which values the gradients take as they were computed, and which are computed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..analysis import free_vars
from ..block_builder import BlockBuilder
from ..expr import Binding, Call, DataflowVar, Expr, Function, Var, VarBinding
from ..expr_functor import PyExprMutator
from ..op.grad import end_checkpoint, start_checkpoint


@dataclass
class Checkpoints:
    """`kept`: the variables whose values are kept. `marked`: for results of the two markers, what they mark."""

    kept: set[Var] = field(default_factory=set)
    marked: dict[Var, Var] = field(default_factory=dict)


def take_checkpoints(func: Function) -> tuple[Function, Checkpoints]:
    """The function without the markers, and what they say.

    Kept are parameters, what `start_checkpoint` marks, and what is computed from kept values and from results of
    `end_checkpoint` alone. Without markers, that is everything.
    """
    remover = _MarkerRemover()
    new = remover.visit_expr(func)
    assert isinstance(new, Function)
    return new, remover.checkpoints


class _MarkerRemover(PyExprMutator):
    def __init__(self) -> None:
        self.checkpoints = Checkpoints()
        self.ended: set[Var] = set()

    def visit_function_(self, op: Function) -> Expr:
        self.checkpoints.kept.update(op.params)
        return super().visit_function_(op)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        var, value = binding.var, binding.value
        if not isinstance(value, Call) or value.op not in (start_checkpoint.op, end_checkpoint.op):
            if all(used in self.checkpoints.kept or used in self.ended for used in free_vars(value)):
                self.checkpoints.kept.add(var)
            super().visit_var_binding_(binding)
            return
        marked = self.visit_expr(value.args[0])
        assert isinstance(marked, Var)
        self.checkpoints.marked[var] = marked
        if value.op is start_checkpoint.op:
            self.checkpoints.kept.add(marked)
        else:
            self.ended.add(var)
        if isinstance(marked, DataflowVar) and not isinstance(var, DataflowVar):
            # Outside of the block, the value keeps a name.
            self.set_var_remap(var, self.builder_.emit_output(marked, marked.name))
        else:
            self.set_var_remap(var, marked)


class Recomputation(PyExprMutator):
    """Emits again, once each, the values that gradients need and that are not kept."""

    def __init__(self, builder: BlockBuilder, bindings: Sequence[Binding], checkpoints: Checkpoints):
        self.builder_ = builder
        self.kept = checkpoints.kept
        self.values = {b.var: b.value for b in bindings if isinstance(b, VarBinding)}
        self.again: dict[Var, Var] = {}

    def of(self, var: Var, call: Call) -> tuple[Var, Call]:
        """A variable and the call that it is bound to, for use by its gradient."""
        new = self._call(call)
        return self._variable(var, new), new

    def _variable(self, var: Var, value: Expr | None = None) -> Var:
        if var in self.kept or var not in self.values:
            return var
        if var not in self.again:
            value = self.visit_expr(self.values[var]) if value is None else value
            self.again[var] = self.builder_.emit(value, f"{var.name}_cp")
        return self.again[var]

    def visit_var_(self, op: Var) -> Expr:
        return self._variable(op)

    def _call(self, call: Call) -> Call:
        new = self.visit_expr(call)
        assert isinstance(new, Call)
        return new

    def visit_call_(self, op: Call) -> Expr:
        # An expression of its own: a value that is computed twice is bound twice.
        args = [self.visit_expr(a) for a in op.args]
        return Call(op.op, args, op.attrs, op.sinfo_args, op.span)
